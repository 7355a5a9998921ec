//! How batches are cut, as plain data, and what is wrong with it.

use super::packing::Packing;
use crate::plan::rounds::MAX_CLASSES;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// Least ratio of a bucket's lengths: below it there would be more buckets than are kept open.
pub const MIN_RATIO: f64 = 1.05;

/// Largest ratio of a bucket's lengths.
pub const MAX_RATIO: f64 = 1e6;

/// How an epoch is cut into batches. It is part of the order, but for `batch_bytes` alone.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batching {
    /// Which lengths may stand in one batch; `None` is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<Bucket>,
    /// Most bytes of a batch: the sum of its lengths, or with buckets its longest length times its samples, which is
    /// what it takes once it is padded. `None` has no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_bytes: Option<u64>,
    /// What happens to a sample that alone is larger than `batch_bytes`.
    #[serde(default)]
    pub oversize: Oversize,
    /// What a sample's length is: the bytes of this payload field, or the number in this integer field. `None` takes
    /// all payload fields together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length_field: Option<String>,
    /// How documents are packed into rows; then nothing of the above but the field is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pack: Option<Packing>,
}

/// Which lengths may stand in one batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bucket {
    /// The longest is at most this many times the shortest.
    Ratio(f64),
    /// First length of every bucket but the first, ascending.
    Bounds(Vec<u64>),
}

/// What happens to a sample that is larger than a batch may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Oversize {
    /// It is a batch of its own.
    #[default]
    Alone,
    /// It is left out of every epoch, and counted.
    Drop,
}

impl Bucket {
    /// First length of every bucket but the first.
    pub(super) fn bounds(&self) -> Vec<u64> {
        let ratio = match self {
            Self::Bounds(bounds) => return bounds.clone(),
            Self::Ratio(ratio) => *ratio,
        };
        // Nothing has a bucket of its own; then each begins where the one before would become too wide. They are the
        // same for every dataset, so that one that grows keeps them.
        let mut bounds = vec![1u64];
        let mut first = 1u64;
        while (first as f64) * ratio < (u64::MAX / 2) as f64 {
            first = ((first as f64 * ratio) as u64).max(first) + 1;
            bounds.push(first);
        }
        bounds
    }
}

impl Batching {
    /// What was asked for, one setting at a time; `None` when nothing was.
    pub fn from_settings(
        bucket: Option<Bucket>,
        batch_bytes: Option<u64>,
        oversize: Option<Oversize>,
        length_field: Option<String>,
    ) -> Result<Option<Self>> {
        if bucket.is_none() && batch_bytes.is_none() {
            return match length_field {
                Some(field) => Err(Error::invalid_config(format!(
                    "length_field is `{field}`, but there is neither bucket nor batch_bytes"
                ))),
                None if oversize.is_some() => {
                    Err(Error::invalid_config("oversize is set, but there is no batch_bytes"))
                }
                None => Ok(None),
            };
        }
        if batch_bytes.is_none() && oversize.is_some() {
            return Err(Error::invalid_config("oversize is set, but there is no batch_bytes"));
        }
        let batching =
            Self { bucket, batch_bytes, oversize: oversize.unwrap_or_default(), length_field, pack: None };
        batching.check()?;
        Ok(Some(batching))
    }

    /// Checks the numbers.
    pub fn check(&self) -> Result<()> {
        if let Some(packing) = &self.pack {
            if self.bucket.is_some() || self.batch_bytes.is_some() {
                return Err(Error::invalid_config(
                    "bucket or batch_bytes is set, but the recipe packs documents: leave one out",
                ));
            }
            packing.check()?;
        }
        let why = match (&self.bucket, self.batch_bytes) {
            (_, Some(0)) => "batch_bytes is 0: give at least 1".to_owned(),
            (Some(Bucket::Ratio(ratio)), _) if !(MIN_RATIO..=MAX_RATIO).contains(ratio) => {
                format!("bucket is {ratio}: a ratio lies between {MIN_RATIO} and {MAX_RATIO}")
            }
            (Some(Bucket::Bounds(bounds)), _)
                if bounds.is_empty() || bounds.len() >= MAX_CLASSES as usize =>
            {
                format!("bucket has {} boundaries: give 1 to {}", bounds.len(), MAX_CLASSES - 1)
            }
            (Some(Bucket::Bounds(bounds)), _)
                if bounds[0] == 0 || bounds.windows(2).any(|two| two[0] >= two[1]) =>
            {
                format!("bucket is {bounds:?}: boundaries are lengths above 0 that rise")
            }
            _ => return Ok(()),
        };
        Err(Error::invalid_config(why))
    }
}
