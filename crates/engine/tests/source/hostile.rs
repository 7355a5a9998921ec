//! Files of every format that mean harm: attacks, cuts and changed bytes. Each is a dataset or an error with a reason.
//!
//! `fixtures/attacks` holds one attack a file, or a folder of files, named for what it tries; `fixtures/make_attacks.py`
//! made them. What fuzzing finds in a reader of files is kept there too. Attacks on decoders are the ops crate's.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use forebay_core::{Error, ErrorKind, Result, SampleId};
use forebay_engine::source::{Dataset, OpenOptions, open_with_store};
use forebay_store::MemoryStore;
use forebay_testkit::tar::TarMaker;
use futures::executor::block_on;
use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// A dataset in memory.
fn opened(spec: &str, files: Vec<(String, Vec<u8>)>) -> Result<Dataset> {
    let store = MemoryStore::new();
    for (key, bytes) in files {
        store.insert(key, bytes).unwrap();
    }
    block_on(open_with_store(Arc::new(store), &[spec.to_owned()], &OpenOptions::default()))
}

fn alone(key: &str, bytes: Vec<u8>) -> Result<Dataset> {
    opened(key, vec![(key.to_owned(), bytes)])
}

/// Reads every sample, and gives the first fault.
fn read(dataset: &Dataset) -> Result<()> {
    let mut first = Ok(());
    for id in 0..dataset.manifest().len() {
        first = first.and(block_on(dataset.read_sample(SampleId(id))).map(drop));
    }
    first
}

/// What is said of an attack: when it is opened, or when what it holds is read.
fn attacked(path: &Path) -> Result<()> {
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    let dataset = if path.is_dir() {
        let inside = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        let key = |path: &Path| format!("d/{}", path.file_name().unwrap().to_str().unwrap());
        opened("d", inside.map(|path| (key(&path), fs::read(&path).unwrap())).collect())?
    } else {
        alone(&name, fs::read(path).unwrap())?
    };
    read(&dataset)
}

#[test]
fn every_attack_on_a_format_is_refused_with_a_reason() {
    let mut taken = Vec::new();
    let mut seen = 0;
    for entry in fs::read_dir(fixtures().join("attacks")).unwrap() {
        let path = entry.unwrap().path();
        seen += 1;
        let refused = |error: &Error| {
            // Said of the bytes, or of what they name.
            let of_bytes = [ErrorKind::Corrupt, ErrorKind::Unsupported, ErrorKind::Exhausted];
            let of_names = [ErrorKind::InvalidConfig, ErrorKind::NotFound];
            (of_bytes.contains(&error.kind()) || of_names.contains(&error.kind()))
                && error.report().len() > 20
        };
        match attacked(&path) {
            Err(error) if refused(&error) => {}
            other => taken.push(format!("{}: {other:?}", path.file_name().unwrap().display())),
        }
    }
    assert!(taken.is_empty(), "{}", taken.join("\n"));
    assert!(seen >= 70, "{seen} attacks were found");
}

/// Records of images of growing length, then one whose bytes lie in three frames; and where each begins.
fn recordio() -> (Vec<u8>, Vec<usize>) {
    let (mut file, mut starts) = (Vec::new(), Vec::new());
    let mut frame = |kind: u32, body: &[u8]| {
        if kind < 2 {
            starts.push(file.len());
        }
        file.extend(0xced7_230a_u32.to_le_bytes());
        file.extend((kind << 29 | body.len() as u32).to_le_bytes());
        file.extend(body);
        file.resize(file.len().next_multiple_of(4), 0);
    };
    let image = |at: u8| {
        let head = [0u32.to_le_bytes(), f32::from(at).to_le_bytes()].concat();
        [head, vec![0; 16], vec![at; usize::from(at) + 1]].concat()
    };
    for at in 0..4 {
        frame(0, &image(at));
    }
    for (kind, part) in [(1, &image(9)[..]), (2, b"more"), (3, b"the end")] {
        frame(kind, part);
    }
    (file, starts)
}

#[test]
fn a_recordio_file_cut_anywhere_has_its_first_records_or_is_refused_at_the_cut_one() {
    let (whole, starts) = recordio();
    assert_eq!(alone("x.rec", whole.clone()).unwrap().manifest().len(), 5);
    for keep in 1..whole.len() {
        let begun = starts.iter().filter(|start| **start < keep).count();
        match alone("x.rec", whole[..keep].to_vec()) {
            // A file may end without the zeros behind its last record.
            Ok(dataset) => {
                let next = starts.get(begun).copied().unwrap_or(whole.len());
                assert!(next - keep < 4, "{keep} bytes are {begun} records");
                assert_eq!(dataset.manifest().len(), begun as u64);
                read(&dataset).unwrap();
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{keep}: {error}");
                let offset = error.facts().offset.unwrap() as usize;
                assert!((starts[begun - 1]..keep).contains(&offset), "{keep}: {error}");
            }
        }
    }
}

/// The one whose samples lie in what it expands to.
const PACKED: usize = 2;

/// A file to be damaged, and the name that it is opened by.
fn sound(which: usize) -> (&'static str, Vec<u8>) {
    let fixture = |name: &str| fs::read(fixtures().join(name)).unwrap();
    match which {
        0 => ("a.rec", recordio().0),
        1 => ("a.tfrecord", fixture("kinds.tfrecord")),
        PACKED => ("a.tfrecord.gz", fixture("kinds.tfrecord.gz")),
        3 => ("a.zip", fixture("members.zip")),
        4 => ("a.jsonl", fixture("kinds.tfrecord")),
        5 => ("a.tar", TarMaker::new().file("a.jpg", b"image").file("a.cls", b"3").finish()),
        _ => ("a.mds", fixture("mds/shard.00000.mds")),
    }
}

/// Samples lie inside the file in which they were found, and reading them ends.
fn check(dataset: &Dataset, size: Option<u64>) {
    let manifest = dataset.manifest();
    for id in 0..manifest.len() {
        let places = (0..manifest.fields().len()).filter_map(|field| manifest.location(SampleId(id), field));
        for place in places {
            let end = place.offset.checked_add(place.length).unwrap();
            assert!(size.is_none_or(|size| end <= size), "sample {id} ends at byte {end}");
        }
    }
    let _ = read(dataset);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn hostile_files_are_datasets_or_errors(
        which in 0usize..7,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut: prop::sample::Index,
    ) {
        let (key, mut bytes) = sound(which);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(cut.index(bytes.len() * 4).min(bytes.len()));
        let size = (which != PACKED).then_some(bytes.len() as u64);
        if let Ok(dataset) = alone(key, bytes) {
            check(&dataset, size);
        }
    }

    #[test]
    fn frames_of_any_kind_and_length_are_records_or_errors(
        frames in prop::collection::vec((0u32..8, 0usize..40, 0u32..3), 0..6),
    ) {
        let mut file = Vec::new();
        for (kind, length, lie) in frames {
            let told = length as u32 + [0, 1, 0x1000_0000][lie as usize];
            file.extend(0xced7_230a_u32.to_le_bytes());
            file.extend((kind << 29 | told).to_le_bytes());
            file.resize((file.len() + length).next_multiple_of(4), 7);
        }
        let size = file.len() as u64;
        if let Ok(dataset) = alone("a.rec", file) {
            check(&dataset, Some(size));
        }
    }
}
