//! The training process's side: batches that a process of this host or the workers of a service make.
//!
//! [`supplier`] turns the word after `via` into an `engine::Supplier`. What is asked of whom, and what is handed over
//! next, `core::pull` decides. `shared` keeps the batches that came, `pulling` hands them over, `link` is the connection
//! to one worker, `home` the worker in this very process, `keeper` keeps time; `share` finds the process of this host,
//! `service` the workers of a service. The
//! loader's cursor alone says what was received, so everything here may be lost at any time and is asked for again.

mod directory;
mod home;
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
use super::worker::share_socket;
use super::{Target, ViaConfig, ViaUrl};
use forebay_core::Result;
use forebay_core::dispatcher::Visitation;
use forebay_engine::Supplier;
use forebay_ops::Functions;
use service::ServiceSupplier;
use share::ShareSupplier;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Instant;

/// What this process gives to making batches, where a part of them is made here.
#[derive(Clone, Debug, Default)]
pub struct Own {
    /// Program and first arguments of `forebay`, for processes that are started when they are missing.
    pub command: Vec<OsString>,
    /// Preparing threads; `None` is one per processor.
    pub threads: Option<usize>,
    /// Bytes of payloads and batches in the making; `None` chooses.
    pub memory_bytes: Option<u64>,
    /// What the recipe may call here.
    pub functions: Functions,
    /// Names of these, for processes that are started when they are missing.
    pub function_names: Vec<String>,
}

/// Who makes the batches, from the setting `via`; `None` when this process alone does. Starts and connects nothing.
pub fn supplier(via: &ViaConfig, own: &Own) -> Result<Option<Arc<dyn Supplier>>> {
    if via.target == Target::Local {
        return Ok(None);
    }
    let how = How {
        job: job::Naming::new(via.job.clone())?,
        late: via.late,
        packings: if via.compression == Packing::None { Vec::new() } else { vec![via.compression] },
        skip_lost: via.visitation == Visitation::AtMostOnce,
        late_ms: LATE_MS,
        clock: Arc::new(RealClock(Instant::now())),
    };
    Ok(Some(match &via.url {
        ViaUrl::Auto => {
            let mut start = [&own.command[..], &["share".into()]].concat();
            for name in &own.function_names {
                start.extend(["--functions".into(), name.into()]);
            }
            Arc::new(ShareSupplier::new(share_socket()?, Some(start), how))
        }
        ViaUrl::Unix(path) => Arc::new(ShareSupplier::new(path.clone(), None, how)),
        ViaUrl::Service(address) => {
            let own = (via.target == Target::Auto).then(|| own.clone());
            let supplier = ServiceSupplier::new(address, via.credentials()?, via.visitation, how, own)?;
            Arc::new(supplier.with_tag(via.tag.clone()))
        }
    }))
}

/// An answer is late when it takes three times as long as others, and not before this. Milliseconds.
const LATE_MS: u64 = 1_000;

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
