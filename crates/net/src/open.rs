//! From a `cache` setting to its keeper: of this process, of this host, of the nodes of a job.

use crate::credentials::{Credentials, PeerTls, Token};
use crate::host::{HostClient, default_socket};
use crate::peer::{Members, OwnedKeeper, PeerKeeper, PeerOptions};
use crate::server::{Server, ServerOptions};
use crate::threads::Threads;
use bytes::Bytes;
use forebay_core::cache::{Capacity, Ownership, PayloadId, Place, key_hash};
use forebay_core::{Error, ErrorKind, Result};
use forebay_engine::cache::{
    CacheAt, CacheConfig, CacheSettings, Keeper, KeeperView, LocalKeeper, Look, Payload, PeersConfig, Share,
    Tier,
};
use futures::future::BoxFuture;
use std::ffi::OsString;
use std::sync::Arc;

/// The port of nodes that the launcher names without one.
const PORT: u16 = 7846;

/// What a loader asks, and what its peers are served from.
type Kept = (Arc<dyn Keeper>, Arc<dyn Keeper>);

/// Where a setting is opened.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Ranks on this host: several share its memory unless the setting says otherwise.
    pub local_ranks: usize,
    /// Program and first arguments of the command `forebay`, to start the process that holds a host's memory.
    pub command: Vec<OsString>,
}

/// What a loader is told. Nothing is opened before its first batch; what can be checked is checked here.
pub fn cache_settings(config: CacheConfig, surroundings: Surroundings) -> Result<CacheSettings> {
    let peers = config.peers.as_ref().map(Job::new).transpose()?;
    let ownership = match &peers {
        Some(job) => Ownership::new(config.seed, job.members.addresses(), job.members.me())?,
        None => Ownership::alone(),
    };
    let (capacity, seed) = (config.capacity(), config.seed);
    let at = kept_at(&config, &surroundings)?;
    let owners = ownership.clone();
    let open = move || -> Result<Arc<dyn Keeper>> {
        let host = || open_host(&config, &surroundings.command, peers.is_some());
        let own = || -> Result<Kept> {
            let local: Arc<dyn Keeper> = LocalKeeper::open(&config)?;
            Ok((Arc::clone(&local), local))
        };
        let (local, served) = match config.share {
            Share::Host => host()?,
            // Nobody asked for it by name: ranks that cannot share keep apart.
            Share::Auto if surroundings.local_ranks > 1 => host().or_else(|error| {
                tracing::warn!(error = %error.report(), "ranks of this host do not share their cache: each keeps its own");
                own()
            })?,
            Share::Auto | Share::Process => own()?,
        };
        match &peers {
            Some(job) => job.open(local, served, owners.clone()),
            None => Ok(local),
        }
    };
    Ok(CacheSettings { capacity, seed, ownership, at, open: Arc::new(open) })
}

/// What memory keeps of a sample. Others have other recipes, so memory that is shared holds payloads.
fn kept_at(config: &CacheConfig, surroundings: &Surroundings) -> Result<CacheAt> {
    let shared = match config.share {
        Share::Host => true,
        Share::Auto => surroundings.local_ranks > 1,
        Share::Process => false,
    };
    match &config.at {
        at if config.peers.is_none() && !shared => Ok(at.clone()),
        CacheAt::Cut(name) => Err(Error::unsupported(format!(
            "cache the recipe at `{name}`: only memory of one process holds such values, and this one is shared"
        ))
        .with_hint("give `at` as \"bytes\", or `share` as \"process\" and no `peers`: then every rank has memory of its own")),
        CacheAt::Auto | CacheAt::Bytes => Ok(CacheAt::Bytes),
    }
}

/// The cache of this host, whose process is started when it is not there. Caches on other disks are other processes.
/// What peers are served from is a connection of its own, which claims nothing.
fn open_host(config: &CacheConfig, command: &[OsString], peers: bool) -> Result<Kept> {
    let mut socket = default_socket()?;
    let mut start = command.to_vec();
    if let Some(disk) = &config.disk {
        let dir = std::path::absolute(&disk.dir)
            .map_err(|error| Error::io(format!("find `{}`", disk.dir.display()), error))?;
        socket.set_file_name(format!("cache-{:016x}.sock", key_hash(&dir.to_string_lossy())));
        let mut place = OsString::from(dir);
        place.push(format!(":{}", disk.limit));
        start.extend(["--disk".into(), place]);
    }
    start.extend(["--memory".into(), config.memory.to_string().into()]);
    start.extend(["--socket".into(), socket.clone().into_os_string()]);
    let threads = Threads::shared()?;
    let keeper = threads.block_on(HostClient::connect(&socket, Some(start), threads.clone()))?;
    // Whoever came first said how much it holds; more is granted to those who ask for more.
    let held = threads.block_on(keeper.ask_view());
    let wanted = config.capacity();
    if held.memory.limit < wanted.memory || held.disk.limit < wanted.disk {
        threads.block_on(keeper.resize(Capacity {
            memory: wanted.memory.max(held.memory.limit),
            disk: wanted.disk.max(held.disk.limit),
        }))?;
    }
    let keeper: Arc<dyn Keeper> = Arc::new(keeper);
    let served: Arc<dyn Keeper> = if peers {
        Arc::new(threads.block_on(HostClient::for_peers(&socket, threads.clone()))?)
    } else {
        Arc::clone(&keeper)
    };
    Ok((keeper, served))
}

/// The nodes of a job and how they know each other.
struct Job {
    members: Members,
    credentials: Credentials,
}

impl Job {
    fn new(config: &PeersConfig) -> Result<Self> {
        let members = if config.members.is_empty() {
            Members::from_environment(PORT)?.ok_or_else(|| {
                Error::invalid_config("share a cache among nodes: the launcher does not say which there are")
                    .with_hint("list them in `peers`, or set FOREBAY_PEERS and FOREBAY_PEER")
            })?
        } else {
            let own = config.me.clone().or_else(|| std::env::var("FOREBAY_PEER").ok()).ok_or_else(|| {
                Error::invalid_config("share a cache among nodes: nothing says which of them this is")
                    .with_hint("give `peer_address`, or set FOREBAY_PEER, to one of the listed addresses")
            })?;
            Members::with_own(config.members.clone(), &own)?
        };
        let token = config.token.clone().or_else(|| std::env::var("FOREBAY_PEER_TOKEN").ok());
        let credentials = Credentials {
            token: token.as_deref().map(Token::new).transpose()?,
            tls: config.tls.as_ref().map(|[ca, cert, key]| PeerTls {
                ca_file: ca.clone(),
                cert: cert.clone(),
                key: key.clone(),
                name: None,
            }),
        };
        Ok(Self { members, credentials })
    }

    fn open(
        &self,
        local: Arc<dyn Keeper>,
        served: Arc<dyn Keeper>,
        ownership: Ownership,
    ) -> Result<Arc<dyn Keeper>> {
        let threads = Threads::shared()?;
        let options = PeerOptions { credentials: self.credentials.clone(), ..PeerOptions::default() };
        let served = Arc::new(OwnedKeeper::new(served, ownership.clone(), None));
        let keeper = PeerKeeper::new(local, ownership, &self.members, options, threads.clone())?;
        let options = ServerOptions { credentials: self.credentials.clone(), ..ServerOptions::default() };
        let server = Server::new(served, options, threads.clone());
        match threads.block_on(server.listen_tcp(self.members.own())) {
            Ok(_) => Ok(Arc::new(Node { keeper, _server: Some(server) })),
            // Another rank of this host serves the memory that we share with it.
            Err(error) if is_taken(&error) => Ok(Arc::new(Node { keeper, _server: None })),
            Err(error) => Err(error.while_doing("serve this node's cache to its peers")),
        }
    }
}

fn is_taken(error: &Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(this) = cause {
        if this.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::AddrInUse)
        {
            return true;
        }
        cause = this.source();
    }
    error.kind() == ErrorKind::Unavailable && error.message().contains("in use")
}

/// A node's keeper together with the server that shows it to the others.
#[derive(Debug)]
struct Node {
    keeper: PeerKeeper,
    _server: Option<Server>,
}

impl Keeper for Node {
    fn look<'a>(&'a self, payloads: &'a [Payload]) -> BoxFuture<'a, Vec<Look>> {
        self.keeper.look(payloads)
    }

    fn read<'a>(&'a self, payloads: &'a [Payload]) -> BoxFuture<'a, Vec<Option<(Bytes, Tier)>>> {
        self.keeper.read(payloads)
    }

    fn keep<'a>(&'a self, payload: Payload, place: Place, bytes: &'a Bytes) -> BoxFuture<'a, ()> {
        self.keeper.keep(payload, place, bytes)
    }

    fn settle<'a>(&'a self, payload: Payload, place: Place, bytes: &'a Bytes) -> BoxFuture<'a, ()> {
        self.keeper.settle(payload, place, bytes)
    }

    fn give_up(&self, payload: Payload) {
        self.keeper.give_up(payload);
    }

    fn held(&self, group: u64) -> BoxFuture<'_, Vec<PayloadId>> {
        self.keeper.held(group)
    }

    fn forget<'a>(&'a self, payloads: &'a [PayloadId]) -> BoxFuture<'a, ()> {
        self.keeper.forget(payloads)
    }

    fn resize(&self, capacity: Capacity) -> BoxFuture<'_, Result<()>> {
        self.keeper.resize(capacity)
    }

    fn flush(&self) -> BoxFuture<'_, ()> {
        Keeper::flush(&self.keeper)
    }

    fn view(&self) -> KeeperView {
        self.keeper.view()
    }
}
