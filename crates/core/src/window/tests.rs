//! Named promises of the window, on simulated links and call by call.

use super::made_link::{Demand, Link};
use super::simulate::Simulation;
use super::*;

const GBIT: f64 = 1e9 / 8.0;
const ANY: WindowLimits = WindowLimits { max_bytes: u64::MAX, max_requests: 1 << 20, fixed_requests: None };
const SAMPLE: f64 = 115e3;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Starts as many requests of `bytes` as the window lets.
fn fill(window: &mut Window, now: Duration, bytes: u64) -> Vec<Ticket> {
    std::iter::from_fn(|| window.try_start(now, bytes)).take(10_000).collect()
}

#[test]
fn p007_a_longer_route_is_filled_again_within_5_seconds_and_a_shorter_one_shrinks_the_window() {
    for (rate, bytes, jitter) in
        [(1.0, SAMPLE, 0.0), (1.0, SAMPLE, 0.2), (0.1, SAMPLE, 0.1), (5.0, SAMPLE, 0.2), (1.0, 16e3, 0.2)]
    {
        let route = |delay: f64| Link { jitter: jitter * delay, ..Link::new(rate * GBIT, delay) };
        let mut sim = Simulation::new(route(0.005), ANY, Demand::of(bytes));
        sim.run(3.0);
        let (before, narrow) = (sim.run(5.0), sim.window.bytes());
        sim.link = route(0.1);
        sim.run(9.0);
        let after = sim.run(10.0);
        assert!(
            after >= 0.8 * before,
            "{after} of {before} bytes a second within 5 s of the change, at {rate} Gb/s"
        );
        let wide = sim.window.bytes();
        assert!(wide > 4 * narrow, "the window follows the route: {narrow} to {wide} bytes");
        sim.link = route(0.005);
        sim.run(20.0);
        let again = sim.window.bytes();
        assert!(again < 2 * narrow, "and falls back after it: {wide} to {again} bytes, {narrow} before");
        assert!(sim.run(22.0) >= 0.95 * before);
    }
}

#[test]
fn a_link_of_25_gbit_and_100_ms_is_full_within_64_batches_of_512() {
    let link = Link::new(25.0 * GBIT, 0.1);
    let mut sim = Simulation::new(link.clone(), ANY, Demand::of(SAMPLE));
    while sim.answered < 56 * 512 {
        sim.run(sim.now + 0.01);
    }
    let (start, served) = (sim.now, sim.served);
    while sim.answered < 64 * 512 {
        sim.run(sim.now + 0.01);
    }
    let used = (sim.served - served) / (sim.now - start) / link.rate;
    assert!(used >= 0.95, "{used} of the link during batches 57 to 64");
    assert!(sim.run(sim.now + 10.0) >= 0.95 * link.rate, "and from then on");
    let held = sim.peak as f64 / (link.rate * link.delay);
    assert!(held <= 3.0, "{held} times bandwidth x delay in flight");
}

#[test]
fn a_gbit_link_of_100_ms_is_nine_tenths_full_within_3_seconds_also_with_stalls() {
    for stall in [(0.0, 0.0), (0.01, 1.0)] {
        let link = Link { stall, jitter: 0.005, ..Link::new(GBIT, 0.1) };
        let mut sim = Simulation::new(link.clone(), ANY, Demand::of(SAMPLE));
        sim.run(2.0);
        let used = sim.run(3.0) / link.rate;
        assert!(used >= 0.9, "{used} of the link in the third second, stalls {stall:?}");
        let used = sim.run(33.0) / link.rate;
        assert!(used >= 0.95, "{used} of the link later, stalls {stall:?}");
    }
}

#[test]
fn p008_eight_connections_carry_six_times_what_one_does_when_each_is_capped() {
    let link = Link { connection_rate: 20e6, ..Link::new(GBIT * 10.0, 0.02) };
    let rate = |connections| {
        let limits = WindowLimits { max_requests: connections, fixed_requests: Some(connections), ..ANY };
        let mut sim = Simulation::new(link.clone(), limits, Demand::of(SAMPLE));
        sim.run(1.0);
        sim.run(11.0)
    };
    let (one, eight) = (rate(1), rate(8));
    assert!(eight >= 6.0 * one, "{eight} bytes a second against {one}");
}

#[test]
fn little_demand_does_not_make_the_link_look_slow() {
    let link = Link { jitter: 0.01, ..Link::new(GBIT, 0.05) };
    let mut sim = Simulation::new(link.clone(), ANY, Demand::of(SAMPLE));
    sim.run(4.0);
    let known = sim.window.estimate().bytes_per_second;
    sim.ask(0.05 * link.rate);
    sim.run(30.0);
    assert!(sim.window.estimate().bytes_per_second >= 0.9 * known);
    sim.ask(f64::INFINITY);
    let used = sim.run(31.0) / link.rate;
    assert!(used > 0.85, "{used} of the link in the first second of full demand");
}

#[test]
fn one_request_is_always_allowed_however_large() {
    let limits = WindowLimits { max_bytes: 1000, max_requests: 0, fixed_requests: Some(0) };
    let mut window = Window::new(limits);
    let ticket = window.try_start(ms(0), 1 << 40).expect("alone it may");
    assert_eq!(window.try_start(ms(0), 1), None);
    assert_eq!(window.in_flight(), (1, 1 << 40));
    window.finish(ms(10), ticket, End::Failed { again: false });
    assert_eq!(window.in_flight(), (0, 0));
    assert!(window.try_start(ms(10), 0).is_some());
}

#[test]
fn a_number_of_requests_set_by_hand_is_kept() {
    let mut window =
        Window::new(WindowLimits { max_bytes: 100_000, max_requests: 64, fixed_requests: Some(8) });
    assert_eq!(window.requests(), 8);
    for round in 0..50 {
        let tickets = fill(&mut window, ms(round * 100), 1000);
        assert_eq!(tickets.len(), 8, "in round {round}");
        for ticket in tickets {
            window.finish(ms(round * 100 + 99), ticket, End::Done { bytes: 1000 });
        }
    }
    assert_eq!(fill(&mut window, ms(9000), 30_000).len(), 3, "bytes are still bounded");
}

#[test]
fn a_pause_is_kept_and_its_end_is_told() {
    let mut window = Window::new(ANY);
    let tickets = fill(&mut window, ms(0), 1000);
    assert!(tickets.len() >= 2, "tiny requests overlap from the first");
    for ticket in tickets {
        window.finish(ms(20), ticket, End::Throttled { pause: ms(500) });
    }
    assert_eq!(window.try_start(ms(30), 1000), None, "also with nothing in flight");
    assert_eq!(window.retry_at(), Some(ms(520)));
    assert!(window.try_start(ms(520), 1000).is_some());
    assert_eq!(window.retry_at(), None);
}

#[test]
fn a_server_that_only_refuses_costs_no_memory() {
    let mut window = Window::new(ANY);
    for step in 0..10_000 {
        let ticket = window.try_start(ms(step), 1000).expect("nothing is in flight");
        window.finish(ms(step), ticket, End::Throttled { pause: Duration::ZERO });
    }
    assert!(window.flight.remembered() <= 1);
    assert_eq!(window.requests(), 1);
}

/// Requests in flight at the end of five seconds. Answers take 50 ms, every millisecond the caller looks, and what failed
/// is asked for again at once, before anything new. `failing` says of each request by its number and tries.
fn in_flight_when(failing: fn(u64, u32) -> bool) -> usize {
    let mut window = Window::new(WindowLimits { max_requests: 64, ..ANY });
    let (mut number, mut waiting) = (0, std::collections::VecDeque::new());
    let mut again = std::collections::VecDeque::new();
    for now in 0..5000 {
        while let Some((started, ticket, request, tries)) = waiting.front().copied()
            && started + 50 <= now
        {
            waiting.pop_front();
            if failing(request, tries) {
                window.finish(ms(now), ticket, End::Failed { again: tries > 1 });
                again.push_back((request, tries + 1));
            } else {
                window.finish(ms(now), ticket, End::Done { bytes: 100_000 });
            }
        }
        while let Some(ticket) = window.try_start(ms(now), 100_000) {
            let (request, tries) = again.pop_front().unwrap_or_else(|| {
                number += 1;
                (number, 1)
            });
            waiting.push_back((now, ticket, request, tries));
        }
    }
    window.in_flight().0
}

#[test]
fn scattered_failures_change_nothing_and_a_failing_server_is_spared() {
    let healthy = in_flight_when(|_, _| false);
    assert_eq!(healthy, 64, "all that is allowed, since nothing queues");
    assert_eq!(in_flight_when(|number, tries| tries == 1 && number.is_multiple_of(20)), healthy);
    assert_eq!(in_flight_when(|_, tries| tries == 1), healthy, "each request fails once");
    assert!(in_flight_when(|number, _| number > 2000) <= 4, "when all fail, few are sent");
}

#[test]
fn however_many_first_tries_fail_alone_the_ceiling_stays() {
    let mut round = Round::starting_at(0.0);
    assert!(!(0..1000).any(|_| round.fail(1.0, false)));
    assert!(!(1..16).any(|_| round.fail(1.0, true)), "a few second tries may fail");
    assert!(round.fail(1.0, true));
    assert!(!round.fail(1.0, false), "a first try is never what lowers it");
}

#[test]
fn range_requests_are_large_on_fat_links_and_small_on_thin_ones() {
    let size = |rate: f64, delay: f64| {
        let mut sim = Simulation::new(Link::new(rate * GBIT, delay), ANY, Demand::of(SAMPLE));
        sim.run(5.0);
        sim.window.request_bytes()
    };
    assert_eq!(Window::new(ANY).request_bytes(), 1 << 20, "before anything is known");
    assert!((8 << 20..=16 << 20).contains(&size(10.0, 0.1)));
    assert!((1 << 20..=4 << 20).contains(&size(1.0, 0.1)));
    assert_eq!(size(0.01, 0.02), 256 << 10);
}
