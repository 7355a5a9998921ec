//! How much has to come over a socket before whoever reads it is woken up.
//!
//! A reader of large bodies that wakes for every segment spends a third of its time on waking. What a socket is told here
//! holds for a read that wants at least as much; who reads less must set it back first, or would sleep although
//! everything is there. It is no timeout: an end or an error of the connection wakes at once.

use std::io::{Error, Result};
use std::os::fd::{AsFd, AsRawFd};

/// Reads of `socket` that want this many bytes or more wake up once that many are here. One is what sockets begin with.
#[expect(unsafe_code, reason = "no crate that is used here offers SO_RCVLOWAT")]
pub fn wake_at(socket: impl AsFd, bytes: usize) -> Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX).max(1);
    // SAFETY: the descriptor is borrowed, hence open; the kernel copies one integer, which outlives the call, and keeps no
    // pointer to it.
    let status = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            std::ptr::from_ref(&bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    #[test]
    fn a_reader_is_woken_once_enough_is_here_or_nothing_more_comes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut from = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut to, _) = listener.accept().unwrap();
        from.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        wake_at(&from, 1000).unwrap();
        let mut bytes = [0; 4000];
        to.write_all(&[7; 999]).unwrap();
        // Too few: the read ends with what is there only because it may not wait longer.
        let count = from.read(&mut bytes[..2000]);
        assert!(count.as_ref().is_ok_and(|count| *count == 999), "{count:?}");
        assert_eq!(from.read(&mut bytes[..2000]).unwrap_err().kind(), ErrorKind::WouldBlock);
        from.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        to.write_all(&[8; 1000]).unwrap();
        assert_eq!(from.read(&mut bytes).unwrap(), 1000);
        to.write_all(&[9; 5]).unwrap();
        drop(to);
        assert_eq!(from.read(&mut bytes).unwrap(), 5, "an end wakes, however little came");
        assert_eq!(from.read(&mut bytes).unwrap(), 0);
    }
}
