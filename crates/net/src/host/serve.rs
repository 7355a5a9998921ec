//! The process that holds a host's memory: it listens, and leaves when the last client has left.

use super::place::{beside, try_lock};
use super::{HostKeeper, Slabs};
use crate::server::{Server, ServerOptions};
use crate::threads::Threads;
use forebay_core::{Error, Result};
use forebay_engine::cache::Keeper;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long the first client may take to come.
const FIRST: Duration = Duration::from_secs(60);

/// What a host's process holds, and for how long.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Where to listen.
    pub socket: PathBuf,
    /// Bytes of memory for payloads.
    pub memory: u64,
    /// How long to stay when nobody is connected.
    pub grace: Duration,
    /// For what belongs on disk.
    pub behind: Option<Arc<dyn Keeper>>,
}

/// Serves until the last client has left for `grace`. Returns at once, with false, when another process serves this
/// socket already.
pub async fn serve_host(options: HostOptions, threads: Threads) -> Result<bool> {
    let socket = &options.socket;
    let fail = |error| Error::io(format!("listen at `{}`", socket.display()), error);
    // Whoever has this lock is the one; it alone may remove a socket that was left behind.
    let Some(_mine) = try_lock(&beside(socket, "host"))? else { return Ok(false) };
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(fail(error)),
        _ => {}
    }
    let listener = UnixListener::bind(socket).map_err(fail)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600)).map_err(fail)?;
    let slabs = Arc::new(Slabs::new(options.memory)?);
    let keeper = Arc::new(HostKeeper::new(slabs.clone(), options.behind.clone()));
    let server = Server::with_slabs(keeper, Some(slabs), ServerOptions::default(), threads);
    server.listen_unix(listener, socket)?;
    let mut connected = server.connected();
    let mut grace = options.grace.max(FIRST);
    loop {
        let alone = async {
            // The server lives as long as this loop, so the number can always be followed.
            let _ = connected.wait_for(|count| *count > 0).await;
        };
        if tokio::time::timeout(grace, alone).await.is_err() {
            break;
        }
        let _ = connected.wait_for(|count| *count == 0).await;
        grace = options.grace;
    }
    // Who connects from now on finds nobody and starts another; the lock is released after that.
    let _ = std::fs::remove_file(socket);
    drop(server);
    Ok(true)
}
