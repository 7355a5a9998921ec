//! Figures for those who ask over HTTP: `GET /metrics` in the text of Prometheus, and the few other [`Pages`].
//!
//! One thread answers one request after the other, each within a time and of a bounded size: a reader that is slow or
//! says nonsense costs the others a moment and this process nothing. Beyond this machine it shows figures only to those
//! who show a token. What is shown comes from whoever starts it, made anew for each request.

mod figures;
mod pages;

pub use figures::{FigureOptions, ShownFigures};
pub use pages::{Check, Pages, Show};

use crate::http::{Guard, REQUEST_TIME, Request, TOO_LONG, bind, read_head, wake, write_answer};
use forebay_core::{Error, Result};
use pages::{Answer, Page};
use std::fmt;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Where figures are shown, and to whom.
#[derive(Clone, Default)]
pub struct MetricsOptions {
    /// `host:port`; port 0 is any free one.
    pub listen: String,
    /// What a reader must show as `Authorization: Bearer`; `None` is for this machine only.
    pub token: Option<String>,
}

impl MetricsOptions {
    /// With the token that a file holds.
    pub fn new(listen: &str, token_file: Option<&Path>) -> Result<Self> {
        let token = token_file.map(|path| {
            let text = std::fs::read_to_string(path)
                .map_err(|error| Error::io(format!("read token file `{}`", path.display()), error))?;
            Ok::<_, Error>(text.trim().to_owned())
        });
        Ok(Self { listen: listen.to_owned(), token: token.transpose()? })
    }

    /// As [`Self::new`], the port being that of the first of several processes, of which this is number `offset`.
    fn at(listen: &str, token_file: Option<&Path>, offset: u64) -> Result<Self> {
        let port = listen.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
        let Some((host, port)) = port else {
            let why = format!("read `metrics`: `{listen}` is no address such as `127.0.0.1:9464`");
            return Err(Error::invalid_config(why));
        };
        let port = match port {
            0 => 0,
            port => u16::try_from(u64::from(port) + offset).map_err(|_| {
                Error::invalid_config(format!(
                    "read `metrics`: no port is left after {port} for {offset} other ranks"
                ))
            })?,
        };
        Self::new(&format!("{host}:{port}"), token_file)
    }
}

impl fmt::Debug for MetricsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MetricsOptions({})", self.listen)
    }
}

/// A place where figures are shown. Dropping it ends it.
#[derive(Debug)]
pub struct MetricsServer {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Begins to answer.
    pub fn start(options: &MetricsOptions, pages: impl Into<Pages>) -> Result<Self> {
        let listen = &options.listen;
        let (listener, address) = bind(options, &format!("show metrics at `{listen}`"))?;
        let stopping = Arc::<AtomicBool>::default();
        let answering = Answering {
            guard: Guard::new(options.token.as_deref()),
            pages: pages.into(),
            stopping: Arc::clone(&stopping),
        };
        let thread = std::thread::Builder::new()
            .name("forebay-metrics".into())
            .spawn(move || answering.run(&listener))
            .map_err(|error| Error::io(format!("show metrics at `{listen}`"), error))?;
        Ok(Self { address, stopping, thread: Some(thread) })
    }

    /// Where it listens, with the port that was given.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        let is_own =
            self.thread.as_ref().is_some_and(|thread| thread.thread().id() == std::thread::current().id());
        if is_own {
            return;
        }
        if let (true, Some(thread)) = (wake(self.address), self.thread.take()) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

struct Answering {
    guard: Guard,
    pages: Pages,
    stopping: Arc<AtomicBool>,
}

impl Answering {
    fn run(&self, listener: &TcpListener) {
        loop {
            let accepted = listener.accept();
            if self.stopping.load(Ordering::Acquire) {
                return;
            }
            match accepted {
                Ok((stream, _)) => {
                    if let Err(error) = self.answer(stream) {
                        tracing::debug!(%error, "a reader of metrics was not answered");
                    }
                }
                // Too many open files, most likely: trying at once would turn this into a busy loop.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let until = Instant::now() + REQUEST_TIME;
        stream.set_write_timeout(Some(REQUEST_TIME))?;
        let head = read_head(&mut stream, until)?;
        let ((status, kind, body), with_body) = match head.as_deref().map(|head| self.judge(head)) {
            Some(Verdict::Show { page, with_body }) => (self.pages.show(page), with_body),
            Some(Verdict::Refuse(status)) => (refusal(status, status), true),
            None => (refusal(TOO_LONG, "the head is too long"), true),
        };
        write_answer(&mut stream, status, (kind, ""), &body, with_body)
    }

    fn judge(&self, head: &str) -> Verdict {
        let Some(request) = Request::read(head) else { return Verdict::Refuse("400 Bad Request") };
        let page = self.pages.at(request.path);
        if page.is_none_or(Page::is_guarded) && !self.guard.lets_in(&request) {
            return Verdict::Refuse("401 Unauthorized");
        }
        match (request.method, page) {
            (_, None) => Verdict::Refuse("404 Not Found"),
            ("GET", Some(page)) => Verdict::Show { page, with_body: true },
            ("HEAD", Some(page)) => Verdict::Show { page, with_body: false },
            _ => Verdict::Refuse("405 Method Not Allowed"),
        }
    }
}

fn refusal(status: &'static str, why: &str) -> Answer {
    (status, "text/plain", format!("{why}\n"))
}

enum Verdict {
    Show { page: Page, with_body: bool },
    Refuse(&'static str),
}

#[cfg(test)]
mod tests;
