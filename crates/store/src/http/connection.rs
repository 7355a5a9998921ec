//! One connection to one host: made by name, plain or under TLS, with the reasons when it cannot be made.

use super::options::HttpOptions;
use bytes::BytesMut;
use forebay_core::{Error, ErrorKind, Result};
use rustls::pki_types::ServerName;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Addresses of a name are asked for again after this time.
const NAMES_KEPT: Duration = Duration::from_secs(5);

/// A connection with what was read from it too early.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) ahead: BytesMut,
    pub(crate) last_used: Instant,
}

#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection {
    /// Whether the other side has closed it, or sent what nobody asked for. Costs nothing extra: the next read would
    /// have had to find out that there is nothing yet.
    pub(crate) fn is_stale(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => {
                !matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
            }
            // Session tickets may wait to be read, so bytes under TLS prove nothing.
            Stream::Tls(_) => false,
        }
    }
}

/// Host and port, and the addresses behind them.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) is_tls: bool,
    /// As the URL has it: IPv6 addresses stand in brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    names: Mutex<Option<(Instant, Arc<[SocketAddr]>)>>,
    next: AtomicUsize,
}

impl Target {
    pub(crate) fn new(is_tls: bool, host: &str, port: u16) -> Self {
        let (names, next) = (Mutex::default(), AtomicUsize::new(0));
        Self { is_tls, host: host.to_owned(), port, names, next }
    }

    pub(crate) async fn connect(
        &self,
        options: &HttpOptions,
        tls: Option<Arc<rustls::ClientConfig>>,
    ) -> Result<Connection> {
        let addresses = self.addresses(options.connect_timeout).await?;
        // Connections spread over all addresses of a name: large stores have many machines behind one.
        let first = self.next.fetch_add(1, Relaxed);
        let share = options.connect_timeout / addresses.len().clamp(1, 4) as u32;
        let mut failed = None;
        for number in 0..addresses.len() {
            let address = addresses[(first.wrapping_add(number)) % addresses.len()];
            match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return self.secure(stream, options, tls).await,
                Ok(Err(error)) => failed = Some(error),
                Err(_) => failed = Some(io::Error::new(io::ErrorKind::TimedOut, no_answer(share))),
            }
        }
        let failed = failed.unwrap_or_else(|| io::Error::other("the name has no address"));
        let message = format!("connect to `{}:{}`", self.host, self.port);
        Err(Error::unavailable(message).with_source(failed).with_away())
    }

    async fn secure(
        &self,
        stream: TcpStream,
        options: &HttpOptions,
        tls: Option<Arc<rustls::ClientConfig>>,
    ) -> Result<Connection> {
        let doing = || format!("connect to `{}:{}`", self.host, self.port);
        // Requests are small and one write each: waiting to fill a packet would only delay them.
        stream.set_nodelay(true).map_err(|error| Error::unavailable(doing()).with_source(error))?;
        let stream = match tls {
            None => Stream::Plain(stream),
            Some(config) => {
                let name = ServerName::try_from(self.bare_host().to_owned()).map_err(|error| {
                    Error::invalid_config(format!("{}: not a name that TLS knows", doing()))
                        .with_source(error)
                })?;
                let secured =
                    timeout(options.connect_timeout, TlsConnector::from(config).connect(name, stream));
                let Ok(secured) = secured.await else {
                    let why = no_answer(options.connect_timeout);
                    return Err(Error::unavailable(format!("{} by TLS: {why}", doing())).with_away());
                };
                let stream = secured.map_err(|error| ended_early(doing(), error))?;
                Stream::Tls(Box::new(stream))
            }
        };
        Ok(Connection { stream, ahead: BytesMut::new(), last_used: Instant::now() })
    }

    async fn addresses(&self, limit: Duration) -> Result<Arc<[SocketAddr]>> {
        let kept = self.names.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, addresses)) = kept.filter(|(found, _)| found.elapsed() < NAMES_KEPT) {
            return Ok(addresses);
        }
        let failed = |why: io::Error| {
            Error::unavailable(format!("look up host `{}`", self.host))
                .with_source(why)
                .with_away()
                .with_hint("check the host name, and that this machine can reach a name server")
        };
        let found = timeout(limit, tokio::net::lookup_host((self.bare_host(), self.port))).await;
        let found = found.map_err(|_| failed(io::Error::new(io::ErrorKind::TimedOut, no_answer(limit))))?;
        let addresses: Arc<[SocketAddr]> = found.map_err(failed)?.collect();
        *self.names.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((Instant::now(), addresses.clone()));
        Ok(addresses)
    }

    fn bare_host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }
}

/// The error of a connection that broke before the other side had said a word: nobody is there, unless it was TLS that
/// ended it.
pub(crate) fn ended_early(message: String, error: io::Error) -> Error {
    let by_tls = error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>);
    let broken = broken(message, error);
    if by_tls { broken } else { broken.with_away() }
}

/// The error of a connection that broke: refused certificates are told from lost ones.
pub(crate) fn broken(message: String, error: io::Error) -> Error {
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let (kind, hint) = match cause {
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) => (
            ErrorKind::Denied,
            "give the CA that signed it as `tls_ca_file`; `tls_verify = \"false\"` trusts anyone",
        ),
        Some(rustls::Error::AlertReceived(_)) => (
            ErrorKind::Denied,
            "the server may want a certificate: give `tls_client_cert` and `tls_client_key`",
        ),
        Some(_) => (ErrorKind::Unavailable, "does the server speak TLS on this port?"),
        None => return Error::unavailable(message).with_source(error),
    };
    Error::new(kind, message).with_source(error).with_hint(hint)
}

pub(crate) fn no_answer(after: Duration) -> String {
    format!("no answer in {:.1} s", after.as_secs_f64())
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
