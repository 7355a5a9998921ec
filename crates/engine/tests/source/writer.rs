//! The shard writer's promises: the same bytes on every run, whole shards or none, limits kept.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use forebay_engine::shard::{ShardInfo, ShardWriter, ShardWriterOptions, walk};
use forebay_engine::source::{OpenOptions, open};
use futures::executor::block_on;
use proptest::prelude::*;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

fn write(folder: &Path, samples: usize, limits: (u64, u64)) -> Vec<ShardInfo> {
    let mut options = ShardWriterOptions::new(folder.join("t-%04d.tar").display().to_string());
    (options.max_samples, options.max_bytes) = limits;
    let mut writer = ShardWriter::new(options).unwrap();
    for sample in 0..samples {
        let image = vec![sample as u8; 100 + sample * 37 % 900];
        writer
            .add(&format!("{sample:05}"), &[("jpg", &image), ("cls", sample.to_string().as_bytes())])
            .unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn p020_two_runs_write_identical_files() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = write(one.path(), 50, (20, 1 << 30));
    // Another second, another umask, another folder: none of it may show.
    let second = write(two.path(), 50, (20, 1 << 30));
    assert_eq!(first.len(), 3);
    for (a, b) in first.iter().zip(&second) {
        assert_eq!(a.path.file_name(), b.path.file_name());
        assert!(fs::read(&a.path).unwrap() == fs::read(&b.path).unwrap(), "{} differs", a.path.display());
    }
    let bytes = fs::read(&first[0].path).unwrap();
    assert_eq!(&bytes[136..147], b"00000000000", "no time is stored");
}

#[test]
fn p020_shards_rotate_on_count_and_on_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let by_count = write(&folder.path().join("count"), 25, (10, 1 << 30));
    assert_eq!(by_count.iter().map(|shard| shard.samples).collect::<Vec<_>>(), [10, 10, 5]);
    let by_bytes = write(&folder.path().join("bytes"), 25, (1000, 8192));
    assert!(by_bytes.len() > 3 && by_bytes.iter().all(|shard| shard.bytes <= 8192));
    assert_eq!(by_bytes.iter().map(|shard| shard.samples).sum::<u64>(), 25);
    let alone = write(&folder.path().join("alone"), 3, (1000, 1));
    assert_eq!(
        alone.iter().map(|shard| shard.samples).collect::<Vec<_>>(),
        [1, 1, 1],
        "too large is alone, not lost"
    );
    for shard in by_count.iter().chain(&by_bytes).chain(&alone) {
        assert_eq!(fs::metadata(&shard.path).unwrap().len(), shard.bytes);
        assert_eq!(walk(&fs::read(&shard.path).unwrap()).unwrap().len() as u64, 2 * shard.samples);
    }
}

#[test]
fn p020_existing_shards_are_replaced_only_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 3, (10, 1 << 30));
    let mut options = ShardWriterOptions::new(folder.path().join("t-%04d.tar").display().to_string());
    let mut writer = ShardWriter::new(options.clone()).unwrap();
    assert!(writer.add("a", &[("jpg", b"x")]).unwrap_err().to_string().contains("exists already"));
    options.overwrite = true;
    let mut writer = ShardWriter::new(options).unwrap();
    writer.add("a", &[("jpg", b"x")]).unwrap();
    assert_eq!(writer.finish().unwrap()[0].samples, 1);
}

#[test]
fn p020_a_writer_that_is_dropped_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let options = ShardWriterOptions::new(folder.path().join("t-%04d.tar").display().to_string());
    let mut writer = ShardWriter::new(options).unwrap();
    writer.add("a", &[("jpg", b"x")]).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    drop(writer);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

const CHILD: &str = "FOREBAY_TEST_WRITER_FOLDER";

/// The part that is killed: writes one whole shard and half of another, says so, and waits for its end.
#[test]
fn writer_child() {
    let Ok(folder) = std::env::var(CHILD) else { return };
    let mut options = ShardWriterOptions::new(format!("{folder}/t-%04d.tar"));
    options.max_samples = 10;
    let mut writer = ShardWriter::new(options).unwrap();
    for sample in 0..15 {
        // Larger than the writer's buffer, so that half a shard really is on disk.
        writer.add(&format!("{sample:05}"), &[("bin", &vec![7; 1 << 20])]).unwrap();
    }
    std::io::stderr().write_all(b"half written\n").unwrap();
    loop {
        std::thread::park();
    }
}

#[test]
fn p020_a_killed_writer_leaves_no_readable_half_shard() {
    let folder = tempfile::tempdir().unwrap();
    let shards = folder.path().join("shards");
    fs::create_dir(&shards).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "writer::writer_child", "--nocapture"])
        .env(CHILD, &shards)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.into_iter().any(|line| line.contains("half written")), "the child got half way");
    child.kill().unwrap();
    child.wait().unwrap();

    let left: Vec<String> = fs::read_dir(&shards)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let half: Vec<&String> = left.iter().filter(|name| name.starts_with(".tmp-")).collect();
    assert_eq!((left.len(), half.len()), (2, 1), "one whole shard and one half file are left: {left:?}");
    assert!(
        fs::metadata(shards.join(half[0])).unwrap().len() > 1 << 20,
        "the half shard was on disk when it died"
    );
    let options =
        OpenOptions { manifest_dir: Some(folder.path().join("manifests")), ..OpenOptions::default() };
    let dataset = block_on(open(&[shards.display().to_string()], &options)).unwrap();
    assert_eq!(dataset.manifest().object_count(), 1);
    assert_eq!(dataset.manifest().len(), 10, "only the whole shard is read");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn p020_what_is_written_reads_back(
        samples in proptest::collection::btree_map(
            "[a-z]{1,8}(/[a-zé]{1,120})?",
            proptest::collection::btree_map("[a-z]{1,4}(\\.[a-z]{1,3})?", proptest::collection::vec(any::<u8>(), 0..1500), 1..4),
            1..12
        ),
        limits in (1u64..6, 1024u64..20_000)
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut options = ShardWriterOptions::new(folder.path().join("t-{:05}.tar").display().to_string());
        (options.max_samples, options.max_bytes) = limits;
        let mut writer = ShardWriter::new(options).unwrap();
        for (key, fields) in &samples {
            let fields: Vec<(&str, &[u8])> = fields.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
            writer.add(key, &fields).unwrap();
        }
        let shards = writer.finish().unwrap();
        let mut members = Vec::new();
        for shard in &shards {
            let tar = fs::read(&shard.path).unwrap();
            for member in walk(&tar).unwrap() {
                members.push((member.name, tar[member.offset as usize..][..member.length as usize].to_vec()));
            }
        }
        let wanted: Vec<_> = samples.iter()
            .flat_map(|(key, fields)| fields.iter().map(move |(name, bytes)| (format!("{key}.{name}"), bytes.clone())))
            .collect();
        prop_assert_eq!(members, wanted);
    }
}
