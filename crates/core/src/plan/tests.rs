//! Promises of the plan: every sample once, any position without replay, the same order for ever.

use super::block::Blocks;
use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

fn sampler(samples: u64, shuffle: Shuffle, seed: u64) -> Sampler {
    Sampler::from_blocks(samples, Blocks::uniform(samples, 100, 7), shuffle, seed).unwrap()
}

fn order(plan: &Plan) -> Vec<u64> {
    (0..plan.len()).map(|position| plan.at(position).0).collect()
}

fn any_shuffle() -> impl Strategy<Value = Shuffle> {
    prop_oneof![
        Just(Shuffle::Sequential),
        Just(Shuffle::Full),
        (1u64..200).prop_map(|group_blocks| Shuffle::Block(BlockShuffle { block_bytes: 1, group_blocks })),
    ]
}

proptest! {
    #[test]
    fn every_sample_stands_at_one_position_and_is_found_there(
        samples in 0u64..2500, shuffle in any_shuffle(), seed: u64, epoch: u64,
    ) {
        let plan = sampler(samples, shuffle, seed).plan(epoch);
        let order = order(&plan);
        prop_assert_eq!(order.iter().collect::<HashSet<_>>().len() as u64, samples);
        for (position, sample) in order.iter().enumerate() {
            prop_assert_eq!(plan.position_of(SampleId(*sample)), Some(position as u64));
        }
        prop_assert_eq!(plan.position_of(SampleId(samples)), None);
    }

    #[test]
    fn groups_tile_the_plan_and_hold_whole_blocks(samples in 1u64..2500, group_blocks in 1u64..80, seed: u64) {
        let shuffle = Shuffle::Block(BlockShuffle { block_bytes: 1, group_blocks });
        let plan = sampler(samples, shuffle, seed).plan(0);
        let blocks = Blocks::uniform(samples, 100, 7);
        let mut position = 0;
        while position < samples {
            let end = plan.group_end(position);
            prop_assert!(end > position);
            let held: HashSet<u64> = (position..end).map(|p| plan.at(p).0).collect();
            let whole: u64 = (0..blocks.len())
                .map(|block| blocks.get(block))
                .filter(|block| held.contains(&block.start))
                .map(|block| block.end - block.start)
                .sum();
            prop_assert_eq!(whole, end - position);
            position = end;
        }
    }
}

#[test]
fn p025_order_is_a_pure_function_of_seed_and_epoch() {
    for shuffle in [Shuffle::Full, Shuffle::Block(BlockShuffle::default())] {
        let sampler_a = sampler(5000, shuffle, 11);
        // Epoch 7 is computed without epochs 0 to 6, twice, by two samplers.
        let seventh = order(&sampler_a.plan(7));
        let _ = order(&sampler_a.plan(3));
        assert_eq!(seventh, order(&sampler(5000, shuffle, 11).plan(7)));
        assert_ne!(seventh, order(&sampler_a.plan(8)));
        assert_ne!(seventh, order(&sampler(5000, shuffle, 12).plan(7)));
    }
}

#[test]
fn order_never_changes_between_releases() {
    let full = sampler(1000, Shuffle::Full, 1).plan(2);
    assert_eq!((0..8).map(|p| full.at(p).0).collect::<Vec<_>>(), GOLDEN_FULL);
    let block = sampler(1000, Shuffle::Block(BlockShuffle { block_bytes: 1, group_blocks: 16 }), 1).plan(2);
    assert_eq!((500..508).map(|p| block.at(p).0).collect::<Vec<_>>(), GOLDEN_BLOCK);
}

const GOLDEN_FULL: [u64; 8] = [17, 349, 308, 829, 982, 102, 8, 861];
const GOLDEN_BLOCK: [u64; 8] = [559, 787, 991, 496, 379, 380, 173, 176];

/// Row 23: shards are mixed before ranks or workers take their part, so nobody sees the same shards every epoch.
#[test]
fn p023_every_worker_sees_nearly_all_shards_over_the_epochs() {
    let (shards, per_shard, workers, epochs) = (64u64, 50u64, 4u64, 20);
    let blocks = Blocks::uniform(shards * per_shard, per_shard, 50);
    let shuffle = Shuffle::Block(BlockShuffle { block_bytes: 1, group_blocks: 8 });
    let sampler = Sampler::from_blocks(shards * per_shard, blocks, shuffle, 3).unwrap();
    for worker in 0..workers {
        let mut seen = HashSet::new();
        for epoch in 0..epochs {
            let plan = sampler.plan(epoch);
            for position in (0..plan.len()).filter(|p| (p / 32) % workers == worker) {
                seen.insert(plan.at(position).0 / per_shard);
            }
        }
        assert!(
            seen.len() as f64 >= 0.95 * shards as f64,
            "worker {worker} saw {} of {shards} shards",
            seen.len()
        );
    }
}

/// Row 24: mixing with memory for `b` samples. A sample leaves only after its group was read, the output is a
/// permutation, and storage neighbours end up far apart.
#[test]
fn p024_mixing_is_bounded_in_memory_and_moves_samples_far() {
    let (samples, block, group_blocks) = (100_000u64, 10u64, 64u64);
    let buffer = block * group_blocks;
    let blocks = Blocks::uniform(samples, 1000, block);
    let shuffle = Shuffle::Block(BlockShuffle { block_bytes: 1, group_blocks });
    let plan = Sampler::from_blocks(samples, blocks, shuffle, 9).unwrap().plan(0);
    let order = order(&plan);
    assert_eq!(order.iter().collect::<HashSet<_>>().len() as u64, samples);
    let moved: u64 =
        order.iter().enumerate().map(|(position, sample)| sample.abs_diff(position as u64)).sum();
    assert!(moved / samples >= buffer / 3, "mean displacement {} of a buffer of {buffer}", moved / samples);
    // Samples held when the group at `position` is read in whole blocks, just before its first sample leaves.
    let mut position = 0;
    while position < samples {
        let end = plan.group_end(position);
        assert!(end - position <= buffer, "a group of {} samples needs more than {buffer}", end - position);
        // Inside the group samples are permuted over its whole width: mean displacement near a third of it.
        if end - position == buffer {
            let mut sorted: Vec<u64> = (position..end).map(|p| plan.at(p).0).collect();
            sorted.sort_unstable();
            let moved: u64 = (position..end)
                .map(|p| {
                    let rank = sorted.binary_search(&plan.at(p).0).unwrap() as u64;
                    rank.abs_diff(p - position)
                })
                .sum();
            assert!(moved / buffer >= buffer / 4, "mean displacement {} inside a group", moved / buffer);
        }
        position = end;
    }
}

#[test]
fn the_first_groups_are_small_and_double() {
    let shuffle = Shuffle::Block(BlockShuffle { block_bytes: 1, group_blocks: 64 });
    let plan = Sampler::from_blocks(10_000, Blocks::uniform(10_000, 10_000, 10), shuffle, 0).unwrap().plan(0);
    let mut sizes = vec![];
    let mut position = 0;
    while position < 10_000 {
        sizes.push((plan.group_end(position) - position) / 10);
        position = plan.group_end(position);
    }
    assert_eq!(sizes[..6], [4, 8, 16, 32, 64, 64]);
}

#[test]
fn one_hundred_million_samples_are_planned_without_a_stored_permutation() {
    let samples = 100_000_000;
    let full = Sampler::from_blocks(samples, Blocks::default(), Shuffle::Full, 5).unwrap().plan(1);
    let blocks = Blocks::uniform(samples, 100_000, 256);
    let block =
        Sampler::from_blocks(samples, blocks, Shuffle::Block(BlockShuffle::default()), 5).unwrap().plan(1);
    for plan in [full, block] {
        for position in (0..samples).step_by(999_983) {
            assert_eq!(plan.position_of(plan.at(position)), Some(position));
        }
    }
}
