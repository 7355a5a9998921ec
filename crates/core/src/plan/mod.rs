//! The plan: the order of one epoch, a pure function of (manifest, seed, epoch).
//!
//! A [`Sampler`] is the rule, made once per dataset and seed; [`Sampler::plan`] gives the [`Plan`] of an epoch. Any
//! position is found without replay. The plan knows nothing of ranks, workers or batches: see
//! [`portion`](crate::portion) for who reads what.
//!
//! - *sequential*: as stored.
//! - *full*: one keyed permutation over all samples; nothing is stored.
//! - *block*: [`block`] — shards are cut into blocks that are each one sequential read, blocks are permuted,
//!   consecutive blocks form a group, samples are permuted inside the group.
//! - *resample*: [`resample`](self) — every position draws any sample, with replacement.
//! - *mix*: [`mix`] — several runs of samples by weight.
//! - *parts*: [`parts`] — a dataset dealt to several parts by a sharding policy.
//! - *rounds*: [`rounds`] — samples of about one size in every batch of a step.
//!
//! [`batching`] cuts any of them into batches of about one length, or of a bounded number of bytes. [`figures`] says how
//! well an order mixes.

pub mod batching;
pub mod block;
pub mod figures;
pub mod mix;
pub mod parts;
mod resample;
pub mod rounds;

use crate::manifest::Manifest;
use crate::permutation::Permutation;
use crate::rng::fold;
use crate::{Error, Result, SampleId};
use batching::{Batched, BatchedPlan, Cuts};
use block::{BlockPlan, Blocks};
use mix::{Mix, MixPlan};
use parts::{Parts, PartsPlan};
use resample::ResamplePlan;
use rounds::{Rounds, RoundsPlan};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How an epoch is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shuffle {
    /// As stored.
    Sequential,
    /// One permutation over all samples: for memory, NVMe and stores with one object per sample.
    Full,
    /// Blocks of neighbours, permuted and mixed in groups: for shards.
    Block(BlockShuffle),
    /// Every position draws any sample, with replacement.
    Resample {
        /// Positions of an epoch; `None` is the number of samples.
        epoch_samples: Option<u64>,
    },
}

/// Settings of block shuffle. They are part of the order: change one and the order changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockShuffle {
    /// A block ends before it would exceed this many bytes (a single larger sample is a block of its own).
    pub block_bytes: u64,
    /// Blocks mixed with each other. Memory for a group is about `block_bytes * group_blocks`.
    pub group_blocks: u64,
}

impl Default for BlockShuffle {
    /// 1 MiB is a sequential read even on rotating disks; 32 blocks mix about 290 ImageNet images from 32 places of
    /// the dataset in 32 MiB of memory.
    fn default() -> Self {
        Self { block_bytes: 1 << 20, group_blocks: 32 }
    }
}

/// The rule that makes plans. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Sampler {
    /// Positions of every epoch.
    samples: u64,
    seed: u64,
    rule: Rule,
}

#[derive(Clone, Debug)]
enum Rule {
    Sequential,
    Full,
    Block { blocks: Arc<Blocks>, group_blocks: u64 },
    Resample { from: u64 },
    Mix(Arc<Mix>),
    Parts(Arc<Parts>),
    Rounds(Arc<Rounds>),
    Batched(Arc<Batched>),
}

impl Sampler {
    /// The rule for a dataset. Block shuffle walks the manifest once to cut blocks.
    pub fn new(manifest: &Manifest, shuffle: Shuffle, seed: u64) -> Result<Self> {
        let blocks = match shuffle {
            Shuffle::Block(settings) => Blocks::cut(manifest, settings.block_bytes)?,
            _ => Blocks::default(),
        };
        Self::from_blocks(manifest.len(), blocks, shuffle, seed)
    }

    /// The rule for `samples` samples and blocks that were cut elsewhere (ignored unless the shuffle is by block).
    pub fn from_blocks(samples: u64, blocks: Blocks, shuffle: Shuffle, seed: u64) -> Result<Self> {
        let rule = match shuffle {
            Shuffle::Sequential => Rule::Sequential,
            Shuffle::Full => Rule::Full,
            Shuffle::Block(settings) => {
                if settings.group_blocks == 0 {
                    return Err(Error::invalid_config("group_blocks is 0: give at least 1"));
                }
                if blocks.samples() != samples {
                    return Err(Error::internal(format!(
                        "blocks cover {} of {samples} samples",
                        blocks.samples()
                    )));
                }
                Rule::Block { blocks: Arc::new(blocks), group_blocks: settings.group_blocks }
            }
            Shuffle::Resample { epoch_samples } => {
                let positions = resample::epoch_length(samples, epoch_samples)?;
                return Ok(Self { samples: positions, seed, rule: Rule::Resample { from: samples } });
            }
        };
        Ok(Self { samples, seed, rule })
    }

    /// The rule that keeps `samples` samples as they are stored.
    pub fn stored(samples: u64) -> Self {
        Self { samples, seed: 0, rule: Rule::Sequential }
    }

    /// The order of one epoch. Costs O(1), or one pass over the blocks for block shuffle.
    pub fn plan(&self, epoch: u64) -> Plan {
        let order = match &self.rule {
            Rule::Sequential => Order::Sequential,
            Rule::Full => Order::Full(Permutation::new(self.samples, fold(&[self.seed, epoch, FULL]))),
            Rule::Block { blocks, group_blocks } => {
                Order::Block(BlockPlan::new(Arc::clone(blocks), *group_blocks, self.seed, epoch))
            }
            Rule::Resample { from } => Order::Resample(ResamplePlan::new(*from, self.seed, epoch)),
            Rule::Mix(mix) => Order::Mix(MixPlan::new(Arc::clone(mix), self.seed, epoch)),
            Rule::Parts(parts) => Order::Parts(PartsPlan::new(Arc::clone(parts), self.seed, epoch)),
            Rule::Rounds(rounds) => Order::Rounds(RoundsPlan::new(Arc::clone(rounds), self.seed, epoch)),
            Rule::Batched(batched) => Order::Batched(BatchedPlan::new(Arc::clone(batched), epoch)),
        };
        Plan { epoch, samples: self.samples, order: Arc::new(order) }
    }

    /// Positions in every epoch: the number of samples, unless epochs of another length were asked for.
    pub fn samples(&self) -> u64 {
        self.samples
    }
}

/// Key parts that keep the permutations and draws of one epoch apart.
const FULL: u64 = 0;
const BLOCKS: u64 = 1;
const GROUP: u64 = 2;
const RESAMPLE: u64 = 3;
const MIX: u64 = 4;
const MIX_PART: u64 = 5;
const PART: u64 = 6;
const CLASS: u64 = 7;
const ROUNDS: u64 = 8;

/// The order of one epoch. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Plan {
    epoch: u64,
    samples: u64,
    order: Arc<Order>,
}

#[derive(Debug)]
enum Order {
    Sequential,
    Full(Permutation),
    Block(BlockPlan),
    Resample(ResamplePlan),
    Mix(MixPlan),
    Parts(PartsPlan),
    Rounds(RoundsPlan),
    Batched(BatchedPlan),
}

impl Plan {
    /// The epoch this is the order of.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Number of positions: see [`Sampler::samples`].
    pub fn len(&self) -> u64 {
        self.samples
    }

    /// Whether there is no position.
    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// The sample at a position.
    ///
    /// # Panics
    /// When `position` is not below [`Self::len`].
    pub fn at(&self, position: u64) -> SampleId {
        assert!(position < self.samples, "position {position} is outside a plan of {}", self.samples);
        SampleId(match &*self.order {
            Order::Sequential => position,
            Order::Full(permutation) => permutation.at(position),
            Order::Block(plan) => plan.at(position),
            Order::Resample(plan) => plan.at(position),
            Order::Mix(plan) => plan.at(position),
            Order::Parts(plan) => plan.at(position),
            Order::Rounds(plan) => plan.at(position),
            Order::Batched(plan) => plan.at(position),
        })
    }

    /// The position of a sample: the inverse of [`Self::at`]. `None` when there is no such sample, and in orders where
    /// a sample may stand at several positions or at none: resampling, mixes, and the sharding policy `off`.
    pub fn position_of(&self, sample: SampleId) -> Option<u64> {
        let known = sample.0 < self.samples;
        match &*self.order {
            Order::Sequential => known.then_some(sample.0),
            Order::Full(permutation) => known.then(|| permutation.index_of(sample.0)),
            Order::Block(plan) => known.then(|| plan.position_of(sample.0)),
            Order::Parts(plan) => plan.position_of(sample.0),
            Order::Rounds(plan) => plan.position_of(sample.0),
            Order::Batched(plan) => plan.position_of(sample),
            Order::Resample(_) | Order::Mix(_) => None,
        }
    }

    /// The part that a position belongs to under a sharding policy; `None` in orders without parts. Workers that have
    /// the choice prefer one part.
    pub fn part_of(&self, position: u64) -> Option<u32> {
        match &*self.order {
            Order::Parts(plan) if position < self.samples => Some(plan.part_of(position)),
            _ => None,
        }
    }

    /// The size class of the sample at a position; `None` in orders without rounds.
    pub fn class_of(&self, position: u64) -> Option<u32> {
        match &*self.order {
            Order::Rounds(plan) if position < self.samples => Some(plan.class_of(position)),
            _ => None,
        }
    }

    /// Where each batch begins; `None` in orders whose batches are so many samples each. The first call may walk the
    /// whole epoch.
    pub fn cuts(&self) -> Option<&Cuts> {
        match &*self.order {
            Order::Batched(plan) => Some(plan.cuts()),
            _ => None,
        }
    }

    /// One past the last position that is mixed with `position`. Fetching a whole group at once makes every block one
    /// read; orders without groups return the end of the plan.
    pub fn group_end(&self, position: u64) -> u64 {
        match &*self.order {
            Order::Block(plan) => plan.group_end(position),
            Order::Batched(plan) => plan.group_end(position).unwrap_or(self.samples),
            _ => self.samples,
        }
    }
}

#[cfg(test)]
mod tests;
