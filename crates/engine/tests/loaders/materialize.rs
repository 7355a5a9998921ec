//! Saving prepared samples: the shards give back what the live loader gives, whatever dies and whoever helps.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::common::{alone, epoch, loader, noise, raw_recipe};
use forebay_core::cursor::Cursor;
use forebay_core::plan::{BlockShuffle, Shuffle};
use forebay_core::recipe::Recipe;
use forebay_core::{Error, ErrorKind};
use forebay_engine::materialize::{MaterializeOptions, Materialized, config, plan, run};
use forebay_engine::shard::{ShardWriter, ShardWriterOptions};
use forebay_engine::source::{Dataset, OpenOptions, open};
use forebay_engine::{Batch, LoaderConfig, OnError};
use forebay_ops::Column;
use forebay_testkit::made::noise_jpeg;
use proptest::prelude::*;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn opened(spec: &str, follow: bool) -> forebay_core::Result<Dataset> {
    let manifests = tempfile::tempdir().unwrap();
    let manifest_dir = Some(manifests.path().to_path_buf());
    block_on(open(&[spec.to_owned()], &OpenOptions { manifest_dir, follow, ..OpenOptions::default() }))
}

/// Samples of every kind of payload: images of several sizes, a label, text, JSON and an array.
fn stored() -> &'static (tempfile::TempDir, Dataset) {
    static MADE: OnceLock<(tempfile::TempDir, Dataset)> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let pattern = folder.path().join("in-%06d.tar").display().to_string();
        let options = ShardWriterOptions { max_samples: 7, ..ShardWriterOptions::new(pattern) };
        let mut writer = ShardWriter::new(options).unwrap();
        for sample in 0u32..23 {
            let image = noise_jpeg(sample.into(), 24 + sample % 3 * 8, 20 + sample % 4 * 8);
            let mut array = Vec::new();
            let elements: Vec<u8> = (0..6 * 4).map(|at| (at * sample) as u8).collect();
            forebay_ops::npy::write(&mut array, forebay_core::tensor::Dtype::F32, &[2, 3], &elements)
                .unwrap();
            let (label, text) = (format!("{}", i64::from(sample) * 3 - 20), format!("sätze {sample}"));
            let json = format!("{{\"n\": [{sample}, null]}}");
            let fields: [(&str, &[u8]); 5] = [
                ("jpg", &image),
                ("cls", label.as_bytes()),
                ("txt", text.as_bytes()),
                ("json", json.as_bytes()),
                ("a.npy", &array),
            ];
            writer.add(&format!("{sample:04}"), &fields).unwrap();
        }
        writer.finish().unwrap();
        let dataset = opened(&folder.path().display().to_string(), false).unwrap();
        (folder, dataset)
    })
}

/// Columns of a batch with types, shapes and bytes.
fn shown(batch: &Batch) -> Vec<String> {
    let one = |(name, column): &(String, Column)| match column {
        Column::Tensor { spec, rows, data } => format!("{name} {spec:?} {rows} {:?}", data.as_slice()),
        Column::Tensors(all) => {
            let all: Vec<_> =
                all.iter().map(|one| (one.spec.clone(), one.data.as_slice().to_vec())).collect();
            format!("{name} {all:?}")
        }
        Column::Ragged(ragged) => format!("{name} {ragged:?}"),
        Column::Bytes(rows) => format!("{name} bytes {rows:?}"),
        Column::Text(rows) => format!("{name} text {rows:?}"),
        Column::Json(rows) => format!("{name} json {rows:?}"),
    };
    batch.columns.iter().map(one).collect()
}

fn options(out: &Path, epoch: u64, chunk_samples: u64) -> MaterializeOptions {
    MaterializeOptions {
        epoch,
        chunk_samples: Some(chunk_samples),
        claim_timeout: Duration::from_secs(30),
        ..MaterializeOptions::new(out.display().to_string())
    }
}

/// Runs until `stop` says so, which ends it as an interrupt would.
fn materialize(
    dataset: &Dataset,
    recipe: &Recipe,
    settings: LoaderConfig,
    options: &MaterializeOptions,
    stop: impl Fn(&Materialized) -> bool,
) -> forebay_core::Result<Materialized> {
    let mut loader = loader(dataset, recipe, config(settings, options.epoch).unwrap());
    let plan = plan(&loader, options)?;
    run(&mut loader, &plan, &mut |now| {
        if stop(now) { Err(Error::cancelled("interrupted")) } else { Ok(()) }
    })
}

fn live(dataset: &Dataset, recipe: &Recipe, settings: LoaderConfig, number: u64) -> Vec<Batch> {
    let mut live = loader(dataset, recipe, settings);
    live.seek(Cursor::start_of(number)).unwrap();
    epoch(&mut live)
}

/// Batches of what was saved, in stored order.
fn read_back(out: &Path, batch_size: u64) -> Vec<Batch> {
    let recipe = std::fs::read_to_string(out.join("recipe.json")).unwrap();
    let dataset = opened(&out.display().to_string(), false).unwrap();
    epoch(&mut loader(&dataset, &Recipe::from_json(&recipe).unwrap(), alone(batch_size)))
}

/// Shards with their bytes.
fn shards(out: &Path) -> Vec<(String, Vec<u8>)> {
    let names =
        std::fs::read_dir(out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut all: Vec<_> = names
        .filter(|name| name.strip_suffix(".tar").is_some())
        .map(|name| (name.clone(), std::fs::read(out.join(name)).unwrap()))
        .collect();
    all.sort();
    all
}

const IMAGES: [&str; 7] = [
    r#"{"field": "jpg", "decode": "image", "ops": [{"op": "random_resized_crop", "size": 16}, {"op": "flip"},
        {"op": "normalize", "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]}]}"#,
    r#"{"field": "jpg", "decode": "image", "ops": [{"op": "random_resized_crop", "size": 8}], "dtype": "bf16"}"#,
    r#"{"field": "jpg", "decode": "image", "ops": [{"op": "center_crop", "size": 12}], "layout": "hwc"}"#,
    r#"{"field": "jpg", "decode": "image", "ops": [{"op": "center_crop", "size": 12}], "dtype": "f16"}"#,
    r#"{"field": "jpg", "decode": "image", "ops": [{"op": "resize", "size": 10}], "name": "Any/Size"}"#,
    r#"{"field": "jpg", "decode": "bytes"}"#,
    r#"{"field": "a.npy", "decode": {"kind": "npy", "shape": [2, 3]}, "dtype": "f32", "name": "jpg"}"#,
];

const OTHERS: [&str; 6] = [
    r#"{"field": "cls", "decode": "label"}"#,
    r#"{"field": "cls", "decode": "label", "dtype": "f32"}"#,
    r#"{"field": "cls", "decode": "label", "dtype": "i8"}"#,
    r#"{"field": "txt", "decode": "text"}"#,
    r#"{"field": "json", "decode": "json"}"#,
    r#"{"field": "a.npy", "decode": "npy"}"#,
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn p064_what_was_saved_is_what_the_live_pipeline_gives_byte_for_byte(
        image in 0usize..7, other in 0usize..6, shuffle in 0usize..3, seed in 0u64..1000, number in 0u64..3,
        batch_size in 1u64..9, chunk_batches in 1u64..4,
    ) {
        let dataset = &stored().1;
        let recipe = Recipe::from_json(&format!("[{}, {}]", IMAGES[image], OTHERS[other])).unwrap();
        let block = Shuffle::Block(BlockShuffle { block_bytes: 4096, group_blocks: 2 });
        let shuffle = [Shuffle::Sequential, Shuffle::Full, block][shuffle];
        let settings = LoaderConfig { shuffle, seed, threads: 2, ..alone(batch_size) };
        let out = tempfile::tempdir().unwrap();
        let options = options(out.path(), number, chunk_batches * batch_size);
        let done = materialize(dataset, &recipe, settings.clone(), &options, |_| false).unwrap();
        prop_assert_eq!((done.saved, done.samples, done.made), (23, 23, done.shards));
        let live = live(dataset, &recipe, settings, number);
        let back = read_back(out.path(), batch_size);
        prop_assert_eq!(live.len(), back.len());
        for (live, back) in live.iter().zip(&back) {
            prop_assert_eq!(shown(live), shown(back));
        }
    }
}

#[test]
fn p064_a_run_that_was_cut_off_goes_on_with_what_is_missing() {
    let (dataset, recipe) = (noise(100, 300, 3), raw_recipe());
    let settings = LoaderConfig { shuffle: Shuffle::Full, seed: 5, ..alone(4) };
    let (whole, cut) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let all =
        materialize(&dataset, &recipe, settings.clone(), &options(whole.path(), 1, 8), |_| false).unwrap();
    assert_eq!((all.shards, all.made, all.found), (13, 13, 0));

    let how = options(cut.path(), 1, 8);
    let mut there = 0;
    for stop_at in [3, 8] {
        let stopped =
            materialize(&dataset, &recipe, settings.clone(), &how, |now| now.found + now.made >= stop_at);
        assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Cancelled);
        let now = shards(cut.path());
        assert_eq!(now.len() as u64, stop_at);
        assert_eq!(now[..], shards(whole.path())[..now.len()]);
        there = stop_at;
    }
    let rest = materialize(&dataset, &recipe, settings.clone(), &how, |_| false).unwrap();
    assert_eq!((rest.found, rest.made, rest.saved), (there, 13 - there, 100 - 8 * there));
    assert_eq!(shards(cut.path()), shards(whole.path()));
    let hidden = std::fs::read_dir(cut.path())
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with('.'));
    assert_eq!(hidden.count(), 0, "nothing of the writers stays");
    // Again there is nothing to do, and nothing is touched; a shard that was lost is made again.
    assert_eq!(materialize(&dataset, &recipe, settings.clone(), &how, |_| false).unwrap().made, 0);
    std::fs::remove_file(cut.path().join("data-000004.tar")).unwrap();
    let again = materialize(&dataset, &recipe, settings, &how, |_| false).unwrap();
    assert_eq!((again.found, again.made), (12, 1));
    assert_eq!(shards(cut.path()), shards(whole.path()));
}

#[test]
fn p064_several_writers_share_the_chunks() {
    let (dataset, recipe) = (noise(400, 200, 3), raw_recipe());
    let settings = LoaderConfig { threads: 1, ..alone(4) };
    let (alone_out, shared) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    materialize(&dataset, &recipe, settings.clone(), &options(alone_out.path(), 0, 8), |_| false).unwrap();
    let how = options(shared.path(), 0, 8);
    let done: Vec<Materialized> = std::thread::scope(|scope| {
        let one = || materialize(&dataset, &recipe, settings.clone(), &how, |_| false).unwrap();
        let writers: Vec<_> = (0..3).map(|_| scope.spawn(one)).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    assert_eq!(shards(shared.path()), shards(alone_out.path()));
    let made: u64 = done.iter().map(|done| done.made).sum();
    assert_eq!(made, 50, "every chunk was made once: {done:?}");
}

#[test]
fn p064_a_reader_follows_while_it_is_written_and_sees_the_shards_before_the_first_gap() {
    let (dataset, recipe) = (noise(40, 100, 1), raw_recipe());
    let out = tempfile::tempdir().unwrap();
    let (how, url) = (options(out.path(), 0, 8), out.path().display().to_string());
    assert_eq!(opened(&url, true).unwrap_err().kind(), ErrorKind::Unavailable, "nobody has begun");
    let stopped = materialize(&dataset, &recipe, alone(4), &how, |now| now.made == 3);
    assert!(stopped.is_err());
    let refused = opened(&url, false).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(refused.message().contains("not whole, 3 of 5 shards"), "{refused}");
    let part = opened(&url, true).unwrap();
    assert_eq!(part.manifest().len(), 24);
    assert!(part.notes().iter().any(|note| note.contains("first 3 of 5 shards")), "{:?}", part.notes());
    // What another process is told is exactly that, also when more is there by then.
    let origin = part.origin().unwrap().clone();
    std::fs::rename(out.path().join("data-000001.tar"), out.path().join("aside")).unwrap();
    let first = opened(&url, true).unwrap();
    assert_eq!(first.manifest().len(), 8, "a gap ends it");
    std::fs::rename(out.path().join("aside"), out.path().join("data-000001.tar")).unwrap();
    materialize(&dataset, &recipe, alone(4), &how, |_| false).unwrap();
    let again = block_on(origin.open()).unwrap();
    assert_eq!(again.manifest().version(), part.manifest().version());
    let (whole, followed) = (opened(&url, false).unwrap(), opened(&url, true).unwrap());
    assert_eq!(whole.manifest().len(), 40);
    assert_eq!(whole.manifest().version(), followed.manifest().version());
    assert_ne!(whole.manifest().version(), part.manifest().version());
    for sample in 0..24 {
        let sample = forebay_core::SampleId(sample);
        let read = |dataset: &Dataset| block_on(dataset.read_sample(sample)).unwrap();
        assert_eq!(read(&whole), read(&part), "ids mean the same in both");
    }
}

#[test]
fn p064_bad_samples_are_left_out_and_what_came_before_one_stays() {
    let folder = tempfile::tempdir().unwrap();
    let pattern = folder.path().join("in-%06d.tar").display().to_string();
    let mut writer = ShardWriter::new(ShardWriterOptions::new(pattern)).unwrap();
    for sample in 0..16u8 {
        let label =
            if (5..8).contains(&sample) || sample == 9 { "none".to_owned() } else { sample.to_string() };
        writer.add(&format!("{sample:02}"), &[("cls", label.as_bytes())]).unwrap();
    }
    writer.finish().unwrap();
    let dataset = opened(&folder.path().display().to_string(), false).unwrap();
    let recipe = crate::common::label_recipe();
    let out = tempfile::tempdir().unwrap();
    let raised = materialize(&dataset, &recipe, alone(4), &options(out.path(), 0, 4), |_| false).unwrap_err();
    assert_eq!(raised.kind(), ErrorKind::Corrupt);
    assert_eq!(shards(out.path()).len(), 1, "what came before the bad sample stays");
    let other = LoaderConfig { on_error: OnError::Skip, ..alone(4) };
    let mixed =
        materialize(&dataset, &recipe, other.clone(), &options(out.path(), 0, 4), |_| false).unwrap_err();
    assert_eq!(mixed.kind(), ErrorKind::Stale, "{mixed}");
    let out = tempfile::tempdir().unwrap();
    let done = materialize(&dataset, &recipe, other, &options(out.path(), 0, 4), |_| false).unwrap();
    assert_eq!((done.shards, done.made, done.saved, done.bad), (4, 4, 12, 4));
    let back = opened(&out.path().display().to_string(), false).unwrap();
    assert_eq!(back.manifest().len(), 12);
}

#[test]
fn what_does_not_belong_together_is_refused_with_what_differs() {
    let (dataset, recipe) = (noise(20, 100, 1), raw_recipe());
    let out = tempfile::tempdir().unwrap();
    materialize(&dataset, &recipe, alone(4), &options(out.path(), 0, 8), |_| false).unwrap();
    let fails = |settings: LoaderConfig, how: &MaterializeOptions| {
        materialize(&dataset, &recipe, settings, how, |_| false).unwrap_err().report()
    };
    let seeded = LoaderConfig { seed: 3, ..alone(4) };
    assert!(fails(seeded, &options(out.path(), 0, 8)).contains("another seed"));
    assert!(fails(alone(4), &options(out.path(), 1, 8)).contains("another epoch"));
    assert!(fails(alone(4), &options(out.path(), 0, 12)).contains("another chunk_samples"));
    assert!(fails(alone(3), &options(out.path(), 0, 8)).contains("whole batches of 3"));
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("notes.txt"), "x").unwrap();
    assert!(fails(alone(4), &options(other.path(), 0, 8)).contains("other files"));
    assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 1);
    let card = out.path().join("materialized.json");
    let text = std::fs::read_to_string(&card).unwrap();
    std::fs::write(&card, text.replace("\"epoch\": 0", "\"epoch\": 7")).unwrap();
    let corrupt = opened(&out.path().display().to_string(), false).unwrap_err();
    assert_eq!(corrupt.kind(), ErrorKind::Corrupt);
}
