//! A few pages and one stream of events over HTTP, for people with a browser on this or another machine. Read-only.
//!
//! Pages are compiled in and say nothing about anybody, so they are given to whoever asks; the stream and the state are for
//! those whom the token lets in. The stream is that of server-sent events: each client first gets what happened before, then
//! every new state. Connections are bounded in number, a slow reader is dropped, and a state is made once for all of them.

use crate::MetricsOptions;
use crate::http::{Guard, REQUEST_TIME, Request, TOO_LONG, bind, read_head, wake, write_answer};
use crate::server::lock;
use forebay_core::{Error, Result};
use std::fmt;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Most connections at once.
const CONNECTIONS: usize = 32;
/// Most of them that follow the stream.
const CLIENTS: usize = 16;
/// How often there is a new state while somebody follows, and while nobody does.
const LIVE: Duration = Duration::from_secs(1);
const IDLE: Duration = Duration::from_secs(5);
/// A reader that takes no byte for so long is dropped.
const PATIENCE: Duration = Duration::from_secs(10);

/// What browsers are told about every answer: nothing from elsewhere, nothing kept, shown in no other page.
const HEADERS: &str = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
    Cross-Origin-Resource-Policy: same-origin\r\nContent-Security-Policy: default-src 'none'; script-src 'self'; \
    style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n";

/// Type and headers of what is refused.
const PLAIN: (&str, &str) = ("text/plain; charset=utf-8", HEADERS);

/// Something that is always the same.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// From `/` on.
    pub path: &'static str,
    /// Its type.
    pub kind: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// What is told while it runs. Texts are JSON in one line.
pub trait Events: Send + 'static {
    /// The state now; called about once a second by one thread.
    fn state(&mut self) -> String;

    /// What a client that comes now is told of the time before.
    fn history(&self) -> String;
}

/// A place where pages are shown. Dropping it ends it.
pub struct PageServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl fmt::Debug for PageServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageServer").field("address", &self.address).finish_non_exhaustive()
    }
}

struct Shared {
    guard: Guard,
    pages: &'static [Page],
    told: Mutex<Told>,
    changed: Condvar,
    connections: AtomicUsize,
    clients: AtomicUsize,
    stopping: AtomicBool,
}

#[derive(Default)]
struct Told {
    /// One more with every state.
    number: u64,
    state: Arc<str>,
    history: Arc<str>,
}

impl PageServer {
    /// Begins to answer.
    pub fn start(options: &MetricsOptions, pages: &'static [Page], mut events: impl Events) -> Result<Self> {
        let doing = format!("show the dashboard at `{}`", options.listen);
        let (listener, address) = bind(options, &doing)?;
        let shared = Arc::new(Shared {
            guard: Guard::new(options.token.as_deref()),
            pages,
            told: Mutex::default(),
            changed: Condvar::new(),
            connections: AtomicUsize::new(0),
            clients: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
        });
        let mut threads = Vec::new();
        let mut spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name.into()).spawn(run);
            thread.map(|thread| threads.push(thread)).map_err(|error| Error::io(doing.clone(), error))
        };
        let own = Arc::clone(&shared);
        spawn("forebay-look", Box::new(move || own.look(&mut events)))?;
        let own = Arc::clone(&shared);
        spawn("forebay-pages", Box::new(move || own.accept(&listener)))?;
        Ok(Self { address, shared, threads })
    }

    /// Where it listens, with the port that was given.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        drop(lock(&self.shared.told));
        self.shared.changed.notify_all();
        if wake(self.address) {
            for thread in self.threads.drain(..) {
                // One that panicked has said so.
                let _ = thread.join();
            }
        }
    }
}

/// Counts one more while it lives.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize, most: usize) -> Option<Self> {
        let counted = Self(count);
        (count.fetch_add(1, Ordering::AcqRel) < most).then_some(counted)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Makes states until the end.
    fn look(&self, events: &mut impl Events) {
        while !self.is_stopping() {
            let began = Instant::now();
            let (state, history) = (events.state(), events.history());
            let mut told = lock(&self.told);
            *told = Told { number: told.number + 1, state: state.into(), history: history.into() };
            self.changed.notify_all();
            // A client that comes while nobody followed is not made to wait for its first new state.
            while !self.is_stopping() {
                let pause = if self.clients.load(Ordering::Acquire) > 0 { LIVE } else { IDLE };
                let left = pause.saturating_sub(began.elapsed());
                if left.is_zero() {
                    break;
                }
                let waited = self.changed.wait_timeout(told, left);
                told = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        loop {
            let accepted = listener.accept();
            if self.is_stopping() {
                return;
            }
            let Ok((stream, _)) = accepted else {
                // Too many open files, most likely: trying at once would turn this into a busy loop.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            self.connections.fetch_add(1, Ordering::AcqRel);
            let own = Arc::clone(self);
            let answering = std::thread::Builder::new().name("forebay-page".into()).spawn(move || {
                let _leaving = Counted(&own.connections);
                if let Err(error) = own.answer(stream) {
                    tracing::debug!(%error, "a reader of pages was not answered");
                }
            });
            if let Err(error) = answering {
                self.connections.fetch_sub(1, Ordering::AcqRel);
                tracing::debug!(%error, "a reader of pages was not answered");
            }
            // More than are allowed at once are not even listened to.
            while self.connections.load(Ordering::Acquire) >= CONNECTIONS && !self.is_stopping() {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_write_timeout(Some(PATIENCE))?;
        let Some(head) = read_head(&mut stream, Instant::now() + REQUEST_TIME)? else {
            return write_answer(&mut stream, TOO_LONG, PLAIN, "the head is too long\n", true);
        };
        let Some(request) = Request::read(&head) else { return refuse(&mut stream, "400 Bad Request") };
        if !self.guard.asks() && !request.is_for_loopback() {
            return refuse(&mut stream, "421 Misdirected Request");
        }
        if request.method != "GET" && request.method != "HEAD" {
            return refuse(&mut stream, "405 Method Not Allowed");
        }
        let with_body = request.method == "GET";
        if let Some(page) = self.pages.iter().find(|page| page.path == request.path) {
            return write_answer(&mut stream, "200 OK", (page.kind, HEADERS), page.text, with_body);
        }
        if !["/state", "/events"].contains(&request.path) {
            return refuse(&mut stream, "404 Not Found");
        }
        if !self.guard.lets_in(&request) {
            return refuse(&mut stream, "401 Unauthorized");
        }
        if request.path == "/state" {
            let state = Arc::clone(&lock(&self.told).state);
            return write_answer(&mut stream, "200 OK", ("application/json", HEADERS), &state, with_body);
        }
        let Some(_client) = Counted::new(&self.clients, CLIENTS) else {
            return refuse(&mut stream, "503 Service Unavailable");
        };
        drop(lock(&self.told));
        self.changed.notify_all();
        self.follow(&mut stream)
    }

    /// Tells a client everything from now on.
    fn follow(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n{HEADERS}Connection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes())?;
        let mut seen = 0;
        loop {
            let mut told = lock(&self.told);
            while told.number == seen && !self.is_stopping() {
                told = self.changed.wait(told).unwrap_or_else(PoisonError::into_inner);
            }
            if self.is_stopping() {
                return Ok(());
            }
            let (state, history, first) = (Arc::clone(&told.state), Arc::clone(&told.history), seen == 0);
            seen = told.number;
            drop(told);
            if first {
                write!(stream, "event: history\ndata: {history}\n\n")?;
            }
            write!(stream, "event: state\ndata: {state}\n\n")?;
            stream.flush()?;
        }
    }
}

fn refuse(stream: &mut TcpStream, status: &str) -> std::io::Result<()> {
    write_answer(stream, status, PLAIN, &format!("{status}\n"), true)
}

#[cfg(test)]
mod tests;
