//! How many files `reshard` has open, seen by a process of its own that may open few.

use forebay_engine::reshard::{Order, ReshardOptions, reshard};
use forebay_engine::shard::ShardWriterOptions;
use forebay_engine::source::{SyntheticPayload, SyntheticSpec, synthetic};
use futures::executor::block_on;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;

/// Far fewer than there are shards.
const MAX_FILES: u64 = 64;

#[test]
fn p073_two_thousand_shards_are_spilled_and_written_with_few_files_open() {
    let rest = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(MAX_FILES), ..rest }).unwrap();
    // Not on a disk where that can be: every shard is made to last, which is two waits for the disk.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let payload = SyntheticPayload::Noise { bytes: 500 };
    let spec = SyntheticSpec { samples: 4000, payload, shards: 4, ..SyntheticSpec::default() };
    let dataset = synthetic(spec).unwrap();
    let shards = ShardWriterOptions {
        max_samples: 2,
        ..ShardWriterOptions::new(folder.path().join("s-%04d.tar").display().to_string())
    };
    let options =
        ReshardOptions { order: Order::Shuffled(1), shards, memory_bytes: 64 << 10, spill_dir: None };
    let done = block_on(reshard(&dataset, &options, &mut |_, _| Ok(()))).unwrap();
    assert_eq!((done.shards.len(), done.shards.iter().map(|shard| shard.samples).sum::<u64>()), (2000, 4000));
    assert!(done.spilled_bytes > 500_000, "{}", done.spilled_bytes);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2000, "nothing else is left");
}
