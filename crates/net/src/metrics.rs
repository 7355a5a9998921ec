//! Figures for those who ask over HTTP: `GET /metrics` in the text of Prometheus, and the few other [`Pages`].
//!
//! One thread answers one request after the other, each within a time and of a bounded size: a reader that is slow or
//! says nonsense costs the others a moment and this process nothing. Beyond this machine it shows figures only to those
//! who show a token. What is shown comes from whoever starts it, made anew for each request.

mod pages;

pub use pages::{Check, Pages, Show};

use forebay_core::{Error, Result};
use pages::{Answer, Page};
use ring::hmac;
use serde::Deserialize;
use serde_json::Value;
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time for one request, from its first byte to the last of the answer.
const REQUEST_TIME: Duration = Duration::from_secs(1);
/// Bytes of a request's head.
const HEAD_BYTES: usize = 8 << 10;
/// Shortest token: what is shorter is guessed.
const SHORTEST_TOKEN: usize = 16;

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

    /// From the setting `metrics`: an address, or a table with `listen` and `token_file`. The ranks of a host listen at
    /// one port after the other, of which this is number `offset`.
    pub fn from_json(value: &Value, offset: u64) -> Result<Self> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            listen: String,
            token_file: Option<PathBuf>,
        }
        let table = match value {
            Value::String(listen) => Table { listen: listen.clone(), token_file: None },
            other => Table::deserialize(other)
                .map_err(|error| Error::invalid_config("read `metrics`").with_source(error))?,
        };
        let port =
            table.listen.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
        let Some((host, port)) = port else {
            let why = format!("read `metrics`: `{}` is no address such as `127.0.0.1:9464`", table.listen);
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
        Self::new(&format!("{host}:{port}"), table.token_file.as_deref())
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
        let doing = || format!("show metrics at `{listen}`");
        let mut addresses =
            listen.to_socket_addrs().map_err(|error| Error::invalid_config(doing()).with_source(error))?;
        let address = addresses.next();
        let address =
            address.ok_or_else(|| Error::invalid_config(format!("{}: no such address", doing())))?;
        match &options.token {
            None if !address.ip().is_loopback() => {
                let why = format!("{}: others than this machine could read them", doing());
                return Err(Error::invalid_config(why)
                    .with_hint("listen on 127.0.0.1, or give a file with a token that readers must show"));
            }
            Some(token) if token.len() < SHORTEST_TOKEN => {
                let why = format!(
                    "{}: the token has {} bytes, give at least {SHORTEST_TOKEN}",
                    doing(),
                    token.len()
                );
                return Err(Error::invalid_config(why));
            }
            _ => {}
        }
        let listener = TcpListener::bind(address).map_err(|error| Error::io(doing(), error))?;
        let address = listener.local_addr().map_err(|error| Error::io(doing(), error))?;
        let stopping = Arc::<AtomicBool>::default();
        let answering = Answering {
            key: options.token.as_ref().map(|token| hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes())),
            pages: pages.into(),
            stopping: Arc::clone(&stopping),
        };
        let thread = std::thread::Builder::new()
            .name("forebay-metrics".into())
            .spawn(move || answering.run(&listener))
            .map_err(|error| Error::io(doing(), error))?;
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
        // Whoever waits for a connection is woken by one.
        let ip = match self.address.ip() {
            ip if !ip.is_unspecified() => ip,
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        let is_own =
            self.thread.as_ref().is_some_and(|thread| thread.thread().id() == std::thread::current().id());
        if is_own {
            return;
        }
        let woken = TcpStream::connect_timeout(&(ip, self.address.port()).into(), REQUEST_TIME).is_ok();
        if let (true, Some(thread)) = (woken, self.thread.take()) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

struct Answering {
    key: Option<hmac::Key>,
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
            None => (refusal("431 Request Header Fields Too Large", "the head is too long"), true),
        };
        write_answer(&mut stream, status, kind, &body, with_body)
    }

    fn judge(&self, head: &str) -> Verdict {
        let mut lines = head.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Verdict::Refuse("400 Bad Request");
        };
        if !version.starts_with("HTTP/1.") {
            return Verdict::Refuse("400 Bad Request");
        }
        let page = self.pages.at(target.split('?').next().unwrap_or_default());
        if page.is_none_or(Page::is_guarded) && !self.is_known(lines) {
            return Verdict::Refuse("401 Unauthorized");
        }
        match (method, page) {
            (_, None) => Verdict::Refuse("404 Not Found"),
            ("GET", Some(page)) => Verdict::Show { page, with_body: true },
            ("HEAD", Some(page)) => Verdict::Show { page, with_body: false },
            _ => Verdict::Refuse("405 Method Not Allowed"),
        }
    }

    /// Whether these headers show the token, where one is asked for.
    fn is_known<'a>(&self, headers: impl Iterator<Item = &'a str>) -> bool {
        let Some(key) = &self.key else { return true };
        let shown = headers
            .filter_map(|line| line.split_once(':'))
            .filter(|(name, _)| name.eq_ignore_ascii_case("authorization"))
            .find_map(|(_, value)| value.trim().strip_prefix("Bearer "));
        // Compared by keyed hashes: how long that takes tells nothing about the token.
        let expected = hmac::sign(key, TOKEN_PROOF);
        shown.is_some_and(|token| {
            let theirs = hmac::Key::new(hmac::HMAC_SHA256, token.trim().as_bytes());
            hmac::verify(&theirs, TOKEN_PROOF, expected.as_ref()).is_ok()
        })
    }
}

fn refusal(status: &'static str, why: &str) -> Answer {
    (status, "text/plain", format!("{why}\n"))
}

const TOKEN_PROOF: &[u8] = b"forebay metrics";

enum Verdict {
    Show { page: Page, with_body: bool },
    Refuse(&'static str),
}

/// The head without its last empty line; `None` when it is too long or not text.
fn read_head(stream: &mut TcpStream, until: Instant) -> std::io::Result<Option<String>> {
    let mut head = Vec::with_capacity(512);
    let mut part = [0; 1024];
    loop {
        if let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            head.truncate(end);
            return Ok(String::from_utf8(head).ok());
        }
        if head.len() >= HEAD_BYTES {
            return Ok(None);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            read => head.extend(&part[..read]),
        }
    }
}

fn write_answer(
    stream: &mut TcpStream,
    status: &str,
    kind: &str,
    body: &str,
    with_body: bool,
) -> std::io::Result<()> {
    let challenge = if status.starts_with("401") { "WWW-Authenticate: Bearer\r\n" } else { "" };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{challenge}Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    if with_body {
        stream.write_all(body.as_bytes())?;
    }
    stream.flush()
}

#[cfg(test)]
mod tests;
