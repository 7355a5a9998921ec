//! What a dataset and its accelerators ask of drives, links and machines, before any of them is bought.
//!
//! A [`Demand`] is bytes and rates; a [`Catalog`] lists kinds of hardware with what each gives and costs. [`choose`] says how
//! many drives of a kind are needed, for their capacity, their bandwidth or their requests, and how much is left over;
//! [`judge`] says the same of a number of drives that somebody already has in mind. Headroom is what is given beyond
//! what is asked: drives that give exactly what is asked have none, and a run on them waits whenever one is late.
//!
//! Speed over time (caches, nodes, round trips) is the business of [`stall`](crate::stall). An epoch's order is a
//! [`plan`](crate::plan); nothing here is.

mod catalog;
mod choose;
#[cfg(test)]
mod tests;

pub use catalog::{Catalog, Drive, Instance, Link, MAX_CATALOG_BYTES, MAX_ENTRIES};
pub use choose::{Choice, DriveLimit, LinkChoice, ServerLimit, Servers, Verdict, choose, judge, links};

use crate::{Error, Result};
use serde::Serialize;

/// How samples are read from drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Shards, in long sequential reads.
    Shards,
    /// One read at a random place for each sample.
    Files,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Demand {
    /// Bytes of the dataset.
    pub dataset_bytes: u64,
    /// Samples of the dataset.
    pub samples: u64,
    /// Accelerators that train at once.
    pub accelerators: u64,
    /// Bytes of payloads that each of them takes in a second.
    pub accelerator_bytes_per_second: u64,
    /// Passes over the dataset.
    pub epochs: u64,
    /// What should be left over, as a share of what is asked: 0.2 is a fifth.
    pub headroom: f64,
    /// How samples are read.
    pub access: Access,
}

impl Demand {
    /// All faults at once.
    pub fn check(&self) -> Result<()> {
        let mut faults = Vec::new();
        for (name, value) in [
            ("dataset_bytes", self.dataset_bytes),
            ("samples", self.samples),
            ("accelerators", self.accelerators),
            ("accelerator_bytes_per_second", self.accelerator_bytes_per_second),
            ("epochs", self.epochs),
        ] {
            if value == 0 {
                faults.push(format!("{name} is 0"));
            }
        }
        if self.samples > self.dataset_bytes {
            faults.push(format!("{} samples cannot lie in {} bytes", self.samples, self.dataset_bytes));
        }
        if !(0.0..=100.0).contains(&self.headroom) {
            faults.push(format!("headroom is {}, not between 0 and 100 times the demand", self.headroom));
        }
        if faults.is_empty() {
            return Ok(());
        }
        Err(Error::invalid_config(format!("plan a dataset: {}", faults.join("; "))))
    }

    /// Bytes a second that all accelerators take together.
    pub fn bytes_per_second(&self) -> f64 {
        self.accelerators as f64 * self.accelerator_bytes_per_second as f64
    }

    /// The same with the headroom that is wanted.
    pub fn wanted_bytes_per_second(&self) -> f64 {
        self.bytes_per_second() * (1.0 + self.headroom)
    }

    /// Mean bytes of one sample.
    pub fn sample_bytes(&self) -> f64 {
        self.dataset_bytes as f64 / self.samples as f64
    }

    /// Seconds of one epoch when nothing waits.
    pub fn epoch_seconds(&self) -> f64 {
        self.dataset_bytes as f64 / self.bytes_per_second()
    }
}
