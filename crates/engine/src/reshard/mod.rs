//! Samples of any dataset into shards: in another order, of another size or format, with bounded memory.
//!
//! Which sample goes where is settled before anything is read ([`order`], [`Layout`]): so the result does not depend on
//! memory, threads or interruptions. Then the samples are read once, in the order in which they lie, and put into a bucket
//! for each new shard ([`spill`]); buckets beyond the memory limit go to temporary files. At the end every bucket is put in
//! order and written, whole or not at all.
//!
//! A card beside the shards says which run writes them. The same run, started again, keeps the shards that are there and
//! reads only what the others need.

mod card;
mod keys;
pub mod order;
mod spill;

pub use keys::ShardKeys;
pub use order::{Order, Rest};

use crate::shard::{Cell, KEY_FEATURE, ShardInfo, ShardWriter, ShardWriterOptions};
use crate::source::{Dataset, FieldValue, blocking};
use card::Card;
use forebay_core::manifest::Manifest;
use forebay_core::{Error, Result, SampleId};
use futures::{StreamExt, stream};
use spill::{Buckets, Held};
use std::path::PathBuf;

/// Samples that are read ahead of the one that is put away.
const READ_AHEAD: usize = 16;

/// What is made of a dataset.
#[derive(Clone, Debug)]
pub struct ReshardOptions {
    /// The order of the samples in the new shards.
    pub order: Order,
    /// Where shards go and of which format they are. `max_bytes` counts payloads: what a format adds comes on top.
    pub shards: ShardWriterOptions,
    /// Bytes of samples that are held at once; one sample more may be. Beyond it they go to temporary files.
    pub memory_bytes: u64,
    /// Where temporary files lie; `None` is the folder of the shards.
    pub spill_dir: Option<PathBuf>,
}

impl ReshardOptions {
    /// Shards by `pattern` in the order in which samples lie, with a gibibyte of memory.
    pub fn new(pattern: impl Into<String>) -> Self {
        let shards = ShardWriterOptions::new(pattern);
        Self { order: Order::AsStored, shards, memory_bytes: 1 << 30, spill_dir: None }
    }
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resharded {
    /// All shards, in order.
    pub shards: Vec<ShardInfo>,
    /// Shards that an earlier run had written.
    pub kept: u64,
    /// Bytes that went through temporary files.
    pub spilled_bytes: u64,
    /// The most bytes of samples that were held at once.
    pub peak_bytes: u64,
}

/// Writes the samples of `dataset` as other shards. `progress` is told samples done and samples in all, twice the number of
/// samples that are read: each is put away and written; it may end the run with an error.
pub async fn reshard(
    dataset: &Dataset,
    options: &ReshardOptions,
    progress: &mut dyn FnMut(u64, u64) -> Result<()>,
) -> Result<Resharded> {
    let manifest = dataset.manifest();
    let positions = order::positions(manifest, &options.order)?;
    let layout = Layout::new(manifest, &positions, &options.shards)?;
    let card = Card::open(dataset, options)?;
    let kept = card.finished(layout.shards())?;
    let wanted: Vec<u64> = (0..manifest.len())
        .filter(|sample| !kept.contains(&layout.shard_of(positions[*sample as usize])))
        .collect();
    let keys = ShardKeys::new(dataset);
    let total = 2 * wanted.len() as u64;
    let folder = options.spill_dir.clone().unwrap_or_else(|| card.folder().to_owned());
    let mut buckets = Buckets::new(folder, options.memory_bytes);
    let as_tfrecord = options.shards.is_tfrecord()?;
    let read = stream::iter(wanted).map(|sample| async move {
        let id = SampleId(sample);
        let fields =
            if as_tfrecord { dataset.read_for_tfrecord(id).await } else { dataset.read_sample(id).await };
        (sample, fields)
    });
    let mut read = Box::pin(read.buffered(READ_AHEAD).enumerate());
    let mut done = 0;
    while let Some((_, (sample, fields))) = read.next().await {
        let position = positions[sample as usize];
        let held = Held { position, key: keys.name(SampleId(sample)), fields: fields? };
        buckets.put(layout.shard_of(position), &named(held))?;
        done += 1;
        progress(done, total)?;
    }
    drop(read);
    let (spilled_bytes, peak_bytes) = (buckets.spilled_bytes(), buckets.peak_bytes());
    let mut shards = Vec::new();
    for shard in 0..layout.shards() {
        if kept.contains(&shard) {
            shards.push(card.info(shard, layout.samples(shard))?);
            continue;
        }
        let bucket = buckets.take(shard)?;
        let writer = options.shards.clone();
        let written = blocking(move || write(bucket, writer, shard)).await??;
        done += layout.samples(shard);
        progress(done, total)?;
        shards.push(written);
    }
    card.finish()?;
    Ok(Resharded { shards, kept: kept.len() as u64, spilled_bytes, peak_bytes })
}

/// Writes one shard.
fn write(bucket: spill::Bucket, options: ShardWriterOptions, shard: u64) -> Result<ShardInfo> {
    let first = options.first + shard;
    let (max_samples, max_bytes) = (u64::MAX, u64::MAX);
    let mut writer = ShardWriter::new(ShardWriterOptions { max_samples, max_bytes, first, ..options })?;
    bucket.in_order(|held| {
        let cells: Vec<(&str, Cell<'_>)> = held
            .fields
            .iter()
            .map(|(name, value)| match value {
                FieldValue::Payload(bytes) => (name.as_str(), Cell::Bytes(bytes)),
                FieldValue::Int(value) => (name.as_str(), Cell::Int(*value)),
                FieldValue::Record(payload) => (name.as_str(), Cell::Record(payload)),
            })
            .collect();
        writer.add_cells(&held.key, &cells)
    })?;
    let mut written = writer.finish()?;
    written.pop().ok_or_else(|| Error::internal("a shard without samples was planned"))
}

/// A sample under the names that shards can hold: its key is what the sample says itself, and no field has a `/`. A record
/// of TFRecord is left as it is.
fn named(mut held: Held) -> Held {
    let said = held.fields.iter().find_map(|(name, value)| match value {
        FieldValue::Payload(key) if name == KEY_FEATURE => std::str::from_utf8(key).ok().map(str::to_owned),
        _ => None,
    });
    if let Some(key) = said {
        held.fields.retain(|(name, _)| name != KEY_FEATURE);
        held.key = key;
    }
    for (name, _) in &mut held.fields {
        *name = name.replace('/', ".");
    }
    held
}

/// Where the new shards begin: a pure function of the order and the lengths in the manifest.
struct Layout {
    /// First position of every shard, and the number of samples.
    bounds: Vec<u64>,
}

impl Layout {
    fn new(manifest: &Manifest, positions: &[u64], options: &ShardWriterOptions) -> Result<Self> {
        if options.max_samples == 0 || options.max_bytes == 0 {
            return Err(Error::invalid_config("reshard: max_samples and max_bytes must be at least 1"));
        }
        let mut lengths = vec![0u64; positions.len()];
        for (sample, position) in positions.iter().enumerate() {
            let length = |field| manifest.location(SampleId(sample as u64), field).map_or(8, |at| at.length);
            lengths[*position as usize] = (0..manifest.fields().len()).map(length).sum();
        }
        let (mut bounds, mut bytes) = (vec![0], 0u64);
        for (position, length) in lengths.into_iter().enumerate() {
            let samples = position as u64 - bounds.last().copied().unwrap_or_default();
            if samples > 0 && (samples >= options.max_samples || bytes + length > options.max_bytes) {
                bounds.push(position as u64);
                bytes = 0;
            }
            bytes += length;
        }
        bounds.push(positions.len() as u64);
        Ok(Self { bounds })
    }

    fn shards(&self) -> u64 {
        self.bounds.len() as u64 - 1
    }

    fn shard_of(&self, position: u64) -> u64 {
        self.bounds.partition_point(|bound| *bound <= position) as u64 - 1
    }

    fn samples(&self, shard: u64) -> u64 {
        self.bounds[shard as usize + 1] - self.bounds[shard as usize]
    }
}
