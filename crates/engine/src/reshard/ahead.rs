//! Samples on their way here: some are read ahead, in the order in which they lie, within a limit of bytes.

use super::ShardKeys;
use super::held::{FIELD_FRAME, Held, SAMPLE_FRAME};
use super::layout::value_bytes;
use crate::source::{Dataset, FieldValue};
use forebay_core::{Error, Result, SampleId};
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use futures::{FutureExt, StreamExt};
use std::iter::Peekable;

/// Samples that are on their way at once.
const READ_AHEAD: usize = 16;

/// Reads samples one after the other.
pub(super) struct Ahead<'a, I: Iterator<Item = u64>> {
    dataset: &'a Dataset,
    positions: &'a [u64],
    keys: ShardKeys<'a>,
    wanted: Peekable<I>,
    /// Whether records of TFRecord are taken as they stand.
    as_tfrecord: bool,
    reads: FuturesOrdered<BoxFuture<'a, Read>>,
    /// What reads may hold together; one sample may be larger, and is then read alone.
    limit: u64,
    /// What a sample has beside its key and its values.
    frame: u64,
    in_flight: u64,
    failed: Option<Error>,
}

/// A sample that came, or why it did not.
struct Read {
    sample: u64,
    key: String,
    /// What it was expected to hold.
    bytes: u64,
    fields: Result<Vec<(String, FieldValue)>>,
}

/// Samples that have come.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    pub(super) samples: Vec<Held>,
    pub(super) bytes: u64,
}

impl<'a, I: Iterator<Item = u64>> Ahead<'a, I> {
    /// Samples to read, in the order in which they lie, and the position of every sample of the dataset.
    pub(super) fn new(
        dataset: &'a Dataset,
        positions: &'a [u64],
        wanted: I,
        as_tfrecord: bool,
        limit: u64,
    ) -> Result<Self> {
        let names = dataset.fields()?;
        Ok(Self {
            dataset,
            positions,
            keys: ShardKeys::new(dataset),
            wanted: wanted.peekable(),
            as_tfrecord,
            reads: FuturesOrdered::new(),
            limit,
            frame: SAMPLE_FRAME + names.iter().map(|(name, _)| FIELD_FRAME + name.len() as u64).sum::<u64>(),
            in_flight: 0,
            failed: None,
        })
    }

    /// All samples that have come, at least one; `None` at the end. Those that came before are done with. What failed is
    /// told after the samples before it.
    pub(super) async fn next(&mut self) -> Result<Option<Arrived>> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.start();
        let mut arrived = Arrived::default();
        let mut came = self.reads.next().await;
        while let Some(read) = came {
            self.in_flight -= read.bytes;
            match read.fields {
                Ok(fields) => {
                    let held = Held::new(self.positions[read.sample as usize], read.key, fields);
                    arrived.bytes += held.length().max(read.bytes);
                    arrived.samples.push(held);
                }
                Err(error) if arrived.samples.is_empty() => return Err(error),
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
            }
            came = self.reads.next().now_or_never().flatten();
        }
        Ok(Some(arrived).filter(|arrived| !arrived.samples.is_empty()))
    }

    /// Bytes of the samples that have not come yet.
    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    fn start(&mut self) {
        while self.reads.len() < READ_AHEAD {
            let Some(&sample) = self.wanted.peek() else { return };
            let (dataset, id) = (self.dataset, SampleId(sample));
            let key = self.keys.name(id);
            let bytes = self.frame + key.len() as u64 + value_bytes(dataset.manifest(), id);
            if !self.reads.is_empty() && self.in_flight + bytes > self.limit {
                return;
            }
            self.wanted.next();
            self.in_flight += bytes;
            let as_tfrecord = self.as_tfrecord;
            let read = async move {
                let fields = if as_tfrecord {
                    dataset.read_for_tfrecord(id).await
                } else {
                    dataset.read_sample(id).await
                };
                Read { sample, key, bytes, fields }
            };
            self.reads.push_back(read.boxed());
        }
    }
}
