//! The process that prepares for all jobs of a user on a host: a worker at a unix socket, one of its kind.

use super::{Makers, Running, WorkerOptions, serve};
use crate::host::default_socket;
use crate::host::place::{beside, try_lock};
use crate::service::Address;
use forebay_core::{Error, Result};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long the first client of a process that was started for it may take to come.
const FIRST: Duration = Duration::from_secs(60);

/// The socket of this user on this host, in a folder that nobody else may enter.
pub fn share_socket() -> Result<PathBuf> {
    Ok(default_socket()?.with_file_name("share.sock"))
}

/// The shared process of a host, while it runs.
#[derive(Debug)]
pub struct Shared {
    running: Running,
    /// Whoever has this lock is the one. Released after the socket is gone.
    _mine: File,
    was_used: bool,
}

/// Starts a worker at a unix socket; `None` when another process serves it already.
pub fn serve_share(socket: &Path, options: WorkerOptions, makers: Arc<dyn Makers>) -> Result<Option<Shared>> {
    let Some(mine) = try_lock(&beside(socket, "share"))? else { return Ok(None) };
    // It alone may remove a socket that was left behind.
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::io(format!("listen at `{}`", socket.display()), error));
        }
        _ => {}
    }
    let listen = Address::Unix(socket.to_owned());
    let running = serve(WorkerOptions { listen, ..options }, makers)?;
    Ok(Some(Shared { running, _mine: mine, was_used: false }))
}

impl Shared {
    /// The worker.
    pub fn running(&self) -> &Running {
        &self.running
    }

    /// Whether the last client has left for `grace`, or none came for a minute.
    pub fn is_unused(&mut self, grace: Duration) -> bool {
        let alone = self.running.alone();
        self.was_used |= alone.is_none() || self.running.connected() > 0;
        let time = if self.was_used { grace } else { grace.max(FIRST) };
        alone.is_some_and(|alone| alone >= time)
    }

    /// Ends it. Who connects from now on finds nobody and starts another.
    pub fn stop(mut self) {
        self.running.stop();
    }
}
