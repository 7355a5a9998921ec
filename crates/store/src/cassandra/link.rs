//! The way to the cluster: one session for all clones of a store, made by the first request, made again after a fork.
//!
//! The driver's tasks live on the process's network threads, which do not cross a fork: a child makes a session of
//! its own and never touches that of its parent. Whoever asks while a first session is being made waits for it and
//! shares its failure, so that a cluster which is down fails a thousand requests as fast as one.

use super::fault;
use super::settings::Settings;
use super::table::Tables;
use crate::Net;
use crate::http::tls;
use forebay_core::{Error, ErrorKind, Result};
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;
use scylla::client::PoolSize;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::policies::timestamp_generator::MonotonicTimestampGenerator;
use scylla::statement::Consistency;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::OnceCell;

/// How long one connection may take to come about; a request may be allowed less.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Settings and what was made of them in this process.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) settings: Settings,
    current: Mutex<Option<Arc<Process>>>,
}

impl Link {
    pub(super) fn new(settings: Settings) -> Self {
        Self { settings, current: Mutex::new(None) }
    }

    /// This process's side of the link; nothing is sent yet.
    pub(super) fn process(&self) -> Result<Arc<Process>> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(process) = current.as_ref().filter(|process| process.net.is_alive()) {
            return Ok(Arc::clone(process));
        }
        forget_parent(current.take());
        let process = Process {
            session: OnceCell::new(),
            tables: OnceCell::new(),
            attempts: Attempts::default(),
            net: Net::shared()?,
        };
        Ok(Arc::clone(current.insert(Arc::new(process))))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let current = self.current.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if current.as_ref().is_some_and(|process| !process.net.is_alive()) {
            forget_parent(current);
        }
    }
}

/// A session of the parent process would, when dropped, wake threads that are not here and may wait for their locks.
fn forget_parent(process: Option<Arc<Process>>) {
    if let Some(process) = process {
        std::mem::forget(process);
    }
}

/// What one process has made. The threads come last, so that they outlive what runs on them.
#[derive(Debug)]
pub(super) struct Process {
    session: OnceCell<Arc<Session>>,
    tables: OnceCell<Arc<Tables>>,
    attempts: Attempts,
    pub(super) net: Net,
}

impl Process {
    /// The session. To be called on the network threads: the driver starts its tasks where it is made.
    pub(super) async fn session(&self, settings: &Settings) -> Result<Arc<Session>> {
        let made = self.attempts.once(&self.session, || connect(settings)).await?;
        Ok(Arc::clone(made))
    }

    /// The tables with their statements. To be called on the network threads.
    pub(super) async fn tables(&self, settings: &Settings) -> Result<Arc<Tables>> {
        if let Some(tables) = self.tables.get() {
            return Ok(Arc::clone(tables));
        }
        let session = self.session(settings).await?;
        let made = self.attempts.once(&self.tables, || Tables::prepare(session, settings)).await?;
        Ok(Arc::clone(made))
    }
}

async fn connect(settings: &Settings) -> Result<Arc<Session>> {
    let profile = ExecutionProfile::builder()
        // Payloads do not change: any replica that has one will do. A row that is missed is asked for again by quorum.
        .consistency(Consistency::LocalOne)
        .request_timeout(Some(settings.request_timeout))
        .build();
    let mut builder = SessionBuilder::new()
        .known_nodes(&settings.hosts)
        .compression(None)
        .pool_size(PoolSize::PerHost(settings.connections))
        .connection_timeout(settings.request_timeout.min(CONNECT_TIMEOUT))
        .keyspaces_to_fetch([settings.keyspace.as_str()])
        .timestamp_generator(Arc::new(MonotonicTimestampGenerator::new()))
        .default_execution_profile_handle(profile.into_handle());
    if let Some((name, password)) = &settings.user {
        builder = builder.user(name, password);
    }
    if let Some(center) = &settings.local_dc {
        builder = builder.prefer_datacenter(center.clone());
    }
    let asked = Arc::new(Asked::default());
    if let Some(options) = &settings.tls {
        let mut config = tls::client_config(options)?;
        if options.client_cert.is_none() {
            Arc::make_mut(&mut config).client_auth_cert_resolver = Arc::clone(&asked) as _;
        }
        builder = builder.tls_context(Some(config));
    }
    let made = builder.build().await.map(Arc::new);
    made.map_err(|error| fault::connect(settings, error, asked.0.load(Ordering::Relaxed)))
}

/// Shows no certificate, and remembers that the server asked for one: it says so before it closes the connection, and not
/// always afterwards.
#[derive(Debug, Default)]
struct Asked(AtomicBool);

impl ResolvesClientCert for Asked {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.store(true, Ordering::Relaxed);
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// Makes things once, and gives everyone who waited for an attempt that failed the failure of that attempt.
#[derive(Debug, Default)]
struct Attempts {
    done: AtomicU64,
    last: tokio::sync::Mutex<Option<Failure>>,
}

impl Attempts {
    async fn once<'a, T, F: Future<Output = Result<T>>>(
        &self,
        cell: &'a OnceCell<T>,
        make: impl FnOnce() -> F,
    ) -> Result<&'a T> {
        if let Some(made) = cell.get() {
            return Ok(made);
        }
        let seen = self.done.load(Ordering::Acquire);
        let mut last = self.last.lock().await;
        if cell.get().is_none()
            && self.done.load(Ordering::Acquire) != seen
            && let Some(failure) = last.as_ref()
        {
            return Err(failure.error());
        }
        let made = cell.get_or_try_init(make).await;
        *last = made.as_ref().err().map(Failure::of);
        self.done.fetch_add(1, Ordering::Release);
        made
    }
}

/// An error that can be told several times.
#[derive(Debug)]
struct Failure {
    kind: ErrorKind,
    report: String,
    hint: Option<String>,
    throttled: Option<Duration>,
}

impl Failure {
    fn of(error: &Error) -> Self {
        let report = error.report();
        Self {
            kind: error.kind(),
            report: report.split("\n\nhint: ").next().unwrap_or_default().to_owned(),
            hint: error.hint().map(str::to_owned),
            throttled: error.throttled(),
        }
    }

    fn error(&self) -> Error {
        let mut error = Error::new(self.kind, self.report.clone());
        if let Some(hint) = &self.hint {
            error = error.with_hint(hint.clone());
        }
        match self.throttled {
            Some(pause) => error.with_throttle(pause),
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use std::sync::atomic::AtomicUsize;

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_failing_attempt_shares_its_failure_and_the_next_tries_again() {
        let (attempts, cell, tried) = (Attempts::default(), OnceCell::<u8>::new(), AtomicUsize::new(0));
        let fail = || async {
            tried.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(10)).await;
            Err(Error::unavailable("connect to a: down").with_hint("look"))
        };
        let all = join_all((0..100).map(|_| attempts.once(&cell, fail))).await;
        for failed in all {
            let error = failed.unwrap_err();
            assert_eq!((error.message(), error.hint()), ("connect to a: down", Some("look")));
        }
        assert_eq!(tried.load(Ordering::Relaxed), 1);
        assert_eq!(*attempts.once(&cell, || async { Ok(7) }).await.unwrap(), 7);
        assert_eq!(*attempts.once(&cell, || async { Ok(8) }).await.unwrap(), 7);
    }
}
