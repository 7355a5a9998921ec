//! Following who takes part while a job runs: a file that is looked at again and again, or a dispatcher that is told
//! that we live and tells who else does. What cannot be read leaves everything as it was.

use super::Members;
use crate::dispatcher::Control;
use crate::threads::Threads;
use forebay_core::dispatcher::{Command, JobName, Reply};
use forebay_core::{Error, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::JoinHandle;

/// How often to ask.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a dispatcher may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Who says which nodes take part.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file with an address on each line.
    File(PathBuf),
    /// A dispatcher, which is told as well.
    Dispatcher {
        /// The dispatcher.
        control: Control,
        /// What the cache is called there.
        cache: JobName,
        /// Tells processes of this node apart.
        process: u64,
    },
}

impl Source {
    /// Who takes part now, where `known` are those we knew of; `known` has our own address.
    pub async fn ask(&self, known: &Members) -> Result<Members> {
        match self {
            Self::File(path) => {
                let (path, own) = (path.clone(), known.own().to_owned());
                let read = tokio::task::spawn_blocking(move || read_file(&path, &own)).await;
                read.map_err(|error| Error::internal("read the nodes of the cache").with_source(error))?
            }
            Self::Dispatcher { control, cache, process } => {
                let (cache, address) = (cache.clone(), known.own().to_owned());
                let join = Command::JoinCache { cache, address, process: *process };
                match control.ask(&join, ANSWER).await? {
                    Reply::CacheMembers { addresses, complete, .. } => {
                        let mut all: BTreeSet<String> = addresses.into_iter().collect();
                        if !complete {
                            all.extend(known.addresses().iter().cloned());
                        }
                        Members::around(all.into_iter().collect(), known.own())
                    }
                    _ => Err(Error::corrupt("join a cache: the dispatcher answered something else")),
                }
            }
        }
    }
}

/// The nodes that a file lists, around our own address.
pub(crate) fn read_file(path: &Path, own: &str) -> Result<Members> {
    let doing = || format!("read the nodes of the cache from `{}`", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| Error::io(doing(), error))?;
    Members::from_lines(&text, own).map_err(|error| error.while_doing(doing()))
}

/// A task that follows a source; it ends, and leaves the cache, when this is dropped.
#[derive(Debug)]
pub struct Following {
    task: JoinHandle<()>,
    source: Source,
    own: String,
    threads: Threads,
}

impl Following {
    /// Tells of every change from `known` on.
    pub fn start(
        source: Source,
        known: Members,
        threads: Threads,
        tell: impl Fn(&Members) + Send + Sync + 'static,
    ) -> Self {
        let (asked, own) = (source.clone(), known.own().to_owned());
        let task = threads.handle().spawn(async move {
            let (mut known, mut failing) = (known, false);
            loop {
                tokio::time::sleep(PAUSE).await;
                match asked.ask(&known).await {
                    Ok(members) => {
                        if failing {
                            tracing::info!("it can be told again which nodes take part in the cache");
                        }
                        failing = false;
                        if members.addresses() != known.addresses() {
                            tell(&members);
                            known = members;
                        }
                    }
                    Err(error) if !failing => {
                        failing = true;
                        tracing::warn!(error = %error.report(), "the nodes of the cache stay those known last");
                    }
                    Err(_) => {}
                }
            }
        });
        Self { task, source, own, threads }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
        if let Source::Dispatcher { control, cache, process } = &self.source
            && self.threads.are_alive()
        {
            let (control, cache, address) = (control.clone(), cache.clone(), self.own.clone());
            let leave = Command::LeaveCache { cache, address, process: *process };
            // Where there is no time left for it, the dispatcher notices by itself.
            self.threads.handle().spawn(async move { drop(control.ask(&leave, PAUSE).await) });
        }
    }
}
