//! Which samples each part has: by number, by object, or by what the manifest says. Found both ways without a search
//! over all samples.

use super::{Sharding, ShardingPolicy};
use crate::manifest::{FieldKind, Manifest};
use crate::{Error, Result, SampleId};

/// The samples of every part, in stored order.
#[derive(Debug)]
pub(super) enum Members {
    /// Every part has all.
    All { samples: u64 },
    /// Sample `s` is in part `s % parts`.
    Dealt { samples: u64, parts: u64 },
    /// Object `o` is in part `o % parts`; only objects that hold samples are counted.
    Objects {
        parts: u64,
        /// First sample of each object, and the number of samples at the end.
        starts: Vec<u64>,
        /// Samples of the same part in objects before each one.
        before: Vec<u64>,
        lens: Vec<u64>,
    },
    /// Samples grouped by part, ascending inside a part: four bytes a sample.
    Listed {
        ids: Vec<u32>,
        /// Where each part begins in `ids`, and the end.
        firsts: Vec<usize>,
        manifest: Manifest,
        field: usize,
    },
}

impl Members {
    /// `None` when the policy knows no parts.
    pub(super) fn new(manifest: &Manifest, sharding: &Sharding) -> Result<Option<Self>> {
        let (samples, parts) = (manifest.len(), sharding.parts);
        let dealt = Self::Dealt { samples, parts: parts.into() };
        Ok(Some(match &sharding.policy {
            ShardingPolicy::Dynamic => return Ok(None),
            ShardingPolicy::Off => Self::All { samples },
            ShardingPolicy::Data => dealt,
            ShardingPolicy::File => {
                let starts = object_starts(manifest);
                let objects = starts.len() - 1;
                if objects < parts as usize {
                    return Err(Error::invalid_config(format!(
                        "shard a dataset by file: {objects} objects hold samples, there are {parts} parts"
                    ))
                    .with_hint(format!(
                        "give at most {objects} parts, pack the dataset into more shards, or use sharding \
                         `data` or `file_or_data`"
                    )));
                }
                Self::by_object(starts, parts)
            }
            ShardingPolicy::FileOrData => {
                let starts = object_starts(manifest);
                if starts.len() > parts as usize { Self::by_object(starts, parts) } else { dealt }
            }
            ShardingPolicy::Hint { field } => Self::by_field(manifest, field, parts)?,
        }))
    }

    fn by_object(starts: Vec<u64>, parts: u32) -> Self {
        let mut lens = vec![0; parts as usize];
        let mut before = Vec::with_capacity(starts.len());
        for (object, ends) in starts.windows(2).enumerate() {
            let len = &mut lens[object % parts as usize];
            before.push(*len);
            *len += ends[1] - ends[0];
        }
        Self::Objects { parts: parts.into(), starts, before, lens }
    }

    fn by_field(manifest: &Manifest, name: &str, parts: u32) -> Result<Self> {
        let index = manifest.field_index(name);
        let Some(field) = index.filter(|index| manifest.fields()[*index].kind == FieldKind::Int) else {
            let what = if index.is_some() { "it holds payloads" } else { "there is no such field" };
            let ints = manifest.fields().iter().filter(|field| field.kind == FieldKind::Int);
            let known = ints.map(|field| format!("`{}`", field.name)).collect::<Vec<_>>().join(", ");
            let hint = match known.as_str() {
                "" => "this dataset has no integer field: use sharding `file_or_data`".to_owned(),
                known => format!("integer fields of this dataset are {known}"),
            };
            return Err(
                Error::invalid_config(format!("shard a dataset by field `{name}`: {what}")).with_hint(hint)
            );
        };
        if manifest.len() > u64::from(u32::MAX) {
            return Err(Error::unsupported(format!(
                "shard a dataset by field `{name}`: it has {} samples, more than 2^32",
                manifest.len()
            ))
            .with_hint("use sharding `file` or `data`"));
        }
        let part_of = |sample: u64| {
            let value = manifest.int(SampleId(sample), field).ok_or_else(|| {
                Error::invalid_config(format!(
                    "shard a dataset by field `{name}`: sample {sample} (`{}`) has no value",
                    manifest.key(SampleId(sample))
                ))
            })?;
            Ok::<usize, Error>(value.rem_euclid(parts.into()) as usize)
        };
        let mut firsts = vec![0usize; parts as usize + 1];
        for sample in 0..manifest.len() {
            firsts[part_of(sample)? + 1] += 1;
        }
        for part in 0..parts as usize {
            firsts[part + 1] += firsts[part];
        }
        let mut ids = vec![0; manifest.len() as usize];
        let mut next = firsts.clone();
        for sample in 0..manifest.len() {
            let slot = &mut next[part_of(sample)?];
            ids[*slot] = sample as u32;
            *slot += 1;
        }
        Ok(Self::Listed { ids, firsts, manifest: manifest.clone(), field })
    }

    /// Samples of a part.
    pub(super) fn len(&self, part: u32) -> u64 {
        let number = part as usize;
        match self {
            Self::All { samples } => *samples,
            Self::Dealt { samples, parts } => samples.saturating_sub(part.into()).div_ceil(*parts),
            Self::Objects { lens, .. } => lens[number],
            Self::Listed { firsts, .. } => (firsts[number + 1] - firsts[number]) as u64,
        }
    }

    /// The sample with this number inside its part.
    pub(super) fn at(&self, part: u32, index: u64) -> u64 {
        match self {
            Self::All { .. } => index,
            Self::Dealt { parts, .. } => index * parts + u64::from(part),
            Self::Objects { parts, starts, before, .. } => {
                // The part's objects are every `parts`-th; the last that begins at or before `index` has it.
                let object = |turn: u64| (turn * parts) as usize + part as usize;
                let turns = (before.len() as u64).saturating_sub(part.into()).div_ceil(*parts);
                let (mut low, mut high) = (0, turns);
                while high - low > 1 {
                    let middle = low + (high - low) / 2;
                    if before[object(middle)] <= index {
                        low = middle;
                    } else {
                        high = middle;
                    }
                }
                starts[object(low)] + index - before[object(low)]
            }
            Self::Listed { ids, firsts, .. } => ids[firsts[part as usize] + index as usize].into(),
        }
    }

    /// Part of a sample and its number there; `None` for a sample that is in every part or in none.
    pub(super) fn find(&self, sample: u64) -> Option<(u32, u64)> {
        match self {
            Self::All { .. } => None,
            Self::Dealt { samples, parts } => {
                (sample < *samples).then(|| ((sample % parts) as u32, sample / parts))
            }
            Self::Objects { parts, starts, before, .. } => {
                let object = starts.partition_point(|start| *start <= sample).checked_sub(1)?;
                let before = before.get(object)?;
                Some(((object as u64 % parts) as u32, before + sample - starts[object]))
            }
            Self::Listed { ids, firsts, manifest, field } => {
                let parts = firsts.len() as i64 - 1;
                let part = manifest.int(SampleId(sample), *field)?.rem_euclid(parts) as usize;
                let listed = &ids[firsts[part]..firsts[part + 1]];
                let index = listed.binary_search(&u32::try_from(sample).ok()?).ok()?;
                Some((part as u32, index as u64))
            }
        }
    }
}

/// First sample of every object that holds samples, and the number of samples at the end.
fn object_starts(manifest: &Manifest) -> Vec<u64> {
    let objects = (0..manifest.object_count()).map(|object| manifest.samples_of(object));
    let mut starts: Vec<u64> = objects.filter(|samples| !samples.is_empty()).map(|s| s.start).collect();
    starts.push(manifest.len());
    starts
}
