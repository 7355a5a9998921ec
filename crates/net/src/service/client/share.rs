//! The process of this host that prepares for all jobs on it: found at a socket, and started when nobody is there.

use super::link::{Dial, Dialled};
use super::pulling::{Makers, Pulling};
use super::{How, wire};
use crate::credentials::Credentials;
use crate::host::place::{beside, try_lock};
use crate::server::lock;
use crate::service::Address;
use forebay_core::cursor::Cursor;
use forebay_core::{Error, ErrorKind, Result};
use forebay_engine::{Asked, Meter, Supplier, Supply};
use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long the process may take until it listens.
const START: Duration = Duration::from_secs(20);
/// How often to look whether it does.
const PAUSE: Duration = Duration::from_millis(10);

/// The socket of this user's process on this host.
pub(super) fn default_socket() -> Result<PathBuf> {
    Ok(crate::host::default_socket()?.with_file_name("share.sock"))
}

/// Batches from the process of this host.
pub(super) struct ShareSupplier {
    socket: PathBuf,
    start: Option<Vec<OsString>>,
    how: How,
}

impl ShareSupplier {
    /// `start` is the command that is run when nobody listens at the socket.
    pub(super) fn new(socket: PathBuf, start: Option<Vec<OsString>>, how: How) -> Self {
        Self { socket, start: start.filter(|command| !command.is_empty()), how }
    }
}

impl Supplier for ShareSupplier {
    fn start(&self, asked: Asked, cursor: Cursor, meter: &Arc<Meter>) -> Result<Box<dyn Supply>> {
        let job = self.how.job.name(asked.feed.id(), asked.consumer.world_size);
        let address = self.socket.display().to_string();
        let dial =
            ShareDial { socket: self.socket.clone(), start: self.start.clone(), child: Mutex::default() };
        let makers = Makers::Home(address);
        Ok(Box::new(Pulling::start(asked, &cursor, meter, &self.how, job, Box::new(dial), makers)?))
    }
}

struct ShareDial {
    socket: PathBuf,
    start: Option<Vec<OsString>>,
    /// The process we started last, so that it leaves nothing behind when it ends before us.
    child: Mutex<Option<Child>>,
}

impl Dial for ShareDial {
    fn dial(&self, _address: &str, wanted: &dyn Fn() -> bool) -> Result<Dialled> {
        let address = Address::Unix(self.socket.clone());
        let credentials = Credentials::default();
        let error = match wire::dial(&address, &credentials) {
            Ok(dialled) => return Ok(dialled),
            Err(error) => error,
        };
        // Somebody who listens and does not talk to us is not replaced.
        if error.kind() != ErrorKind::Unavailable || UnixStream::connect(&self.socket).is_ok() {
            return Err(error);
        }
        let Some(command) = &self.start else {
            return Err(error.with_hint("start it with `forebay share`, or use `via=\"auto\"`"));
        };
        self.run(command, wanted)?;
        wire::dial(&address, &credentials)
    }
}

impl ShareDial {
    /// Runs the command, unless somebody else is at it, and waits until it listens.
    fn run(&self, command: &[OsString], wanted: &dyn Fn() -> bool) -> Result<()> {
        let listens = || UnixStream::connect(&self.socket).is_ok();
        let until = Instant::now() + START;
        let mut starting = None;
        while !listens() {
            if !wanted() {
                return Err(Error::cancelled("start the shared process: nobody waits for it any more"));
            }
            if starting.is_none() {
                starting = try_lock(&beside(&self.socket, "start"))?;
                // Whoever had the lock may have been done with it right then.
                if starting.is_some() && !listens() {
                    self.spawn(command)?;
                }
            }
            if Instant::now() > until || (starting.is_some() && self.has_ended() && !listens()) {
                let why =
                    format!("start the shared process: it does not listen at `{}`", self.socket.display());
                return Err(
                    Error::unavailable(why).with_hint("run `forebay share` by hand to see what it says")
                );
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Whether the process we started has ended already.
    fn has_ended(&self) -> bool {
        lock(&self.child).as_mut().is_some_and(|child| child.try_wait().is_ok_and(|ended| ended.is_some()))
    }

    fn spawn(&self, command: &[OsString]) -> Result<()> {
        let Some((program, arguments)) = command.split_first() else { return Ok(()) };
        let mut child = lock(&self.child);
        if let Some(before) = child.as_mut() {
            let _ = before.try_wait();
        }
        // A group of its own: Ctrl-C in our terminal is not meant for it, since others may use it.
        let started = Command::new(program)
            .args(arguments)
            .args(["--on-demand".into(), "--socket".into(), self.socket.clone().into_os_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        let what = || format!("start the shared process with `{}`", program.display());
        *child = Some(started.map_err(|error| Error::io(what(), error))?);
        Ok(())
    }
}
