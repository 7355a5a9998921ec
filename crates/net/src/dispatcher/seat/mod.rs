//! One of several dispatchers that share an etcd: stands by, leads, and falls silent in time.
//!
//! What to do when is decided by `forebay_core::election`; this does it. To lead is to have made the key `leader` under
//! a lease. The revision at which it was made is compared by every write of the journal, and the journal is read after
//! it was made: so whatever a former leader was answered for is found, and nothing it sends later gets through.

#[cfg(test)]
mod tests;

use super::commit::{Commit, Promise, Writer};
use super::etcd::{Do, Etcd, Range, Transaction, is_passing};
use super::journal::{EtcdJournal, Journal, Keys};
use super::machine::{Gate, Leading, Machine};
use forebay_core::dispatcher::{Dispatcher, Settings, State};
use forebay_core::election::{Act, Election, News, Times};
use forebay_core::scale::ScaleSettings;
use forebay_core::{Error, ErrorKind, Result};
use futures::future::{BoxFuture, FutureExt};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// How long what was decided may take to be written when a leader leaves.
const GRACE: Duration = Duration::from_secs(2);

/// Longest text of a `leader` key that is believed.
const LEADER_BYTES: usize = 1024;

/// What a seat is made of.
pub(super) struct Seat {
    pub(super) etcd: Arc<dyn Etcd>,
    pub(super) keys: Keys,
    /// Where clients find us.
    pub(super) address: String,
    pub(super) times: Times,
    pub(super) settings: Settings,
    pub(super) scale: ScaleSettings,
    pub(super) machine: Arc<Machine>,
    /// Where the journal is written.
    pub(super) handle: Handle,
}

/// What whoever leads tells of itself.
#[derive(Debug, Serialize, Deserialize)]
struct Leader {
    address: String,
}

/// A lease of ours, when it was asked for, and the revision of the key that was made with it.
#[derive(Clone, Copy, Debug)]
struct Held {
    lease: i64,
    asked: u64,
    length_ms: u64,
    term: Option<i64>,
}

type Opening = BoxFuture<'static, Result<(EtcdJournal, State)>>;

/// How far somebody is who leads.
enum Reign {
    Opening(Opening),
    Open { promise: Promise, writer: Writer },
}

/// What happened to a reign.
enum Turn {
    Opened(Box<(EtcdJournal, State)>),
    Over(Error),
}

impl Reign {
    /// Waits until it is open, or over.
    async fn turn(reign: &mut Option<Self>) -> Turn {
        match reign {
            None => std::future::pending().await,
            Some(Self::Opening(opening)) => match opening.await {
                Ok(opened) => Turn::Opened(Box::new(opened)),
                Err(error) => Turn::Over(error),
            },
            Some(Self::Open { promise, .. }) => Turn::Over(promise.clone().broken().await),
        }
    }
}

impl Seat {
    /// Looks who leads, once: what cannot get better by waiting is told before anything else begins.
    pub(super) async fn check(&self) -> Result<()> {
        match self.etcd.range(Range::one(&self.keys.leader()), 1).await {
            Err(error) if !is_passing(&error) => Err(error.while_doing("begin with state in etcd")),
            Err(error) => {
                tracing::warn!(error = %error.report(), "etcd does not answer: waiting for it");
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }

    /// Takes part until it is stopped, or cannot go on.
    pub(super) async fn run(self, mut stopped: watch::Receiver<bool>) -> Result<()> {
        let mut election = Election::new(self.times, self.machine.clock());
        let (mut held, mut reign, mut gate): (Option<Held>, Option<Reign>, Gate) =
            (None, None, Gate::closed());
        let outcome = loop {
            let (act, at) = election.next();
            let pause = Duration::from_millis(at.saturating_sub(self.machine.clock()));
            tokio::select! {
                biased;
                () = told(&mut stopped) => break Ok(()),
                turn = Reign::turn(&mut reign) => {
                    match turn {
                        Turn::Opened(opened) => {
                            let (journal, state) = *opened;
                            reign = Some(self.begin(Box::new(journal), state, &gate));
                            tracing::info!(address = %self.address, "this dispatcher leads");
                        }
                        Turn::Over(error) if error.kind() == ErrorKind::Stale => {
                            election.hear(self.machine.clock(), News::Gone);
                        }
                        Turn::Over(error) => break Err(error),
                    }
                }
                () = tokio::time::sleep(pause) => {
                    let news = self.act(act, &mut held).await;
                    election.hear(self.machine.clock(), news);
                }
            }
            match (election.leads(), &reign) {
                (true, None) => {
                    gate = Gate::closed();
                    reign = held.and_then(|held| held.term).map(|term| {
                        let opening = EtcdJournal::open(self.etcd.clone(), self.keys.clone(), term);
                        Reign::Opening(opening.boxed())
                    });
                }
                (false, Some(_)) => {
                    gate.set(0);
                    self.machine.stand_by(None, "another one may lead by now");
                    if let Some(Reign::Open { writer: Writer::Task(task), .. }) = reign.take() {
                        task.abort();
                    }
                    tracing::warn!(address = %self.address, "this dispatcher does not lead any more");
                }
                _ => {}
            }
            gate.set(election.answers_until().unwrap_or(0));
        };
        self.leave(held, reign, &gate).await;
        outcome
    }

    /// Leads from now on.
    fn begin(&self, journal: Box<dyn Journal>, state: State, gate: &Gate) -> Reign {
        let (commit, writer) = Commit::on_runtime(journal, &self.handle);
        let promise = commit.promise();
        let machine = Dispatcher::new(state, self.settings, 0).with_scale(self.scale, 0);
        self.machine.lead(Leading::new(machine, Some(commit), gate.clone(), self.machine.clock()));
        Reign::Open { promise, writer }
    }

    /// Lets another one lead at once.
    async fn leave(&self, held: Option<Held>, reign: Option<Reign>, gate: &Gate) {
        self.machine.close();
        if let Some(Reign::Open { writer, .. }) = reign {
            let _ = tokio::time::timeout(GRACE, writer.finish(&self.handle)).await;
        }
        gate.set(0);
        if let Some(held) = held {
            let _ = tokio::time::timeout(GRACE, self.etcd.revoke(held.lease)).await;
        }
    }

    async fn act(&self, act: Act, held: &mut Option<Held>) -> News {
        let asked = self.machine.clock();
        let news = match act {
            Act::Look => self.look(held).await,
            Act::Campaign => self.campaign(held, asked).await,
            Act::Renew => match held {
                None => Ok(News::Gone),
                Some(held) => self.etcd.renew(held.lease).await.map(|left| match left {
                    Some(lease_ms) => News::Renewed { asked, lease_ms },
                    None => News::Gone,
                }),
            },
        };
        news.unwrap_or_else(|error| {
            tracing::debug!(error = %error.report(), ?act, "etcd does not answer");
            if act != Act::Renew {
                self.machine.stand_by(None, &format!("etcd does not answer: {}", error.message()));
            }
            News::Silent
        })
    }

    async fn look(&self, held: &mut Option<Held>) -> Result<News> {
        let found = self.etcd.range(Range::one(&self.keys.leader()), 1).await?;
        let Some(pair) = found.into_iter().next() else { return Ok(News::Vacant) };
        match held {
            // Made by a campaign of ours whose answer was lost.
            Some(held) if pair.lease == held.lease => {
                held.term = Some(pair.created);
                Ok(News::Won { asked: held.asked, lease_ms: held.length_ms })
            }
            _ => {
                let leader = Some(&pair.value).filter(|value| value.len() <= LEADER_BYTES);
                let leader = leader.and_then(|value| serde_json::from_slice::<Leader>(value).ok());
                let address = leader.map(|leader| leader.address);
                let why = match &address {
                    Some(address) => format!("`{address}` leads"),
                    None => "another one leads".to_owned(),
                };
                self.machine.stand_by(address, &why);
                Ok(News::Led)
            }
        }
    }

    async fn campaign(&self, held: &mut Option<Held>, asked: u64) -> Result<News> {
        let lease = self.etcd.grant(self.times.lease_ms.div_ceil(1000)).await?;
        // What an earlier campaign may have made is under another lease, and lapses.
        *held = Some(Held { lease: lease.id, asked, length_ms: lease.length_ms, term: None });
        let key = self.keys.leader();
        let value = serde_json::to_vec(&Leader { address: self.address.clone() })
            .map_err(|error| Error::internal("write who leads as JSON").with_source(error))?;
        let transaction = Transaction {
            made_at: vec![(key.clone(), 0)],
            then: vec![Do::Put { key: key.clone(), value, lease: lease.id }, Do::Get(key)],
            otherwise: Vec::new(),
        };
        let outcome = self.etcd.transact(transaction).await?;
        let made = outcome.got.into_iter().next().flatten();
        match (made, held) {
            (Some(pair), Some(held)) if outcome.held => {
                held.term = Some(pair.created);
                Ok(News::Won { asked, lease_ms: lease.length_ms })
            }
            _ => {
                // Another one was faster. The lease holds nothing.
                let _ = self.etcd.revoke(lease.id).await;
                Ok(News::Led)
            }
        }
    }
}

/// Waits for the word; a word that nobody can give any more is given.
async fn told(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}
