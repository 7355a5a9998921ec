//! One batch in the making: which rows are here, prepared or bad, and how it is handed over.

use super::Moment;
use crate::batch::{Batch, Fault};
use crate::supply::Taken;
use forebay_core::portion::Place;
use forebay_core::stall::Making;
use forebay_core::{Error, SampleId};
use forebay_ops::{BatchBuilder, Output};
use std::time::Duration;

pub(super) struct OpenBatch {
    pub(super) epoch: u64,
    pub(super) step: u64,
    pub(super) rows: Vec<Option<RowInfo>>,
    pub(super) keep: Vec<bool>,
    /// Rows whose payloads are not here yet.
    pub(super) missing: usize,
    /// Whether any payload had to be brought.
    pub(super) fetched: bool,
    /// Rows that are not prepared yet, and when the last one was.
    pub(super) unfinished: usize,
    pub(super) done_at: Option<Moment>,
    /// Time of threads inside ops, and of the row that took longest.
    pub(super) work: Duration,
    pub(super) longest: Duration,
    pub(super) builder: Option<BatchBuilder>,
    pub(super) faults: Vec<(usize, Fault)>,
    pub(super) fatal: Option<(usize, Error)>,
}

pub(super) struct RowInfo {
    pub(super) place: Place,
    pub(super) sample: SampleId,
}

impl OpenBatch {
    /// A batch of which nothing is here yet.
    pub(super) fn new(epoch: u64, step: u64, rows: usize) -> Self {
        Self {
            epoch,
            step,
            rows: (0..rows).map(|_| None).collect(),
            keep: vec![true; rows],
            missing: rows,
            fetched: false,
            unfinished: rows,
            done_at: None,
            work: Duration::ZERO,
            longest: Duration::ZERO,
            builder: None,
            faults: Vec::new(),
            fatal: None,
        }
    }

    /// Whether there is something to say: all of it is done, or it has failed.
    pub(super) fn is_due(&self) -> bool {
        self.unfinished == 0 || self.fatal.is_some()
    }

    /// What making it took.
    pub(super) fn making(&self, servers: u32) -> Making {
        let fetch_limit = if self.fetched { Duration::MAX } else { Duration::ZERO };
        Making { work: self.work, longest: self.longest, servers, fetch_limit }
    }

    pub(super) fn deliver(
        mut self,
        outputs: &[Output],
        ready: usize,
        making: Making,
        prep_since: Option<Moment>,
    ) -> Result<Taken, Error> {
        if let Some((_, error)) = self.fatal.take() {
            return Err(error);
        }
        self.faults.sort_by_key(|(row, fault)| (*row, fault.sample_id));
        let faults: Vec<Fault> = self.faults.into_iter().map(|(_, fault)| fault).collect();
        let rows: Vec<RowInfo> = self.rows.into_iter().flatten().collect();
        let places = rows.iter().map(|row| row.place).collect();
        let kept = || rows.iter().zip(&self.keep).filter(|(_, keep)| **keep).map(|(row, _)| row);
        let columns = match self.builder {
            Some(builder) if self.keep.contains(&true) => builder.finish(&self.keep),
            _ => {
                let reasons = faults.first().map_or_else(String::new, |fault| fault.error.report());
                return Err(Error::corrupt(format!(
                    "deliver batch {} of epoch {}: all {} samples are bad; the first: {reasons}",
                    self.step,
                    self.epoch,
                    rows.len()
                )));
            }
        };
        let batch = Batch {
            epoch: self.epoch,
            step: self.step,
            ids: kept().map(|row| row.sample).collect(),
            padding: kept().map(|row| row.place.padding).collect(),
            columns: outputs.iter().map(|output| output.name.clone()).zip(columns).collect(),
            faults,
        };
        Ok(Taken { batch: Some(batch), places, making, done_at: self.done_at, prep_since, ready })
    }
}
