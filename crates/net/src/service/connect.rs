//! Getting to a worker: TCP, with TLS where certificates were given, or a unix socket of this host.

use super::address::Address;
use super::begin::{self, VERSIONS};
use super::link::{Ends, Receiving, Sending, halves};
use super::socket::{BytesIn, DescriptorsIn, Input, Output, Socket, Timed};
use super::tls;
use crate::credentials::{Credentials, PeerTls, tls_fault};
use crate::handshake::TIME;
use crate::host;
use forebay_core::{Error, Result};
use rustls::{ClientConnection, Connection, Stream};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Connects to a worker. Everything together takes at most 10 s.
///
/// On a unix socket the other process must be the same user's, which is all it has to show; credentials are for TCP.
pub fn connect(address: &Address, credentials: &Credentials) -> Result<(Sending, Receiving)> {
    connect_within(address, credentials, TIME)
}

pub(super) fn connect_within(
    address: &Address,
    credentials: &Credentials,
    time: Duration,
) -> Result<(Sending, Receiving)> {
    let peer = format!("worker at `{address}`");
    let until = Instant::now() + time;
    let fail = |error| Error::unavailable(format!("connect to {peer}")).with_source(error);
    let (output, input, socket, unseen): (Box<dyn Output>, Box<dyn Input>, _, _) = match address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).map_err(fail)?;
            host::check_peer(&stream)?;
            let socket = Arc::new(Socket::Unix(stream));
            begin::join(&mut Timed { socket: &socket, until }, &peer, None, VERSIONS)?;
            let input = Box::new(DescriptorsIn::new(socket.clone()));
            (Box::new(socket.clone()), input, socket, Some(Arc::new(Mutex::new(Vec::new()))))
        }
        Address::Tcp(text) => {
            let socket = Arc::new(dial(text, until).and_then(Socket::tcp).map_err(fail)?);
            let mut timed = Timed { socket: &socket, until };
            let token = credentials.token.as_ref();
            let (output, input) = match &credentials.tls {
                None => {
                    begin::join(&mut timed, &peer, token, VERSIONS)?;
                    (Box::new(socket.clone()) as Box<dyn Output>, Box::new(BytesIn::new(socket.clone())) as _)
                }
                Some(files) => {
                    let mut connection = client(files, address.host())?;
                    let mut sealed = Stream::new(&mut connection, &mut timed);
                    // Nothing was sent yet, so a failure here is that of the certificates.
                    while sealed.conn.is_handshaking() {
                        let met = sealed.conn.complete_io(sealed.sock);
                        met.map_err(|error| tls_fault(&format!("connect to {peer}"), error))?;
                    }
                    begin::join(&mut sealed, &peer, token, VERSIONS)?;
                    tls::split(Connection::Client(connection), socket.clone())
                }
            };
            (output, input, socket, None)
        }
    };
    socket.set_time(None).map_err(fail)?;
    let ends =
        Ends { peer, socket: Some(socket), shown: None, unseen, unfinished: Mutex::default(), _place: None };
    Ok(halves(output, input, Arc::new(ends)))
}

fn client(files: &PeerTls, host: &str) -> Result<ClientConnection> {
    ClientConnection::new(files.client()?, files.name_for(host)?)
        .map_err(|error| Error::internal("set up TLS").with_source(error))
}

/// Tries the addresses of a name one after the other.
fn dial(address: &str, until: Instant) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address");
    for target in address.to_socket_addrs()? {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(&target, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
