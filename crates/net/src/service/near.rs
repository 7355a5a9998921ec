//! The second door of a worker, for jobs of the same user on the same machine: a unix socket named after its port, over
//! which batches are handed over as shared memory instead of being copied through TCP.
//!
//! A client that is told `host:port` looks whether that host is this machine and whether such a socket is there. When
//! not, or when nobody answers, it goes the usual way. Whoever is behind the socket is the same user's process and
//! makes the same batches, so nothing depends on finding it.

use crate::host::default_socket;
use forebay_core::Result;
use std::net::{IpAddr, ToSocketAddrs, UdpSocket};
use std::path::PathBuf;

/// Where a worker with this port listens beside TCP.
pub(super) fn socket(port: u16) -> Result<PathBuf> {
    Ok(default_socket()?.with_file_name(format!("worker-{port}.sock")))
}

/// The socket of the worker at `host:port`, when it is one of this machine.
pub(super) fn found(address: &str) -> Option<PathBuf> {
    let target = address.to_socket_addrs().ok()?.next()?;
    let path = socket(target.port()).ok()?;
    (path.exists() && is_here(target.ip())).then_some(path)
}

/// Whether an address is one of this machine: only those can be bound to.
fn is_here(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_machine_have_a_second_door() {
        assert!(is_here("127.0.0.1".parse().unwrap()) && is_here("::1".parse().unwrap()));
        assert!(!is_here("192.0.2.7".parse().unwrap()));
        assert_eq!(found("127.0.0.1:1"), None);
        assert_eq!(found("nobody at all"), None);
    }
}
