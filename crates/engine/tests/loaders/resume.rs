//! Promises about resuming: the exact next sample, on any number of ranks, without reading what was passed.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::common::*;
use forebay_core::cursor::Cursor;
use forebay_core::plan::{BlockShuffle, Shuffle};
use forebay_engine::{DeliveryOrder, LoaderConfig};
use forebay_store::CountingStore;
use std::sync::Arc;

fn config(rank: u64, world: u64, batch: u64, shuffle: Shuffle) -> LoaderConfig {
    LoaderConfig {
        consumer: consumer(rank, world, batch),
        shuffle,
        seed: 21,
        threads: 2,
        ..LoaderConfig::default()
    }
}

fn through_json(cursor: &Cursor) -> Cursor {
    let text = serde_json::to_string(cursor).unwrap();
    assert!(text.len() < 4096, "{} bytes", text.len());
    Cursor::from_json(&text).unwrap()
}

/// Row 58, local: 95 steps, restart from step 50, the next batch is number 51 byte for byte, and so are all others.
#[test]
fn p058_a_restart_from_step_50_of_95_delivers_step_51_next() {
    let dataset = noise(95 * 8, 200, 5);
    for shuffle in [Shuffle::Full, Shuffle::Block(BlockShuffle { block_bytes: 2000, group_blocks: 16 })] {
        let whole = epoch(&mut loader(&dataset, &raw_recipe(), config(0, 1, 8, shuffle)));
        assert_eq!(whole.len(), 95);
        let mut first = loader(&dataset, &raw_recipe(), config(0, 1, 8, shuffle));
        steps(&mut first, 50);
        let cursor = through_json(&first.cursor());
        drop(first);
        let mut second = loader(&dataset, &raw_recipe(), config(0, 1, 8, shuffle));
        second.seek(cursor).unwrap();
        assert_eq!(second.steps().unwrap(), 45);
        let rest = epoch(&mut second);
        assert!(rest.iter().map(bytes).eq(whole[50..].iter().map(bytes)));
        // The epoch after is the next one, whole.
        let next = epoch(&mut second);
        assert_eq!((next[0].epoch, next.len()), (1, 95));
    }
}

#[test]
fn p059_four_ranks_resume_as_two_three_or_eight_and_every_sample_comes_once() {
    let dataset = noise(1003, 64, 9);
    let shuffle = Shuffle::Block(BlockShuffle { block_bytes: 640, group_blocks: 8 });
    let mut before = Vec::new();
    let mut cursors = Vec::new();
    for rank in 0..4 {
        let mut loader = loader(&dataset, &raw_recipe(), config(rank, 4, 16, shuffle));
        before.extend(ids(&steps(&mut loader, 7)));
        cursors.push(through_json(&loader.cursor()));
    }
    assert!(cursors.iter().all(|cursor| *cursor == cursors[0]), "any rank's state will do");
    for world in [1, 2, 3, 8] {
        let mut all = before.clone();
        for rank in 0..world {
            let mut loader = loader(&dataset, &raw_recipe(), config(rank, world, 16, shuffle));
            loader.seek(cursors[0].clone()).unwrap();
            all.extend(ids(&epoch(&mut loader)));
        }
        assert_each_once(all, 1003);
    }
}

#[test]
fn p059_arrival_order_resumes_on_other_ranks_from_merged_cursors() {
    let dataset = noise(400, 32, 100);
    let order = DeliveryOrder::Arrival { window: 50 };
    let of = |rank, world| LoaderConfig { order, ..config(rank, world, 8, Shuffle::Full) };
    let mut before = Vec::new();
    let mut cursors = Vec::new();
    for rank in 0..3 {
        let mut loader = loader(&dataset, &raw_recipe(), of(rank, 3));
        before.extend(ids(&steps(&mut loader, 6)));
        cursors.push(through_json(&loader.cursor()));
    }
    let merged = Cursor::merge(&cursors, 400).unwrap();
    for world in [1, 2, 5] {
        let mut all = before.clone();
        for rank in 0..world {
            let mut loader = loader(&dataset, &raw_recipe(), of(rank, world));
            loader.seek(merged.clone()).unwrap();
            all.extend(ids(&epoch(&mut loader)));
        }
        assert_each_once(all, 400);
    }
    // The same ranks go on from their own cursors.
    let mut all = before;
    for (rank, cursor) in cursors.into_iter().enumerate() {
        let mut loader = loader(&dataset, &raw_recipe(), of(rank as u64, 3));
        loader.seek(cursor).unwrap();
        all.extend(ids(&epoch(&mut loader)));
    }
    assert_each_once(all, 400);
}

/// Row 59: at 90 % of 100,000 samples the resumed run touches none of the bytes it has passed.
#[test]
fn p059_resuming_at_ninety_percent_reads_almost_nothing_of_what_was_passed() {
    let dataset = noise(100_000, 100, 20);
    let skipped_bytes = 90_000 * 100;
    for shuffle in [
        Shuffle::Sequential,
        Shuffle::Full,
        Shuffle::Block(BlockShuffle { block_bytes: 10_000, group_blocks: 32 }),
    ] {
        let counting = Arc::new(CountingStore::new(Arc::clone(dataset.store())));
        let mut loader = loader_on(
            dataset.manifest(),
            counting.clone(),
            &raw_recipe(),
            LoaderConfig { epochs: Some(1), ..config(0, 1, 100, shuffle) },
        );
        let portion =
            forebay_core::portion::Portion::new(100_000, consumer(0, 1, 100), &Cursor::start_of(0)).unwrap();
        loader.seek(portion.cursor_after(0, 900)).unwrap();
        let rest = epoch(&mut loader);
        assert_eq!(rest.len(), 100);
        let wanted = 10_000 * 100;
        let read = counting.counts().bytes_read;
        assert!(read < wanted + skipped_bytes / 100, "{shuffle:?} read {read} bytes for {wanted}");
    }
}

#[test]
fn a_cursor_of_a_larger_dataset_is_refused() {
    let large = noise(1000, 8, 1);
    let mut first = loader(&large, &raw_recipe(), config(0, 1, 10, Shuffle::Full));
    steps(&mut first, 90);
    let cursor = first.cursor();
    let small = noise(100, 8, 1);
    let mut second = loader(&small, &raw_recipe(), config(0, 1, 10, Shuffle::Full));
    assert_eq!(second.seek(cursor).unwrap_err().kind(), forebay_core::ErrorKind::Stale);
}
