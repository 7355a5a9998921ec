//! Tar shards as datasets: archives by real tools read alike, member ranges, staleness, hostile archives.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use forebay_core::{ErrorKind, SampleId};
use forebay_engine::source::{Dataset, FieldValue, OpenOptions, SourceKind, open, open_with_store};
use forebay_store::{ByteRange, CountingStore, LocalStore, MemoryStore, Store};
use forebay_testkit::tar::{Entry, TarMaker, header, tar_with};
use futures::executor::block_on;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

/// Options that keep manifests inside the test's own folder.
fn options(folder: &TempDir) -> OpenOptions {
    OpenOptions { manifest_dir: Some(folder.path().join("manifests")), ..OpenOptions::default() }
}

fn spec(path: impl AsRef<Path>) -> Vec<String> {
    vec![path.as_ref().display().to_string()]
}

type Samples = Vec<(String, BTreeMap<String, Vec<u8>>)>;

fn samples(dataset: &Dataset) -> Samples {
    let read = |sample| {
        let fields = block_on(dataset.read_sample(SampleId(sample))).unwrap();
        let payload = |(name, value)| match value {
            FieldValue::Payload(bytes) => (name, bytes.to_vec()),
            FieldValue::Int(_) | FieldValue::Record(_) => panic!("shards hold payloads only"),
        };
        (dataset.manifest().key(SampleId(sample)), fields.into_iter().map(payload).collect())
    };
    (0..dataset.manifest().len()).map(read).collect()
}

/// Files with short and long names, several dots, capitals, no extension and meta entries.
fn make_files(folder: &Path) -> Vec<String> {
    let long = format!("{}/{}", "d".repeat(120), "n".repeat(90));
    let longer = format!("{}/{}", "e".repeat(150), "m".repeat(120));
    let names = [
        "a/0001.jpg".to_string(),
        "a/0001.CLS".into(),
        "a/0001.seg.png".into(),
        "a/0002.jpg".into(),
        "a/README".into(),
        "b.v2/0003.jpg".into(),
        "b.v2/0003.json".into(),
        "__index__/x.jpg".into(),
        format!("{long}.jpg"),
        format!("{longer}.jpg"),
        format!("{longer}.cls"),
        "ünï/0004.jpg".into(),
    ];
    for (at, name) in names.iter().enumerate() {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let bytes: Vec<u8> = (0..at * 397).map(|i| (i * 31 + at) as u8).collect();
        fs::write(path, bytes).unwrap();
    }
    names.into()
}

/// What WebDataset's rules give for the files of `make_files`, computed without the code under test.
fn wanted(folder: &Path, names: &[String]) -> Samples {
    let mut samples: Samples = Vec::new();
    for name in names {
        let base = name.rfind('/').map_or(0, |slash| slash + 1);
        let Some(dot) = name[base..].find('.') else { continue };
        if name.starts_with("__") {
            continue;
        }
        let (key, field) = (&name[..base + dot], name[base + dot + 1..].to_lowercase());
        let bytes = fs::read(folder.join(name)).unwrap();
        match samples.last_mut() {
            Some((last, fields)) if last == key => drop(fields.insert(field, bytes)),
            _ => samples.push((key.to_string(), BTreeMap::from([(field, bytes)]))),
        }
    }
    samples
}

#[test]
fn p018_tars_by_gnu_tar_in_every_format_read_alike() {
    let folder = tempfile::tempdir().unwrap();
    let names = make_files(&folder.path().join("files"));
    for format in ["v7", "oldgnu", "gnu", "ustar", "pax"] {
        let fits = |name: &&String| match format {
            "v7" => name.len() <= 99,
            // GNU tar cuts at a slash with at most 155 bytes before it and 100 after it.
            "ustar" => name.rsplit('/').next().unwrap().len() <= 100,
            _ => true,
        };
        let names: Vec<String> = names.iter().filter(fits).cloned().collect();
        let path = folder.path().join(format!("{format}.tar"));
        let files = folder.path().join("files");
        let status = Command::new("tar")
            .args(["--format", format, "-cf"])
            .arg(&path)
            .arg("-C")
            .arg(&files)
            .args(&names)
            .status()
            .expect("this test needs GNU tar");
        assert!(status.success(), "GNU tar makes format {format}");
        let dataset = block_on(open(&spec(&path), &options(&folder))).unwrap();
        assert_eq!(samples(&dataset), wanted(&files, &names), "format {format}");
        assert_eq!(dataset.kind(), SourceKind::Tar);
    }
}

/// Writes with Python's tarfile, and reads everything back with it, as the second opinion on keys and bytes.
const PYTHON: &str = r#"
import sys, tarfile, os, hashlib
mode, root, out = sys.argv[1], sys.argv[2], sys.argv[3]
if mode != "read":
    fmt = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}[mode]
    with tarfile.open(out, "w", format=fmt) as tar:
        for name in sys.argv[4:]:
            tar.add(os.path.join(root, name), arcname=name, recursive=False)
with tarfile.open(out, "r|*") as tar:
    for member in tar:
        if member.isreg():
            print(hashlib.md5(tar.extractfile(member).read()).hexdigest(), member.name)
"#;

fn python(arguments: &[&str]) -> String {
    let mut command = Command::new("python3");
    command.arg("-c").arg(PYTHON).args(arguments).env("PYTHONUTF8", "1");
    let output = command.output().expect("this test needs Python");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn p018_tars_by_python_tarfile_read_alike() {
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().join("files");
    let names = make_files(&files);
    for format in ["ustar", "gnu", "pax"] {
        let names: Vec<String> =
            names.iter().filter(|name| format != "ustar" || name.len() < 250).cloned().collect();
        let path = folder.path().join(format!("py-{format}.tar")).display().to_string();
        let mut arguments = vec![format, files.to_str().unwrap(), &path];
        arguments.extend(names.iter().map(String::as_str));
        python(&arguments);
        let dataset = block_on(open(&[path], &options(&folder))).unwrap();
        assert_eq!(samples(&dataset), wanted(&files, &names), "format {format}");
    }
}

#[test]
fn p018_shards_of_our_writer_are_read_by_python_tarfile_and_by_gnu_tar() {
    use forebay_engine::shard::{ShardWriter, ShardWriterOptions};
    let folder = tempfile::tempdir().unwrap();
    let mut writer =
        ShardWriter::new(ShardWriterOptions::new(folder.path().join("w-%03d.tar").display().to_string()))
            .unwrap();
    let keys =
        ["a/1".to_string(), "ü".into(), "n".repeat(150), format!("{}/{}", "d".repeat(120), "n".repeat(60))];
    for key in &keys {
        writer.add(key, &[("jpg", key.as_bytes()), ("cls", b"7")]).unwrap();
    }
    let shard = writer.finish().unwrap().remove(0);
    let path = shard.path.display().to_string();
    let names: Vec<String> =
        keys.iter().flat_map(|key| [format!("{key}.jpg"), format!("{key}.cls")]).collect();
    let listed = python(&["read", "", &path]);
    assert_eq!(listed.lines().map(|line| &line[33..]).collect::<Vec<_>>(), names);
    let mut tar = Command::new("tar");
    let output =
        tar.args(["--quoting-style=literal", "-tf", &path]).output().expect("this test needs GNU tar");
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().collect::<Vec<_>>(), names);
    assert_eq!(fs::metadata(&shard.path).unwrap().len(), shard.bytes);
}

#[test]
fn p018_compressed_shards_read_as_what_they_hold() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    fs::write(&path, tar_with(&[("1.jpg", b"one"), ("1.cls", b"7"), ("2.jpg", &[5; 5000])])).unwrap();
    let plain = samples(&block_on(open(&spec(&path), &options(&folder))).unwrap());
    let status = Command::new("gzip").arg("-k").arg(&path).status().expect("this test needs gzip");
    assert!(status.success());
    fs::copy(folder.path().join("a.tar.gz"), folder.path().join("b.tgz")).unwrap();
    for name in ["a.tar.gz", "b.tgz"] {
        for _ in 0..2 {
            let dataset = block_on(open(&spec(folder.path().join(name)), &options(&folder))).unwrap();
            assert_eq!(samples(&dataset), plain, "{name}, indexed and from the kept manifest");
        }
    }
}

#[test]
fn p018_a_truncated_shard_is_an_error_with_shard_offset_and_member() {
    let store = MemoryStore::new();
    let tar = tar_with(&[("1.jpg", &[1; 600]), ("2.jpg", &[2; 600])]);
    store.insert("cut.tar", tar[..512 + 1024 + 512 + 100].to_vec()).unwrap();
    let error =
        block_on(open_with_store(Arc::new(store), &["cut.tar".into()], &OpenOptions::default())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(error.facts().key.as_deref(), Some("2.jpg"));
    assert_eq!(error.facts().offset, Some(1536));
    assert!(error.facts().object.as_deref().unwrap().contains("cut.tar"));
    for part in ["cut.tar", "2.jpg", "1536", "100 of 600"] {
        assert!(error.to_string().contains(part), "`{error}` names {part}");
    }
}

#[test]
fn p018_a_field_twice_in_a_sample_is_an_error_with_shard_key_and_offset() {
    let store = MemoryStore::new();
    store.insert("d.tar", tar_with(&[("1.jpg", b"x"), ("1.JPG", b"y")])).unwrap();
    let error =
        block_on(open_with_store(Arc::new(store), &["d.tar".into()], &OpenOptions::default())).unwrap_err();
    assert_eq!(error.facts().offset, Some(1024));
    assert!(error.to_string().contains("d.tar") && error.to_string().contains("`1`"), "{error}");
}

#[test]
fn p016_a_range_of_a_member_is_the_same_slice_of_its_bytes() {
    let payload: Vec<u8> = (0..3000).map(|i| (i % 251) as u8).collect();
    let store = MemoryStore::new();
    store
        .insert("s.tar", tar_with(&[("0.jpg", b"before"), ("1.jpg", &payload), ("2.jpg", b"after")]))
        .unwrap();
    let dataset =
        block_on(open_with_store(Arc::new(store), &["s.tar".into()], &OpenOptions::default())).unwrap();
    let read = |range| block_on(dataset.read_field(SampleId(1), 0, range));
    for (start, end) in [(0, 3000), (0, 0), (17, 18), (511, 513), (2999, 3000), (3000, 3000)] {
        let range = ByteRange::Bounded { start: start as u64, end: end as u64 };
        assert_eq!(read(range).unwrap(), payload[start..end]);
    }
    assert_eq!(read(ByteRange::Full).unwrap(), payload);
    assert_eq!(read(ByteRange::From(2990)).unwrap(), payload[2990..]);
    assert_eq!(read(ByteRange::From(3000)).unwrap(), payload[3000..]);
    assert_eq!(read(ByteRange::Last(10)).unwrap(), payload[2990..]);
    for outside in [ByteRange::From(3001), ByteRange::Last(3001), (0..3001).into(), (4000..4001).into()] {
        let error = read(outside).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{outside:?} would give a neighbour's bytes");
        assert_eq!(error.facts().key.as_deref(), Some("1"));
    }
    assert_eq!(
        block_on(dataset.read_field(SampleId(9), 0, ByteRange::Full)).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert!(block_on(dataset.read_field(SampleId(0), 5, ByteRange::Full)).is_err());
}

/// A tar of 10,000 members of 100 KB: the payloads are holes, so that it takes little disk.
fn make_large_tar(path: &Path) -> u64 {
    use std::os::unix::fs::FileExt;
    let file = fs::File::create(path).unwrap();
    let mut at = 0;
    for member in 0..10_000u64 {
        let name = format!("{member:06}.jpg");
        let block = header(Entry { name: name.as_bytes(), stated_size: Some(100_000), ..Entry::default() });
        file.write_all_at(&block, at).unwrap();
        file.write_all_at(name.as_bytes(), at + 512).unwrap();
        at += 512 + 100_352;
    }
    file.set_len(at + 1024).unwrap();
    at + 1024
}

#[test]
fn p017_a_member_of_a_gigabyte_shard_is_read_without_touching_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let size = make_large_tar(&folder.path().join("big.tar"));
    assert!(size > 1_000_000_000);
    let counting = |folder: &TempDir| {
        Arc::new(CountingStore::new(Arc::new(LocalStore::new(folder.path().to_path_buf())) as Arc<dyn Store>))
    };
    let (spec, options) = (["big.tar".to_string()], options(&folder));
    let indexing = counting(&folder);
    let dataset = block_on(open_with_store(indexing.clone(), &spec, &options)).unwrap();
    assert_eq!(dataset.manifest().len(), 10_000);
    let index_bytes = indexing.counts().bytes_read;
    assert!(index_bytes < 10_000 * 4096, "indexing read {index_bytes} bytes: headers, not payloads");
    drop(dataset);
    // A later run: the manifest is kept, so opening reads nothing of the shard.
    let reading = counting(&folder);
    let dataset = block_on(open_with_store(reading.clone(), &spec, &options)).unwrap();
    let sample = dataset.manifest().find_key("007777").unwrap();
    let bytes = block_on(dataset.read_field(sample, 0, ByteRange::Full)).unwrap();
    assert_eq!((bytes.len(), &bytes[..10]), (100_000, &b"007777.jpg"[..]));
    let touched = reading.counts().bytes_read;
    assert!(touched < 1_000_000, "one member touched {touched} bytes");
}

#[test]
fn p017_a_stale_manifest_is_found_by_size_and_by_time_and_built_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.tar");
    let open = || block_on(open(&spec(&path), &options(&folder))).unwrap();
    fs::write(&path, tar_with(&[("1.jpg", b"one")])).unwrap();
    let first = open();
    assert!(first.notes().is_empty());
    let again = open();
    assert!(again.notes().is_empty());
    assert_eq!(again.manifest().version(), first.manifest().version());

    fs::write(&path, tar_with(&[("1.jpg", b"one"), ("2.jpg", b"two")])).unwrap();
    let longer = open();
    assert_eq!(longer.manifest().len(), 2);
    assert!(
        longer.notes()[0].contains("stale") && longer.notes()[0].contains("bytes"),
        "{:?}",
        longer.notes()
    );
    assert_ne!(longer.manifest().version(), first.manifest().version());

    // The same size, another time.
    fs::write(&path, tar_with(&[("1.jpg", b"one"), ("3.jpg", b"two")])).unwrap();
    let later = fs::metadata(&path).unwrap().modified().unwrap() + std::time::Duration::from_secs(2);
    fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
    let rewritten = open();
    assert!(rewritten.manifest().find_key("3").is_some());
    assert!(rewritten.notes()[0].contains("written again"), "{:?}", rewritten.notes());
    assert!(open().notes().is_empty(), "the manifest built again is kept");
}

#[test]
fn p017_a_damaged_manifest_is_built_again_and_an_unwritable_folder_is_only_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.tar");
    fs::write(&path, tar_with(&[("1.jpg", b"one")])).unwrap();
    block_on(open(&spec(&path), &options(&folder))).unwrap();
    let kept = fs::read_dir(folder.path().join("manifests")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&kept).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&kept, bytes).unwrap();
    let dataset = block_on(open(&spec(&path), &options(&folder))).unwrap();
    assert_eq!(dataset.manifest().len(), 1);
    assert!(dataset.notes()[0].contains("cannot be read"), "{:?}", dataset.notes());

    // A file where the folder should be: not even root can write into it.
    let blocked = OpenOptions { manifest_dir: Some(path.join("manifests")), ..OpenOptions::default() };
    let dataset = block_on(open(&spec(&path), &blocked)).unwrap();
    assert_eq!(dataset.manifest().len(), 1);
    assert!(dataset.notes().iter().any(|note| note.contains("cannot be kept")), "{:?}", dataset.notes());
}

#[test]
fn patterns_lists_and_folders_find_shards_and_skip_hidden_ones() {
    let folder = tempfile::tempdir().unwrap();
    for shard in 0..12 {
        let name = format!("{shard:03}.jpg");
        fs::write(folder.path().join(format!("t-{shard:03}.tar")), tar_with(&[(&name, b"x")])).unwrap();
    }
    fs::write(folder.path().join(".tmp-t-012.tar-77"), b"half").unwrap();
    fs::write(folder.path().join(".hidden.tar"), b"half").unwrap();
    let count = |text: String| {
        let dataset = block_on(open(&[text], &options(&folder))).unwrap();
        (0..dataset.manifest().len())
            .map(|sample| dataset.manifest().key(SampleId(sample)))
            .collect::<Vec<_>>()
    };
    let root = folder.path().display();
    let all: Vec<String> = (0..12).map(|shard| format!("{shard:03}")).collect();
    assert_eq!(count(format!("{root}/t-{{000..011}}.tar")), all);
    assert_eq!(count(format!("{root}/t-*.tar")), all);
    assert_eq!(count(format!("{root}")), all);
    assert_eq!(count(format!("file://{root}/t-00?.tar")), all[..10]);
    assert_eq!(
        count(format!("{root}/t-005.tar::{root}/t-001.tar")),
        ["005", "001"],
        "the order of the spec is kept"
    );

    let error = block_on(open(&[format!("{root}/val-*.tar")], &options(&folder))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.hint().unwrap().contains("t-000.tar"), "{error:?}");
    let error = block_on(open(&[format!("{root}/t-{{010..013}}.tar")], &options(&folder))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("t-012.tar"), "{error}");
}

#[test]
fn shards_in_sub_folders_are_not_mixed_silently() {
    let folder = tempfile::tempdir().unwrap();
    for split in ["train", "val"] {
        fs::create_dir(folder.path().join(split)).unwrap();
        fs::write(folder.path().join(split).join("0.tar"), tar_with(&[("a.jpg", b"x")])).unwrap();
    }
    let error = block_on(open(&spec(folder.path()), &options(&folder))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.hint().unwrap().contains("`train/` (1)"), "{error:?}");
}

#[test]
fn progress_ends_with_everything_done() {
    let store = MemoryStore::new();
    for shard in 0..5 {
        store.insert(format!("{shard}.tar"), tar_with(&[("a.jpg", b"xyz"), ("b.jpg", b"xyz")])).unwrap();
    }
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let progress: forebay_engine::source::ProgressFn = Arc::new(move |p| sink.lock().unwrap().push(p));
    let options = OpenOptions { progress: Some(progress), ..OpenOptions::default() };
    block_on(open_with_store(Arc::new(store), &["{0..4}.tar".into()], &options)).unwrap();
    let seen = seen.lock().unwrap();
    assert!(seen.windows(2).all(|pair| pair[0].objects_done <= pair[1].objects_done));
    let last = seen.last().unwrap();
    assert_eq!((last.objects_done, last.objects_total, last.samples, last.bytes), (5, 5, 10, 30));
}

#[test]
fn p079_hostile_names_are_keys_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("evil.tar");
    let tar = TarMaker::new()
        .file("../../outside.jpg", b"x")
        .file("/etc/outside.jpg", b"y")
        .entry(Entry { name: b"link.jpg", kind: b'2', ..Entry::default() })
        .finish();
    fs::write(&path, tar).unwrap();
    let dataset = block_on(open(&spec(&path), &options(&folder))).unwrap();
    let keys: Vec<_> = samples(&dataset).into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["../../outside", "/etc/outside"]);
    assert!(!folder.path().parent().unwrap().join("outside.jpg").exists());
    assert!(!folder.path().join("outside.jpg").exists() && !Path::new("/etc/outside.jpg").exists());
}

#[test]
fn p079_commands_in_specs_are_refused_before_anything_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let witness = folder.path().join("witness");
    for text in [format!("pipe:touch {}", witness.display()), format!("touch {} |", witness.display())] {
        let error = block_on(open(&[text], &options(&folder))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
    assert!(!witness.exists());
}

#[test]
fn a_manifest_file_opens_without_a_cache_and_notices_changed_shards() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.tar");
    fs::write(&path, tar_with(&[("1.jpg", b"one")])).unwrap();
    let dataset = block_on(open(&spec(&path), &options(&folder))).unwrap();
    let manifest = folder.path().join("elsewhere.fbm");
    fs::write(&manifest, dataset.manifest().as_bytes()).unwrap();
    let opened = block_on(open(&spec(&manifest), &options(&folder))).unwrap();
    assert_eq!(samples(&opened), samples(&dataset));
    fs::write(&path, tar_with(&[("1.jpg", b"one"), ("2.jpg", b"two")])).unwrap();
    let error = block_on(open(&spec(&manifest), &options(&folder))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale);
}
