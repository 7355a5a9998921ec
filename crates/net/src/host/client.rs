//! A process's side of the host's cache: connects, starts the host's process when there is none, maps its slabs.

use super::passing;
use super::place::{beside, check_peer, try_lock};
use crate::Stream;
use crate::client::link::Link;
use crate::client::{Connect, RemoteKeeper, RemoteOptions};
use crate::handshake::{self, Purpose};
use crate::server::lock;
use crate::threads::Threads;
use crate::wire::Answer;
use bytes::Bytes;
use forebay_core::{Error, Result};
use forebay_engine::cache::KeeperView;
use forebay_store::local::map::map_shared;
use futures::future::{BoxFuture, FutureExt};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::Instant;

/// How long a host's process may take until it listens.
const START: Duration = Duration::from_secs(20);
/// How often to look whether it does.
const PAUSE: Duration = Duration::from_millis(10);

/// Opens the cache of this host.
#[derive(Debug)]
pub struct HostClient;

impl HostClient {
    /// Connects to the socket. When nobody listens there, `start` (program and arguments) is run and has to. All
    /// payloads are absent when the host's process is lost later, until it is there again.
    pub async fn connect(
        socket: &Path,
        start: Option<Vec<OsString>>,
        threads: Threads,
    ) -> Result<RemoteKeeper> {
        let connector = HostConnector { socket: socket.to_owned(), start, child: Mutex::default() };
        let slabs = Some(socket.to_owned());
        RemoteKeeper::with_slabs(Box::new(connector), slabs, RemoteOptions::default(), threads).await
    }

    /// A second connection, for what this process serves to peers: what they fetch is claimed there in their name, and
    /// what they give is taken in wherever there is room.
    pub async fn for_peers(socket: &Path, threads: Threads) -> Result<RemoteKeeper> {
        let connector = HostConnector { socket: socket.to_owned(), start: None, child: Mutex::default() };
        let options = RemoteOptions { purpose: Purpose::Peer, ..RemoteOptions::default() };
        RemoteKeeper::with_slabs(Box::new(connector), None, options, threads).await
    }
}

/// What the process behind a socket holds; it is not started when it is not there.
pub async fn show_host(socket: &Path, threads: Threads) -> Result<KeeperView> {
    Ok(HostClient::connect(socket, None, threads).await?.ask_view().await)
}

/// Connects to a host's process, which is started when it is not there.
#[derive(Debug)]
pub struct HostConnector {
    socket: PathBuf,
    start: Option<Vec<OsString>>,
    /// The process we started last, so that it leaves nothing behind when it ends before us.
    child: Mutex<Option<Child>>,
}

impl HostConnector {
    async fn find(&self) -> std::io::Result<UnixStream> {
        UnixStream::connect(&self.socket).await
    }

    fn run(&self, command: &[OsString]) -> Result<()> {
        let Some((program, arguments)) = command.split_first() else {
            return Err(Error::invalid_config("start the cache of this host: no program was named"));
        };
        let mut child = lock(&self.child);
        if let Some(before) = child.as_mut() {
            let _ = before.try_wait();
        }
        // A group of its own: Ctrl-C in our terminal is not meant for it, since others may use it.
        let started = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        let started = started.map_err(|error| {
            Error::io(format!("start the cache of this host with `{}`", program.display()), error)
        })?;
        *child = Some(started);
        Ok(())
    }

    /// Whether the process we started has ended already.
    fn has_ended(&self) -> bool {
        lock(&self.child).as_mut().is_some_and(|child| child.try_wait().is_ok_and(|ended| ended.is_some()))
    }

    async fn open(&self) -> Result<UnixStream> {
        let first = match self.find().await {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        let name = self.socket.display();
        let Some(command) = &self.start else {
            return Err(Error::io(format!("connect to the cache of this host at `{name}`"), first));
        };
        let until = Instant::now() + START;
        let mut starting = None;
        loop {
            if let Ok(stream) = self.find().await {
                return Ok(stream);
            }
            // One of those who find nobody starts the process; the others wait for it.
            if starting.is_none() {
                starting = try_lock(&beside(&self.socket, "start"))?;
                if starting.is_some() {
                    if let Ok(stream) = self.find().await {
                        return Ok(stream);
                    }
                    self.run(command)?;
                }
            }
            if Instant::now() > until
                || (starting.is_some() && self.has_ended() && self.find().await.is_err())
            {
                let why = format!("start the cache of this host: it does not listen at `{name}`");
                return Err(Error::unavailable(why).with_hint("run the command by hand to see what it says"));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl Connect for HostConnector {
    fn name(&self) -> String {
        self.socket.display().to_string()
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Stream>>> {
        async move {
            let stream = self.open().await?;
            check_peer(&stream)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        }
        .boxed()
    }
}

/// What is mapped of one host process.
#[derive(Debug)]
pub(crate) struct SlabMaps {
    socket: PathBuf,
    state: Mutex<Maps>,
}

#[derive(Debug, Default)]
struct Maps {
    version: u64,
    slabs: HashMap<u32, Bytes>,
    /// Slabs that could not be mapped; not asked for again.
    hopeless: HashSet<u32>,
}

impl SlabMaps {
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self { socket, state: Mutex::default() }
    }

    /// Bytes of a slab that is mapped, without a copy.
    pub(crate) fn slice(&self, slab: u32, offset: u64, length: u64) -> Option<Bytes> {
        let state = lock(&self.state);
        let map = state.slabs.get(&slab)?;
        let end = offset.checked_add(length).filter(|end| *end <= map.len() as u64)?;
        Some(map.slice(offset as usize..end as usize))
    }

    /// Maps the slabs that answers speak of and lets go of those that are gone.
    pub(crate) async fn follow(&self, link: &Link, version: u64, answers: &[Option<Answer>]) {
        let changed = {
            let mut state = lock(&self.state);
            let before = std::mem::replace(&mut state.version, version);
            before != version && !state.slabs.is_empty()
        };
        if changed && let Some((_, left)) = link.slabs().await {
            let left: HashSet<u32> = left.into_iter().collect();
            lock(&self.state).slabs.retain(|slab, _| left.contains(slab));
        }
        let wanted: HashSet<u32> = {
            let state = lock(&self.state);
            let known = |slab: &u32| state.slabs.contains_key(slab) || state.hopeless.contains(slab);
            let slabs = answers.iter().filter_map(|answer| match answer {
                Some(Answer::Slab { slab, .. }) => Some(*slab),
                _ => None,
            });
            slabs.filter(|slab| !known(slab)).collect()
        };
        if wanted.is_empty() {
            return;
        }
        if let Err(error) = self.map(&wanted, version).await {
            tracing::warn!(error = %error.report(), "memory of the host's cache cannot be mapped: bytes are sent instead");
            lock(&self.state).hopeless.extend(wanted);
        }
    }

    async fn map(&self, slabs: &HashSet<u32>, version: u64) -> Result<()> {
        let fail = |error| Error::io("connect to the cache of this host", error);
        let mut stream = UnixStream::connect(&self.socket).await.map_err(fail)?;
        check_peer(&stream)?;
        let name = self.socket.display().to_string();
        handshake::join(&mut stream, &name, None, Purpose::Slabs).await?;
        for slab in slabs {
            // One that went meanwhile is none to wait for: its payloads lie elsewhere now.
            if let Some((memory, size)) = passing::ask(&mut stream, *slab, version).await? {
                let map = Bytes::from_owner(map_shared(&memory, size)?);
                lock(&self.state).slabs.insert(*slab, map);
            }
        }
        Ok(())
    }
}
