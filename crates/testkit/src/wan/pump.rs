//! One direction of one connection: reads what comes, asks the schedule when it may go on, and writes it then.
//!
//! One queue and one timer. It stops reading when its queue is full, so that the kernel's own back-pressure reaches
//! the sender.

use super::counts::Meters;
use super::schedule::{Lane, Link, Nanos, WanOptions, Way};
use forebay_core::Result;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{Instant, sleep_until};

/// What all connections share; one thread, so no locks.
pub(super) struct Line {
    pub(super) target: SocketAddr,
    pub(super) began: Instant,
    pub(super) links: [RefCell<Link>; 2],
    /// Who reads next while the queue of a way is full: first come, first served, so that nobody starves.
    pub(super) turns: [Arc<Mutex<()>>; 2],
    /// Lanes of each way that have bytes under way.
    pub(super) active: [Cell<usize>; 2],
    /// Bytes are read here first, because a waiting connection should not hold a large buffer.
    pub(super) scratch: RefCell<Box<[u8]>>,
    pub(super) meters: Arc<Meters>,
    pub(super) options: WanOptions,
}

impl Line {
    pub(super) fn new(target: SocketAddr, options: WanOptions, meters: Arc<Meters>) -> Self {
        let link = || RefCell::new(Link::new(&options));
        let scratch = RefCell::new(vec![0; options.piece_bytes()].into_boxed_slice());
        let (links, turns, active) = ([link(), link()], Default::default(), Default::default());
        Self { target, began: Instant::now(), links, turns, active, scratch, meters, options }
    }

    pub(super) fn now(&self) -> Nanos {
        self.began.elapsed().as_nanos() as Nanos
    }
}

/// The connection cannot go on.
#[derive(Debug)]
pub(super) struct Broken;

struct Piece {
    release: Nanos,
    bytes: Box<[u8]>,
    written: usize,
}

/// Waiting for a turn to read, or having it.
#[derive(Default)]
enum Turn {
    #[default]
    None,
    Waiting(Pin<Box<dyn Future<Output = OwnedMutexGuard<()>>>>),
    Mine {
        /// Given back by dropping it.
        _held: OwnedMutexGuard<()>,
    },
}

impl Turn {
    async fn come(&mut self) {
        if let Self::Waiting(turn) = self {
            *self = Self::Mine { _held: turn.await };
        } else {
            std::future::pending::<()>().await;
        }
    }
}

/// One direction of one connection.
pub(super) struct Pump<'a> {
    line: &'a Line,
    way: Way,
    lane: Lane,
    queue: VecDeque<Piece>,
    queued_bytes: u64,
    /// No more comes in, because the sender is done or because the connection will be reset.
    ended: bool,
    cut: bool,
}

impl<'a> Pump<'a> {
    pub(super) fn new(line: &'a Line, way: Way, lane: Lane) -> Self {
        Self { line, way, lane, queue: VecDeque::new(), queued_bytes: 0, ended: false, cut: false }
    }

    pub(super) async fn run(mut self, from: OwnedReadHalf, to: OwnedWriteHalf) -> Result<(), Broken> {
        let mut timer = pin!(sleep_until(self.line.began));
        let mut turn = Turn::None;
        loop {
            let now = self.line.now();
            self.write_due(&to, now)?;
            if self.ended && self.queue.is_empty() {
                if !self.cut {
                    return Ok(()); // Dropping the write half tells the receiver that no more comes.
                }
                self.line.meters.cuts.fetch_add(1, Relaxed);
                drop(to.as_ref().set_zero_linger());
                to.forget();
                return Err(Broken);
            }
            let release = self.queue.front().map(|piece| piece.release);
            let blocked = release.is_some_and(|at| at <= now);
            let full = self.queued_bytes >= self.line.options.connection_bytes(self.active().get());
            if self.ended || full {
                turn = Turn::None;
            }
            let read_at = (!self.ended && !full).then(|| match turn {
                Turn::Mine { .. } => self.link().borrow().ready_at(now),
                _ => self.lane.ready_at(now),
            });
            let reads = read_at.is_some_and(|at| at <= now) && !matches!(turn, Turn::Waiting(_));
            let wake = release.into_iter().chain(read_at).filter(|at| *at > now).min();
            if let Some(at) = wake {
                timer.as_mut().reset(self.line.began + Duration::from_nanos(at));
            }
            tokio::select! {
                ready = from.readable(), if reads => {
                    ready.map_err(|_| Broken)?;
                    turn = self.read_in_turn(turn, &from)?;
                }
                () = turn.come(), if matches!(turn, Turn::Waiting(_)) => {}
                ready = to.writable(), if blocked => ready.map_err(|_| Broken)?,
                () = timer.as_mut(), if wake.is_some() => {}
            }
        }
    }

    /// Reads when it is this lane's turn and the queue has room; otherwise keeps its place.
    fn read_in_turn(&mut self, turn: Turn, from: &OwnedReadHalf) -> Result<Turn, Broken> {
        let turn = match turn {
            Turn::None => match Arc::clone(self.turns()).try_lock_owned() {
                Ok(held) => Turn::Mine { _held: held },
                Err(_) => Turn::Waiting(Box::pin(Arc::clone(self.turns()).lock_owned())),
            },
            turn => turn,
        };
        let now = self.line.now();
        if matches!(turn, Turn::Mine { .. }) && self.link().borrow().ready_at(now) <= now {
            self.read(from)?;
            return Ok(Turn::None);
        }
        Ok(turn)
    }

    fn link(&self) -> &'a RefCell<Link> {
        &self.line.links[self.way as usize]
    }

    fn turns(&self) -> &'a Arc<Mutex<()>> {
        &self.line.turns[self.way as usize]
    }

    fn active(&self) -> &'a Cell<usize> {
        &self.line.active[self.way as usize]
    }

    fn write_due(&mut self, to: &OwnedWriteHalf, now: Nanos) -> Result<(), Broken> {
        let meters = &self.line.meters;
        let delivered = if self.way == Way::Up { &meters.up_bytes } else { &meters.down_bytes };
        while let Some(piece) = self.queue.front_mut().filter(|piece| piece.release <= now) {
            match to.try_write(&piece.bytes[piece.written..]) {
                Ok(count) => {
                    delivered.fetch_add(count as u64, Relaxed);
                    self.queued_bytes -= count as u64;
                    piece.written += count;
                    if piece.written == piece.bytes.len() {
                        self.queue.pop_front();
                        if self.queue.is_empty() {
                            self.active().set(self.active().get() - 1);
                        }
                    }
                }
                Err(fault) if fault.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(_) => return Err(Broken),
            }
        }
        Ok(())
    }

    fn read(&mut self, from: &OwnedReadHalf) -> Result<(), Broken> {
        let mut scratch = self.line.scratch.borrow_mut();
        let count = match from.try_read(&mut scratch) {
            Ok(0) => {
                self.ended = true;
                return Ok(());
            }
            Ok(count) => count,
            Err(fault) if fault.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
            Err(_) => return Err(Broken),
        };
        let mut link = self.link().borrow_mut();
        let passage = self.lane.send(&mut link, self.line.now(), count);
        self.line.meters.stalls.fetch_add(u64::from(passage.stalled), Relaxed);
        let kept = if passage.cut { count / 2 } else { count };
        (self.cut, self.ended) = (passage.cut, passage.cut);
        if kept > 0 {
            if self.queue.is_empty() {
                self.active().set(self.active().get() + 1);
            }
            self.queued_bytes += kept as u64;
            let bytes = Box::from(&scratch[..kept]);
            self.queue.push_back(Piece { release: passage.release, bytes, written: 0 });
        }
        Ok(())
    }
}

impl Drop for Pump<'_> {
    fn drop(&mut self) {
        if !self.queue.is_empty() {
            self.active().set(self.active().get() - 1);
        }
    }
}
