//! The relay: reads what comes, asks the schedule when it may go on, and writes it then.
//!
//! Each direction of a connection is one task with one queue and one timer. It stops reading when its queue is full,
//! so that the kernel's own back-pressure reaches the sender.

use super::counts::{Counts, Meters};
use super::schedule::{Lane, Link, Nanos, WanOptions, Way};
use forebay_core::{Error, Result};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

/// A running relay; dropping it closes every connection and ends its thread.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    meters: Arc<Meters>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Listens on `listen` (port 0 for any free one) and relays to `target` on a thread of its own.
    pub fn start(listen: SocketAddr, target: SocketAddr, options: WanOptions) -> Result<Self> {
        let fault = |source| Error::io(format!("listen on `{listen}` for the emulated line"), source);
        let listener = StdListener::bind(listen).map_err(fault)?;
        listener.set_nonblocking(true).map_err(fault)?;
        let address = listener.local_addr().map_err(fault)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fault)?;
        let meters = Arc::new(Meters::default());
        let (stop, stopped) = oneshot::channel();
        let counted = Arc::clone(&meters);
        let thread = std::thread::Builder::new()
            .name("forebay-wan".into())
            .spawn(move || {
                let line = Line::new(target, options, counted);
                let local = tokio::task::LocalSet::new();
                local.block_on(&runtime, async {
                    tokio::select! {
                        () = accept(Rc::new(line), listener) => {}
                        _ = stopped => {}
                    }
                });
            })
            .map_err(fault)?;
        Ok(Self { address, meters, stop: Some(stop), thread: Some(thread) })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What went over the line so far.
    pub fn counts(&self) -> Counts {
        self.meters.counts()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the relay's thread was printed by it; there is nothing to add while dropping.
            drop(thread.join());
        }
    }
}

struct Line {
    target: SocketAddr,
    began: Instant,
    links: [RefCell<Link>; 2],
    /// Lanes of each way that have bytes under way.
    active: [Cell<usize>; 2],
    /// Bytes are read here first, because a waiting connection should not hold a large buffer.
    scratch: RefCell<Box<[u8]>>,
    meters: Arc<Meters>,
    options: WanOptions,
}

impl Line {
    fn new(target: SocketAddr, options: WanOptions, meters: Arc<Meters>) -> Self {
        let link = || RefCell::new(Link::new(&options));
        let scratch = RefCell::new(vec![0; options.piece_bytes()].into_boxed_slice());
        let (links, active) = ([link(), link()], Default::default());
        Self { target, began: Instant::now(), links, active, scratch, meters, options }
    }

    fn now(&self) -> Nanos {
        self.began.elapsed().as_nanos() as Nanos
    }
}

async fn accept(line: Rc<Line>, listener: StdListener) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    for number in 0.. {
        let client = loop {
            match listener.accept().await {
                Ok((client, _)) => break client,
                // Out of file descriptors: connections that end will free some.
                Err(_) => sleep(Duration::from_millis(10)).await,
            }
        };
        let meters = &line.meters;
        meters.connections.fetch_add(1, Relaxed);
        let open = meters.open.fetch_add(1, Relaxed) + 1;
        meters.most_open.fetch_max(open, Relaxed);
        let line = Rc::clone(&line);
        tokio::task::spawn_local(async move {
            connect(&line, client, number).await;
            line.meters.open.fetch_sub(1, Relaxed);
        });
    }
}

async fn connect(line: &Line, client: TcpStream, number: u64) {
    let [up, down] = [Way::Up, Way::Down].map(|way| Lane::new(&line.options, way, number, line.now()));
    let Ok(server) = TcpStream::connect(line.target).await else {
        line.meters.refused.fetch_add(1, Relaxed);
        return;
    };
    if client.set_nodelay(true).is_err() || server.set_nodelay(true).is_err() {
        return;
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // When one direction breaks, both are dropped; when one ends, the other goes on to its own end.
    drop(tokio::try_join!(
        Pump::new(line, Way::Up, up).run(from_client, to_server),
        Pump::new(line, Way::Down, down).run(from_server, to_client),
    ));
}

/// The connection cannot go on.
struct Broken;

struct Piece {
    release: Nanos,
    bytes: Box<[u8]>,
    written: usize,
}

struct Pump<'a> {
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
    fn new(line: &'a Line, way: Way, lane: Lane) -> Self {
        Self { line, way, lane, queue: VecDeque::new(), queued_bytes: 0, ended: false, cut: false }
    }

    async fn run(mut self, from: OwnedReadHalf, to: OwnedWriteHalf) -> Result<(), Broken> {
        let mut timer = pin!(sleep_until(self.line.began));
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
            let read_at = (!self.ended && !full)
                .then(|| self.lane.read_at(&self.line.links[self.way as usize].borrow(), now));
            let wake = release.into_iter().chain(read_at).filter(|at| *at > now).min();
            if let Some(at) = wake {
                timer.as_mut().reset(self.line.began + Duration::from_nanos(at));
            }
            tokio::select! {
                ready = from.readable(), if read_at.is_some_and(|at| at <= now) => {
                    ready.map_err(|_| Broken)?;
                    self.read(&from)?;
                }
                ready = to.writable(), if blocked => ready.map_err(|_| Broken)?,
                () = timer.as_mut(), if wake.is_some() => {}
            }
        }
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
        let mut link = self.line.links[self.way as usize].borrow_mut();
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
