//! A web server that does what a test tells it to, byte for byte.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// What a client sent.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
    /// Counted from 0 over all connections.
    pub(crate) number: usize,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// What it gets back.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    bytes: Vec<u8>,
    close: bool,
}

impl Answer {
    /// These bytes and nothing else.
    pub(crate) fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), close: false }
    }

    /// Status, headers without a length, body; the length is added.
    pub(crate) fn new(status: u16, headers: &str, body: &[u8]) -> Self {
        Self::claiming(status, headers, body.len(), body)
    }

    /// As [`Self::new`] with a length that need not be true.
    pub(crate) fn claiming(status: u16, headers: &str, length: usize, body: &[u8]) -> Self {
        let mut bytes =
            format!("HTTP/1.1 {status} x\r\n{headers}Content-Length: {length}\r\n\r\n").into_bytes();
        bytes.extend(body);
        Self::raw(bytes)
    }

    /// Then the connection ends.
    pub(crate) fn and_close(mut self) -> Self {
        self.close = true;
        self
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    connections: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(crate) async fn start(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        Self::start_with(None, answer).await
    }

    pub(crate) async fn start_with(
        tls: Option<TlsAcceptor>,
        answer: impl Fn(&Request) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, connections) = (Arc::new(Mutex::default()), Arc::new(AtomicUsize::new(0)));
        let (seen, accepted, answer) = (Arc::clone(&requests), Arc::clone(&connections), Arc::new(answer));
        let task = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                accepted.fetch_add(1, SeqCst);
                let (seen, answer, tls) = (Arc::clone(&seen), Arc::clone(&answer), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => talk(stream, &seen, &*answer).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                talk(stream, &seen, &*answer).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, requests, connections, task }
    }

    pub(crate) fn root(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }
}

async fn talk<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    seen: &Mutex<Vec<Request>>,
    answer: &(dyn Fn(&Request) -> Answer + Send + Sync),
) {
    let mut bytes = Vec::new();
    loop {
        let Some(mut request) = head(&mut stream, &mut bytes).await else { return };
        let length: usize = request.header("content-length").parse().unwrap_or(0);
        if request.header("expect") == "100-continue" {
            let _ = stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await;
        }
        while bytes.len() < length {
            if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return;
            }
        }
        request.body = bytes.drain(..length).collect();
        let answer = {
            let mut seen = seen.lock().unwrap();
            request.number = seen.len();
            seen.push(request.clone());
            answer(&request)
        };
        if stream.write_all(&answer.bytes).await.is_err() || answer.close {
            let _ = stream.shutdown().await;
            return;
        }
    }
}

async fn head<S: AsyncRead + Unpin>(stream: &mut S, bytes: &mut Vec<u8>) -> Option<Request> {
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(bytes).await.unwrap_or(0) == 0 {
            return None;
        }
    };
    let text = String::from_utf8(bytes.drain(..end).collect()).ok()?;
    let mut lines = text.lines();
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let header =
        |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    let headers = lines.filter_map(header).collect();
    Some(Request { method, path, headers, body: Vec::new(), number: 0 })
}

/// A server that keeps what is put and gives it back by ranges, with an etag that counts writes.
pub(crate) async fn objects() -> Server {
    let kept: Mutex<BTreeMap<String, (Vec<u8>, usize)>> = Mutex::default();
    Server::start(move |request| {
        let mut kept = kept.lock().unwrap();
        if request.method == "PUT" {
            kept.insert(request.path.clone(), (request.body.clone(), request.number));
            return Answer::new(201, "", b"");
        }
        match kept.get(&request.path) {
            None => Answer::new(404, "", if request.method == "HEAD" { b"" } else { b"nothing here" }),
            Some((bytes, version)) => ranged(request, bytes, &format!("ETag: \"{version}\"\r\n")),
        }
    })
    .await
}

/// The answer to GET or HEAD of `bytes`.
pub(crate) fn ranged(request: &Request, bytes: &[u8], headers: &str) -> Answer {
    let size = bytes.len();
    if request.method == "HEAD" {
        return Answer::claiming(200, headers, size, b"");
    }
    let Some(range) = request.header("range").strip_prefix("bytes=") else {
        return Answer::new(200, headers, bytes);
    };
    let (first, last) = range.split_once('-').unwrap();
    let (start, end) = match (first.parse::<usize>(), last.parse::<usize>()) {
        (Ok(first), Ok(last)) => (first, last.saturating_add(1).min(size)),
        (Ok(first), Err(_)) => (first, size),
        (Err(_), Ok(length)) => (size.saturating_sub(length), size),
        _ => (size, size),
    };
    if start >= end {
        return Answer::new(416, &format!("Content-Range: bytes */{size}\r\n"), b"");
    }
    let headers = format!("{headers}Content-Range: bytes {start}-{}/{size}\r\n", end - 1);
    Answer::new(206, &headers, &bytes[start..end])
}
