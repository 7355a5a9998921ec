//! A network of its own, kept by a process that does nothing and ends when its standard input closes.

use forebay_core::{Error, ErrorKind, Result};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};

const KEEPER: &str = "ip link set lo up && echo ready && exec cat";

/// A network namespace.
#[derive(Debug)]
pub(super) struct Namespace {
    keeper: Child,
    link: File,
}

impl Namespace {
    pub(super) fn new() -> Result<Self> {
        let doing = "make a network namespace with `unshare --net`";
        let fault = |source| Error::io(doing, source);
        let mut keeper = Command::new("unshare")
            .args(["--net", "sh", "-c", KEEPER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(fault)?;
        let mut said = String::new();
        if let Some(output) = keeper.stdout.take() {
            BufReader::new(output).read_line(&mut said).map_err(fault)?;
        }
        if said.trim() != "ready" {
            let mut why = String::new();
            if let Some(mut errors) = keeper.stderr.take() {
                errors.read_to_string(&mut why).map_err(fault)?;
            }
            drop(keeper.wait());
            return Err(Error::new(ErrorKind::Denied, format!("{doing}: {}", why.trim()))
                .with_hint("this needs root"));
        }
        let link = File::open(format!("/proc/{}/ns/net", keeper.id())).map_err(fault)?;
        Ok(Self { keeper, link })
    }

    /// Moves the calling thread.
    #[expect(unsafe_code, reason = "neither the standard library nor `rustix` as it is built here has setns")]
    pub(super) fn enter(&self) -> Result<()> {
        // SAFETY: the call takes two numbers; the descriptor stays open while `self` lives.
        if unsafe { libc::setns(self.link.as_raw_fd(), libc::CLONE_NEWNET) } == 0 {
            return Ok(());
        }
        Err(Error::io("enter a network namespace", std::io::Error::last_os_error()))
    }

    pub(super) fn process(&self) -> u32 {
        self.keeper.id()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        drop(self.keeper.wait());
    }
}
