//! Shards into other shards: the same samples, in the order that was asked for; and joins by key. What a run does with its
//! memory and after its end is in `reshard_runs`.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::common::{alone, assert_each_once, epoch, ids, loader};
use forebay_core::recipe::Recipe;
use forebay_core::{ErrorKind, SampleId};
use forebay_engine::reshard::{Order, ReshardOptions, Resharded, Rest, reshard};
use forebay_engine::shard::{Cell, ShardWriter, ShardWriterOptions};
use forebay_engine::source::{Dataset, FieldValue, JoinOptions, MissingPartner, OpenOptions, join, open};
use futures::executor::block_on;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

pub(crate) type Samples = Vec<(String, BTreeMap<String, Vec<u8>>)>;

pub(crate) fn opened(folder: &Path, spec: &str) -> Dataset {
    let options = OpenOptions { manifest_dir: Some(folder.join("manifests")), ..OpenOptions::default() };
    block_on(open(&[folder.join(spec).display().to_string()], &options)).unwrap()
}

/// Every sample with its fields, numbers as text.
pub(crate) fn samples(dataset: &Dataset) -> Samples {
    let read = |id| {
        let text = |(name, value): (String, FieldValue)| match value {
            FieldValue::Payload(bytes) | FieldValue::Record(bytes) => (name, bytes.to_vec()),
            FieldValue::Int(number) => (name, number.to_string().into_bytes()),
        };
        let fields = block_on(dataset.read_sample(SampleId(id))).unwrap();
        (dataset.manifest().key(SampleId(id)), fields.into_iter().map(text).collect())
    };
    (0..dataset.manifest().len()).map(read).collect()
}

pub(crate) fn sorted(mut samples: Samples) -> Samples {
    samples.sort();
    samples
}

/// 60 samples in shards of 7, of sizes from 0 to 5.9 KB, under keys that are not in order.
pub(crate) fn made(folder: &Path) -> Dataset {
    let pattern = folder.join("old/t-%03d.tar").display().to_string();
    let mut writer =
        ShardWriter::new(ShardWriterOptions { max_samples: 7, ..ShardWriterOptions::new(pattern) }).unwrap();
    for at in 0..60usize {
        let bin: Vec<u8> = (0..at * 100).map(|byte| (byte * 31 + at) as u8).collect();
        let key = format!("k{:03}", (at * 37) % 60);
        writer.add_cells(&key, &[("bin", Cell::Bytes(&bin)), ("cls", Cell::Int(at as i64 % 5))]).unwrap();
    }
    writer.finish().unwrap();
    opened(folder, "old")
}

pub(crate) fn options(folder: &Path, name: &str, order: Order) -> ReshardOptions {
    let shards = ShardWriterOptions {
        max_samples: 11,
        max_bytes: 20_000,
        ..ShardWriterOptions::new(folder.join(name).join("s-%03d.tar").display().to_string())
    };
    ReshardOptions { order, shards, memory_bytes: 1 << 20, spill_dir: None }
}

pub(crate) fn run(dataset: &Dataset, options: &ReshardOptions) -> forebay_core::Result<Resharded> {
    block_on(reshard(dataset, options, &mut |_, _| Ok(())))
}

/// All bytes of a folder's shards by name.
pub(crate) fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&path).unwrap()))
        .collect()
}

#[test]
fn p073_every_order_holds_the_same_samples_and_is_the_order_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = made(folder.path());
    let before = samples(&dataset);
    let listed: Vec<String> = (0..60).rev().map(|at| format!("k{at:03}")).collect();
    let orders = [
        ("stored", Order::AsStored),
        ("shuffled", Order::Shuffled(7)),
        ("other", Order::Shuffled(8)),
        ("key", Order::ByKey),
        ("listed", Order::Listed(listed.clone(), Rest::Refuse)),
    ];
    for (name, order) in orders {
        let done = run(&dataset, &options(folder.path(), name, order)).unwrap();
        let after = samples(&opened(folder.path(), name));
        assert_eq!(sorted(after.clone()), sorted(before.clone()), "{name}");
        let keys: Vec<&String> = after.iter().map(|(key, _)| key).collect();
        match name {
            "stored" => assert_eq!(after, before),
            "key" => assert!(keys.is_sorted()),
            "listed" => assert!(keys.iter().eq(&listed.iter().collect::<Vec<_>>())),
            _ => assert_ne!(after, before),
        }
        assert!(done.shards.iter().all(|shard| shard.samples <= 11), "{done:?}");
        assert_eq!((done.kept, done.spilled_bytes), (0, 0));
    }
    let of = |name: &str| files(&folder.path().join(name));
    assert_ne!(of("shuffled"), of("other"), "another seed is another order");
}

#[test]
fn p073_a_list_that_is_not_about_these_samples_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = made(folder.path());
    let all: Vec<String> = (0..60).map(|at| format!("k{at:03}")).collect();
    let refused = |keys: Vec<String>| {
        let error =
            run(&dataset, &options(folder.path(), "x", Order::Listed(keys, Rest::Refuse))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        error.to_string()
    };
    assert!(refused(all[1..].to_vec()).contains("leaves out 1 samples: `k000`"));
    assert!(refused([&all[..], &["z".into()]].concat()).contains("`z`"));
    assert!(refused([&all[..], &all[..1]].concat()).contains("twice"));
    let last = Order::Listed(vec!["k059".into(), "k001".into()], Rest::Last);
    run(&dataset, &options(folder.path(), "last", last)).unwrap();
    let after = samples(&opened(folder.path(), "last"));
    assert_eq!((after[0].0.as_str(), after[1].0.as_str(), after.len()), ("k059", "k001", 60));
}

#[test]
fn p073_tar_becomes_tfrecord_and_tar_again_without_loss() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = made(folder.path());
    for (name, ending) in [("record", "tfrecord"), ("packed", "tfrecord.gz")] {
        let mut there = options(folder.path(), name, Order::ByKey);
        there.shards.pattern =
            folder.path().join(name).join(format!("s-%03d.{ending}")).display().to_string();
        run(&dataset, &there).unwrap();
        let back = format!("{name}-back");
        run(&opened(folder.path(), name), &options(folder.path(), &back, Order::AsStored)).unwrap();
        assert_eq!(samples(&opened(folder.path(), &back)), sorted(samples(&dataset)), "{name}");
    }
}

/// A set of shards that holds `field` under these keys.
fn set(folder: &Path, name: &str, field: &str, keys: &[&str]) -> Dataset {
    let pattern = folder.join(name).join("p-%03d.tar").display().to_string();
    let mut writer =
        ShardWriter::new(ShardWriterOptions { max_samples: 3, ..ShardWriterOptions::new(pattern) }).unwrap();
    for key in keys {
        writer.add(key, &[(field, format!("{field} of {key}").as_bytes())]).unwrap();
    }
    writer.finish().unwrap();
    opened(folder, name)
}

#[test]
fn p080_two_shard_sets_are_one_dataset_by_key() {
    let folder = tempfile::tempdir().unwrap();
    let keys = ["a", "b", "c", "d", "e", "f", "g"];
    let (images, texts) = (set(folder.path(), "i", "jpg", &keys), set(folder.path(), "t", "txt", &keys));
    let joined = join(&[images, texts], JoinOptions::default()).unwrap();
    let found = samples(&joined);
    assert_eq!(found.len(), 7);
    for ((key, fields), wanted) in found.iter().zip(keys) {
        assert_eq!(key, wanted);
        assert_eq!(fields["jpg"], format!("jpg of {key}").into_bytes());
        assert_eq!(fields["txt"], format!("txt of {key}").into_bytes());
    }
    let recipe =
        r#"[{"field": "jpg", "decode": {"kind": "bytes"}}, {"field": "txt", "decode": {"kind": "text"}}]"#;
    let batches = epoch(&mut loader(&joined, &Recipe::from_json(recipe).unwrap(), alone(3)));
    assert_each_once(ids(&batches), 7);
    let again = block_on(joined.origin().unwrap().open()).unwrap();
    assert_eq!(again.manifest().version(), joined.manifest().version(), "another process joins the same");
}

#[test]
fn p080_a_missing_partner_is_refused_skipped_or_kept_as_asked() {
    let folder = tempfile::tempdir().unwrap();
    let images = set(folder.path(), "i", "jpg", &["a", "b", "c", "d"]);
    let texts = set(folder.path(), "t", "txt", &["a", "c", "d", "x"]);
    let joined =
        |missing| join(&[images.clone(), texts.clone()], JoinOptions { missing, ..JoinOptions::default() });
    let error = joined(MissingPartner::Refuse).unwrap_err();
    assert!(error.to_string().contains("1 samples") && error.to_string().contains("`b`"), "{error}");
    let skipped = joined(MissingPartner::Skip).unwrap();
    let keys: Vec<String> = samples(&skipped).into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["a", "c", "d"]);
    assert!(skipped.notes().iter().any(|note| note.contains("left out")), "{:?}", skipped.notes());
    let kept = samples(&joined(MissingPartner::Keep).unwrap());
    assert_eq!((kept.len(), kept[1].1.contains_key("txt")), (4, false));
}

#[test]
fn p080_another_order_is_found_out_and_allowed_only_when_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let images = set(folder.path(), "i", "jpg", &["a", "b", "c", "d"]);
    let texts = set(folder.path(), "t", "txt", &["a", "c", "b", "d"]);
    let error = join(&[images.clone(), texts.clone()], JoinOptions::default()).unwrap_err();
    assert!(
        error.to_string().contains("another order") && error.hint().unwrap().contains("reshard"),
        "{error}"
    );
    let any = JoinOptions { any_order: true, ..JoinOptions::default() };
    let joined = join(&[images.clone(), texts], any).unwrap();
    assert!(
        samples(&joined).iter().all(|(key, fields)| fields["txt"] == format!("txt of {key}").into_bytes())
    );
    let twice = set(folder.path(), "w", "txt", &["a", "b", "a", "d"]);
    assert!(join(&[images, twice], any).unwrap_err().report().contains("two samples have the key `a`"));
}
