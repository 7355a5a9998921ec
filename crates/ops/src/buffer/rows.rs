//! A batch's buffer while it is being made: every row is written once, by any thread, without a lock.

use super::Buffer;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A buffer cut into equal rows, each of which may be claimed once by any thread.
pub struct Rows {
    buffer: Buffer,
    row_bytes: usize,
    claimed: Vec<AtomicBool>,
}

/// The right to write one row.
pub struct RowMut {
    rows: Arc<Rows>,
    row: usize,
}

impl Rows {
    /// Cuts `buffer` into `count` rows of `row_bytes` each.
    ///
    /// # Panics
    /// When the buffer is too small for that.
    pub fn new(buffer: Buffer, row_bytes: usize, count: usize) -> Arc<Self> {
        let wanted = row_bytes.checked_mul(count);
        assert!(wanted.is_some_and(|bytes| bytes <= buffer.len()), "{count} rows of {row_bytes} do not fit");
        Arc::new(Self { buffer, row_bytes, claimed: (0..count).map(|_| AtomicBool::new(false)).collect() })
    }

    /// The right to write row `row`, or `None` when it was given away before or does not exist.
    pub fn claim(self: &Arc<Self>, row: usize) -> Option<RowMut> {
        let taken = self.claimed.get(row)?.swap(true, Ordering::AcqRel);
        (!taken).then(|| RowMut { rows: Arc::clone(self), row })
    }

    /// The buffer, once no claimed row is being written any more; itself otherwise.
    pub fn into_buffer(self: Arc<Self>) -> Result<Buffer, Arc<Self>> {
        Arc::try_unwrap(self).map(|rows| rows.buffer)
    }
}

impl std::ops::Deref for RowMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let start = self.row * self.rows.row_bytes;
        // SAFETY: rows are disjoint, this one was claimed once, and the buffer cannot leave `Rows` while we hold it.
        unsafe { std::slice::from_raw_parts(self.rows.buffer.as_ptr().add(start), self.rows.row_bytes) }
    }
}

impl std::ops::DerefMut for RowMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        let start = self.row * self.rows.row_bytes;
        // SAFETY: as above; `&mut self` makes this the only reference into the row.
        unsafe { std::slice::from_raw_parts_mut(self.rows.buffer.as_ptr().add(start), self.rows.row_bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::BufferPool;

    #[test]
    fn rows_are_written_by_many_threads_each_once() {
        let rows = Rows::new(BufferPool::new(0).take(64 * 100), 64, 100);
        std::thread::scope(|scope| {
            for worker in 0..4u8 {
                let rows = &rows;
                scope.spawn(move || {
                    for row in 0..100 {
                        if let Some(mut target) = rows.claim(row) {
                            target.fill(row as u8);
                            let _ = worker;
                        }
                    }
                });
            }
        });
        assert!(rows.claim(3).is_none() && rows.claim(100).is_none());
        let buffer = rows.into_buffer().ok().expect("nobody writes any more");
        assert!(
            buffer
                .as_slice()
                .chunks(64)
                .enumerate()
                .all(|(row, bytes)| bytes.iter().all(|b| *b == row as u8))
        );
    }
}
