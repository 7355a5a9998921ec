//! A network device whose packets a program reads and writes. Belongs to the network in which it was opened.

use super::Side;
use super::namespace::Namespace;
use forebay_core::{Error, ErrorKind, Result};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

const NAME: &str = "wan0";
const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
/// Packets as they are, without a header of the device.
const IFF_TUN: u16 = 0x0001;
const IFF_NO_PI: u16 = 0x1000;

/// The kernel's `struct ifreq`, as far as a TUN device uses it.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

/// Opens a device in `namespace` with the address of `side`, ready for packets. Reads and writes never wait.
pub(super) fn open(namespace: &Namespace, side: Side) -> Result<File> {
    std::thread::scope(|scope| {
        // On a thread of its own, which is in that network for good and ends.
        let opened = scope.spawn(|| {
            namespace.enter()?;
            let device = attach()?;
            ip(&[
                "addr",
                "add",
                &side.address().to_string(),
                "peer",
                &side.other().address().to_string(),
                "dev",
                NAME,
            ])?;
            ip(&["link", "set", "dev", NAME, "mtu", "1500", "txqueuelen", "10000", "up"])?;
            Ok(device)
        });
        opened.join().unwrap_or_else(|_| Err(Error::internal("opening a TUN device panicked")))
    })
}

#[expect(unsafe_code, reason = "the kernel offers TUN devices by ioctl alone")]
fn attach() -> Result<File> {
    let fault = |source| Error::io("open `/dev/net/tun`", source);
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")
        .map_err(fault)?;
    let mut request = Request { name: [0; 16], flags: IFF_TUN | IFF_NO_PI, rest: [0; 22] };
    request.name[..NAME.len()].copy_from_slice(NAME.as_bytes());
    // SAFETY: TUNSETIFF reads and writes an `ifreq` of 40 bytes, which `Request` is; nothing is kept after the call.
    if unsafe { libc::ioctl(device.as_raw_fd(), TUNSETIFF, &raw mut request) } < 0 {
        return Err(fault(std::io::Error::last_os_error()));
    }
    Ok(device)
}

fn ip(words: &[&str]) -> Result<()> {
    let doing = format!("run `ip {}`", words.join(" "));
    let done = Command::new("ip").args(words).output().map_err(|source| Error::io(doing.clone(), source))?;
    if done.status.success() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Denied, format!("{doing}: {}", String::from_utf8_lossy(&done.stderr).trim())))
}
