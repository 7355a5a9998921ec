//! In which order samples go into new shards.

use forebay_core::manifest::Manifest;
use forebay_core::plan::{Sampler, Shuffle};
use forebay_core::{Error, Result, SampleId};
use std::collections::HashMap;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// How many keys a message names.
const NAMED: usize = 5;

/// The order of samples in new shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// As they lie.
    AsStored,
    /// All over all, by a seed.
    Shuffled(u64),
    /// By their keys; those with one key as they lie.
    ByKey,
    /// As a list of keys says.
    Listed(Vec<String>, Rest),
}

/// What becomes of samples that a list does not name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rest {
    /// The list must name all.
    #[default]
    Refuse,
    /// They come last, as they lie.
    Last,
}

impl Order {
    /// A name for equal orders.
    pub(super) fn fingerprint(&self) -> String {
        match self {
            Self::AsStored => "stored".into(),
            Self::Shuffled(seed) => format!("shuffled {seed}"),
            Self::ByKey => "key".into(),
            Self::Listed(keys, rest) => {
                let mut hash = Xxh3::new();
                for key in keys {
                    hash.update(&(key.len() as u64).to_le_bytes());
                    hash.update(key.as_bytes());
                }
                format!("listed {:032x} {rest:?}", hash.digest128())
            }
        }
    }
}

/// The position of every sample: eight bytes each.
pub(super) fn positions(manifest: &Manifest, order: &Order) -> Result<Vec<u64>> {
    let samples = manifest.len();
    let ids: Vec<u64> = match order {
        Order::AsStored => return Ok((0..samples).collect()),
        Order::Shuffled(seed) => {
            let plan = Sampler::new(manifest, Shuffle::Full, *seed)?.plan(0);
            (0..samples).map(|position| plan.at(position).0).collect()
        }
        Order::ByKey => {
            let mut ids: Vec<u64> = (0..samples).collect();
            ids.sort_by_cached_key(|sample| (manifest.key(SampleId(*sample)), *sample));
            ids
        }
        Order::Listed(keys, rest) => listed(manifest, keys, *rest)?,
    };
    let mut positions = vec![0; ids.len()];
    for (position, sample) in ids.into_iter().enumerate() {
        positions[sample as usize] = position as u64;
    }
    Ok(positions)
}

fn listed(manifest: &Manifest, keys: &[String], rest: Rest) -> Result<Vec<u64>> {
    let refuse = |why: String| Error::invalid_config(format!("reshard by a list of keys: {why}"));
    // A hash stands for a key: 128 bits, so that two keys never share one by chance.
    let mut by_key = HashMap::with_capacity(manifest.len() as usize);
    for sample in 0..manifest.len() {
        let key = manifest.key(SampleId(sample));
        if by_key.insert(xxh3_128(key.as_bytes()), sample).is_some() {
            return Err(refuse(format!(
                "two samples have the key `{key}`, so the list cannot tell them apart"
            )));
        }
    }
    let (mut ids, mut unknown, mut taken) =
        (Vec::with_capacity(keys.len()), Vec::new(), vec![false; by_key.len()]);
    for key in keys {
        match by_key.get(&xxh3_128(key.as_bytes())) {
            None => unknown.push(key),
            Some(sample) if std::mem::replace(&mut taken[*sample as usize], true) => {
                return Err(refuse(format!("it names `{key}` twice")));
            }
            Some(sample) => ids.push(*sample),
        }
    }
    if !unknown.is_empty() {
        let named: Vec<String> = unknown.iter().take(NAMED).map(|key| format!("`{key}`")).collect();
        return Err(refuse(format!("{} keys are of no sample: {}", unknown.len(), named.join(", "))));
    }
    let left: Vec<u64> = (0..manifest.len()).filter(|sample| !taken[*sample as usize]).collect();
    if rest == Rest::Refuse && !left.is_empty() {
        let named = left.iter().take(NAMED).map(|sample| format!("`{}`", manifest.key(SampleId(*sample))));
        let named = named.collect::<Vec<_>>().join(", ");
        return Err(refuse(format!("it leaves out {} samples: {named}", left.len()))
            .with_hint("name them too, or let them come last"));
    }
    ids.extend(left);
    Ok(ids)
}
