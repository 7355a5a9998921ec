//! Reads past the page cache: one thread owns one `io_uring` and keeps up to [`DEPTH`] reads in flight.
//!
//! Direct reads want memory, offset and length in whole blocks, so a span is widened to block edges, read into a
//! [`Block`], and handed out as a slice of it. Spans that are asked for together are answered together, so that
//! neither side is woken for each. Also here, because it needs `unsafe` too: the question how much of a file the page
//! cache holds. When to read this way is decided in [`super::read`].
//!
//! The kernel writes into a block from submission until completion. The invariant: a block in flight belongs to the
//! ring thread, which frees it only after its completion and leaks it when it must end before.
#![expect(
    unsafe_code,
    reason = "io_uring and cachestat take raw pointers, and no safe interface to them exists"
)]

use super::block::{BLOCK, Block, Blocks};
use super::files::OpenFile;
use super::stats::Counters;
use crate::fault;
use bytes::Bytes;
use forebay_core::Error;
use futures::channel::oneshot;
use io_uring::{IoUring, opcode, types};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, OwnedFd};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, mpsc};

/// Reads in flight at once. 16 were enough to saturate the disks measured; more let short reads overlap.
const DEPTH: usize = 32;
/// One submission reads at most this much; the rest of a larger span follows.
const SUBMISSION_BYTES: usize = 1 << 30;
/// How often the kernel may ask to come again before the read goes through the page cache instead.
const AGAIN_LIMIT: u32 = 8;
/// Blocks that nobody wanted for twice as long go back to the system.
const AGE_SECONDS: u64 = 2;
const WAKE: u64 = u64::MAX;
const AGE: u64 = u64::MAX - 1;

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

/// One span of one file.
pub(super) type FileSpan = (Arc<OpenFile>, Range<u64>);

/// What became of each span that was asked for together with others.
type Answers = Vec<Result<Bytes, Failure>>;

/// Handle of the ring thread, which ends after the handle is dropped and the last read has completed.
#[derive(Debug)]
pub(super) struct Ring {
    requests: Option<mpsc::Sender<Asked>>,
    wake: Arc<Wake>,
}

/// Wakes the ring thread when it sleeps.
#[derive(Debug)]
struct Wake {
    event: OwnedFd,
    asleep: AtomicBool,
}

/// Spans that are answered together.
struct Asked {
    spans: Vec<FileSpan>,
    answer: oneshot::Sender<Answers>,
}

impl Ring {
    /// Starts the thread, or says why the system does not let us.
    pub(super) fn start(counters: Arc<Counters>) -> io::Result<Self> {
        let ring = IoUring::new(DEPTH as u32 * 2)?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let wake = Arc::new(Wake { event, asleep: AtomicBool::new(false) });
        let (sender, requests) = mpsc::channel();
        let mut thread = RingThread {
            ring,
            wake: Arc::clone(&wake),
            requests,
            open: true,
            groups: HashMap::new(),
            next_group: 0,
            waiting: VecDeque::new(),
            flights: std::iter::repeat_with(|| None).take(DEPTH).collect(),
            blocks: Blocks::new(),
            age_every: types::Timespec::new().sec(AGE_SECONDS),
            counters,
        };
        std::thread::Builder::new().name("forebay-direct".into()).spawn(move || thread.run())?;
        Ok(Self { requests: Some(sender), wake })
    }

    /// Reads spans that are not empty, each with an answer of its own, in order; [`OpenFile::open_direct`] must have
    /// been called for each.
    pub(super) async fn read(&self, spans: Vec<FileSpan>) -> Answers {
        if spans.is_empty() {
            return Answers::new();
        }
        let (count, (answer, answers)) = (spans.len(), oneshot::channel());
        let sent = self.requests.as_ref().is_some_and(|to| to.send(Asked { spans, answer }).is_ok());
        if sent {
            self.wake.wake();
            if let Ok(answers) = answers.await {
                return answers;
            }
        }
        // A ring thread that is gone answers nothing; the page cache still does.
        (0..count).map(|_| Err(Failure::Missed)).collect()
    }
}

impl Wake {
    /// A system call only when the thread sleeps or is about to.
    fn wake(&self) {
        if self.asleep.swap(false, SeqCst) {
            // Fails only when the counter is at its top, and then the thread is awake already.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.requests = None;
        self.wake.wake();
    }
}

/// One span on its way.
struct Flight {
    file: Arc<OpenFile>,
    span: Range<u64>,
    /// From the block that holds the first byte to the end of the block that holds the last; taken when it is sent.
    block: Option<Block>,
    again: u32,
    /// Its group and its place in it.
    group: u64,
    place: usize,
}

impl Flight {
    /// Bytes from block edge to block edge.
    fn wide(&self) -> Option<usize> {
        let end = self.span.end.checked_next_multiple_of(BLOCK)?;
        usize::try_from(end - align_down(self.span.start)).ok()
    }

    /// How many bytes from the block's beginning make the span complete.
    fn needed(&self) -> usize {
        (self.span.end - align_down(self.span.start)) as usize
    }

    /// The bytes of a span that is complete.
    fn bytes(self, block: Block) -> Bytes {
        let skip = (self.span.start - align_down(self.span.start)) as usize;
        Bytes::from_owner(block).slice(skip..self.needed())
    }
}

/// Spans asked for together, of which some are still missing.
struct Group {
    answers: Vec<Option<Result<Bytes, Failure>>>,
    missing: usize,
    answer: oneshot::Sender<Answers>,
}

struct RingThread {
    ring: IoUring,
    wake: Arc<Wake>,
    requests: mpsc::Receiver<Asked>,
    /// Whether more may be asked for.
    open: bool,
    groups: HashMap<u64, Group>,
    next_group: u64,
    waiting: VecDeque<Flight>,
    flights: Vec<Option<Flight>>,
    blocks: Blocks,
    age_every: types::Timespec,
    counters: Arc<Counters>,
}

impl RingThread {
    fn run(&mut self) {
        let (mut listening, mut timing) = (false, false);
        loop {
            self.take_requests();
            self.submit_waiting();
            if !self.open && self.flights.iter().all(Option::is_none) {
                return;
            }
            if !listening {
                let entry = opcode::PollAdd::new(types::Fd(self.wake.event.as_raw_fd()), libc::POLLIN as u32);
                // SAFETY: the entry holds a descriptor that lives as long as `self`, and no pointer.
                listening = unsafe { self.ring.submission().push(&entry.build().user_data(WAKE)) }.is_ok();
            }
            if !timing && !self.blocks.is_empty() {
                let entry = opcode::Timeout::new(&raw const self.age_every).build().user_data(AGE);
                // SAFETY: the time it points to lives as long as `self`.
                timing = unsafe { self.ring.submission().push(&entry) }.is_ok();
            }
            self.wake.asleep.store(true, SeqCst);
            // Who asked before that saw us awake and did not wake us.
            if self.take_requests() {
                self.wake.asleep.store(false, SeqCst);
                continue;
            }
            let submitted = self.ring.submit_and_wait(1);
            self.wake.asleep.store(false, SeqCst);
            match submitted {
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
                    let _ = rustix::io::read(&self.wake.event, &mut [0; 8]);
                } else if number == AGE {
                    timing = false;
                    self.blocks.age();
                } else if let Some(flight) = self.flights.get_mut(number as usize).and_then(Option::take) {
                    self.land(flight, result);
                }
            }
        }
    }

    /// Takes what was asked for; true when that was anything, be it to end.
    fn take_requests(&mut self) -> bool {
        let mut any = false;
        while self.open {
            match self.requests.try_recv() {
                Ok(asked) => self.take(asked),
                Err(mpsc::TryRecvError::Empty) => break,
                Err(mpsc::TryRecvError::Disconnected) => self.open = false,
            }
            any = true;
        }
        any
    }

    fn take(&mut self, Asked { spans, answer }: Asked) {
        let (group, missing) = (self.next_group, spans.len());
        self.next_group += 1;
        for (place, (file, span)) in spans.into_iter().enumerate() {
            self.waiting.push_back(Flight { file, span, block: None, again: 0, group, place });
        }
        if missing > 0 {
            let answers = std::iter::repeat_with(|| None).take(missing).collect();
            self.groups.insert(group, Group { answers, missing, answer });
        }
    }

    fn submit_waiting(&mut self) {
        for number in 0..self.flights.len() {
            while self.flights[number].is_none() {
                let Some(mut flight) = self.waiting.pop_front() else { return };
                let wanted = self.groups.get(&flight.group).is_some_and(|group| !group.answer.is_canceled());
                let block = flight.block.take().or_else(|| self.blocks.take(flight.wide()?));
                let (Some(direct), Some(block), true) = (flight.file.direct(), block, wanted) else {
                    self.answer(flight.group, flight.place, Err(Failure::Missed));
                    continue;
                };
                let (target, rest) = block.rest();
                let offset = align_down(flight.span.start) + block.filled() as u64;
                let fd = types::Fd(direct.as_raw_fd());
                let entry = opcode::Read::new(fd, target, rest.min(SUBMISSION_BYTES) as u32);
                let entry = entry.offset(offset).build().user_data(number as u64);
                flight.block = Some(block);
                // SAFETY: the descriptor and the block belong to the flight, which stays in `flights` until this
                // entry completes (or is leaked by `drop`), and `rest` bytes from `target` are inside the block.
                if unsafe { self.ring.submission().push(&entry) }.is_err() {
                    self.waiting.push_front(flight);
                    return;
                }
                flight.again += 1;
                self.flights[number] = Some(flight);
            }
        }
    }

    /// Takes a completed read: gives it away, sends it off for the rest, or reports what went wrong.
    fn land(&mut self, mut flight: Flight, result: i32) {
        let Some(mut block) = flight.block.take() else { return };
        let url = || flight.file.path.to_string_lossy().into_owned();
        let (group, place) = (flight.group, flight.place);
        let failure = match result {
            0.. => {
                self.counters.add_call(result as usize);
                // SAFETY: the kernel says that it wrote so many bytes, from where they were asked for.
                unsafe { block.advance(result as usize) };
                if block.filled() >= flight.needed() {
                    self.counters.direct_reads.fetch_add(1, Relaxed);
                    let bytes = flight.bytes(block);
                    return self.answer(group, place, Ok(bytes));
                }
                if result > 0 && (block.filled() as u64).is_multiple_of(BLOCK) {
                    flight.again = 0;
                    flight.block = Some(block);
                    return self.waiting.push_front(flight);
                }
                // A part of a block is where the file ends.
                let end = align_down(flight.span.start) + block.filled() as u64;
                Failure::Failed(fault::shortened(&url(), end.max(flight.span.start), flight.span.end - end))
            }
            _ => match -result {
                libc::EINTR | libc::EAGAIN if flight.again < AGAIN_LIMIT => {
                    flight.block = Some(block);
                    return self.waiting.push_front(flight);
                }
                libc::EINTR | libc::EAGAIN => Failure::Missed,
                libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS | libc::EPERM => Failure::Refused,
                code => {
                    let at = align_down(flight.span.start) + block.filled() as u64;
                    let error = io::Error::from_raw_os_error(code);
                    Failure::Failed(fault::system("read", &url(), Some(at), error))
                }
            },
        };
        self.answer(group, place, Err(failure));
    }

    /// Notes what became of a span; the last of its group sends the answers.
    fn answer(&mut self, number: u64, place: usize, answer: Result<Bytes, Failure>) {
        let Some(group) = self.groups.get_mut(&number) else { return };
        group.answers[place] = Some(answer);
        group.missing -= 1;
        if group.missing == 0
            && let Some(Group { answers, answer, .. }) = self.groups.remove(&number)
        {
            let missed = |found: Option<_>| found.unwrap_or(Err(Failure::Missed));
            // When nobody waits any more, the bytes go nowhere.
            let _ = answer.send(answers.into_iter().map(missed).collect());
        }
    }
}

impl Drop for RingThread {
    fn drop(&mut self) {
        // Normally none is left. After a panic or a broken ring the kernel may still write into these blocks, so
        // their memory is given up for good. Whoever waits learns it from the end of its channel.
        for flight in self.flights.drain(..).flatten() {
            std::mem::forget(flight.block);
        }
    }
}

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
