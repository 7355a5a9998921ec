//! The model against its definitions, against known figures, and against a link in virtual time.

use super::*;
use proptest::prelude::*;

/// Samples of one byte, so that bytes a second are samples a second.
fn rates(ingest: f64, prep: f64, store: f64) -> Setup {
    Setup { prep_rate_per_core: prep, store_bytes_per_second: store, ..Setup::unlimited(10_000, 1.0, ingest) }
}

fn close(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

fn drawn() -> impl Strategy<Value = Setup> {
    let part = || 1.0f64..1e6;
    let dataset = (1u64..1_000_000, 1.0f64..1e6, part(), 1u64..64, 1.0f64..128.0);
    let fetch = (part(), 1e3f64..1e11, 1.0f64..1e6, 1.0f64..1e7, 0.0f64..0.5, 1.0f64..256.0);
    let near = (1e3f64..1e11, 0.0f64..1.5, prop_oneof![Just(f64::INFINITY), 1e3f64..1e11], any::<bool>());
    (dataset, fetch, near).prop_map(|(dataset, fetch, near)| {
        let (samples, sample_bytes, ingest_rate, nodes, cores) = dataset;
        let (prep, store, requests, request_bytes, round_trip_seconds, window) = fetch;
        let (link, cached, cache_bytes_per_second, peers) = near;
        Setup {
            samples,
            sample_bytes,
            ingest_rate,
            nodes,
            cores: cores.floor(),
            prep_rate_per_core: prep,
            store_bytes_per_second: store,
            store_requests_per_second: requests,
            request_bytes,
            round_trip_seconds,
            window_requests: window.floor(),
            link_bytes_per_second: link,
            cache_bytes: cached * samples as f64 * sample_bytes,
            cache_bytes_per_second,
            peers,
        }
    })
}

#[test]
fn the_stall_is_split_as_it_would_be_measured() {
    // 200 samples a second are taken, 100 prepared, 50 fetched: of 20 ms a sample, 5 are step, 5 prep, 10 fetch.
    let run = predict(&rates(200.0, 100.0, 50.0)).unwrap().later;
    assert_eq!((run.bottleneck, run.rate, run.seconds), (Bottleneck::Fetch, 50.0, 200.0));
    assert_eq!((run.step_seconds, run.prep_stall_seconds, run.fetch_stall_seconds), (50.0, 50.0, 100.0));
    assert_eq!(run.stall_fraction(), 0.75);
    let run = predict(&rates(200.0, 100.0, 500.0)).unwrap().later;
    assert_eq!((run.bottleneck, run.fetch_stall_seconds), (Bottleneck::Prep, 0.0));
    let run = predict(&rates(40.0, 100.0, 50.0)).unwrap().later;
    assert_eq!((run.bottleneck, run.stall_seconds()), (Bottleneck::Ingest, 0.0));
}

#[test]
fn half_a_cache_doubles_what_the_store_gives_from_the_second_epoch_on() {
    let setup = Setup { cache_bytes: 5000.0, ..rates(200.0, 180.0, 50.0) };
    let run = predict(&setup).unwrap();
    assert_eq!((run.first.rate, run.later.rate, run.later.hit_fraction), (50.0, 100.0, 0.5));
    assert_eq!(run.seconds(3), 200.0 + 2.0 * 100.0);
    assert_eq!(run.seconds(0), 0.0);
}

#[test]
fn the_cache_that_makes_fetching_disappear_is_the_one_of_the_formula() {
    assert_eq!(cache_needed(&rates(200.0, 100.0, 50.0)), Some(5000.0));
    assert_eq!(cache_needed(&rates(200.0, 100.0, 100.0)), Some(0.0));
    // A cache that is read slower than the run goes can never do it.
    let slow = Setup { cache_bytes_per_second: 20.0, ..rates(200.0, 100.0, 50.0) };
    assert_eq!(cache_needed(&slow), None);
    // Four peers need a quarter each.
    let peers = Setup { nodes: 4, peers: true, ..rates(200.0, 25.0, 50.0) };
    assert_eq!(cache_needed(&peers), Some(1250.0));
}

#[test]
fn remedies_name_the_limit_and_come_in_order_of_gain() {
    let first = |setup: &Setup| remedies(setup).unwrap().first().map(|remedy| (remedy.change, remedy.gain));
    // A window of 2 over 100 ms gives 20 samples a second; 200 need 20 in flight.
    let far = Setup { round_trip_seconds: 0.1, window_requests: 2.0, ..rates(200.0, 400.0, 1e9) };
    let (change, gain) = first(&far).unwrap();
    assert!(
        matches!(change, Change::WindowRequests(requests) if (20.0..=21.0).contains(&requests)),
        "{change:?}"
    );
    assert!((8.9..=9.1).contains(&gain), "{gain}");
    assert_eq!(first(&rates(200.0, 50.0, 400.0)).unwrap().0, Change::Cores(4.0));
    // Prep at 100 lies behind a store of 50: both remedies bring the run to 100, and memory is asked for first.
    let found = remedies(&rates(200.0, 100.0, 50.0)).unwrap();
    let changes: Vec<_> = found.iter().map(|remedy| remedy.change).collect();
    assert_eq!(changes, [Change::CacheBytes(5000.0), Change::StoreBytesPerSecond(200.0)]);
    let small = Setup { store_requests_per_second: 50.0, ..rates(200.0, 400.0, 1e9) };
    assert!(matches!(first(&small).unwrap().0, Change::RequestBytes(_)), "reads are packed");
    assert_eq!(first(&rates(40.0, 100.0, 50.0)), None);
}

#[test]
fn a_setup_that_makes_no_sense_is_refused_with_all_its_faults() {
    let setup = Setup { nodes: 0, cores: -1.0, round_trip_seconds: f64::NAN, ..rates(0.0, 1.0, 0.0) };
    let text = predict(&setup).unwrap_err().report();
    for name in ["nodes", "cores", "round_trip_seconds", "ingest_rate", "store_bytes_per_second"] {
        assert!(text.contains(name), "{name} is missing from {text}");
    }
}

/// Requests a second of a closed loop in virtual time: `window` requests, each a round trip away from a link that
/// sends one answer after the other.
fn looped(window: usize, round_trip: f64, transfer: f64) -> f64 {
    let rounds = 400;
    let mut ready = vec![0.0f64; window];
    let mut free = 0.0f64;
    for _ in 0..rounds {
        for asked in &mut ready {
            free = free.max(*asked + round_trip) + transfer;
            *asked = free;
        }
    }
    (rounds * window) as f64 / free
}

proptest! {
    #[test]
    fn step_and_stalls_add_up_to_the_epoch_and_none_is_negative(setup in drawn()) {
        let run = predict(&setup).unwrap();
        for epoch in [run.first, run.later] {
            let sum = epoch.step_seconds + epoch.stall_seconds();
            prop_assert!(close(sum, epoch.seconds), "{sum} {}", epoch.seconds);
            let slack = -1e-9 * epoch.seconds;
            prop_assert!(epoch.fetch_stall_seconds >= slack && epoch.prep_stall_seconds >= slack);
            prop_assert!(close(epoch.rate, run.ingest_rate.min(run.prep_rate).min(epoch.fetch_rate)));
        }
        prop_assert_eq!(run.first.hit_fraction, 0.0);
    }

    #[test]
    fn better_parts_never_make_a_run_slower(setup in drawn(), factor in 1.0f64..8.0) {
        let rate = |setup: &Setup| { let run = predict(setup).unwrap(); (run.first.rate, run.later.rate) };
        let before = rate(&setup);
        let better = [
            ("store", Setup { store_bytes_per_second: setup.store_bytes_per_second * factor, ..setup }),
            ("requests", Setup { store_requests_per_second: setup.store_requests_per_second * factor, ..setup }),
            ("link", Setup { link_bytes_per_second: setup.link_bytes_per_second * factor, ..setup }),
            ("window", Setup { window_requests: setup.window_requests * factor, ..setup }),
            ("near", Setup { round_trip_seconds: setup.round_trip_seconds / factor, ..setup }),
            ("cores", Setup { cores: setup.cores * factor, ..setup }),
            ("ingest", Setup { ingest_rate: setup.ingest_rate * factor, ..setup }),
            ("small", Setup { sample_bytes: setup.sample_bytes / factor, ..setup }),
            ("cache", Setup {
                cache_bytes: setup.cache_bytes * factor,
                cache_bytes_per_second: f64::INFINITY,
                ..setup
            }),
        ];
        for (what, setup) in better {
            let after = rate(&setup);
            let floor = 1.0 - 1e-9;
            prop_assert!(after.0 >= before.0 * floor && after.1 >= before.1 * floor, "{}: {:?} {:?}", what, before, after);
        }
    }

    #[test]
    fn the_cache_needed_is_enough_and_nine_tenths_of_it_are_not(setup in drawn()) {
        if let Some(bytes) = cache_needed(&setup) {
            let with = |bytes| predict(&Setup { cache_bytes: bytes, ..setup }).unwrap().later;
            let enough = with(bytes);
            prop_assert!(enough.fetch_stall_seconds <= 1e-6 * enough.seconds, "{enough:?}");
            if bytes > 0.0 {
                prop_assert_eq!(with(0.9 * bytes).bottleneck, Bottleneck::Fetch);
            }
        }
    }

    #[test]
    fn every_remedy_brings_what_it_says_and_the_best_comes_first(setup in drawn()) {
        let now = predict(&setup).unwrap().later;
        let found = remedies(&setup).unwrap();
        for remedy in &found {
            let then = predict(&remedy.change.on(&setup)).unwrap().later;
            prop_assert_eq!(then.rate, remedy.rate);
            prop_assert!(then.rate > now.rate && close(remedy.gain, then.rate / now.rate - 1.0));
        }
        prop_assert!(found.is_sorted_by(|a, b| a.gain >= b.gain));
        prop_assert!(now.bottleneck != Bottleneck::Ingest || found.is_empty());
    }

    #[test]
    fn a_loop_of_requests_in_virtual_time_gives_the_window_rate(
        window in 1usize..40, round_trip in 0.0f64..0.2, transfer in 1e-4f64..0.05,
    ) {
        let setup = Setup {
            window_requests: window as f64,
            round_trip_seconds: round_trip,
            ..rates(1e9, f64::INFINITY, 1.0 / transfer)
        };
        let (rate, limit) = super::fetch::fetch_rate(&setup, 0.0);
        let seen = looped(window, round_trip, transfer);
        prop_assert!((rate / seen - 1.0).abs() < 0.02, "{rate} {seen} {limit:?}");
    }
}
