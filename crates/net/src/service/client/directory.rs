//! What pulling needs to know of a service: which worker makes a span. The real one asks a dispatcher.

use forebay_core::Result;
use forebay_core::feed::Span;
use forebay_core::pull::{Delivery, Reach, WorkerKey};
use forebay_core::stall::Pace;
use std::time::Duration;

/// Says who makes what.
pub(super) trait Directory: Send + Sync {
    /// Joins at this place, or joins again. Positions of a span.
    fn attach(&self, from: Reach) -> Result<u64>;

    /// Who makes these spans; nobody is an empty list. `lost` had them and does not answer.
    fn locate(&self, spans: &[Span], avoid: &[WorkerKey], lost: Option<WorkerKey>) -> Result<Vec<Found>>;

    /// Says how far this rank is.
    fn report(&self, report: &Report) -> Result<()>;

    /// Leaves.
    fn detach(&self);

    /// Whether its workers were chosen for where they are, so that bytes over the link decide who makes a batch.
    fn is_near_the_data(&self) -> bool {
        false
    }

    /// What people call it.
    fn name(&self) -> String;
}

/// Who makes a span.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) span: Span,
    pub(super) worker: WorkerKey,
    pub(super) address: String,
}

/// How far a rank is and how it fared.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Report {
    pub(super) reach: Reach,
    pub(super) steps: u64,
    pub(super) samples: u64,
    pub(super) waited: Duration,
    pub(super) skipped: u64,
    pub(super) asked_again: u64,
    pub(super) pace: Option<Pace>,
}

impl Report {
    /// Counts what was handed over.
    pub(super) fn note(&mut self, delivery: &Delivery, waited: Duration) {
        self.steps += 1;
        self.samples += delivery.places.iter().filter(|place| !place.padding).count() as u64;
        self.waited += waited;
    }
}
