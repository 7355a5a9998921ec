//! Nodes as real processes: each in a network of its own where that may be made, else on loopback addresses of their
//! own. One is killed, stopped, cut off, added, taken out. Whatever happens, every node's portion is exact, and the
//! store, which counts, is read exactly as often as a model of the nodes says.
#![allow(clippy::unwrap_used, reason = "a test helper fails by panicking")]

mod cluster;
mod hosts;
mod model;
mod network;
mod process;
mod role;

use cluster::{Cluster, SAMPLES};
use forebay_testkit::skip::skipped;
use network::Network;
use serde_json::json;
use std::time::{Duration, Instant};

/// Longest wait for something that happens in other processes.
const LONG: Duration = Duration::from_secs(120);

/// Where the payloads of an epoch came from, all ranks together.
#[derive(Debug)]
struct Ranks {
    local: u64,
    peer: u64,
    store: u64,
}

/// Not a test of its own: what this program does when it is run by the others.
#[test]
fn role() {
    role::run();
}

#[test]
fn p046_three_nodes_read_the_store_once_and_then_each_other() {
    let mut cluster = Cluster::start(Network::new(), 3, &json!({}));
    let first = cluster.epoch(&[0, 1, 2]);
    assert_eq!((first.store, first.local, first.peer), (SAMPLES, 0, 0));
    for _ in 0..3 {
        let came = cluster.epoch(&[0, 1, 2]);
        assert_eq!(came.store, 0);
        let share = came.peer as f64 / SAMPLES as f64;
        assert!((0.60..=0.67).contains(&share), "{share} came from peers");
    }
}

/// Loaders that run on look into the next epoch while the last payloads of this one are on their way to their owners:
/// who wants one of those waits for it, and nobody reads it from the store again.
#[test]
fn p046_loaders_that_run_on_read_the_store_once() {
    let mut cluster = Cluster::start(Network::new(), 3, &json!({}));
    for _ in 0..5 {
        cluster.run_on(&[0, 1, 2]);
    }
    assert_eq!(cluster.reads(), vec![1; SAMPLES as usize]);
}

#[test]
fn p047_a_node_that_is_killed_in_an_epoch_costs_only_what_it_kept() {
    let mut cluster = Cluster::start(Network::new(), 3, &json!({}));
    cluster.epoch(&[0, 1, 2]);
    assert_eq!(cluster.epoch(&[0, 1, 2]).store, 0);
    cluster.kill_in_an_epoch(2);
    // From now on what it kept comes from the store in every epoch, but for what the others have copies of.
    for _ in 0..2 {
        let came = cluster.epoch_of(&[0, 1], 2);
        assert!(came.store > SAMPLES / 6, "{came:?}");
    }
    // Another one in its place begins with nothing, and is given what it is to keep.
    cluster.restart(2);
    cluster.until_settled(&[0, 1, 2]);
}

#[test]
fn p047_a_node_that_is_stopped_costs_its_own_payloads_until_it_goes_on() {
    let mut cluster = Cluster::start(Network::new(), 3, &json!({}));
    cluster.epoch(&[0, 1, 2]);
    cluster.stop(2);
    let came = cluster.epoch_while_away(&[0, 1], 2);
    assert!(came.store > SAMPLES / 6, "{came:?}");
    cluster.go_on(2);
    cluster.until_settled(&[0, 1, 2]);
}

#[test]
fn p047_a_node_that_is_cut_off_costs_its_own_payloads_until_it_is_back() {
    let network = Network::new();
    if !network.can_cut() {
        return skipped("networks of their own take root");
    }
    let mut cluster = Cluster::start(network, 3, &json!({}));
    cluster.epoch(&[0, 1, 2]);
    cluster.cut(2);
    // All three go on: the one that is cut off reads the store for what the others own.
    let came = cluster.epoch(&[0, 1, 2]);
    assert!(came.store > SAMPLES / 3, "{came:?}");
    cluster.mend(2);
    cluster.until_settled(&[0, 1, 2]);
}

#[test]
fn p047_a_node_joins_a_running_job_and_another_one_leaves_it() {
    let mut cluster = Cluster::start_with_file(Network::new(), 3);
    cluster.epoch(&[0, 1, 2]);
    assert_eq!(cluster.epoch(&[0, 1, 2]).store, 0);
    cluster.join();
    let moved = cluster.owned_by(3);
    assert!(moved as f64 <= (0.25 + 0.05) * SAMPLES as f64, "{moved}");
    let came = cluster.epoch(&[0, 1, 2, 3]);
    assert!(came.store > moved / 2 && came.store <= moved, "{came:?} of {moved}");
    // What was read by one that happened to have it comes later: all of it once, as the model says.
    let mut store = came.store;
    for _ in 0..2 {
        store += cluster.epoch(&[0, 1, 2, 3]).store;
    }
    assert!(store <= moved, "{store} of {moved}");
    cluster.leave(1);
    let left = cluster.epoch(&[0, 2, 3]);
    assert!(left.store > 0 && left.store <= SAMPLES * 2 / 5, "{left:?}");
}

#[test]
fn p047_loaders_that_run_on_follow_the_dispatcher() {
    let mut cluster = Cluster::start_with_dispatcher(3);
    cluster.until_members(&[0, 1, 2], 3);
    let quiet = |cluster: &mut Cluster, running: &[usize]| {
        let since = Instant::now();
        while cluster.run_on(running) > 0 {
            assert!(since.elapsed() < LONG, "payloads do not settle with their owners");
        }
    };
    quiet(&mut cluster, &[0, 1, 2]);
    cluster.kill(1);
    cluster.until_members(&[0, 2], 2);
    // Two nodes have room for 80 %. After a while exactly the rest comes from the store.
    let since = Instant::now();
    let room = SAMPLES * 40 / 100;
    loop {
        let read = cluster.run_on(&[0, 2]) + cluster.run_on(&[0, 2]) + cluster.run_on(&[0, 2]);
        if read <= 3 * (SAMPLES - 2 * room) {
            break;
        }
        assert!(since.elapsed() < LONG, "{read} reads in three epochs");
    }
    cluster.restart_running(1);
    cluster.until_members(&[0, 1, 2], 3);
    quiet(&mut cluster, &[0, 1, 2]);
}
