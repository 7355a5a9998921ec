//! Taking connections in, and refusing addresses where anyone could connect.
//!
//! [`Listener::accept`] only takes a connection; [`Arriving::meet`] makes the beginning with it and belongs into the
//! connection's own thread, so that someone who says nothing keeps nobody else waiting. Those who are being met and
//! those who were are counted, each up to a limit.

use super::address::Address;
use super::begin::{self, VERSIONS};
use super::link::{Ends, Receiving, Sending, halves};
use super::shown::Shown;
use super::socket::{BytesIn, Input, Output, Socket, Timed};
use super::tls;
use crate::credentials::{Credentials, PeerTls};
use crate::handshake::TIME;
use crate::host;
use forebay_core::{Error, Result};
use rustls::{Connection, ServerConfig, ServerConnection, Stream};
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Limits of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// Connections at once; further ones are told that there are too many.
    pub max_connections: usize,
    /// Connections that have not shown yet who they are, at once; further ones are closed without a word.
    pub max_arriving: usize,
    /// How long a beginning may take.
    pub begin_time: Duration,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self { max_connections: 1024, max_arriving: 64, begin_time: TIME }
    }
}

/// Listens for clients. Dropping it removes a unix socket's file.
pub struct Listener {
    shared: Arc<Shared>,
    address: Address,
    credentials: Credentials,
    tls: Option<Arc<ServerConfig>>,
    options: ListenOptions,
    connected: Arc<AtomicUsize>,
    arriving: Arc<AtomicUsize>,
}

struct Shared {
    socket: Listening,
    closed: AtomicBool,
}

enum Listening {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Ends a listener from any thread.
#[derive(Clone)]
pub struct ListenerCloser(Arc<Shared>);

/// Someone who has connected and not shown yet who it is.
pub struct Arriving {
    socket: Socket,
    peer: String,
    token: Option<crate::Token>,
    tls: Option<Arc<ServerConfig>>,
    until: Instant,
    place: Option<Place>,
    _waiting: Place,
}

/// One of a limited number.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(count: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let one_more = |count| (count < most).then_some(count + 1);
        count.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok()?;
        Some(Self(count.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Listener {
    /// Listens at an address; port 0 is any free one.
    ///
    /// Beyond this machine it takes a token or certificates. With a token alone bytes are not encrypted, which is
    /// said in the log.
    pub fn bind(address: &Address, credentials: &Credentials, options: ListenOptions) -> Result<Self> {
        let fail = |error| Error::io(format!("listen at `{address}`"), error);
        let mut tls = None;
        let (socket, address) = match address {
            Address::Tcp(text) => {
                tls = credentials.tls.as_ref().map(PeerTls::server).transpose()?;
                let listener = TcpListener::bind(text).map_err(fail)?;
                let bound = listener.local_addr().map_err(fail)?;
                if !bound.ip().is_loopback() && tls.is_none() {
                    if credentials.token.is_none() {
                        let why = format!("listen at `{address}`: anyone who reaches it could read batches");
                        return Err(Error::invalid_config(why)
                            .with_hint("give a token or certificates, or listen at 127.0.0.1"));
                    }
                    tracing::warn!(address = %bound, "batches are not encrypted; give certificates if others can listen");
                }
                (Listening::Tcp(listener), Address::Tcp(bound.to_string()))
            }
            Address::Unix(path) => {
                let listener = bind_unix(path).map_err(fail)?;
                (Listening::Unix(listener), address.clone())
            }
        };
        let shared = Arc::new(Shared { socket, closed: AtomicBool::new(false) });
        Ok(Self {
            shared,
            address,
            credentials: credentials.clone(),
            tls,
            options,
            connected: Arc::default(),
            arriving: Arc::default(),
        })
    }

    /// Where it listens, with the port that was given.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Connections that were met and have not ended.
    pub fn connections(&self) -> usize {
        self.connected.load(Ordering::Acquire)
    }

    /// Ends it from elsewhere.
    pub fn closer(&self) -> ListenerCloser {
        ListenerCloser(self.shared.clone())
    }

    /// The next one who connects; `None` when it was closed.
    pub fn accept(&self) -> Result<Option<Arriving>> {
        loop {
            let accepted = match &self.shared.socket {
                Listening::Tcp(listener) => listener
                    .accept()
                    .and_then(|(stream, from)| Ok((Socket::tcp(stream)?, format!("client at `{from}`")))),
                Listening::Unix(listener) => {
                    let name = || format!("client at `{}`", self.address);
                    listener.accept().map(|(stream, _)| (Socket::Unix(stream), name()))
                }
            };
            if self.shared.closed.load(Ordering::Acquire) {
                return Ok(None);
            }
            let (socket, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // No descriptors left, mostly: those who are connected go on, and the next may find one.
                    tracing::warn!(%error, "a connection could not be taken in");
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                }
            };
            let unix = matches!(socket, Socket::Unix(_));
            if unix && let Err(error) = host::check_peer(&socket) {
                tracing::warn!(%error, "a process of another user was turned away");
                continue;
            }
            let Some(arriving) = Place::take(&self.arriving, self.options.max_arriving) else {
                tracing::warn!(%peer, "too many connections say nothing; one was closed");
                continue;
            };
            return Ok(Some(Arriving {
                socket,
                peer,
                token: self.credentials.token.clone().filter(|_| !unix),
                tls: self.tls.clone(),
                until: Instant::now() + self.options.begin_time,
                place: Place::take(&self.connected, self.options.max_connections),
                _waiting: arriving,
            }));
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Address::Unix(path) = &self.address {
            // It may have been removed already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A socket that only its user may enter. One that is left over from a process that is gone makes way.
fn bind_unix(path: &Path) -> std::io::Result<UnixListener> {
    let left_over = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
        && UnixStream::connect(path)
            .is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused);
    if left_over {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

impl ListenerCloser {
    /// Ends it, also while a thread waits in [`Listener::accept`]. Connections that were taken go on.
    pub fn close(&self) {
        self.0.closed.store(true, Ordering::Release);
        // Wakes up whoever waits; a listener that is not connected says so, which is fine.
        let _ = rustix::net::shutdown(self.0.socket.as_fd(), rustix::net::Shutdown::Both);
    }
}

impl std::fmt::Debug for ListenerCloser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ListenerCloser")
    }
}

impl Arriving {
    /// Who it is, in words.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Makes the beginning. An error says why it was turned away; it has been told, where that was possible.
    pub fn meet(self) -> Result<(Sending, Receiving)> {
        let Self { socket, peer, token, tls, until, place, _waiting: waiting } = self;
        let socket = Arc::new(socket);
        let mut timed = Timed { socket: &socket, until };
        let (token, busy) = (token.as_ref(), place.is_none());
        let (output, input): (Box<dyn Output>, Box<dyn Input>) = match tls {
            None => {
                begin::accept(&mut timed, &peer, token, busy, VERSIONS)?;
                (Box::new(socket.clone()), Box::new(BytesIn::new(socket.clone())))
            }
            Some(config) => {
                let mut connection = ServerConnection::new(config)
                    .map_err(|error| Error::internal("set up TLS").with_source(error))?;
                let mut sealed = Stream::new(&mut connection, &mut timed);
                begin::accept(&mut sealed, &peer, token, busy, VERSIONS)?;
                tls::split(Connection::Server(connection), socket.clone())
            }
        };
        socket.set_time(None).map_err(|error| Error::io(format!("meet {peer}"), error))?;
        drop(waiting);
        let shown = matches!(*socket, Socket::Unix(_)).then(Shown::default);
        let place = place.map(|place| Box::new(place) as Box<dyn Send + Sync>);
        let ends = Ends {
            peer,
            socket: Some(socket),
            shown,
            unseen: None,
            unfinished: Mutex::default(),
            _place: place,
        };
        Ok(halves(output, input, Arc::new(ends)))
    }
}
