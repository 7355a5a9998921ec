//! Samples on their way to their shards: in memory, or in a temporary file for each shard when memory is full.

use crate::source::FieldValue;
use bytes::{Buf, Bytes};
use forebay_core::{Error, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A sample with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) position: u64,
    pub(super) key: String,
    pub(super) fields: Vec<(String, FieldValue)>,
}

/// What goes into one shard.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    /// Samples that are still in memory, one after the other.
    memory: Vec<u8>,
    /// Samples that are not; the file has no name.
    file: Option<File>,
    /// Of every sample its position, and where it begins in the file and what follows it in memory.
    index: Vec<(u64, u64)>,
    spilled: u64,
}

/// All buckets under one limit.
#[derive(Debug)]
pub(super) struct Buckets {
    folder: PathBuf,
    limit: u64,
    by_number: BTreeMap<u64, Bucket>,
    held: u64,
    peak: u64,
    spilled: u64,
}

impl Buckets {
    pub(super) fn new(folder: PathBuf, limit: u64) -> Self {
        Self { folder, limit, by_number: BTreeMap::new(), held: 0, peak: 0, spilled: 0 }
    }

    pub(super) fn put(&mut self, shard: u64, held: &Held) -> Result<()> {
        let bucket = self.by_number.entry(shard).or_default();
        let before = bucket.memory.len();
        bucket.index.push((held.position, bucket.spilled + before as u64));
        encode(held, &mut bucket.memory);
        self.held += (bucket.memory.len() - before) as u64;
        self.peak = self.peak.max(self.held);
        while self.held > self.limit {
            self.spill_largest()?;
        }
        Ok(())
    }

    /// The samples of a shard.
    pub(super) fn take(&mut self, shard: u64) -> Result<Bucket> {
        let bucket = self.by_number.remove(&shard);
        let bucket = bucket.ok_or_else(|| Error::internal("a shard without samples was planned"))?;
        self.held -= bucket.memory.len() as u64;
        Ok(bucket)
    }

    pub(super) fn spilled_bytes(&self) -> u64 {
        self.spilled
    }

    pub(super) fn peak_bytes(&self) -> u64 {
        self.peak
    }

    /// The largest bucket is the one whose file is written to the longest piece at a time.
    fn spill_largest(&mut self) -> Result<()> {
        let Some(bucket) = self.by_number.values_mut().max_by_key(|bucket| bucket.memory.len()) else {
            return Ok(());
        };
        let doing =
            |e| Error::io(format!("put samples into a temporary file in `{}`", self.folder.display()), e);
        let file = match &mut bucket.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile_in(&self.folder).map_err(doing)?),
        };
        file.write_all(&bucket.memory).map_err(doing)?;
        let bytes = bucket.memory.len() as u64;
        bucket.spilled += bytes;
        bucket.memory = Vec::new();
        self.held -= bytes;
        self.spilled += bytes;
        Ok(())
    }
}

impl Bucket {
    /// Gives every sample in the order of positions.
    pub(super) fn in_order(mut self, mut visit: impl FnMut(Held) -> Result<()>) -> Result<()> {
        let end = self.spilled + self.memory.len() as u64;
        let mut bounds: Vec<u64> = self.index.iter().map(|(_, at)| *at).chain([end]).collect();
        bounds.sort_unstable();
        self.index.sort_unstable();
        let memory = Bytes::from(std::mem::take(&mut self.memory));
        for (_, at) in &self.index {
            let next = bounds[bounds.partition_point(|bound| bound <= at)];
            let bytes = match &self.file {
                Some(file) if *at < self.spilled => {
                    let mut bytes = vec![0; (next - at) as usize];
                    file.read_exact_at(&mut bytes, *at)
                        .map_err(|e| Error::io("read samples back from a temporary file", e))?;
                    Bytes::from(bytes)
                }
                _ => memory.slice((at - self.spilled) as usize..(next - self.spilled) as usize),
            };
            visit(decode(bytes)?)?;
        }
        Ok(())
    }
}

fn encode(held: &Held, to: &mut Vec<u8>) {
    let mut put = |bytes: &[u8]| {
        to.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        to.extend_from_slice(bytes);
    };
    put(&held.position.to_le_bytes());
    put(held.key.as_bytes());
    for (name, value) in &held.fields {
        put(name.as_bytes());
        match value {
            FieldValue::Payload(bytes) => {
                put(&[0]);
                put(bytes);
            }
            FieldValue::Int(value) => {
                put(&[1]);
                put(&value.to_le_bytes());
            }
            FieldValue::Record(payload) => {
                put(&[2]);
                put(payload);
            }
        }
    }
}

/// What [`encode`] wrote. The file is our own, so that anything else in it is our fault.
fn decode(mut bytes: Bytes) -> Result<Held> {
    let broken = || Error::internal("a temporary file holds something else than was written to it");
    let mut next = || {
        if bytes.is_empty() {
            return Ok(None);
        }
        let length = if bytes.len() < 8 { usize::MAX } else { bytes.get_u64_le() as usize };
        if length > bytes.len() {
            return Err(broken());
        }
        Ok(Some(bytes.split_to(length)))
    };
    let number = |bytes: &Bytes| bytes[..].try_into().map(u64::from_le_bytes).map_err(|_| broken());
    let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).map_err(|_| broken());
    let position = number(&next()?.ok_or_else(broken)?)?;
    let key = text(next()?.ok_or_else(broken)?)?;
    let mut fields = Vec::new();
    while let Some(name) = next()? {
        let (kind, value) = (next()?.ok_or_else(broken)?, next()?.ok_or_else(broken)?);
        let value = match &kind[..] {
            [0] => FieldValue::Payload(value),
            [2] => FieldValue::Record(value),
            _ => FieldValue::Int(number(&value)? as i64),
        };
        fields.push((text(name)?, value));
    }
    Ok(Held { position, key, fields })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn p073_samples_come_back_in_order_whatever_the_memory(
            sizes in proptest::collection::vec(0usize..200, 1..40),
            limit in 0u64..4000,
        ) {
            let mut buckets = Buckets::new(std::env::temp_dir(), limit);
            let held: Vec<Held> = sizes.iter().enumerate().map(|(at, size)| Held {
                // Another order than that of putting.
                position: ((at * 7919) % 1009) as u64,
                key: format!("k{at}"),
                fields: vec![("bin".into(), FieldValue::Payload(vec![at as u8; *size].into())), ("cls".into(), FieldValue::Int(-(at as i64))), ("@tfrecord".into(), FieldValue::Record(vec![1; at].into()))],
            }).collect();
            let largest = held.iter().map(|held| { let mut bytes = Vec::new(); encode(held, &mut bytes); bytes.len() as u64 }).max().unwrap();
            for held in &held {
                buckets.put(held.position % 3, held).unwrap();
            }
            prop_assert!(buckets.peak_bytes() <= limit + largest);
            for shard in 0..3 {
                let mut wanted: Vec<Held> = held.iter().filter(|held| held.position % 3 == shard).cloned().collect();
                wanted.sort_by_key(|held| held.position);
                if wanted.is_empty() {
                    continue;
                }
                let mut found = Vec::new();
                buckets.take(shard).unwrap().in_order(|held| { found.push(held); Ok(()) }).unwrap();
                prop_assert_eq!(found, wanted);
            }
        }
    }
}
