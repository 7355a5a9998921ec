//! Reads past the page cache: one thread owns one `io_uring` and keeps up to [`DEPTH`] reads in flight.
//!
//! Direct reads want memory, offset and length in whole blocks, so a span is widened to block edges, read into an
//! aligned buffer, and handed out as a slice of it. Also here, because it needs `unsafe` too: the question how much
//! of a file the page cache holds. When to read this way is decided in [`super::read`].
//!
//! The kernel writes into a buffer from submission until completion. The invariant: a buffer in flight belongs to
//! the ring thread, which frees it only after its completion and leaks it when it must end before.
#![expect(
    unsafe_code,
    reason = "io_uring and cachestat take raw pointers, and no safe interface to them exists"
)]

use super::files::OpenFile;
use super::stats::Counters;
use crate::fault;
use bytes::Bytes;
use forebay_core::Error;
use futures::channel::oneshot;
use io_uring::{IoUring, opcode, types};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, OwnedFd};
use std::alloc::{Layout, alloc, dealloc};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};

/// Reads in flight at once. 16 were enough to saturate the disks measured; more let short reads overlap.
const DEPTH: usize = 32;
/// Memory, offsets and lengths are multiples of this: the block size of all but rare devices.
const BLOCK: u64 = 4096;
/// One submission reads at most this much; the rest of a larger span follows.
const SUBMISSION_BYTES: usize = 1 << 30;
/// How often the kernel may ask to come again before the read goes through the page cache instead.
const AGAIN_LIMIT: u32 = 8;
const WAKE: u64 = u64::MAX;

/// Why a direct read gave no bytes.
#[derive(Debug)]
pub(super) enum Failure {
    /// The file system does not offer it: read through the page cache, and do not ask again.
    Refused,
    /// It could not be served this time: read through the page cache.
    Missed,
    /// The read itself went wrong.
    Failed(Error),
}

/// Handle of the ring thread, which ends after the handle is dropped and the last read has completed.
#[derive(Debug)]
pub(super) struct Ring {
    requests: Option<mpsc::Sender<Flight>>,
    wake: Arc<OwnedFd>,
}

impl Ring {
    /// Starts the thread, or says why the system does not let us.
    pub(super) fn start(counters: Arc<Counters>) -> io::Result<Self> {
        let ring = IoUring::new(DEPTH as u32 * 2)?;
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (sender, requests) = mpsc::channel();
        let flights = std::iter::repeat_with(|| None).take(DEPTH).collect();
        let waiting = VecDeque::new();
        let mut thread = RingThread { ring, wake: Arc::clone(&wake), requests, waiting, flights, counters };
        std::thread::Builder::new().name("forebay-direct".into()).spawn(move || thread.run())?;
        Ok(Self { requests: Some(sender), wake })
    }

    /// Reads a span that is not empty; [`OpenFile::open_direct`] must have been called.
    pub(super) async fn read(&self, file: &Arc<OpenFile>, span: &Range<u64>) -> Result<Bytes, Failure> {
        let (answer, bytes) = oneshot::channel();
        let flight = Flight::new(Arc::clone(file), span.clone(), answer).ok_or(Failure::Missed)?;
        self.requests.as_ref().and_then(|requests| requests.send(flight).ok()).ok_or(Failure::Missed)?;
        self.notify();
        // A ring thread that is gone answers nothing; the page cache still does.
        bytes.await.unwrap_or(Err(Failure::Missed))
    }

    fn notify(&self) {
        // Fails only when the counter is at its top, and then the thread is awake already.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.requests = None;
        self.notify();
    }
}

/// One span on its way.
struct Flight {
    file: Arc<OpenFile>,
    span: Range<u64>,
    /// From the block that holds the first byte to the end of the block that holds the last.
    buffer: AlignedBuffer,
    again: u32,
    answer: oneshot::Sender<Result<Bytes, Failure>>,
}

impl Flight {
    fn new(
        file: Arc<OpenFile>,
        span: Range<u64>,
        answer: oneshot::Sender<Result<Bytes, Failure>>,
    ) -> Option<Self> {
        let end = span.end.checked_next_multiple_of(BLOCK)?;
        let buffer = AlignedBuffer::new(usize::try_from(end - align_down(span.start)).ok()?)?;
        Some(Self { file, span, buffer, again: 0, answer })
    }

    /// How many bytes from the buffer's beginning make the span complete.
    fn needed(&self) -> usize {
        (self.span.end - align_down(self.span.start)) as usize
    }

    fn give(self) {
        let skip = (self.span.start - align_down(self.span.start)) as usize;
        let needed = self.needed();
        // When nobody waits any more, the bytes go nowhere.
        let _ = self.answer.send(Ok(Bytes::from_owner(self.buffer).slice(skip..needed)));
    }
}

struct RingThread {
    ring: IoUring,
    wake: Arc<OwnedFd>,
    requests: mpsc::Receiver<Flight>,
    waiting: VecDeque<Flight>,
    flights: Vec<Option<Flight>>,
    counters: Arc<Counters>,
}

impl RingThread {
    fn run(&mut self) {
        let mut listening = false;
        let mut open = true;
        loop {
            while open {
                match self.requests.try_recv() {
                    Ok(flight) => self.waiting.push_back(flight),
                    Err(mpsc::TryRecvError::Empty) => break,
                    Err(mpsc::TryRecvError::Disconnected) => open = false,
                }
            }
            self.submit_waiting();
            if !open && self.flights.iter().all(Option::is_none) {
                return;
            }
            if !listening {
                let entry = opcode::PollAdd::new(types::Fd(self.wake.as_raw_fd()), libc::POLLIN as u32);
                // SAFETY: the entry holds a descriptor that lives as long as `self`, and no pointer.
                listening = unsafe { self.ring.submission().push(&entry.build().user_data(WAKE)) }.is_ok();
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                Err(error) => {
                    tracing::warn!(%error, "direct reads end: the ring does not take submissions");
                    return;
                }
            }
            let completed: Vec<(u64, i32)> =
                self.ring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
            for (number, result) in completed {
                if number == WAKE {
                    listening = false;
                    // Resets the counter; requests sent up to now are taken at the top of the loop.
                    let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
                } else if let Some(flight) = self.flights.get_mut(number as usize).and_then(Option::take) {
                    self.land(flight, result);
                }
            }
        }
    }

    fn submit_waiting(&mut self) {
        for number in 0..self.flights.len() {
            if self.flights[number].is_some() {
                continue;
            }
            let Some(mut flight) = self.waiting.pop_front() else { return };
            let Some(direct) = flight.file.direct().filter(|_| !flight.answer.is_canceled()) else {
                let _ = flight.answer.send(Err(Failure::Missed));
                continue;
            };
            let filled = flight.buffer.filled;
            let length = (flight.buffer.layout.size() - filled).min(SUBMISSION_BYTES);
            let offset = align_down(flight.span.start) + filled as u64;
            let fd = types::Fd(direct.as_raw_fd());
            // SAFETY: `filled` stays within the allocation: `land` adds only what the kernel wrote into it.
            let target = unsafe { flight.buffer.start.as_ptr().add(filled) };
            let entry =
                opcode::Read::new(fd, target, length as u32).offset(offset).build().user_data(number as u64);
            // SAFETY: the descriptor and the buffer belong to the flight, which stays in `flights` until this
            // entry completes (or is leaked by `drop`), and `length` bytes from `target` are inside the buffer.
            if unsafe { self.ring.submission().push(&entry) }.is_err() {
                self.waiting.push_front(flight);
                return;
            }
            flight.again += 1;
            self.flights[number] = Some(flight);
        }
    }

    /// Takes a completed read: gives it away, sends it off for the rest, or reports what went wrong.
    fn land(&mut self, mut flight: Flight, result: i32) {
        let at = align_down(flight.span.start) + flight.buffer.filled as u64;
        let url = || flight.file.path.to_string_lossy().into_owned();
        let failure = match result {
            0.. => {
                self.counters.add_call(result as usize);
                flight.buffer.filled += result as usize;
                if flight.buffer.filled >= flight.needed() {
                    self.counters.direct_reads.fetch_add(1, Relaxed);
                    return flight.give();
                }
                if result > 0 && (flight.buffer.filled as u64).is_multiple_of(BLOCK) {
                    flight.again = 0;
                    return self.waiting.push_front(flight);
                }
                // A part of a block is where the file ends.
                let end = align_down(flight.span.start) + flight.buffer.filled as u64;
                Failure::Failed(fault::shortened(&url(), end.max(flight.span.start), flight.span.end - end))
            }
            _ => match -result {
                libc::EINTR | libc::EAGAIN if flight.again < AGAIN_LIMIT => {
                    return self.waiting.push_front(flight);
                }
                libc::EINTR | libc::EAGAIN => Failure::Missed,
                libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS | libc::EPERM => Failure::Refused,
                code => {
                    let error = io::Error::from_raw_os_error(code);
                    Failure::Failed(fault::system("read", &url(), Some(at), error))
                }
            },
        };
        let _ = flight.answer.send(Err(failure));
    }
}

impl Drop for RingThread {
    fn drop(&mut self) {
        // Normally none is left. After a panic or a broken ring the kernel may still write into these buffers, so
        // their memory is given up for good.
        for flight in self.flights.drain(..).flatten() {
            std::mem::forget(flight.buffer);
            let _ = flight.answer.send(Err(Failure::Missed));
        }
    }
}

/// Memory that begins at a block edge. Only its first `filled` bytes are known to be written.
struct AlignedBuffer {
    start: NonNull<u8>,
    layout: Layout,
    filled: usize,
}

impl AlignedBuffer {
    /// `None` when there is no memory.
    fn new(length: usize) -> Option<Self> {
        let layout =
            Layout::from_size_align(length, BLOCK as usize).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc(layout) })?;
        Some(Self { start, layout, filled: 0 })
    }
}

impl AsRef<[u8]> for AlignedBuffer {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the first `filled` bytes of our own allocation were written by completed reads.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.filled) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and freed only here.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

// SAFETY: the buffer owns its memory as a `Box<[u8]>` does; nothing is tied to a thread.
unsafe impl Send for AlignedBuffer {}
// SAFETY: a shared buffer is only read.
unsafe impl Sync for AlignedBuffer {}

/// How many bytes of the span the page cache holds, or an error where the kernel does not tell (before Linux 6.5, or
/// for files of other owners). Unlike a read that must not wait, the question starts no read-ahead.
pub(super) fn cached_bytes(file: &File, span: &Range<u64>) -> io::Result<u64> {
    /// The number is the same on every architecture that Rust supports.
    const SYS_CACHESTAT: libc::c_long = 451;
    let range = [span.start, span.end - span.start];
    // Pages in the cache, dirty, under write-back, evicted, evicted a short while ago.
    let mut counts = [0u64; 5];
    // SAFETY: both arrays have the layout of the kernel's structs, which are two and five `u64`, and live on.
    let code = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), 0 as libc::c_uint)
    };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(counts[0].saturating_mul(rustix::param::page_size() as u64))
}

fn align_down(offset: u64) -> u64 {
    offset - offset % BLOCK
}
