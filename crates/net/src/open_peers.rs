//! The nodes of a job: who they are, how they know each other, and a keeper that serves and asks them.

use crate::credentials::{Credentials, PeerTls, Token};
use crate::dispatcher::{Control, ControlOptions};
use crate::handshake::random;
use crate::peer::{Following, Members, OwnedKeeper, PeerKeeper, PeerOptions, Source, read_file};
use crate::server::{Server, ServerOptions};
use crate::threads::Threads;
use forebay_core::cache::Ownership;
use forebay_core::dispatcher::JobName;
use forebay_core::{Error, ErrorKind, Result};
use forebay_engine::cache::{Keeper, MembersFrom, Owners, PeersConfig};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The port of nodes that the launcher names without one.
const PORT: u16 = 7846;
/// What the cache is called at a dispatcher when nobody says.
const NAME: &str = "cache";
/// How long a peer may fetch what it will give to us, before others do.
const PEER_FETCH: Duration = Duration::from_secs(10);
/// How often a rank looks whether the one that serves its host is still there.
const TAKE_OVER: Duration = Duration::from_secs(2);

/// The nodes of a job and how they know each other.
pub(crate) struct Job {
    seed: u64,
    /// As far as they are known before anything is opened.
    members: Members,
    from: MembersFrom,
    credentials: Credentials,
    timeout: Option<Duration>,
    owners: watch::Sender<Arc<Ownership>>,
}

impl Job {
    pub(crate) fn new(config: &PeersConfig, seed: u64) -> Result<Self> {
        let own = || {
            config.me.clone().or_else(|| std::env::var("FOREBAY_PEER").ok()).ok_or_else(|| {
                Error::invalid_config("share a cache among nodes: nothing says which of them this is")
                    .with_hint(
                        "give `peer_address`, or set FOREBAY_PEER, to the address where others find it",
                    )
            })
        };
        let members = match &config.members {
            MembersFrom::Launcher => Members::from_environment(PORT)?.ok_or_else(|| {
                Error::invalid_config("share a cache among nodes: the launcher does not say which there are")
                    .with_hint("list them in `peers`, or set FOREBAY_PEERS and FOREBAY_PEER")
            })?,
            MembersFrom::List(members) => Members::with_own(members.clone(), &own()?)?,
            MembersFrom::File(path) => read_file(path, &own()?)?,
            MembersFrom::Dispatcher(url) => {
                place_of(url)?;
                let own = own()?;
                Members::with_own(vec![own.clone()], &own)?
            }
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
        let owners = watch::Sender::new(Arc::new(ownership(seed, &members)?));
        let (from, timeout) = (config.members.clone(), config.timeout);
        Ok(Self { seed, members, from, credentials, timeout, owners })
    }

    /// Follows who owns what.
    pub(crate) fn owners(&self) -> Owners {
        Owners::new(self.owners.subscribe())
    }

    /// A keeper that asks the others and shows them what is `served`.
    pub(crate) fn open(&self, local: Arc<dyn Keeper>, served: Arc<dyn Keeper>) -> Result<Arc<dyn Keeper>> {
        let threads = Threads::shared()?;
        let source = self.source(&threads)?;
        let members = match &source {
            Some(source) => threads.block_on(source.ask(&self.members)).unwrap_or_else(|error| {
                tracing::warn!(error = %error.report(), "it is not known which nodes take part in the cache");
                self.members.clone()
            }),
            None => self.members.clone(),
        };
        let owners = Arc::new(ownership(self.seed, &members)?);
        self.owners.send_replace(owners.clone());
        let mut options = PeerOptions { credentials: self.credentials.clone(), ..PeerOptions::default() };
        if let Some(timeout) = self.timeout {
            (options.first_deadline, options.shortest_deadline) = (timeout, timeout);
        }
        let keeper = PeerKeeper::new(local, owners, &members, options, threads.clone())?;
        let served = Arc::new(OwnedKeeper::new(served, self.owners()));
        let options = ServerOptions {
            credentials: self.credentials.clone(),
            claim_time: PEER_FETCH,
            ..ServerOptions::default()
        };
        serve(&keeper, Server::new(served, options, threads.clone()), members.own(), &threads)?;
        if let Some(source) = source {
            let (seed, owners, changing) = (self.seed, self.owners.clone(), keeper.downgrade());
            let tell = move |members: &Members| {
                let Some(keeper) = changing.upgrade() else { return };
                let changed = ownership(seed, members).and_then(|ownership| {
                    let ownership = Arc::new(ownership);
                    keeper.change_members(ownership.clone(), members)?;
                    owners.send_replace(ownership);
                    Ok(())
                });
                if let Err(error) = changed {
                    tracing::warn!(error = %error.report(), "the nodes of the cache stay those known last");
                }
            };
            keeper.follow_with(Following::start(source, members, threads, tell));
        }
        Ok(Arc::new(keeper))
    }

    fn source(&self, threads: &Threads) -> Result<Option<Source>> {
        Ok(match &self.from {
            MembersFrom::Launcher | MembersFrom::List(_) => None,
            MembersFrom::File(path) => Some(Source::File(path.clone())),
            MembersFrom::Dispatcher(url) => {
                let (address, cache) = place_of(url)?;
                let options = ControlOptions { address, credentials: self.credentials.clone() };
                let control = Control::new(&options, threads.clone())?;
                let mut process = [0; 8];
                process.copy_from_slice(&random()?[..8]);
                Some(Source::Dispatcher { control, cache, process: u64::from_le_bytes(process) })
            }
        })
    }
}

fn ownership(seed: u64, members: &Members) -> Result<Ownership> {
    Ownership::new(seed, members.addresses(), members.me())
}

/// Address of the dispatcher and name of the cache: `forebay://host:port/name`.
fn place_of(url: &str) -> Result<(String, JobName)> {
    let rest = url.strip_prefix("forebay://").unwrap_or(url);
    let (address, name) = rest.split_once('/').unwrap_or((rest, ""));
    let name = JobName::new(if name.is_empty() { NAME } else { name })?;
    Ok((address.to_owned(), name))
}

/// Shows the keeper's payloads to its peers. Of several ranks of a host that share their memory one does, and another
/// one when that is gone.
fn serve(keeper: &PeerKeeper, server: Server, address: &str, threads: &Threads) -> Result<()> {
    match threads.block_on(server.listen_tcp(address)) {
        Ok(_) => keeper.serve_with(server),
        Err(error) if is_taken(&error) => {
            let (waiting, address) = (keeper.downgrade(), address.to_owned());
            threads.handle().spawn(async move {
                loop {
                    tokio::time::sleep(TAKE_OVER).await;
                    let Some(keeper) = waiting.upgrade() else { return };
                    if server.listen_tcp(&address).await.is_ok() {
                        tracing::info!(%address, "this rank serves its host's cache from now on");
                        return keeper.serve_with(server);
                    }
                }
            });
        }
        Err(error) => return Err(error.while_doing("serve this node's cache to its peers")),
    }
    Ok(())
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
