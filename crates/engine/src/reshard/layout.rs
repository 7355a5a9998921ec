//! Where the new shards begin: a pure function of the order and of the lengths in the manifest.

use crate::shard::ShardWriterOptions;
use forebay_core::manifest::Manifest;
use forebay_core::{Error, Result, SampleId};

/// Which positions each new shard holds.
#[derive(Debug)]
pub(super) struct Layout {
    /// First position of every shard, and the number of samples.
    bounds: Vec<u64>,
}

impl Layout {
    pub(super) fn new(manifest: &Manifest, positions: &[u64], options: &ShardWriterOptions) -> Result<Self> {
        if options.max_samples == 0 || options.max_bytes == 0 {
            return Err(Error::invalid_config("reshard: max_samples and max_bytes must be at least 1"));
        }
        let mut lengths = vec![0u64; positions.len()];
        for (sample, position) in positions.iter().enumerate() {
            lengths[*position as usize] = value_bytes(manifest, SampleId(sample as u64));
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
        if !positions.is_empty() {
            bounds.push(positions.len() as u64);
        }
        Ok(Self { bounds })
    }

    pub(super) fn shards(&self) -> u64 {
        self.bounds.len() as u64 - 1
    }

    pub(super) fn shard_of(&self, position: u64) -> u64 {
        self.bounds.partition_point(|bound| *bound <= position) as u64 - 1
    }

    /// The first position of a shard.
    pub(super) fn first(&self, shard: u64) -> u64 {
        self.bounds[shard as usize]
    }

    pub(super) fn samples(&self, shard: u64) -> u64 {
        self.bounds[shard as usize + 1] - self.bounds[shard as usize]
    }
}

/// Bytes of a sample's values, as the manifest tells them.
pub(super) fn value_bytes(manifest: &Manifest, sample: SampleId) -> u64 {
    let length = |field| manifest.location(sample, field).map_or(8, |at| at.length);
    (0..manifest.fields().len()).map(length).sum()
}
