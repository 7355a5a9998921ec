//! What a sender knows of shared memory that it has shown: kept from being used again until the other side lets go.

use crate::server::lock;
use forebay_ops::buffer::SharedMemory;
use std::collections::HashMap;
use std::sync::Mutex;

/// Shared memory that one client may look at; what it wants beyond crosses as bytes, and is its own then.
const SHOWN_BYTES: u64 = 4 << 30;

/// Memory that the other side may be looking at.
#[derive(Default)]
pub(super) struct Shown(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// As often as it was shown and not released.
    memory: HashMap<u64, Vec<SharedMemory>>,
    bytes: u64,
}

impl Shown {
    /// Keeps memory until it is released; false when too much of it is out.
    pub(super) fn keep(&self, memory: &SharedMemory) -> bool {
        let mut kept = lock(&self.0);
        let bytes = kept.bytes + memory.size() as u64;
        if bytes > SHOWN_BYTES {
            return false;
        }
        kept.bytes = bytes;
        kept.memory.entry(memory.id()).or_default().push(memory.clone());
        true
    }

    /// Once for each number; numbers that were never shown mean nothing.
    pub(super) fn release(&self, numbers: &[u64]) {
        let mut kept = lock(&self.0);
        for number in numbers {
            let Some(copies) = kept.memory.get_mut(number) else { continue };
            let released = copies.pop();
            if copies.is_empty() {
                kept.memory.remove(number);
            }
            kept.bytes -= released.map_or(0, |memory| memory.size() as u64);
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        // The other side may live on and look at it: it must not be written to again.
        for memory in lock(&self.0).memory.values().flatten() {
            memory.retire();
        }
    }
}
