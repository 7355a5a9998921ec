//! Promises of weights that are set while loops run: what was received stays, what comes follows the new weights, on any
//! ranks and over restarts, and the ledger knows.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::common::*;
use forebay_core::ErrorKind;
use forebay_core::cursor::Cursor;
use forebay_core::ledger::{EpochState, streams};
use forebay_core::plan::Shuffle;
use forebay_core::plan::mix::schedule::MixChange;
use forebay_engine::source::{Dataset, SyntheticPayload, SyntheticSpec, mix, synthetic};
use forebay_engine::{DeliveryOrder, EpochSamples, Loader, LoaderConfig, ledger};
use proptest::prelude::*;
use std::path::Path;

fn noise_of(samples: u64, seed: u64) -> Dataset {
    let payload = SyntheticPayload::Noise { bytes: 8 };
    synthetic(SyntheticSpec { samples, payload, seed, ..SyntheticSpec::default() }).unwrap()
}

fn mixed() -> Dataset {
    mix(&[(noise_of(3000, 1), 3.0), (noise_of(200, 2), 1.0), (noise_of(900, 3), 1.0)]).unwrap()
}

fn config(data: &Dataset, rank: u64, world_size: u64, changes: &[MixChange]) -> LoaderConfig {
    let config = LoaderConfig {
        consumer: consumer(rank, world_size, 64),
        shuffle: Shuffle::Full,
        seed: 9,
        threads: 1,
        ..LoaderConfig::default()
    };
    config.mixing(data, Some(EpochSamples::Count(3500)), changes).unwrap()
}

/// What a job does in turn: weights that are set after so many steps, and a restart on so many ranks.
#[derive(Clone, Debug)]
struct Job {
    world_size: u64,
    steps: usize,
    set: Option<(Vec<f64>, u64)>,
}

fn job() -> impl Strategy<Value = Job> {
    let weights = proptest::collection::vec(prop_oneof![0.1f64..5.0, Just(0.0)], 3)
        .prop_filter("some weight", |weights| weights.iter().any(|weight| *weight > 0.0));
    (1u64..4, 0usize..30, proptest::option::of((weights, 0u64..3))).prop_map(|(world_size, steps, set)| Job {
        world_size,
        steps,
        set,
    })
}

/// Sample ids by epoch and position, and the changes at the end. Every job sets its weights half way.
fn run(jobs: &[Job], ledger: Option<&Path>) -> (Vec<(u64, Vec<u64>)>, Vec<MixChange>) {
    let data = mixed();
    let (mut cursor, mut changes) = (Cursor::start_of(0), Vec::new());
    let mut received: Vec<(u64, Vec<u64>)> = Vec::new();
    for job in jobs {
        let mut ranks: Vec<Loader> = (0..job.world_size)
            .map(|rank| {
                let ledger = ledger.map(Path::to_path_buf);
                let config = LoaderConfig { ledger, ..config(&data, rank, job.world_size, &changes) };
                let mut loader = loader(&data, &label_recipe(), config);
                loader.seek(cursor.clone()).unwrap();
                loader.begin().unwrap();
                loader
            })
            .collect();
        for step in 0..job.steps {
            if step == job.steps / 2
                && let Some((weights, later)) = &job.set
            {
                let place = (*later > 0).then(|| (ranks[0].epoch() + later, 1500));
                let held: Vec<_> = ranks
                    .iter_mut()
                    .map(|rank| rank.change_weights(weights.clone(), place).unwrap())
                    .collect();
                assert!(held.windows(2).all(|pair| pair[0] == pair[1]), "ranks agree: {held:?}");
                changes.clone_from(&ranks[0].config().mix_changes);
            }
            let mut batches = Vec::new();
            for rank in &mut ranks {
                let batch = next(rank).unwrap().or_else(|| {
                    rank.begin().unwrap();
                    next(rank).unwrap()
                });
                batches.push(batch.unwrap());
            }
            let ids = batches.iter().flat_map(|batch| batch.ids.iter().map(|id| id.0)).collect();
            received.push((batches[0].epoch, ids));
        }
        cursor = Cursor::from_json(&serde_json::to_string(&ranks[0].cursor()).unwrap()).unwrap();
        for rank in &ranks {
            assert_eq!(rank.config().mix_changes, changes);
        }
    }
    (received, changes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn p029_weights_set_while_a_loop_runs_change_what_comes_and_nothing_that_came(
        jobs in proptest::collection::vec(job(), 1..5),
    ) {
        let (received, changes) = run(&jobs, None);
        let data = mixed();
        let sampler = config(&data, 0, 1, &changes).sampler(data.manifest()).unwrap();
        let mut position = (0, 0);
        for (epoch, ids) in received {
            if epoch != position.0 {
                prop_assert_eq!(position.1, 3500, "the epoch before was read to its end");
                position = (epoch, 0);
            }
            let plan = sampler.plan(epoch);
            let wanted: Vec<u64> = (position.1..position.1 + ids.len() as u64).map(|at| plan.at(at).0).collect();
            // Ranks divide a step's positions batch by batch; a last step is divided evenly.
            prop_assert_eq!(&ids, &wanted);
            position.1 += ids.len() as u64;
        }
    }
}

#[test]
fn p029_the_ledger_follows_weights_that_were_set() {
    let folder = tempfile::tempdir().unwrap();
    let set = |weights: [f64; 3], later| Some((weights.to_vec(), later));
    let jobs = [
        Job { world_size: 2, steps: 9, set: set([1.0, 1.0, 0.0], 0) },
        Job { world_size: 1, steps: 30, set: None },
        Job { world_size: 3, steps: 20, set: set([0.0, 0.0, 1.0], 1) },
        Job { world_size: 1, steps: 150, set: None },
    ];
    let (received, changes) = run(&jobs, Some(folder.path()));
    assert!(received.last().unwrap().0 >= 2 && changes.len() == 2);
    let files = ledger::read(folder.path()).unwrap();
    let streams = streams(files.into_iter().flat_map(|file| file.parsed.sections));
    assert_eq!(streams.len(), 1, "one order, whose weights changed");
    let data = mixed();
    let sampler = ledger::sampler(&streams[0], Some(data.manifest())).unwrap();
    let verdict = streams[0].check(sampler.as_ref(), 10).unwrap();
    assert!(verdict.exact, "{verdict:?}");
    let states: Vec<_> = verdict.epochs.iter().map(|epoch| epoch.state).collect();
    assert_eq!(states[..2], [EpochState::Exact; 2], "{verdict:?}");
}

#[test]
fn p029_weights_that_come_too_late_or_to_one_dataset_are_refused() {
    let data = mixed();
    let mut loader = loader(&data, &label_recipe(), config(&data, 0, 1, &[]));
    let _ = steps(&mut loader, 20);
    let before = loader.cursor();
    let weights = || vec![1.0, 1.0, 1.0];
    assert_eq!(loader.change_weights(weights(), Some((0, 1000))).unwrap_err().kind(), ErrorKind::Stale);
    assert_eq!(loader.change_weights(vec![1.0], None).unwrap_err().kind(), ErrorKind::InvalidConfig);
    assert_eq!(loader.cursor(), before);
    assert!(loader.config().mix_changes.is_empty(), "what is refused changes nothing");
    assert_eq!(loader.change_weights(weights(), None).unwrap(), (0, 2048));
    let one = noise_of(50, 1);
    let mut loader = crate::common::loader(&one, &label_recipe(), alone(5));
    assert_eq!(loader.change_weights(vec![1.0], None).unwrap_err().kind(), ErrorKind::InvalidConfig);
    // Samples by arrival may be of any place before the window's end.
    let mut arriving = config(&data, 0, 1, &[]);
    arriving.order = DeliveryOrder::Arrival { window: 32 };
    let mut loader = crate::common::loader(&data, &label_recipe(), arriving);
    let _ = steps(&mut loader, 3);
    assert_eq!(loader.change_weights(weights(), None).unwrap(), (1, 0));
}
