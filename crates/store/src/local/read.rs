//! Which way bytes come: through the page cache when they are in it, past it when they are not.
//!
//! A request first runs on the pool: the file is opened and what the page cache holds is read ([`super::buffered`]).
//! Large spans that are cold go to the ring ([`super::direct`]) together, so that the disk sees all of them at once,
//! and no thread waits for them. A request that cannot block, since its file is open and all of it comes past the page
//! cache, skips the pool. Where direct reads are refused, the page cache serves everything.

use super::buffered::{self, LARGE_BYTES, Span};
use super::direct::{Failure, Ring, cached_bytes};
use super::files::OpenFile;
use super::{Inner, LocalStore};
use crate::{ByteRange, ObjectRead, Store, fault, range};
use bytes::Bytes;
use forebay_core::Result;
use futures::future::join_all;
use rustix::io::{Errno, ReadWriteFlags};
use std::collections::HashSet;
use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// How a local store reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadMode {
    /// Through the page cache what is in it; past it, by `io_uring`, large spans that are not. Bytes read past the
    /// page cache are not kept there, which suits a plane that has a cache of its own.
    #[default]
    Auto,
    /// Always through the page cache: when other processes read the same files soon after, or when the
    /// dataset fits in memory and no cache is configured.
    Buffered,
    /// Past the page cache wherever the file system allows it.
    Direct,
}

/// What a request asks for, before the size of the object is known.
pub(super) enum Wanted {
    Range(ByteRange),
    Parts(Vec<Range<u64>>),
}

impl Wanted {
    /// Whether the answer depends on where the object ends.
    fn needs_size(&self) -> bool {
        matches!(
            self,
            Self::Range(ByteRange::Full | ByteRange::Whole(_) | ByteRange::From(_) | ByteRange::Last(_))
        )
    }

    fn resolve(&self, size: u64) -> Result<Vec<Range<u64>>> {
        match self {
            Self::Range(range) => Ok(vec![range.resolve(size)?]),
            Self::Parts(parts) => range::check_parts(parts, size).map(|()| parts.clone()),
        }
    }
}

/// What is known about direct reads in this process and on the devices below the root.
#[derive(Debug)]
pub(super) struct Direct {
    mode: ReadMode,
    /// Started by the first cold read; `None` inside when the system offers no `io_uring`.
    ring: OnceLock<Option<Ring>>,
    /// Devices whose file system refused once: asked no more.
    refused: Mutex<HashSet<u64>>,
    probes: AtomicU64,
}

impl Direct {
    pub(super) fn new(mode: ReadMode) -> Self {
        Self { mode, ring: OnceLock::new(), refused: Mutex::default(), probes: AtomicU64::new(0) }
    }

    fn refuse(&self, device: u64) {
        if self.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(device) {
            tracing::debug!(
                device,
                "direct reads are refused on this device, reading through the page cache"
            );
        }
    }

    fn is_refused(&self, device: u64) -> bool {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).contains(&device)
    }

    /// Whether most of the span would have to come from the disk.
    fn is_cold(&self, file: &OpenFile, span: &Range<u64>) -> bool {
        if let Ok(cached) = cached_bytes(&file.file, span) {
            return cached < (span.end - span.start) / 2;
        }
        self.seems_cold(file, span)
    }

    /// For kernels that do not tell: reads one byte on condition that it is there. A disk that answers within the
    /// call is as good as a page cache.
    fn seems_cold(&self, file: &OpenFile, span: &Range<u64>) -> bool {
        let offset = self.probe(span);
        let mut byte = [0];
        let read = rustix::io::preadv2(
            &file.file,
            &mut [IoSliceMut::new(&mut byte)],
            offset,
            ReadWriteFlags::NOWAIT,
        );
        matches!(read, Err(Errno::AGAIN))
    }

    /// Where the next probe looks: a miss brings in the page it looked at, which says nothing about its neighbours,
    /// so every probe looks at another one.
    fn probe(&self, span: &Range<u64>) -> u64 {
        let step = self.probes.fetch_add(1, Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        span.start + step % (span.end - span.start)
    }
}

/// A request after its turn on the pool.
pub(super) struct Reading {
    file: Arc<OpenFile>,
    parts: Vec<Range<u64>>,
    answer: Vec<Bytes>,
    /// Spans that are still missing.
    cold: Vec<Span>,
}

impl LocalStore {
    /// Reads what is wanted of an object; `key` has been checked.
    pub(super) async fn fetch(&self, key: &str, wanted: Wanted) -> Result<Vec<Bytes>> {
        let name = key.to_owned();
        let mut reading = match self.inner.ready(key, &wanted) {
            Some(reading) => reading,
            None => self.run(move |inner| inner.read_warm(&name, &wanted)).await?,
        };
        if reading.cold.is_empty() {
            return Ok(reading.answer);
        }
        if let Some(ring) = self.inner.ring() {
            let cold = std::mem::take(&mut reading.cold);
            let spans = cold.iter().map(|span| (Arc::clone(&reading.file), span.bytes.clone()));
            let read = ring.read(spans.collect()).await;
            for (span, bytes) in cold.into_iter().zip(read) {
                match bytes {
                    Ok(bytes) => buffered::deal(&span, &bytes, &reading.parts, &mut reading.answer),
                    Err(Failure::Refused) => {
                        self.inner.direct.refuse(reading.file.version.device);
                        reading.cold.push(span);
                    }
                    Err(Failure::Missed) => reading.cold.push(span),
                    Err(Failure::Failed(error)) => {
                        self.inner.files.forget(key);
                        return Err(error);
                    }
                }
            }
        }
        if reading.cold.is_empty() {
            return Ok(reading.answer);
        }
        let name = key.to_owned();
        self.run(move |inner| {
            let cold = std::mem::take(&mut reading.cold);
            inner.read_buffered(&name, &mut reading, cold)?;
            Ok(reading.answer)
        })
        .await
    }

    /// Ranges of many objects: all that cannot block by one message to the ring, the rest as usual.
    pub(super) async fn fetch_many(&self, reads: &[ObjectRead]) -> Vec<Result<Bytes>> {
        let mut answers: Vec<Option<Result<Bytes>>> = reads.iter().map(|_| None).collect();
        if let Some(ring) = self.inner.ring() {
            let ready = |(at, read): (usize, &ObjectRead)| {
                let wanted = Wanted::Range(read.range.clone().into());
                let reading = self.inner.ready(&read.key, &wanted)?;
                Some((at, (reading.file, read.range.clone())))
            };
            let (places, spans): (Vec<usize>, Vec<_>) = reads.iter().enumerate().filter_map(ready).unzip();
            self.inner.counters.requests.fetch_add(places.len() as u64, Relaxed);
            for (place, answer) in places.into_iter().zip(ring.read(spans).await) {
                // What went wrong is found out by reading it alone.
                answers[place] = answer.ok().map(Ok);
            }
        }
        let rest = reads.iter().zip(&answers).filter(|(_, answer)| answer.is_none());
        let mut rest =
            join_all(rest.map(|(read, _)| self.read(&read.key, read.range.clone().into()))).await.into_iter();
        answers.into_iter().filter_map(|answer| answer.or_else(|| rest.next())).collect()
    }
}

impl Inner {
    /// The request after its turn on the pool without that turn, when nothing in it can block.
    fn ready(&self, key: &str, wanted: &Wanted) -> Option<Reading> {
        if self.direct.mode != ReadMode::Direct || wanted.needs_size() {
            return None;
        }
        let file = self.files.if_open(key).filter(|file| file.direct().is_some())?;
        let parts = wanted.resolve(file.version.size).ok()?;
        let cold = buffered::spans(&parts);
        let whole = cold.iter().all(|span| !span.bytes.is_empty());
        let ready = whole && !self.direct.is_refused(file.version.device) && self.ring().is_some();
        ready.then(|| Reading { file, answer: vec![Bytes::new(); parts.len()], parts, cold })
    }

    /// The ring, started on first use.
    fn ring(&self) -> Option<&Ring> {
        let start = || match Ring::start(Arc::clone(&self.counters)) {
            Ok(ring) => Some(ring),
            Err(error) => {
                tracing::debug!(%error, "io_uring is refused, reading through the page cache");
                None
            }
        };
        self.direct.ring.get_or_init(start).as_ref()
    }

    /// The file and the parts wanted of it. Only a name that may have moved on is looked at a second time.
    fn open(&self, key: &str, wanted: &Wanted) -> Result<(Arc<OpenFile>, Vec<Range<u64>>)> {
        let path = self.path(key);
        if !wanted.needs_size() {
            let file = self.files.kept(key, &path, &self.counters)?;
            if let Ok(parts) = wanted.resolve(file.version.size) {
                return Ok((file, parts));
            }
        }
        let file = self.files.fresh(key, &path, &self.counters)?;
        let parts = wanted.resolve(file.version.size);
        Ok((file, parts.map_err(|error| fault::located(error, "read", &path.to_string_lossy(), None))?))
    }

    /// Opens the file and reads every span that need not come from the disk.
    fn read_warm(&self, key: &str, wanted: &Wanted) -> Result<Reading> {
        let (file, parts) = self.open(key, wanted)?;
        let answer = vec![Bytes::new(); parts.len()];
        let (cold, warm) =
            buffered::spans(&parts).into_iter().partition(|span| self.goes_direct(&file, &span.bytes));
        let mut reading = Reading { file, parts, answer, cold };
        self.read_buffered(key, &mut reading, warm)?;
        Ok(reading)
    }

    fn read_buffered(&self, key: &str, reading: &mut Reading, spans: Vec<Span>) -> Result<()> {
        for span in spans {
            let read = buffered::read_span(&reading.file, &span.bytes, &self.counters);
            // After a failure the name may mean another file, so the next request looks again.
            let bytes = read.inspect_err(|_| self.files.forget(key))?;
            buffered::deal(&span, &bytes, &reading.parts, &mut reading.answer);
        }
        Ok(())
    }

    fn goes_direct(&self, file: &OpenFile, span: &Range<u64>) -> bool {
        let length = span.end - span.start;
        let wished = match self.direct.mode {
            ReadMode::Buffered => false,
            ReadMode::Direct => length > 0,
            // Read-ahead serves small reads in a row, as of archive headers, better than a disk access each.
            ReadMode::Auto => length >= LARGE_BYTES && self.direct.is_cold(file, span),
        };
        wished
            && !self.direct.is_refused(file.version.device)
            && self.ring().is_some()
            && file.open_direct(&self.counters, || self.direct.refuse(file.version.device))
    }
}

#[cfg(test)]
mod tests;
