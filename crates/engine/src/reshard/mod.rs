//! Samples of any dataset into shards: in another order, of another size or format, with bounded memory.
//!
//! Which sample goes where is settled before anything is read ([`order`], [`layout`]): so the result does not depend on
//! memory, threads or interruptions. Then the samples are read once, in the order in which they lie ([`ahead`]). A sample
//! whose turn it is goes straight to its shard ([`making`]), any other waits for its shard in a bucket ([`spill`]). A shard
//! is written as soon as its last sample has come, whole or not at all.
//!
//! A card beside the shards says which run writes them. The same run, started again, keeps the shards that are there and
//! reads only what the others need.

mod ahead;
mod card;
mod held;
mod keys;
mod layout;
mod making;
pub mod order;
mod spill;

pub use keys::ShardKeys;
pub use order::{Order, Rest};

use crate::shard::{ShardInfo, ShardWriterOptions};
use crate::source::{Dataset, blocking};
use ahead::Ahead;
use card::Card;
use forebay_core::Result;
use layout::Layout;
use making::Making;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// The part of the memory that samples read ahead may take; the others wait in the rest.
const AHEAD_SHARE: u64 = 4;

/// What is made of a dataset.
#[derive(Clone, Debug)]
pub struct ReshardOptions {
    /// The order of the samples in the new shards.
    pub order: Order,
    /// Where shards go and of which format they are. `max_bytes` counts payloads: what a format adds comes on top.
    pub shards: ShardWriterOptions,
    /// Bytes of samples that are read ahead or wait for their shard; one sample more may be held, and beyond it they go to a
    /// temporary file. Not counted are what says where samples go, 8 bytes for each and 32 more for each that waits, and
    /// buffers of files.
    pub memory_bytes: u64,
    /// Where the temporary file lies; `None` is the folder of the shards.
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
    /// Bytes that went through a temporary file.
    pub spilled_bytes: u64,
    /// The most bytes of samples that were held at once, on their way or waiting.
    pub peak_bytes: u64,
}

/// Writes the samples of `dataset` as other shards. `progress` is told steps done and steps in all, two for every sample
/// that is read: one when it has come, one when its shard is written. It may end the run with an error; shards that are
/// written stay.
pub async fn reshard(
    dataset: &Dataset,
    options: &ReshardOptions,
    progress: &mut dyn FnMut(u64, u64) -> Result<()>,
) -> Result<Resharded> {
    let positions = order::positions(dataset.manifest(), &options.order)?;
    let layout = Arc::new(Layout::new(dataset.manifest(), &positions, &options.shards)?);
    let card = Card::open(dataset, options)?;
    let mut kept = card.kept(&layout)?;
    let total = 2 * (dataset.manifest().len() - kept.values().map(|shard| shard.samples).sum::<u64>());
    let missing = |sample: &u64| !kept.contains_key(&layout.shard_of(positions[*sample as usize]));
    let wanted = (0..dataset.manifest().len()).filter(missing);

    let ahead_bytes = options.memory_bytes / AHEAD_SHARE;
    let mut ahead = Ahead::new(dataset, &positions, wanted, options.shards.is_tfrecord()?, ahead_bytes)?;
    let folder = options.spill_dir.clone().unwrap_or_else(|| card.folder().to_owned());
    let limit = options.memory_bytes - ahead_bytes;
    let mut making = Making::new(&options.shards, Arc::clone(&layout), folder, limit);
    let (mut written, mut done, mut peak_bytes) = (BTreeMap::new(), 0, 0);
    while let Some(arrived) = ahead.next().await? {
        let on_the_way = ahead.in_flight() + arrived.bytes;
        done += arrived.samples.len() as u64;
        let complete;
        (making, complete) = blocking(move || making.put(arrived.samples)).await??;
        peak_bytes = peak_bytes.max(on_the_way + making.take_peak());
        progress(done, total)?;
        for shard in complete {
            let (number, info);
            (making, number, info) = blocking(move || making.finish(shard)).await??;
            peak_bytes = peak_bytes.max(ahead.in_flight() + making.take_peak());
            done += info.samples;
            written.insert(number, info);
            progress(done, total)?;
        }
    }
    drop(ahead);
    let spilled_bytes = making.spilled_bytes();
    card.finish()?;
    let kept_count = kept.len() as u64;
    kept.append(&mut written);
    Ok(Resharded { shards: kept.into_values().collect(), kept: kept_count, spilled_bytes, peak_bytes })
}
