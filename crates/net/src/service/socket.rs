//! A connected socket that two threads use at once: one reads, one writes, and anyone may end it.
//!
//! Descriptors of shared memory come and go beside the bytes of a unix socket, with the first byte of a write.

use forebay_store::wake::wake_at;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg, sockopt,
};
use std::collections::VecDeque;
use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Read, Result, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Descriptors with one batch, at most; tensors beyond cross in the body. The system allows 253.
pub(crate) const MAX_DESCRIPTORS: usize = 64;
/// Bytes that wait in a socket to be sent. The system keeps books of twice that.
const SEND_BYTES: usize = 4 << 20;
/// Bytes of a large body that are worth waking up for.
const BODY_BYTES: usize = 2 << 20;
/// Pieces of one write; the system takes no more.
const MAX_PIECES: usize = 1024;

/// Where messages and batches go.
pub(crate) trait Output: Send {
    /// Writes all pieces; descriptors go with the first byte.
    fn write(&mut self, pieces: &mut [IoSlice<'_>], descriptors: &[BorrowedFd<'_>]) -> Result<()>;

    /// Tells the other side that nothing more comes.
    fn finish(&mut self);
}

/// Where messages and batches come from.
pub(crate) trait Input: Read + Send {
    /// The next descriptor that came with the bytes.
    fn descriptor(&mut self) -> Option<OwnedFd> {
        None
    }
}

#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// A TCP connection, set up for what crosses here: messages at once, and an end that is noticed when the other
    /// machine is gone without a word.
    pub(crate) fn tcp(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, Duration::from_secs(30))?;
        sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(10))?;
        sockopt::set_tcp_keepcnt(&stream, 3)?;
        if let Some(bytes) = send_bytes() {
            sockopt::set_socket_send_buffer_size(&stream, bytes)?;
        }
        Ok(Self::Tcp(stream))
    }

    pub(crate) fn read(&self, into: &mut [u8]) -> Result<usize> {
        match self {
            Self::Tcp(stream) => (&mut &*stream).read(into),
            Self::Unix(stream) => (&mut &*stream).read(into),
        }
    }

    pub(crate) fn send(&self, mut pieces: &mut [IoSlice<'_>], descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(Error::new(ErrorKind::InvalidInput, "too many descriptors"));
        }
        // Empty pieces at the front would make nothing of a write, which reads as an end.
        IoSlice::advance_slices(&mut pieces, 0);
        while !pieces.is_empty() {
            let some = &pieces[..pieces.len().min(MAX_PIECES)];
            match sendmsg(self.as_fd(), some, &mut control, SendFlags::NOSIGNAL) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    control.clear();
                    IoSlice::advance_slices(&mut pieces, count);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(crate) fn set_time(&self, time: Option<Duration>) -> Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(time).and(stream.set_write_timeout(time)),
            Self::Unix(stream) => stream.set_read_timeout(time).and(stream.set_write_timeout(time)),
        }
    }

    pub(crate) fn set_write_time(&self, time: Duration) -> Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_write_timeout(Some(time)),
            Self::Unix(stream) => stream.set_write_timeout(Some(time)),
        }
    }

    /// Ends it; whoever waits in it wakes up.
    pub(crate) fn shutdown(&self, how: Shutdown) {
        // It may have ended already.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(how),
            Self::Unix(stream) => stream.shutdown(how),
        };
    }
}

/// Room for what was written and not taken yet, where the system allows more than it would give by itself: a writer of
/// large batches then sleeps and wakes less often. A fixed size below that would only be in the way.
fn send_bytes() -> Option<usize> {
    static ROOM: OnceLock<Option<usize>> = OnceLock::new();
    *ROOM.get_or_init(|| {
        let allowed = std::fs::read_to_string("/proc/sys/net/core/wmem_max").ok()?;
        allowed.trim().parse::<usize>().ok().filter(|allowed| *allowed >= SEND_BYTES).map(|_| SEND_BYTES)
    })
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Output for Arc<Socket> {
    fn write(&mut self, pieces: &mut [IoSlice<'_>], descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        self.send(pieces, descriptors)
    }

    fn finish(&mut self) {
        self.shutdown(Shutdown::Write);
    }
}

/// Reads bytes only: descriptors that come with them are closed by the system.
pub(crate) struct BytesIn {
    socket: Arc<Socket>,
    /// Whether a read sleeps until [`BODY_BYTES`] are here.
    sleeps: bool,
}

impl BytesIn {
    pub(crate) fn new(socket: Arc<Socket>) -> Self {
        Self { socket, sleeps: false }
    }
}

impl Read for BytesIn {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        // Of a large body pieces come faster than one can be woken for each. Whoever wants less is woken for less: it
        // would sleep for bytes that nobody sends.
        let sleeps = into.len() >= BODY_BYTES;
        if sleeps != self.sleeps {
            wake_at(&*self.socket, if sleeps { BODY_BYTES } else { 1 })?;
            self.sleeps = sleeps;
        }
        self.socket.read(into)
    }
}

impl Input for BytesIn {}

/// Reads bytes and the descriptors that come with them.
pub(crate) struct DescriptorsIn {
    socket: Arc<Socket>,
    came: VecDeque<OwnedFd>,
}

impl DescriptorsIn {
    pub(crate) fn new(socket: Arc<Socket>) -> Self {
        Self { socket, came: VecDeque::new() }
    }
}

impl Read for DescriptorsIn {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let message = recvmsg(
            self.socket.as_fd(),
            &mut [IoSliceMut::new(into)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.came.extend(descriptors);
            }
        }
        // One read brings those of one write, and they are taken before the next batch is read.
        if message.flags.contains(ReturnFlags::CTRUNC) || self.came.len() > 2 * MAX_DESCRIPTORS {
            return Err(Error::other(
                "descriptors of shared memory were lost; this process may have too many",
            ));
        }
        Ok(message.bytes)
    }
}

impl Input for DescriptorsIn {
    fn descriptor(&mut self) -> Option<OwnedFd> {
        self.came.pop_front()
    }
}

/// Any reader or writer: a pipe in memory, bytes from a file.
pub(crate) struct Anything<T>(pub(crate) T);

impl<R: Read> Read for Anything<R> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        self.0.read(into)
    }
}

impl<R: Read + Send> Input for Anything<R> {}

impl<W: Write + Send> Output for Anything<W> {
    fn write(&mut self, pieces: &mut [IoSlice<'_>], _: &[BorrowedFd<'_>]) -> Result<()> {
        for piece in pieces {
            self.0.write_all(piece)?;
        }
        self.0.flush()
    }

    fn finish(&mut self) {}
}

/// A socket on which everything together may take a certain time: a beginning.
pub(crate) struct Timed<'a> {
    pub(crate) socket: &'a Socket,
    pub(crate) until: Instant,
}

impl Timed<'_> {
    fn set(&self) -> Result<()> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.socket.set_time(Some(left))
    }
}

/// What the system says when a time is over differs from system to system.
fn late(error: Error) -> Error {
    if error.kind() == ErrorKind::WouldBlock { ErrorKind::TimedOut.into() } else { error }
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        self.set()?;
        self.socket.read(into).map_err(late)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.set()?;
        self.socket.send(&mut [IoSlice::new(bytes)], &[]).map_err(late)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
