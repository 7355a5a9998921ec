//! A batch as it is handed over, and the report of samples that went wrong on the way.

use forebay_core::{Error, Result, SampleId};
use forebay_ops::Column;
use std::any::Any;
use std::sync::Arc;

/// Does something to a whole batch before it is handed over: in a preparing thread, where batches are made here.
pub type FinishBatch = Arc<dyn Fn(Batch) -> Result<Batch> + Send + Sync>;

/// Prepared samples, collated, with their provenance.
#[derive(Debug)]
pub struct Batch {
    /// The epoch all samples belong to.
    pub epoch: u64,
    /// Number of the batch in this rank's epoch, counted from the start of the iteration.
    pub step: u64,
    /// The sample in each row.
    pub ids: Vec<SampleId>,
    /// Rows that repeat a sample only to fill the batch.
    pub padding: Vec<bool>,
    /// Columns in the order of the recipe.
    pub columns: Vec<(String, Column)>,
    /// Bad samples met in this batch (never those of `on_error="raise"`, which fail the batch instead).
    pub faults: Vec<Fault>,
    /// What a [`FinishBatch`] made of it for whoever takes it; never leaves the process.
    pub object: Option<Box<dyn Any + Send + Sync>>,
}

/// A bad sample: what it was, what went wrong, what took its place.
#[derive(Debug)]
pub struct Fault {
    /// The bad sample.
    pub sample_id: SampleId,
    /// Its key.
    pub key: String,
    /// The epoch.
    pub epoch: u64,
    /// What went wrong.
    pub error: Error,
    /// The sample that took its place, if one did.
    pub substitute: Option<SampleId>,
}

impl Batch {
    /// Number of rows, padding included.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there is no row: filters left all of its samples out.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Bytes of all columns.
    pub fn bytes(&self) -> u64 {
        self.columns.iter().map(|(_, column)| column.bytes() as u64).sum()
    }

    /// The column called `name`.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|(column, _)| column == name).map(|(_, column)| column)
    }
}
