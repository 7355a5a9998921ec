//! Memory of payloads that were let go, kept for the next ones.
//!
//! A payload of a hundred kilobytes is too large for the allocator to keep: it is asked of the system and given back
//! every time, and each page of it is cleared and mapped again. So a body that was read takes its buffer from here, and
//! the buffer comes back when the last who holds the bytes lets go. What lies here is bounded in bytes and in time:
//! [`age`] is called now and then by the network threads, and [`clear`] when they end.
//!
//! Nobody waits for the lock: a process that was forked while another thread held it would wait for ever. Who does not
//! get it asks the allocator.

use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, TryLockError};

/// Smaller buffers are the allocator's business, larger ones are rare and worth a page fault.
const KEPT: std::ops::RangeInclusive<usize> = (32 << 10)..=(16 << 20);
/// All buffers that lie here together: two batches of 256 photographs.
const MOST_BYTES: usize = 64 << 20;
/// A buffer that lay here while [`age`] was called so often is let go.
const MOST_AGE: u32 = 2;
/// Tries to get the lock, which is held for a few instructions only.
const TRIES: usize = 64;

static SPARE: Mutex<Spare<BytesMut>> = Mutex::new(Spare::new());

/// An empty buffer with room for `bytes`.
pub fn take(bytes: usize) -> BytesMut {
    let Some(class) = class(bytes) else { return BytesMut::with_capacity(bytes) };
    let kept = lock(&SPARE).and_then(|mut spare| spare.take(class));
    kept.unwrap_or_else(|| BytesMut::with_capacity(class))
}

/// The bytes of a buffer, which comes back here when the last of them is let go.
pub fn share(body: BytesMut) -> Bytes {
    if class_of(&body).is_some() { Bytes::from_owner(Lent(body)) } else { body.freeze() }
}

/// Lets go what nobody has wanted for a while.
pub(crate) fn age() {
    let old = lock(&SPARE).map(|mut spare| spare.age());
    drop(old);
}

/// Lets go everything.
pub(crate) fn clear() {
    let all = lock(&SPARE).map(|mut spare| std::mem::replace(&mut *spare, Spare::new()));
    drop(all);
}

/// A buffer that somebody reads from.
struct Lent(BytesMut);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.0);
        buffer.clear();
        let Some(class) = class_of(&buffer) else { return };
        let too_many = lock(&SPARE).map(|mut spare| spare.put(class, buffer));
        // Memory goes back to the system after the lock.
        drop(too_many);
    }
}

/// Buffers of one kind that nobody uses at the moment.
pub(crate) struct Spare<T> {
    /// By class, each with its age; the latest last.
    buffers: BTreeMap<usize, Vec<(u32, T)>>,
    bytes: usize,
    now: u32,
}

impl<T> Spare<T> {
    pub(crate) const fn new() -> Self {
        Self { buffers: BTreeMap::new(), bytes: 0, now: 0 }
    }

    /// Whether none lies here.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The buffer let go last: its memory is the likeliest to be in the processor's caches.
    pub(crate) fn take(&mut self, class: usize) -> Option<T> {
        let (_, buffer) = self.buffers.get_mut(&class)?.pop()?;
        self.bytes -= class;
        Some(buffer)
    }

    /// Keeps a buffer made for its [`class`]; gives back what had to go for it.
    pub(crate) fn put(&mut self, class: usize, buffer: T) -> Vec<T> {
        let mut gone = Vec::new();
        // The oldest goes, so that sizes that are wanted no more do not keep those out that are.
        while self.bytes + class > MOST_BYTES {
            let oldest = self.buffers.iter().filter_map(|(class, all)| Some((all.first()?.0, *class))).min();
            let Some((_, class)) = oldest else { break };
            let Some(all) = self.buffers.get_mut(&class) else { break };
            gone.push(all.remove(0).1);
            self.bytes -= class;
        }
        self.bytes += class;
        self.buffers.entry(class).or_default().push((self.now, buffer));
        gone
    }

    /// Time has passed; gives back what nobody has wanted since.
    pub(crate) fn age(&mut self) -> Vec<T> {
        self.now += 1;
        let (now, mut gone) = (self.now, Vec::new());
        for (class, all) in &mut self.buffers {
            let old = all.iter().take_while(|(since, _)| now - since >= MOST_AGE).count();
            self.bytes -= old * class;
            gone.extend(all.drain(..old).map(|(_, buffer)| buffer));
        }
        self.buffers.retain(|_, all| !all.is_empty());
        gone
    }
}

/// Capacity of buffers for `bytes`: at most an eighth more, so that payloads of about one size share buffers. Whole
/// blocks of 4096 bytes; `None` for sizes that are not kept.
pub(crate) fn class(bytes: usize) -> Option<usize> {
    KEPT.contains(&bytes).then(|| bytes.next_multiple_of((1 << bytes.ilog2()) / 8))
}

/// The class that a buffer was made for; `None` when it was made elsewhere or has grown since.
fn class_of(buffer: &BytesMut) -> Option<usize> {
    let capacity = buffer.capacity();
    class(capacity).filter(|class| *class == capacity)
}

/// The buffers, unless somebody else has them for longer than a moment.
pub(crate) fn lock<T>(spare: &Mutex<Spare<T>>) -> Option<MutexGuard<'_, Spare<T>>> {
    for _ in 0..TRIES {
        match spare.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_buffer_comes_back_when_the_last_of_its_bytes_is_let_go() {
        let mut buffer = take(100_000);
        buffer.resize(100_000, 7);
        let capacity = buffer.capacity();
        assert!((100_000..=112_500).contains(&capacity));
        let bytes = share(buffer);
        let part = bytes.slice(99_000..);
        drop(bytes);
        assert_eq!(part, vec![7; 1000]);
        // Small ones and those made elsewhere are plain bytes.
        assert_eq!(share(BytesMut::from("abc")), "abc");
    }

    #[test]
    fn what_lies_here_is_bounded_in_bytes_and_the_oldest_goes_first() {
        let mut spare = Spare::new();
        for _ in 0..3 {
            assert!(spare.put(16 << 20, 16 << 20).is_empty());
            spare.now += 1;
        }
        for _ in 0..256 {
            assert!(spare.put(64 << 10, 64 << 10).is_empty());
        }
        assert_eq!(spare.bytes, MOST_BYTES);
        assert_eq!(spare.put(64 << 10, 64 << 10).iter().sum::<usize>(), 16 << 20);
        assert_eq!(spare.bytes, (48 << 20) + (64 << 10));
        assert!(spare.take(40 << 10).is_none() && spare.take(64 << 10).is_some());
        // What is not of a class, because it was made elsewhere, is not kept.
        assert_eq!(class_of(&BytesMut::with_capacity(100_001)), None);
    }

    #[test]
    fn what_nobody_wants_is_let_go() {
        let mut spare = Spare::new();
        spare.put(64 << 10, "first");
        assert!(spare.age().is_empty());
        spare.put(64 << 10, "second");
        assert_eq!((spare.age().len(), spare.bytes), (1, 64 << 10));
        assert_eq!((spare.age().len(), spare.bytes, spare.buffers.len()), (1, 0, 0));
    }

    proptest! {
        #[test]
        fn a_class_holds_its_bytes_and_is_its_own(bytes in KEPT) {
            // Beyond the largest there is none, which is why it is a power of two.
            let class = class(bytes).unwrap();
            prop_assert!(class >= bytes && class - bytes <= bytes / 8 && class.is_multiple_of(4096));
            prop_assert_eq!(super::class(class), Some(class));
        }
    }
}
