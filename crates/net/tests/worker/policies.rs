//! What several jobs get, and what happens when one is late.

use crate::made::*;
use forebay_core::staging::Late;
use forebay_net::service::message::ToWorker;
use std::thread;

/// Batches that a sliding window holds.
const WINDOW: u64 = 100;

/// Numbers of all batches of an epoch.
const ALL: std::ops::Range<u64> = 0..SAMPLES / ROWS;

#[test]
fn p050_four_jobs_share_one_preparation() {
    for late in [Late::Wait, Late::Spill, Late::Remake] {
        let temp = tempfile::tempdir().unwrap();
        let maker = FakeMaker::new();
        // Whoever may drop batches has room for all of them.
        let room = if late == Late::Remake { ALL.end + 2 } else { 6 };
        let worker = worker(&maker, late, room, |options| options.spill = Some(temp.path().to_owned()));
        let address = worker.address().clone();
        let clients: Vec<Client> = (0..4).map(|job| Client::join(&address, &format!("job {job}"))).collect();
        thread::scope(|scope| {
            for mut client in clients {
                scope.spawn(move || {
                    assert!(client.read(ALL).is_empty());
                    client.say(&ToWorker::Passed { epoch: 1, position: 0 });
                });
            }
        });
        let makes = maker.makes();
        assert_eq!(makes.len() as u64, ALL.end);
        assert!(makes.values().all(|makes| *makes == 1), "{late:?}: {makes:?}");
        let view = worker.view();
        assert_eq!(view.sum(|staging| staging.given), 4 * ALL.end);
        assert!(view.sum(|staging| staging.peak_bytes) <= room * BATCH_BYTES, "{late:?}");
        // A client has a batch a moment before the worker counts its bytes.
        wait_until("all bytes are counted", || {
            worker.view().bytes_sent >= 4 * ALL.end * ROWS * PAYLOAD as u64
        });
    }
}

#[test]
fn p050_ranks_of_jobs_of_different_size_share() {
    let maker = FakeMaker::new();
    let worker = worker(&maker, Late::Remake, ALL.end + 2, |_| {});
    let join = |job: &str, rank, size| Client::join_as(worker.address(), job, rank, size, 7);
    let readers = [(join("wide", 0, 2), 0, 2), (join("wide", 1, 2), 1, 2), (join("narrow", 0, 1), 0, 1)];
    thread::scope(|scope| {
        for (mut client, rank, size) in readers {
            scope.spawn(move || {
                for number in ALL.filter(|number| number % size == rank) {
                    assert_eq!(client.take(number), Came::Batch(name(number)));
                }
            });
        }
    });
    assert!(maker.makes().values().all(|makes| *makes == 1));
}

#[test]
fn p051_the_fastest_waits_and_staging_stays_within_its_limit() {
    let maker = FakeMaker::new();
    let worker = worker(&maker, Late::Wait, 5, |_| {});
    let (mut fast, mut slow) =
        (Client::join(worker.address(), "fast"), Client::join(worker.address(), "slow"));
    for number in 0..5 {
        assert_eq!(fast.take(number), Came::Batch(name(number)));
    }
    fast.ask(5);
    wait_until("the request arrives", || worker.view().feeds[0].jobs.iter().all(|job| job.given < 6));
    for number in 0..5 {
        assert_eq!(slow.take(number), Came::Batch(name(number)), "the slow one is not held up");
    }
    assert_eq!(fast.answer(), (5, Came::Batch(name(5))), "and lets the fast one go on");
    let view = worker.view();
    assert!(view.sum(|staging| staging.peak_bytes) <= 5 * BATCH_BYTES);
    assert_eq!(view.sum(|staging| staging.dropped), 0);
}

#[test]
fn p053_a_fast_and_a_slow_job_both_get_everything() {
    for late in [Late::Remake, Late::Spill] {
        let temp = tempfile::tempdir().unwrap();
        let maker = FakeMaker::new();
        let worker = worker(&maker, late, 4, |options| options.spill = Some(temp.path().to_owned()));
        let (mut fast, mut slow) =
            (Client::join(worker.address(), "fast"), Client::join(worker.address(), "slow"));
        slow.pass(0);
        // Half as fast: one batch for two of the other.
        for number in ALL {
            assert!(fast.read(number..number + 1).is_empty());
            if number % 2 == 1 {
                assert!(slow.read(number / 2..number / 2 + 1).is_empty());
            }
        }
        assert!(slow.read(ALL.end / 2..ALL.end).is_empty());
        let view = worker.view();
        assert!(view.sum(|staging| staging.peak_bytes) <= 4 * BATCH_BYTES);
        assert_eq!(view.sum(|staging| staging.skipped), 0);
        if late == Late::Spill {
            assert!(maker.makes().values().all(|makes| *makes == 1), "{:?}", maker.makes());
            assert!(view.sum(|staging| staging.loaded) > 0);
        }
    }
}

#[test]
fn p053_a_disk_that_is_full_costs_time_and_no_batch() {
    let temp = tempfile::tempdir().unwrap();
    let maker = FakeMaker::new();
    let worker = worker(&maker, Late::Spill, 3, |options| {
        options.spill = Some(temp.path().to_owned());
        options.spill_bytes = 1 << 20;
    });
    let (mut fast, mut slow) =
        (Client::join(worker.address(), "fast"), Client::join(worker.address(), "slow"));
    slow.pass(0);
    assert!(fast.read(ALL).is_empty() && slow.read(ALL).is_empty());
    let view = worker.view();
    assert!(view.sum(|staging| staging.remade) > 0, "it was full");
    assert!(view.sum(|staging| staging.loaded) > 0, "and held some");
}

#[test]
fn p061_a_late_job_skips_and_every_batch_it_lost_is_counted() {
    let maker = FakeMaker::new();
    let worker = worker(&maker, Late::Skip, WINDOW, |_| {});
    let (mut fast, mut slow) =
        (Client::join(worker.address(), "fast"), Client::join(worker.address(), "slow"));
    slow.pass(0);
    let mut lost = Vec::new();
    let mut next = 0;
    for number in ALL {
        assert!(fast.read(number..number + 1).is_empty(), "the fast one loses nothing");
        if number % 2 == 1 && next < ALL.end {
            lost.extend(slow.read(next..next + 1));
            next += 1;
        }
    }
    lost.extend(slow.read(next..ALL.end));
    assert!(!lost.is_empty());
    let view = worker.view();
    let slow_view = view.feeds[0].jobs.iter().find(|job| job.job == "slow").unwrap();
    assert_eq!((slow_view.skipped, slow_view.given), (lost.len() as u64, ALL.end - lost.len() as u64));
    assert_eq!(view.sum(|staging| staging.skipped), lost.len() as u64);
    assert!(view.sum(|staging| staging.peak_bytes) <= WINDOW * BATCH_BYTES);
}
