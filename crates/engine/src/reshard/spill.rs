//! Samples that wait for their shards: in memory, and beyond a limit in one temporary file for all.

use super::held::Held;
use bytes::Bytes;
use forebay_core::{Error, Result};
use rustix::fs::{FallocateFlags, fallocate};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Small samples are gathered into writes of this size.
const WRITE_BYTES: usize = 64 << 10;

/// All buckets under one limit.
#[derive(Debug)]
pub(super) struct Buckets {
    limit: u64,
    by_shard: BTreeMap<u64, Bucket>,
    file: SpillFile,
    /// Bytes in memory.
    held: u64,
    peak: u64,
}

/// What waits for one shard.
#[derive(Debug)]
struct Bucket {
    samples: Vec<Waiting>,
    /// How many of them, the first ones, are in the file.
    spilled: usize,
    /// Bytes of the others.
    held: u64,
}

#[derive(Debug)]
struct Waiting {
    position: u64,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// No vector that grows: what is reserved is what is counted.
    Memory(Box<[u8]>),
    File(Range<u64>),
}

impl Buckets {
    pub(super) fn new(folder: PathBuf, limit: u64) -> Self {
        let file = SpillFile { folder, file: None, end: 0 };
        Self { limit, by_shard: BTreeMap::new(), file, held: 0, peak: 0 }
    }

    /// Puts a sample away until its shard is taken, which is to have `samples` samples. Makes room for it first.
    pub(super) fn put(&mut self, shard: u64, samples: u64, held: &Held) -> Result<()> {
        let length = held.length();
        while self.held > 0 && self.held + length > self.limit {
            self.spill_largest()?;
        }
        let bucket = self.by_shard.entry(shard).or_insert_with(|| Bucket {
            samples: Vec::with_capacity(samples as usize),
            spilled: 0,
            held: 0,
        });
        let place = if length > self.limit {
            // Nothing else is in memory, and this is never.
            bucket.spilled += 1;
            Place::File(self.file.append(length, |file| held.encode(file))?)
        } else {
            let mut bytes = Vec::with_capacity(length as usize);
            held.encode(&mut bytes).map_err(|e| Error::io("put a sample into memory", e))?;
            bucket.held += length;
            self.held += length;
            self.peak = self.peak.max(self.held);
            Place::Memory(bytes.into_boxed_slice())
        };
        bucket.samples.push(Waiting { position: held.position, place });
        Ok(())
    }

    /// Gives every sample that waits for a shard, in the order of positions.
    pub(super) fn take(&mut self, shard: u64, mut visit: impl FnMut(&Held) -> Result<()>) -> Result<()> {
        let Some(mut bucket) = self.by_shard.remove(&shard) else { return Ok(()) };
        let runs = bucket.runs();
        bucket.samples.sort_unstable_by_key(|waiting| waiting.position);
        for Waiting { position, place } in bucket.samples {
            let bytes = match place {
                Place::Memory(bytes) => bytes.into(),
                Place::File(at) => {
                    self.peak = self.peak.max(self.held + (at.end - at.start));
                    self.file.read(&at)?
                }
            };
            visit(&Held::decode(position, bytes)?)?;
        }
        self.held -= bucket.held;
        for run in &runs {
            self.file.free(run);
        }
        Ok(())
    }

    pub(super) fn spilled_bytes(&self) -> u64 {
        self.file.end
    }

    pub(super) fn take_peak(&mut self) -> u64 {
        std::mem::replace(&mut self.peak, self.held)
    }

    /// The largest bucket is the one of which the longest piece lies together in the file.
    fn spill_largest(&mut self) -> Result<()> {
        let Some(bucket) = self.by_shard.values_mut().max_by_key(|bucket| bucket.held) else {
            return Ok(());
        };
        for waiting in &mut bucket.samples[bucket.spilled..] {
            if let Place::Memory(bytes) = &waiting.place {
                let at = self.file.append(bytes.len() as u64, |file| file.write_all(bytes))?;
                waiting.place = Place::File(at);
            }
        }
        bucket.spilled = bucket.samples.len();
        self.held -= std::mem::take(&mut bucket.held);
        Ok(())
    }
}

impl Bucket {
    /// Where its samples lie in the file, neighbours as one. To be asked before samples are put in order.
    fn runs(&self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for waiting in &self.samples[..self.spilled] {
            match (&waiting.place, runs.last_mut()) {
                (Place::File(at), Some(run)) if run.end == at.start => run.end = at.end,
                (Place::File(at), _) => runs.push(at.clone()),
                (Place::Memory(_), _) => {}
            }
        }
        runs
    }
}

/// A file without a name, so that nothing is left of it whatever ends the run. It is made when it is needed.
#[derive(Debug)]
struct SpillFile {
    folder: PathBuf,
    file: Option<BufWriter<File>>,
    end: u64,
}

impl SpillFile {
    /// Adds `length` bytes, and says where they are.
    fn append(
        &mut self,
        length: u64,
        write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<Range<u64>> {
        let doing =
            |e| Error::io(format!("put samples into a temporary file in `{}`", self.folder.display()), e);
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let file = tempfile::tempfile_in(&self.folder).map_err(doing)?;
                none.insert(BufWriter::with_capacity(WRITE_BYTES, file))
            }
        };
        write(file).map_err(doing)?;
        let at = self.end..self.end + length;
        self.end = at.end;
        Ok(at)
    }

    fn read(&mut self, at: &Range<u64>) -> Result<Bytes> {
        let doing = |e| Error::io("read samples back from a temporary file", e);
        let file =
            self.file.as_mut().ok_or_else(|| Error::internal("nothing was put into a temporary file"))?;
        file.flush().map_err(doing)?;
        let mut bytes = vec![0; (at.end - at.start) as usize];
        file.get_ref().read_exact_at(&mut bytes, at.start).map_err(doing)?;
        Ok(bytes.into())
    }

    /// Gives space back, so that samples do not lie on disk twice once their shard is written. Where that is not possible
    /// it comes back at the end.
    fn free(&self, run: &Range<u64>) {
        if let Some(file) = &self.file {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(file.get_ref(), hole, run.start, run.end - run.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::FieldValue;
    use proptest::prelude::*;
    use std::os::unix::fs::MetadataExt;

    fn held(at: usize, size: usize) -> Held {
        let payload = FieldValue::Payload(vec![at as u8; size].into());
        Held {
            // Another order than that of putting.
            position: ((at * 7919) % 1009) as u64,
            key: format!("k{at}"),
            fields: vec![
                ("bin".into(), payload),
                ("cls".into(), FieldValue::Int(-(at as i64))),
                ("@tfrecord".into(), FieldValue::Record(vec![1; at].into())),
            ],
        }
    }

    proptest! {
        #[test]
        fn p073_samples_come_back_in_order_whatever_the_memory(
            sizes in proptest::collection::vec(0usize..200, 1..40),
            limit in 0u64..4000,
            early in 0usize..40,
        ) {
            let mut buckets = Buckets::new(std::env::temp_dir(), limit);
            let all: Vec<Held> = sizes.iter().enumerate().map(|(at, size)| held(at, *size)).collect();
            let largest = all.iter().map(Held::length).max().unwrap();
            // Shard 0 is taken on the way, the others at the end, and shard 0 once more with what came since.
            let early = early.min(all.len());
            for (samples, shards) in [(&all[..early], 0..1), (&all[early..], 0..3)] {
                for held in samples {
                    buckets.put(held.position % 3, 40, held).unwrap();
                    let reserved: usize = buckets.by_shard.values().flat_map(|bucket| &bucket.samples)
                        .map(|waiting| match &waiting.place { Place::Memory(bytes) => bytes.len(), Place::File(_) => 0 })
                        .sum();
                    prop_assert_eq!(reserved as u64, buckets.held);
                    prop_assert!(buckets.take_peak() <= limit);
                }
                for shard in shards {
                    let before = if shard == 0 { samples } else { &all[..] };
                    let mut wanted: Vec<Held> = before.iter().filter(|held| held.position % 3 == shard).cloned().collect();
                    wanted.sort_by_key(|held| held.position);
                    let mut found = Vec::new();
                    buckets.take(shard, |held| { found.push(held.clone()); Ok(()) }).unwrap();
                    prop_assert_eq!(found, wanted);
                    prop_assert!(buckets.take_peak() <= limit + largest);
                }
            }
            prop_assert_eq!(buckets.held, 0);
        }
    }

    #[test]
    fn space_in_the_file_is_given_back_with_every_shard() {
        let mut buckets = Buckets::new(std::env::temp_dir(), 300_000);
        for at in 0..100 {
            buckets.put(at as u64 % 2, 50, &held(at, 20_000)).unwrap();
        }
        let blocks = |buckets: &Buckets| {
            let file = buckets.file.file.as_ref().unwrap().get_ref();
            file.sync_all().unwrap();
            file.metadata().unwrap().blocks() * 512
        };
        let before = blocks(&buckets);
        assert!(before > 1_500_000, "{before}");
        buckets.take(0, |_| Ok(())).unwrap();
        let after = blocks(&buckets);
        assert!(after < before * 6 / 10, "{after} of {before}");
    }
}
