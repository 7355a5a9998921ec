//! Whole files as datasets: what an indexer finds lies inside of the file, and reading it ends. The first byte says as
//! what the others are opened: a file of that name, or an index beside a shard that is sound.
#![no_main]

use forebay_core::SampleId;
use forebay_engine::source::{Dataset, OpenOptions, open_with_store};
use forebay_store::MemoryStore;
use futures::executor::block_on;
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

/// Names that the bytes are opened by. Compressed ones are left out: they go to temporary files, which are slow.
const NAMES: [&str; 10] = [
    "a.zip",
    "a.tfrecord",
    "a.rec",
    "a.tar",
    "a.parquet",
    "a.csv",
    "a.jsonl",
    "a.mds",
    "d/index.json",
    "a.idx",
];

const MDS: &[u8] = include_bytes!("../../crates/engine/tests/fixtures/mds/shard.00000.mds");
const LITDATA: &[u8] = include_bytes!("../../crates/engine/tests/fixtures/litdata/chunk-0-0.bin");

/// Samples that are looked at.
const LOOKED_AT: u64 = 32;

fuzz_target!(|bytes: &[u8]| {
    let Some((which, file)) = bytes.split_first() else { return };
    let name = NAMES[usize::from(*which) % NAMES.len()];
    // A cell may name an object anywhere, and nothing here is to ask for it.
    if name == "a.csv" && file.windows(3).any(|part| part == b"://") {
        return;
    }
    let store = MemoryStore::new();
    let put = |key: &str, bytes: &[u8]| store.insert(key, bytes.to_vec()).is_ok();
    let mut ready = put(name, file);
    let spec = match name {
        // Which library wrote it is told by the shards beside it.
        "d/index.json" if which / 128 == 0 => {
            ready &= put("d/shard.00000.mds", MDS);
            "d"
        }
        "d/index.json" => {
            ready &= put("d/chunk-0-0.bin", LITDATA);
            "d"
        }
        "a.idx" => {
            ready &= put("a.bin", &[7; 64]);
            "a.bin"
        }
        file => file,
    };
    assert!(ready);
    let options = OpenOptions::default();
    if let Ok(dataset) = block_on(open_with_store(Arc::new(store), &[spec.to_owned()], &options)) {
        look(&dataset);
    }
});

fn look(dataset: &Dataset) {
    let manifest = dataset.manifest();
    for id in (0..manifest.len().min(LOOKED_AT)).map(SampleId) {
        for field in 0..manifest.fields().len() {
            let Some(place) = manifest.location(id, field) else { continue };
            let end = place.offset.checked_add(place.length).expect("an end");
            assert!(end <= manifest.object(place.object).size, "{id} ends at byte {end}");
        }
        let _ = block_on(dataset.read_sample(id));
    }
}
