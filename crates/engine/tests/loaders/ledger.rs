//! Promises about the ledger: it has what the loop received, over crashes, restarts and other numbers of ranks.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::common::*;
use forebay_core::ErrorKind;
use forebay_core::cursor::Cursor;
use forebay_core::ledger::{EpochState, StreamVerdict, streams};
use forebay_core::plan::{BlockShuffle, Shuffle};
use forebay_core::portion::Turn;
use forebay_core::quarantine::Quarantine;
use forebay_core::{Result, SampleId};
use forebay_engine::source::Dataset;
use forebay_engine::{DeliveryOrder, Loader, LoaderConfig, OnError, ledger};
use forebay_store::flaky::{Fault, FlakyStore, When};
use std::path::Path;
use std::sync::Arc;

const SAMPLES: u64 = 203;

fn settings(folder: &Path) -> LoaderConfig {
    let shuffle = Shuffle::Block(BlockShuffle { block_bytes: 2048, group_blocks: 6 });
    LoaderConfig { shuffle, seed: 9, threads: 2, ledger: Some(folder.to_owned()), ..alone(8) }
}

fn check(folder: &Path, dataset: &Dataset) -> StreamVerdict {
    let sections = ledger::read(folder).unwrap().into_iter().flat_map(|file| file.parsed.sections);
    let streams = streams(sections);
    assert_eq!(streams.len(), 1);
    let sampler = ledger::sampler(&streams[0], Some(dataset.manifest())).unwrap();
    streams[0].check(sampler.as_ref(), 10).unwrap()
}

/// Ranks that go in step from one cursor, or one for each of them.
fn ranks(dataset: &Dataset, base: &LoaderConfig, world_size: u64, cursors: &[Cursor]) -> Vec<Loader> {
    (0..world_size)
        .map(|rank| {
            let config = LoaderConfig { consumer: consumer(rank, world_size, 8), ..base.clone() };
            let mut loader = loader(dataset, &raw_recipe(), config);
            loader.seek(cursors[rank as usize % cursors.len()].clone()).unwrap();
            loader.begin().unwrap();
            loader
        })
        .collect()
}

fn steps(ranks: &mut [Loader], steps: usize) {
    for _ in 0..steps {
        for rank in &mut *ranks {
            if next(rank).unwrap().is_none() {
                rank.begin().unwrap();
                next(rank).unwrap().unwrap();
            }
        }
    }
}

#[test]
fn a_run_with_crashes_and_other_numbers_of_ranks_is_proved_exact() {
    let dataset = noise(SAMPLES, 300, 5);
    for order in [DeliveryOrder::Plan, DeliveryOrder::Arrival { window: 20 }] {
        let folder = tempfile::tempdir().unwrap();
        let base = LoaderConfig { order, ..settings(folder.path()) };
        let merged = |ranks: &[Loader]| {
            let cursors: Vec<Cursor> = ranks.iter().map(Loader::cursor).collect();
            Cursor::merge(&cursors, SAMPLES).unwrap()
        };
        // Two ranks: a checkpoint after five steps, four more that are lost with the crash.
        let mut two = ranks(&dataset, &base, 2, &[Cursor::start_of(0)]);
        steps(&mut two, 5);
        let saved = merged(&two);
        steps(&mut two, 4);
        drop(two);
        // Three ranks from there, into the next epoch; then one that finishes it.
        let mut three = ranks(&dataset, &base, 3, &[saved]);
        steps(&mut three, 9);
        let saved = merged(&three);
        drop(three);
        let mut one = ranks(&dataset, &base, 1, &[saved]);
        while next(&mut one[0]).unwrap().is_some() {}
        let verdict = check(folder.path(), &dataset);
        assert!(verdict.exact && verdict.by_id, "{order:?}: {verdict:?}");
        let states: Vec<_> = verdict.epochs.iter().map(|epoch| (epoch.epoch, epoch.state)).collect();
        assert_eq!(states, [(0, EpochState::Exact), (1, EpochState::Exact)], "{order:?}");
        assert_eq!(verdict.epochs[0].superseded, 2 * 4 * 8, "{order:?}");
        let first_steps: Vec<_> = verdict.runs.iter().map(|run| run.first_step).collect();
        assert_eq!(first_steps, [0, 5, 14], "{order:?}");
    }
}

#[test]
fn a_file_that_was_cut_off_inside_its_last_record_has_all_others() {
    let dataset = noise(SAMPLES, 300, 5);
    let folder = tempfile::tempdir().unwrap();
    let mut one = ranks(&dataset, &settings(folder.path()), 1, &[Cursor::start_of(0)]);
    steps(&mut one, 6);
    let saved = one[0].cursor();
    let path = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let before = std::fs::read(&path).unwrap();
    steps(&mut one, 1);
    drop(one);
    let whole = std::fs::read(&path).unwrap();
    assert!(whole.starts_with(&before), "a ledger is only added to");
    // Killed at any moment of the write: the restart from the checkpoint is exact all the same.
    let mut rest = ranks(&dataset, &settings(folder.path()), 1, &[saved]);
    while next(&mut rest[0]).unwrap().is_some() {}
    for cut in before.len()..=whole.len() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let verdict = check(folder.path(), &dataset);
        assert!(verdict.exact, "cut at {cut}: {verdict:?}");
        assert_eq!(verdict.epochs[0].state, EpochState::Exact);
        let superseded = if cut == whole.len() { 8 } else { 0 };
        assert_eq!(verdict.epochs[0].superseded, superseded, "cut at {cut}");
    }
    // Records that are lost before the checkpoint are missed.
    std::fs::write(&path, &whole[..before.len() - 1]).unwrap();
    let verdict = check(folder.path(), &dataset);
    assert_eq!((verdict.exact, verdict.epochs[0].gaps), (false, 8));
}

#[test]
fn only_what_was_handed_over_is_written() {
    let dataset = noise(SAMPLES, 300, 5);
    let folder = tempfile::tempdir().unwrap();
    let mut one = ranks(&dataset, &settings(folder.path()), 1, &[Cursor::start_of(0)]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing before the first batch");
    steps(&mut one, 3);
    let verdict = check(folder.path(), &dataset);
    assert_eq!((verdict.epochs[0].state, verdict.epochs[0].received), (EpochState::Open, 24));
}

#[test]
fn bad_samples_are_written_out_and_ids_still_compare() {
    let (samples, bad) = (200u64, [37u64, 80, 137]);
    let keys = bad.iter().map(|sample| object_key(*sample)).collect();
    let (manifest, store) = objects(samples, 10);
    let flaky = FlakyStore::new(Arc::new(store), 1);
    let store = Arc::new(flaky.with(When::Keys(keys), Fault::Fail(ErrorKind::NotFound)));
    let run = |on_error: OnError, known: &[u64]| {
        let folder = tempfile::tempdir().unwrap();
        let quarantine = Arc::new(Quarantine::new(known.to_vec()));
        let shuffle = Shuffle::Full;
        let config = LoaderConfig { on_error, quarantine, shuffle, ..settings(folder.path()) };
        let mut loader = loader_on(&manifest, store.clone(), &bytes_recipe(), config);
        epoch(&mut loader);
        let sections = ledger::read(folder.path()).unwrap().into_iter().flat_map(|file| file.parsed.sections);
        let streams = streams(sections);
        // A full shuffle is known without the dataset.
        let sampler = ledger::sampler(&streams[0], None).unwrap().unwrap();
        let verdict = streams[0].check(Some(&sampler), 10).unwrap();
        let seen = streams[0].find(&sampler, SampleId(80)).unwrap();
        (verdict.epochs[0].clone(), seen)
    };
    let (skipped, seen) = run(OnError::Skip, &[]);
    assert_eq!((skipped.state, skipped.skipped, skipped.altered), (EpochState::Exact, 3, 0));
    assert_eq!(seen[0].absent, Some("skipped"));
    for known in [&[][..], &bad, &bad[..1]] {
        let (replaced, seen) = run(OnError::Substitute, known);
        assert_eq!((replaced.state, replaced.substituted, replaced.altered), (EpochState::Exact, 3, 0));
        assert_eq!(seen[0].absent, Some("substituted"));
    }
}

#[test]
fn a_ledger_that_cannot_be_written_stops_the_loop() -> Result<()> {
    let dataset = noise(50, 300, 1);
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("file");
    std::fs::write(&taken, "in the way").unwrap();
    let mut one = loader(&dataset, &raw_recipe(), settings(&taken));
    one.begin()?;
    let error = next(&mut one).unwrap_err();
    assert!(error.message().contains("write ledger"), "{error:?}");
    assert_eq!(one.cursor(), Cursor::start_of(0), "the batch was not received");
    let config = LoaderConfig { turn: Turn { first: 0, of: 2 }, ..settings(folder.path()) };
    let refused = Loader::new(dataset.manifest(), Arc::clone(dataset.store()), &raw_recipe(), config);
    assert_eq!(refused.err().map(|error| error.kind()), Some(ErrorKind::Unsupported));
    Ok(())
}
