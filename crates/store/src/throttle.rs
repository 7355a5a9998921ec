//! Makes a fast store as slow as a known device or link, in a way that can be computed.
//!
//! Three things can be slow: each request (latency), the bytes (bandwidth, shared by all requests), and jumps (random
//! reads a second, as of a spinning disk). Time is tokio's, so tests run it paused.

use crate::{ByteRange, ListPage, ObjectMeta, PagePlace, Store};
use bytes::Bytes;
use forebay_core::Result;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, StreamExt};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// Gaps between parts up to this size are read through, as bytes; over larger ones the device jumps.
const READ_THROUGH_BYTES: u64 = 256 << 10;

/// How slow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Throttle {
    /// Added to every request, side by side: ten at once take no longer than one.
    pub latency: Duration,
    /// Bytes that all requests together may move in a second; `None` for no bound.
    pub bytes_per_second: Option<u64>,
    /// Jumps that the device makes in a second; `None` for no bound. A read that begins where the last one ended is
    /// no jump. Reads of one device queue up: a jump makes all later reads wait.
    pub random_reads_per_second: Option<u32>,
}

/// A store behind a slow device.
#[derive(Debug)]
pub struct ThrottleStore {
    inner: Arc<dyn Store>,
    throttle: Throttle,
    device: Mutex<Device>,
}

/// The device does one thing at a time.
#[derive(Debug, Default)]
struct Device {
    free_at: Option<Instant>,
    /// Object and offset at which the last read ended.
    head: Option<(String, u64)>,
    jumps: u64,
}

impl ThrottleStore {
    /// `inner` as slow as `throttle` says.
    pub fn new(inner: Arc<dyn Store>, throttle: Throttle) -> Self {
        Self { inner, throttle, device: Mutex::default() }
    }

    /// How often the device had to jump.
    pub fn jumps(&self) -> u64 {
        self.device.lock().unwrap_or_else(PoisonError::into_inner).jumps
    }

    /// Takes the device's time for one read, whose bytes ascend; says when it is done.
    fn reserve(&self, key: &str, parts: &[Range<u64>], began: Instant) -> Instant {
        let mut device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut jumps, mut bytes) = (0u32, 0u64);
        let mut at = device.head.take().filter(|(last, _)| last == key).map(|(_, offset)| offset);
        for part in parts.iter().filter(|part| part.start < part.end) {
            match at.and_then(|at| part.start.checked_sub(at)) {
                Some(0) => {}
                // Only inside one request is it known that the bytes beyond the gap will be wanted.
                Some(gap) if bytes > 0 && gap <= READ_THROUGH_BYTES => bytes += gap,
                _ => jumps += 1,
            }
            bytes += part.end - part.start;
            at = Some(part.end);
        }
        device.head = at.map(|at| (key.to_owned(), at));
        device.jumps += u64::from(jumps);
        let jump = self.throttle.random_reads_per_second.map(|rate| Duration::from_secs(1) / rate.max(1));
        let busy = jump.unwrap_or_default() * jumps + self.transfer(bytes);
        let done = device.free_at.map_or(began, |free| free.max(began)) + busy;
        device.free_at = Some(done);
        done
    }

    fn transfer(&self, bytes: u64) -> Duration {
        let seconds = self.throttle.bytes_per_second.map(|rate| bytes as f64 / rate.max(1) as f64);
        seconds.map_or(Duration::ZERO, Duration::from_secs_f64)
    }

    async fn wait(&self, key: &str, parts: &[Range<u64>], began: Instant) {
        let done = self.reserve(key, parts, began);
        sleep_until(done.max(began) + self.throttle.latency).await;
    }

    /// Where the bytes of an answer lie in the object.
    async fn place(&self, key: &str, range: ByteRange, length: u64) -> Result<Range<u64>> {
        let start = match range {
            ByteRange::Full | ByteRange::Whole(_) => 0,
            ByteRange::Bounded { start, .. } | ByteRange::From(start) => start,
            ByteRange::Last(_) => self.inner.head(key).await?.size.saturating_sub(length),
        };
        Ok(start..start + length)
    }
}

impl Store for ThrottleStore {
    fn url(&self, key: &str) -> String {
        self.inner.url(key)
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        async move {
            sleep(self.throttle.latency).await;
            self.inner.head(key).await
        }
        .boxed()
    }

    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        async move {
            let began = Instant::now();
            let bytes = self.inner.read(key, range).await?;
            let place = self.place(key, range, bytes.len() as u64).await?;
            self.wait(key, &[place], began).await;
            Ok(bytes)
        }
        .boxed()
    }

    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        async move {
            let began = Instant::now();
            let bytes = self.inner.read_parts(key, parts).await?;
            self.wait(key, parts, began).await;
            Ok(bytes)
        }
        .boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        stream::once(sleep(self.throttle.latency)).flat_map(move |()| self.inner.list(prefix)).boxed()
    }

    fn list_page<'a>(&'a self, prefix: &'a str, place: &'a PagePlace) -> BoxFuture<'a, Result<ListPage>> {
        sleep(self.throttle.latency).then(move |()| self.inner.list_page(prefix, place)).boxed()
    }

    fn lists_pages(&self) -> bool {
        self.inner.lists_pages()
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn runtime(&self) -> Option<tokio::runtime::Handle> {
        self.inner.runtime()
    }

    fn write<'a>(&'a self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<()>> {
        async move {
            let began = Instant::now();
            let all = 0..bytes.len() as u64;
            self.wait(key, std::slice::from_ref(&all), began).await;
            self.inner.write(key, bytes).await
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;
    use futures::future::join_all;

    fn store(throttle: Throttle) -> ThrottleStore {
        let memory = MemoryStore::new();
        memory.insert("a", vec![1; 1_000_000]).unwrap();
        memory.insert("b", vec![2; 1_000_000]).unwrap();
        ThrottleStore::new(Arc::new(memory), throttle)
    }

    /// Milliseconds that the requests took, all begun at once.
    async fn took(store: &ThrottleStore, reads: &[(&str, Range<u64>)]) -> u128 {
        let began = Instant::now();
        for answer in join_all(reads.iter().map(|(key, range)| store.read(key, range.clone().into()))).await {
            answer.unwrap();
        }
        began.elapsed().as_millis()
    }

    #[tokio::test(start_paused = true)]
    async fn latency_is_side_by_side_and_bandwidth_is_shared() {
        let latency = Duration::from_millis(50);
        let slow = store(Throttle { latency, ..Throttle::default() });
        assert_eq!(took(&slow, &[("a", 0..10), ("a", 20..30), ("b", 0..10)]).await, 50);
        let narrow = store(Throttle { latency, bytes_per_second: Some(1_000_000), ..Throttle::default() });
        assert_eq!(took(&narrow, &[("a", 0..500_000), ("b", 0..500_000)]).await, 1050);
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_goes_on_where_the_last_ended_costs_no_jump() {
        let disk = store(Throttle { random_reads_per_second: Some(100), ..Throttle::default() });
        assert_eq!(took(&disk, &[("a", 0..10), ("a", 10..20), ("a", 20..900), ("a", 900..901)]).await, 10);
        assert_eq!(took(&disk, &[("a", 0..10), ("b", 10..20), ("a", 10..20)]).await, 30);
        assert_eq!(disk.jumps(), 4);
        let began = Instant::now();
        disk.read("b", ByteRange::Last(10)).await.unwrap();
        disk.read_parts("b", &[0..10, 20..30, 900_000..900_001]).await.unwrap();
        assert_eq!(
            (disk.jumps(), began.elapsed().as_millis()),
            (7, 30),
            "one for the tail, two for the parts"
        );
    }
}
