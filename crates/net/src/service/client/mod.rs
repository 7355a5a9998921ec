//! The training process's side: batches that a process of this host or the workers of a service make.
//!
//! [`supplier`] turns the word after `via` into an `engine::Supplier`. What is asked of whom, and what is handed over
//! next, `core::pull` decides. `shared` keeps the batches that came, `pulling` hands them over, `link` is the connection
//! to one worker, `keeper` keeps time; `share` finds the process of this host, `service` the workers of a service. The
//! loader's cursor alone says what was received, so everything here may be lost at any time and is asked for again.

mod directory;
mod job;
mod keeper;
mod link;
mod pulling;
mod service;
mod share;
mod shared;
#[cfg(test)]
mod tests;
mod wire;

use super::message::{Late, Packing};
use crate::credentials::{Credentials, PeerTls, Token};
use forebay_core::dispatcher::Visitation;
use forebay_core::{Error, Result};
use forebay_engine::Supplier;
use service::ServiceSupplier;
use share::ShareSupplier;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// How batches are asked for elsewhere.
#[derive(Clone, Debug, Default)]
pub struct ViaOptions {
    /// The job's name; all its ranks give the same. `None` finds one.
    pub job: Option<String>,
    /// The service's token.
    pub token: Option<String>,
    /// A file that holds nothing but the token.
    pub token_file: Option<PathBuf>,
    /// Certificates, for a service beyond this machine.
    pub tls: Option<PeerTls>,
    /// What happens to batches that this job does not take in time.
    pub late: Late,
    /// What happens to batches that a lost worker was asked for.
    pub visitation: Visitation,
    /// How batches are packed on the way.
    pub packing: Packing,
    /// Program and first arguments that start the process of this host, for `auto`.
    pub start_command: Vec<OsString>,
}

/// Who makes the batches, from the word after `via`. Starts and connects nothing.
pub fn supplier(via: &str, options: &ViaOptions) -> Result<Arc<dyn Supplier>> {
    let how = How {
        job: job::Naming::new(options.job.clone())?,
        late: options.late,
        packings: if options.packing == Packing::None { Vec::new() } else { vec![options.packing] },
        skip_lost: options.visitation == Visitation::AtMostOnce,
        late_ms: LATE_MS,
        clock: Arc::new(RealClock(Instant::now())),
    };
    if via == "auto" {
        let socket = share::default_socket()?;
        return Ok(Arc::new(ShareSupplier::new(socket, Some(options.start_command.clone()), how)));
    }
    if let Some(path) = via.strip_prefix("unix://") {
        if !path.starts_with('/') {
            return Err(Error::invalid_config(format!("read via `{via}`: the path does not begin with `/`"))
                .with_hint("write `unix:///path/to/socket`"));
        }
        return Ok(Arc::new(ShareSupplier::new(path.into(), None, how)));
    }
    if let Some(address) = via.strip_prefix("forebay://") {
        return Ok(Arc::new(ServiceSupplier::new(address, credentials(options)?, options.visitation, how)?));
    }
    Err(Error::invalid_config(format!("read via `{via}`: it is no place that batches come from"))
        .with_hint("use `auto`, `unix:///path/to/socket` or `forebay://host:port`"))
}

/// An answer is late when it takes three times as long as others, and not before this. Milliseconds.
const LATE_MS: u64 = 1_000;

fn credentials(options: &ViaOptions) -> Result<Credentials> {
    let from_environment = || std::env::var("FOREBAY_TOKEN").ok().filter(|token| !token.is_empty());
    let token = match (&options.token, &options.token_file) {
        (Some(_), Some(_)) => {
            return Err(Error::invalid_config("read via a service: `token` and `token_file` are both given"));
        }
        (Some(token), None) => Some(Token::new(token)?),
        (None, Some(file)) => Some(Token::from_file(file)?),
        (None, None) => from_environment().map(|token| Token::new(&token)).transpose()?,
    };
    Ok(Credentials { token, tls: options.tls.clone() })
}

/// What all suppliers are told.
#[derive(Clone)]
struct How {
    job: job::Naming,
    late: Late,
    packings: Vec<Packing>,
    skip_lost: bool,
    late_ms: u64,
    clock: Arc<dyn Clock>,
}

/// Milliseconds since some moment. What is decided by time is decided by this one.
trait Clock: Send + Sync {
    fn now(&self) -> u64;
}

struct RealClock(Instant);

impl Clock for RealClock {
    fn now(&self) -> u64 {
        self.0.elapsed().as_millis() as u64
    }
}
