//! Sharding policies: a dataset dealt to `n` parts, with random access to any position.
//!
//! Those who come from tf.data service know these policies by name. There they say which of `n` workers makes which
//! samples; here they are orders like any other, a pure function of manifest, seed and epoch. The epoch takes a chunk
//! of part 0, a chunk of part 1, and so on ([`turns`]), so that with as many parts as workers, or as ranks, one of them
//! can do one part, and nobody has to: any position can be made anywhere.
//!
//! Who belongs to which part is in [`members`]. Inside a part samples are shuffled as everywhere, keyed by seed, epoch
//! and part: stored order, one permutation, or blocks of neighbours cut inside the part.

mod members;
mod turns;

use super::block::{BlockPlan, Blocks};
use super::resample::check_epoch_samples;
use super::{PART, Rule, Sampler, Shuffle};
use crate::manifest::Manifest;
use crate::permutation::Permutation;
use crate::rng::fold;
use crate::{Error, Result, SampleId};
use members::Members;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use turns::Turns;

/// Most parts of one dataset.
pub const MAX_PARTS: u32 = 1024;

/// Which samples a part has, and how often a sample comes in an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum ShardingPolicy {
    /// Every part has every sample, in an order of its own: an epoch is as many passes as there are parts.
    Off,
    /// No parts: each sample once, in the ordinary order and equal portions. Any worker makes any batch of it.
    Dynamic,
    /// The objects that hold samples are dealt in turn: part `i` has those with number `i` modulo the parts.
    File,
    /// Samples are dealt in turn: part `i` has those with number `i` modulo the parts.
    Data,
    /// [`Self::File`] when every part can have an object, else [`Self::Data`].
    FileOrData,
    /// The dataset says it: an integer field of the manifest, modulo the parts.
    Hint {
        /// Name of the field.
        field: String,
    },
}

/// A policy and the number of parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sharding {
    /// Who has what.
    pub policy: ShardingPolicy,
    /// Number of parts, 1 to [`MAX_PARTS`]; [`ShardingPolicy::Dynamic`] has no use for it.
    pub parts: u32,
}

impl Sharding {
    /// What was asked for, one setting at a time: a policy needs parts, but for `dynamic`, and parts need a policy.
    pub fn from_settings(policy: Option<ShardingPolicy>, parts: Option<u32>) -> Result<Option<Self>> {
        let Some(policy) = policy else {
            return match parts {
                None => Ok(None),
                Some(parts) => {
                    Err(Error::invalid_config(format!("parts is {parts}, but there is no sharding"))
                        .with_hint("give `sharding` too, for example `file_or_data`"))
                }
            };
        };
        let Some(parts) = parts.or((policy == ShardingPolicy::Dynamic).then_some(1)) else {
            return Err(Error::invalid_config(format!("sharding is `{policy}`, but there is no parts"))
                .with_hint("give the number of workers or ranks as `parts`"));
        };
        let sharding = Self { policy, parts };
        sharding.check()?;
        Ok(Some(sharding))
    }

    /// Checks the number of parts.
    pub fn check(&self) -> Result<()> {
        if (1..=MAX_PARTS).contains(&self.parts) {
            return Ok(());
        }
        Err(Error::invalid_config(format!("parts is {}: give 1 to {MAX_PARTS}", self.parts)))
    }
}

impl fmt::Display for ShardingPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Dynamic => "dynamic",
            Self::File => "file",
            Self::Data => "data",
            Self::FileOrData => "file_or_data",
            Self::Hint { field } => return write!(f, "hint:{field}"),
        })
    }
}

impl FromStr for ShardingPolicy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "off" => Self::Off,
            "dynamic" => Self::Dynamic,
            "file" => Self::File,
            "data" => Self::Data,
            "file_or_data" => Self::FileOrData,
            _ => match text.strip_prefix("hint:") {
                Some(field) if !field.is_empty() => Self::Hint { field: field.to_owned() },
                _ => {
                    return Err(Error::invalid_config(format!("sharding is `{text}`")).with_hint(
                        "known are `off`, `dynamic`, `file`, `data`, `file_or_data` and `hint:FIELD`",
                    ));
                }
            },
        })
    }
}

impl From<ShardingPolicy> for String {
    fn from(policy: ShardingPolicy) -> Self {
        policy.to_string()
    }
}

impl TryFrom<String> for ShardingPolicy {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl Sampler {
    /// The rule that deals a dataset to parts and takes `chunk` positions of each in turn. With the batch size as
    /// chunk no batch mixes parts, but for what is left of them at the end.
    pub fn sharded(
        manifest: &Manifest,
        sharding: &Sharding,
        chunk: u64,
        shuffle: Shuffle,
        seed: u64,
    ) -> Result<Self> {
        sharding.check()?;
        if chunk == 0 {
            return Err(Error::invalid_config("chunk is 0: give at least 1"));
        }
        let Some(members) = Members::new(manifest, sharding)? else {
            return Self::new(manifest, shuffle, seed);
        };
        let lens: Vec<u64> = (0..sharding.parts).map(|part| members.len(part)).collect();
        let samples = lens.iter().fold(0u64, |sum, len| sum.saturating_add(*len));
        if samples > 0 {
            check_epoch_samples(samples)?;
        }
        let shuffle = PartShuffle::new(manifest, &members, &lens, shuffle)?;
        let parts = Parts { members, turns: Turns::new(&lens, chunk), lens, shuffle };
        Ok(Self { samples, seed, rule: Rule::Parts(Arc::new(parts)) })
    }
}

/// All that is the same for all epochs.
#[derive(Debug)]
pub(super) struct Parts {
    members: Members,
    lens: Vec<u64>,
    turns: Turns,
    shuffle: PartShuffle,
}

#[derive(Debug)]
enum PartShuffle {
    Sequential,
    Full,
    Block { blocks: Vec<Arc<Blocks>>, group_blocks: u64 },
}

impl PartShuffle {
    fn new(manifest: &Manifest, members: &Members, lens: &[u64], shuffle: Shuffle) -> Result<Self> {
        let settings = match shuffle {
            Shuffle::Sequential => return Ok(Self::Sequential),
            Shuffle::Full => return Ok(Self::Full),
            Shuffle::Resample { .. } => {
                return Err(Error::invalid_config(
                    "shuffle is `resample`: parts are read without replacement; set shuffle to `full`",
                ));
            }
            Shuffle::Block(settings) if settings.group_blocks == 0 => {
                return Err(Error::invalid_config("group_blocks is 0: give at least 1"));
            }
            Shuffle::Block(settings) => settings,
        };
        let cut = |part: u32| {
            let samples = (0..lens[part as usize]).map(|index| members.at(part, index));
            let rows = samples.map(|sample| {
                let sample = SampleId(sample);
                (manifest.object_of(sample), manifest.sample_bytes(sample))
            });
            Ok(Arc::new(Blocks::cut_rows(rows, settings.block_bytes)?))
        };
        let blocks = if matches!(members, Members::All { .. }) {
            vec![cut(0)?; lens.len()]
        } else {
            (0..lens.len() as u32).map(cut).collect::<Result<_>>()?
        };
        Ok(Self::Block { blocks, group_blocks: settings.group_blocks })
    }
}

/// The order of one epoch.
#[derive(Debug)]
pub(super) struct PartsPlan {
    parts: Arc<Parts>,
    orders: Vec<PartOrder>,
}

#[derive(Debug)]
enum PartOrder {
    Sequential,
    Full(Permutation),
    Block(BlockPlan),
}

impl PartsPlan {
    pub(super) fn new(parts: Arc<Parts>, seed: u64, epoch: u64) -> Self {
        let order = |(part, len): (usize, &u64)| match &parts.shuffle {
            PartShuffle::Sequential => PartOrder::Sequential,
            PartShuffle::Full => {
                PartOrder::Full(Permutation::new(*len, fold(&[seed, epoch, PART, part as u64])))
            }
            PartShuffle::Block { blocks, group_blocks } => {
                let seed = fold(&[seed, PART, part as u64]);
                PartOrder::Block(BlockPlan::new(Arc::clone(&blocks[part]), *group_blocks, seed, epoch))
            }
        };
        let orders = parts.lens.iter().enumerate().map(order).collect();
        Self { parts, orders }
    }

    pub(super) fn at(&self, position: u64) -> u64 {
        let (part, place) = self.parts.turns.at(position);
        let index = match &self.orders[part as usize] {
            PartOrder::Sequential => place,
            PartOrder::Full(permutation) => permutation.at(place),
            PartOrder::Block(plan) => plan.at(place),
        };
        self.parts.members.at(part, index)
    }

    /// `None` where samples stand at several positions.
    pub(super) fn position_of(&self, sample: u64) -> Option<u64> {
        let (part, index) = self.parts.members.find(sample)?;
        let place = match &self.orders[part as usize] {
            PartOrder::Sequential => index,
            PartOrder::Full(permutation) => permutation.index_of(index),
            PartOrder::Block(plan) => plan.position_of(index),
        };
        Some(self.parts.turns.position(part, place))
    }

    pub(super) fn part_of(&self, position: u64) -> u32 {
        self.parts.turns.at(position).0
    }
}

#[cfg(test)]
mod tests;
