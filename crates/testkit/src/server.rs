//! An object server on loopback that can be slow and wrong on purpose: HTTP/1.1 and the little of S3 that reading needs.
//!
//! `GET` with ranges, `HEAD`, `PUT`, `DELETE` and `ListObjectsV2`, plain (`/KEY`) and path style (`/bucket/KEY`); every
//! signature is accepted. Most objects are not stored: their bytes are a function of key and offset
//! ([`generated`]). A script says for each request what shall go wrong; counts say what was asked for. One thread a
//! connection and one write an answer: it has to be cheap, because it shares the machine with what it tests.

mod answer;
mod connection;
mod objects;
mod request;
mod script;
#[cfg(test)]
mod tests;

pub use objects::{Objects, generated};
pub use script::{Act, Fault, Seen};

use forebay_core::{Error, Result};
use std::collections::HashMap;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// The bucket under which objects are found in path style.
pub const BUCKET: &str = "bucket";

/// What the server was asked for so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests of every kind.
    pub requests: u64,
    /// Bytes of bodies sent.
    pub bytes: u64,
    /// Connections open now.
    pub open: u64,
    /// Connections accepted.
    pub connections: u64,
    /// Most connections open at once.
    pub most_open: u64,
}

/// A running server; dropping it closes every connection.
#[derive(Debug)]
pub struct SlowServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

type Script = Arc<dyn Fn(&Seen<'_>) -> Act + Send + Sync>;

struct Shared {
    objects: RwLock<Objects>,
    script: RwLock<Script>,
    /// What is told about objects besides the usual, by key.
    headers: RwLock<HashMap<String, (String, String)>>,
    down: AtomicBool,
    requests: AtomicU64,
    bytes: AtomicU64,
    live: Mutex<Live>,
    changed: Condvar,
    attempts: Mutex<HashMap<String, u64>>,
}

/// The connections; one lock, because a connection that opens must see a stop that began.
#[derive(Default)]
struct Live {
    stopping: bool,
    connections: u64,
    most_open: u64,
    streams: HashMap<u64, Arc<TcpStream>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("requests", &self.requests).finish_non_exhaustive()
    }
}

impl SlowServer {
    /// Serves `objects` on a free port of loopback, without faults.
    pub fn start(objects: Objects) -> Result<Self> {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), objects)
    }

    /// Serves `objects` at an address.
    pub fn start_at(address: SocketAddr, objects: Objects) -> Result<Self> {
        let fault = |source| Error::io(format!("listen on `{address}` for the object server"), source);
        let listener = TcpListener::bind(address).map_err(fault)?;
        let address = listener.local_addr().map_err(fault)?;
        let shared = Arc::new(Shared {
            objects: RwLock::new(objects),
            script: RwLock::new(Arc::new(|_| Act::default())),
            headers: RwLock::default(),
            down: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            live: Mutex::default(),
            changed: Condvar::new(),
            attempts: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("forebay-objects".into())
            .spawn(move || accept(&accepting, &listener))
            .map_err(fault)?;
        Ok(Self { address, shared, thread: Some(thread) })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://ADDRESS`, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What each request from now on meets.
    pub fn script(&self, script: impl Fn(&Seen<'_>) -> Act + Send + Sync + 'static) {
        *self.shared.script.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(script);
    }

    /// Puts an object in place, or replaces it.
    pub fn put(&self, key: &str, bytes: &[u8]) {
        self.shared.objects.write().unwrap_or_else(PoisonError::into_inner).put(key, bytes.into());
    }

    /// Tells a header with every answer that holds bytes of an object. One that begins with `x-amz-checksum-` is told as
    /// S3 tells it: when it is asked for, and with whole objects alone. Writes with such a header keep it.
    pub fn set_header(&self, key: &str, name: &str, value: &str) {
        self.shared.keep_header(key, (name.into(), value.into()));
    }

    /// Takes the server down, as if its process were gone: connections are reset and new ones closed at once. The port
    /// stays ours, so that nobody else can get it before the server is up again.
    pub fn set_down(&self, down: bool) {
        self.shared.down.store(down, Relaxed);
        if down {
            close_all(&self.shared.live());
        }
    }

    /// What was asked for so far.
    pub fn counts(&self) -> Counts {
        let live = self.shared.live();
        Counts {
            requests: self.shared.requests.load(Relaxed),
            bytes: self.shared.bytes.load(Relaxed),
            open: live.streams.len() as u64,
            connections: live.connections,
            most_open: live.most_open,
        }
    }

    /// How often a key was asked for.
    pub fn attempts(&self, key: &str) -> u64 {
        self.shared.attempts().get(key).copied().unwrap_or(0)
    }
}

impl Drop for SlowServer {
    fn drop(&mut self) {
        {
            let mut live = self.shared.live();
            live.stopping = true;
            close_all(&live);
        }
        self.shared.changed.notify_all();
        // Wakes the accepting thread, which then sees that it shall stop.
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
        // Threads of connections end by themselves; waiting a moment keeps a test's output together.
        let limit = Duration::from_secs(5);
        drop(
            self.shared
                .changed
                .wait_timeout_while(self.shared.live(), limit, |live| !live.streams.is_empty()),
        );
    }
}

impl Shared {
    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attempts(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_header(&self, key: &str, header: (String, String)) {
        self.headers.write().unwrap_or_else(PoisonError::into_inner).insert(key.into(), header);
    }

    /// Counts a request; returns its number from 0 and how often its key was asked for, from 1.
    fn count(&self, key: &str) -> (u64, u64) {
        let number = self.requests.fetch_add(1, Relaxed);
        let mut attempts = self.attempts();
        let Some(attempt) = attempts.get_mut(key) else {
            attempts.insert(key.into(), 1);
            return (number, 1);
        };
        *attempt += 1;
        (number, *attempt)
    }

    /// Waits, but not longer than the server lives. False when it stops.
    fn pause(&self, time: Duration) -> bool {
        if time.is_zero() {
            return true;
        }
        let waited = self.changed.wait_timeout_while(self.live(), time, |live| !live.stopping);
        !waited.unwrap_or_else(PoisonError::into_inner).0.stopping
    }
}

fn close_all(live: &Live) {
    for stream in live.streams.values() {
        drop(stream.shutdown(Shutdown::Both));
    }
}

/// Small, because there may be hundreds; nothing below recurses or keeps buffers on its stack.
const STACK_BYTES: usize = 256 << 10;

fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    loop {
        let accepted = listener.accept();
        let mut live = shared.live();
        if live.stopping {
            return;
        }
        let Ok((stream, _)) = accepted else {
            drop(live);
            // Out of file descriptors: connections that end will free some.
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        if shared.down.load(Relaxed) || stream.set_nodelay(true).is_err() {
            continue;
        }
        let (number, stream) = (live.connections, Arc::new(stream));
        live.connections += 1;
        live.streams.insert(number, Arc::clone(&stream));
        live.most_open = live.most_open.max(live.streams.len() as u64);
        drop(live);
        let serving = Arc::clone(shared);
        let spawned = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
            connection::serve(&serving, &stream, number);
            drop(stream);
            serving.live().streams.remove(&number);
            serving.changed.notify_all();
        });
        if spawned.is_err() {
            shared.live().streams.remove(&number);
        }
    }
}
