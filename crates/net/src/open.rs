//! From a `cache` setting to its keeper: of this process, of this host, of the nodes of a job (`open_peers`).

use crate::host::{HostClient, default_socket};
use crate::open_peers::Job;
use crate::threads::Threads;
use forebay_core::cache::{Capacity, key_hash};
use forebay_core::{Error, Result};
use forebay_engine::cache::{CacheAt, CacheConfig, CacheSettings, Keeper, LocalKeeper, Owners, Share};
use std::ffi::OsString;
use std::sync::Arc;

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
    let peers = config.peers.as_ref().map(|peers| Job::new(peers, config.seed)).transpose()?;
    let owners = peers.as_ref().map_or_else(Owners::alone, Job::owners);
    let (capacity, seed) = (config.capacity(), config.seed);
    let at = kept_at(&config, &surroundings)?;
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
            Some(job) => job.open(local, served),
            None => Ok(local),
        }
    };
    Ok(CacheSettings { capacity, seed, owners, at, open: Arc::new(open) })
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
/// What peers are served from is a connection of its own, whose claims are those of peers.
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
