//! Block shuffle: sequential reads, bounded memory, and still random access to any position.
//!
//! [`Blocks`] are runs of neighbouring samples inside one object, cut by bytes. In each epoch blocks are visited in a
//! keyed permutation; consecutive blocks of that order form a group, and the samples of a group are permuted among
//! themselves. Groups start small (four blocks) and double up to the set size, so that the first batch of an epoch
//! does not wait for a whole group.

use super::{BLOCKS, GROUP};
use crate::manifest::Manifest;
use crate::permutation::Permutation;
use crate::rng::fold;
use crate::{Error, Result, SampleId};
use std::sync::Arc;

/// Blocks in the first group of an epoch; each following group has twice as many until the set size is reached.
const FIRST_GROUP_BLOCKS: u64 = 4;

/// The cut of a dataset into runs of neighbours.
#[derive(Clone, Debug, Default)]
pub struct Blocks {
    /// First sample of each block, and the number of samples at the end.
    starts: Vec<u64>,
}

impl Blocks {
    /// Cuts each object's samples into runs of at most `block_bytes` (at least one sample).
    pub fn cut(manifest: &Manifest, block_bytes: u64) -> Result<Self> {
        let objects = 0..manifest.object_count();
        let rows = objects.flat_map(|object| {
            let samples = manifest.samples_of(object);
            samples.map(move |sample| (object, manifest.sample_bytes(SampleId(sample))))
        });
        Self::cut_rows(rows, block_bytes)
    }

    /// Cuts samples, given by object and bytes in the order in which they are numbered.
    pub(super) fn cut_rows(rows: impl Iterator<Item = (u32, u64)>, block_bytes: u64) -> Result<Self> {
        if block_bytes == 0 {
            return Err(Error::invalid_config("block_bytes is 0: give at least 1"));
        }
        let (mut starts, mut samples) = (Vec::new(), 0);
        let (mut bytes, mut last) = (0u64, None);
        for (object, size) in rows {
            if last != Some(object) || bytes.saturating_add(size) > block_bytes {
                starts.push(samples);
                bytes = 0;
            }
            // A sample without bytes still counts, so that a run of them ends somewhere.
            bytes = bytes.saturating_add(size.max(1));
            last = Some(object);
            samples += 1;
        }
        starts.push(samples);
        Ok(Self { starts })
    }

    /// Blocks of `block_samples` samples each, inside objects of `object_samples` samples: for simulations and tests.
    pub fn uniform(samples: u64, object_samples: u64, block_samples: u64) -> Self {
        let mut starts = Vec::new();
        let mut object = 0;
        while object < samples {
            let end = (object + object_samples).min(samples);
            starts.extend((object..end).step_by(block_samples as usize));
            object = end;
        }
        starts.push(samples);
        Self { starts }
    }

    /// Samples covered.
    pub fn samples(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Number of blocks.
    pub fn len(&self) -> u64 {
        self.starts.len().saturating_sub(1) as u64
    }

    /// Whether there is no block.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The samples of one block.
    pub fn get(&self, block: u64) -> std::ops::Range<u64> {
        self.starts[block as usize]..self.starts[block as usize + 1]
    }

    fn block_of(&self, sample: u64) -> u64 {
        self.starts.partition_point(|start| *start <= sample) as u64 - 1
    }
}

/// The order of one epoch by blocks.
#[derive(Debug)]
pub(super) struct BlockPlan {
    blocks: Arc<Blocks>,
    order: Permutation,
    seed: u64,
    epoch: u64,
    group_blocks: u64,
    /// Position at which each group starts, and the end of the plan.
    group_starts: Vec<u64>,
    /// For each place in the order of blocks: samples of the same group before it.
    before_in_group: Vec<u32>,
}

impl BlockPlan {
    pub(super) fn new(blocks: Arc<Blocks>, group_blocks: u64, seed: u64, epoch: u64) -> Self {
        let order = Permutation::new(blocks.len(), fold(&[seed, epoch, BLOCKS]));
        let mut group_starts = vec![];
        let mut before_in_group = Vec::with_capacity(blocks.len() as usize);
        let (mut position, mut group_start, mut group, mut group_end) = (0, 0, 0, 0);
        for place in 0..blocks.len() {
            if place == group_end {
                group_starts.push(position);
                group_start = position;
                group_end = first_block(group + 1, group_blocks);
                group += 1;
            }
            before_in_group.push((position - group_start) as u32);
            let block = blocks.get(order.at(place));
            position += block.end - block.start;
        }
        group_starts.push(position);
        Self { blocks, order, seed, epoch, group_blocks, group_starts, before_in_group }
    }

    pub(super) fn at(&self, position: u64) -> u64 {
        let group = self.group_of(position);
        let places = self.places(group);
        let within = self.mix(group).at(position - self.group_starts[group as usize]) as u32;
        let offsets = &self.before_in_group[places.start as usize..places.end as usize];
        let place = offsets.partition_point(|before| *before <= within) - 1;
        let block = self.blocks.get(self.order.at(places.start + place as u64));
        block.start + u64::from(within - offsets[place])
    }

    pub(super) fn position_of(&self, sample: u64) -> u64 {
        let block = self.blocks.block_of(sample);
        let place = self.order.index_of(block);
        let group = group_of_place(place, self.group_blocks);
        let within = u64::from(self.before_in_group[place as usize]) + sample - self.blocks.get(block).start;
        self.group_starts[group as usize] + self.mix(group).index_of(within)
    }

    pub(super) fn group_end(&self, position: u64) -> u64 {
        self.group_starts[self.group_of(position) as usize + 1]
    }

    fn group_of(&self, position: u64) -> u64 {
        self.group_starts.partition_point(|start| *start <= position) as u64 - 1
    }

    /// The permutation of one group's samples.
    fn mix(&self, group: u64) -> Permutation {
        let samples = self.group_starts[group as usize + 1] - self.group_starts[group as usize];
        Permutation::new(samples, fold(&[self.seed, self.epoch, GROUP, group]))
    }

    /// The places in the order of blocks that make up a group.
    fn places(&self, group: u64) -> std::ops::Range<u64> {
        let start = first_block(group, self.group_blocks);
        start..first_block(group + 1, self.group_blocks).min(self.blocks.len())
    }
}

/// Groups that are still smaller than the set size: 4, 8, 16, … blocks.
fn growing_groups(group_blocks: u64) -> u64 {
    (0..60).find(|group| FIRST_GROUP_BLOCKS << group >= group_blocks).unwrap_or(60)
}

/// Place of the first block of a group.
fn first_block(group: u64, group_blocks: u64) -> u64 {
    let growing = growing_groups(group_blocks);
    let grown = FIRST_GROUP_BLOCKS * ((1 << group.min(growing)) - 1);
    grown + group.saturating_sub(growing) * group_blocks
}

/// The group that a place in the order of blocks belongs to.
fn group_of_place(place: u64, group_blocks: u64) -> u64 {
    let growing = growing_groups(group_blocks);
    let grown = first_block(growing, group_blocks);
    if place >= grown {
        growing + (place - grown) / group_blocks
    } else {
        u64::from((place / FIRST_GROUP_BLOCKS + 1).ilog2())
    }
}
