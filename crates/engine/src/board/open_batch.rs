//! One batch in the making: which rows are here, prepared or bad, and how it is handed over.

use super::Moment;
use crate::batch::{Batch, Fault};
use crate::supply::Taken;
use forebay_core::portion::Place;
use forebay_core::stall::Making;
use forebay_core::{Error, SampleId};
use forebay_ops::BatchBuilder;
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
    /// Rows that filters left out.
    pub(super) left_out: usize,
    /// Whether somebody does something to the whole batch first, and what came of it.
    pub(super) finishes: bool,
    pub(super) finished: Option<Result<Batch, Error>>,
}

/// What a batch is made of once all of its rows are done.
pub(crate) struct Assembly {
    epoch: u64,
    step: u64,
    rows: Vec<RowInfo>,
    keep: Vec<bool>,
    left_out: usize,
    faults: Vec<(usize, Fault)>,
    builder: Option<BatchBuilder>,
}

#[derive(Clone, Copy)]
pub(super) struct RowInfo {
    pub(super) place: Place,
    pub(super) sample: SampleId,
}

impl OpenBatch {
    /// A batch of which nothing is here yet.
    pub(super) fn new(epoch: u64, step: u64, rows: usize, finishes: bool) -> Self {
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
            left_out: 0,
            finishes,
            finished: None,
        }
    }

    /// Whether all of it is done.
    pub(super) fn is_done(&self) -> bool {
        self.unfinished == 0 && (!self.finishes || self.finished.is_some())
    }

    /// Whether there is something to say: all of it is done, or it has failed.
    pub(super) fn is_due(&self) -> bool {
        self.is_done() || self.fatal.is_some()
    }

    /// Takes out what the batch is made of.
    pub(super) fn assembly(&mut self) -> Assembly {
        Assembly {
            epoch: self.epoch,
            step: self.step,
            rows: self.rows.iter().flatten().copied().collect(),
            keep: std::mem::take(&mut self.keep),
            left_out: self.left_out,
            faults: std::mem::take(&mut self.faults),
            builder: self.builder.take(),
        }
    }

    /// What making it took.
    pub(super) fn making(&self, servers: u32) -> Making {
        let fetch_limit = if self.fetched { Duration::MAX } else { Duration::ZERO };
        Making { work: self.work, longest: self.longest, servers, fetch_limit }
    }

    pub(super) fn deliver(
        mut self,
        ready: usize,
        making: Making,
        prep_since: Option<Moment>,
    ) -> Result<Taken, Error> {
        if let Some((_, error)) = self.fatal.take() {
            return Err(error);
        }
        let places = self.rows.iter().flatten().map(|row| row.place).collect();
        let batch = match self.finished.take() {
            Some(finished) => finished?,
            None => self.assembly().into_batch()?,
        };
        Ok(Taken { batch: Some(batch), places, making, done_at: self.done_at, prep_since, ready })
    }
}

impl Assembly {
    /// The batch. One whose samples are all bad is an error; one whose samples were all left out is empty.
    pub(crate) fn into_batch(mut self) -> Result<Batch, Error> {
        self.faults.sort_by_key(|(row, fault)| (*row, fault.sample_id));
        let faults: Vec<Fault> = self.faults.into_iter().map(|(_, fault)| fault).collect();
        let what = || format!("deliver batch {} of epoch {}", self.step, self.epoch);
        let kept = || self.rows.iter().zip(&self.keep).filter(|(_, keep)| **keep).map(|(row, _)| row);
        let columns = match self.builder {
            Some(builder) if self.left_out > 0 || self.keep.contains(&true) => {
                builder.finish(&self.keep).map_err(|error| error.while_doing(what()))?
            }
            _ => {
                let reasons = faults.first().map_or_else(String::new, |fault| fault.error.report());
                let samples = self.rows.len();
                let why = format!("{}: all {samples} samples are bad; the first: {reasons}", what());
                return Err(Error::corrupt(why));
            }
        };
        Ok(Batch {
            epoch: self.epoch,
            step: self.step,
            ids: kept().map(|row| row.sample).collect(),
            padding: kept().map(|row| row.place.padding).collect(),
            columns,
            faults,
            object: None,
        })
    }
}
