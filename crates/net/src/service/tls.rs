//! TLS with its two halves in two threads.
//!
//! One lock around the state that both need, never held while a socket is waited for: the reader waits for sealed
//! bytes first and opens them then, the writer seals first and writes then. Only the writer writes. What reading
//! leaves to be said (a new key) goes before the writer's next bytes, which is all that the protocol asks for.

use super::socket::{Input, Output, Socket};
use crate::server::lock;
use rustls::Connection;
use std::io::{Error, ErrorKind, IoSlice, Read, Result};
use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Sealed bytes that are read at once: four of the largest records.
const READ_BYTES: usize = 64 << 10;
/// How long the last word may take; who does not read it is not waited for.
const LAST_WORD: Duration = Duration::from_secs(1);

struct Sealed {
    connection: Mutex<Connection>,
    socket: Arc<Socket>,
}

/// Both halves of a connection on which TLS has begun.
pub(crate) fn split(connection: Connection, socket: Arc<Socket>) -> (Box<dyn Output>, Box<dyn Input>) {
    let sealed = Arc::new(Sealed { connection: Mutex::new(connection), socket });
    let reader = Opening { sealed: sealed.clone(), bytes: vec![0; READ_BYTES], place: 0, end: 0 };
    (Box::new(Sealing { sealed, bytes: Vec::new() }), Box::new(reader))
}

/// The reader's half.
struct Opening {
    sealed: Arc<Sealed>,
    bytes: Vec<u8>,
    place: usize,
    end: usize,
}

impl Read for Opening {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        loop {
            {
                let mut connection = lock(&self.sealed.connection);
                match connection.reader().read(into) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    opened => return opened,
                }
                if self.place < self.end {
                    self.place += connection.read_tls(&mut &self.bytes[self.place..self.end])?;
                    connection.process_new_packets().map_err(damaged)?;
                    continue;
                }
            }
            self.place = 0;
            self.end = self.sealed.socket.read(&mut self.bytes)?;
            if self.end == 0 {
                let mut connection = lock(&self.sealed.connection);
                connection.read_tls(&mut &[][..])?;
                connection.process_new_packets().map_err(damaged)?;
                // An end that was not announced may be someone cutting the stream: it is no end between messages.
                return connection.reader().read(into).map_err(|_| ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

impl Input for Opening {}

fn damaged(error: rustls::Error) -> Error {
    Error::new(ErrorKind::InvalidData, error)
}

/// The writer's half.
struct Sealing {
    sealed: Arc<Sealed>,
    bytes: Vec<u8>,
}

impl Sealing {
    fn write_sealed(&mut self) -> Result<()> {
        self.sealed.socket.send(&mut [IoSlice::new(&self.bytes)], &[])
    }

    fn take_sealed(bytes: &mut Vec<u8>, connection: &mut Connection) -> Result<()> {
        bytes.clear();
        while connection.wants_write() {
            connection.write_tls(bytes)?;
        }
        Ok(())
    }
}

impl Output for Sealing {
    fn write(&mut self, pieces: &mut [IoSlice<'_>], _: &[BorrowedFd<'_>]) -> Result<()> {
        for piece in pieces {
            let mut rest = &piece[..];
            while !rest.is_empty() {
                let count = {
                    let mut connection = lock(&self.sealed.connection);
                    let count = std::io::Write::write(&mut connection.writer(), rest)?;
                    Self::take_sealed(&mut self.bytes, &mut connection)?;
                    count
                };
                if count == 0 && self.bytes.is_empty() {
                    return Err(ErrorKind::WriteZero.into());
                }
                self.write_sealed()?;
                rest = &rest[count..];
            }
        }
        Ok(())
    }

    fn finish(&mut self) {
        let last = {
            let mut connection = lock(&self.sealed.connection);
            connection.send_close_notify();
            Self::take_sealed(&mut self.bytes, &mut connection)
        };
        if last.is_ok() && self.sealed.socket.set_write_time(LAST_WORD).is_ok() {
            // The other side may be gone; then there is nobody to tell.
            let _ = self.write_sealed();
        }
        self.sealed.socket.shutdown(Shutdown::Write);
    }
}
