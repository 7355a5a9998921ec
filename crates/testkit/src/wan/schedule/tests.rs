//! Delays, rates, queues and bad luck in virtual time.

use super::*;

const MS: Nanos = 1_000_000;
const GIGABIT: u64 = 125_000_000;

fn line(options: &WanOptions, way: Way) -> (Link, Lane) {
    (Link::new(options), Lane::new(options, way, 0, 0))
}

fn wan() -> WanOptions {
    WanOptions { round_trip: Duration::from_millis(100), bytes_per_second: GIGABIT, ..WanOptions::default() }
}

#[test]
fn a_request_and_its_answer_take_a_round_trip_and_a_new_connection_one_more() {
    let options = WanOptions { bytes_per_second: 0, ..wan() };
    let (mut up, mut there) = line(&options, Way::Up);
    let (mut down, mut back) = line(&options, Way::Down);
    assert_eq!(there.send(&mut up, 0, 100).release, 150 * MS, "handshake, then half a round trip");
    assert_eq!(there.send(&mut up, 400 * MS, 100).release, 450 * MS);
    assert_eq!(back.send(&mut down, 450 * MS, 100).release, 500 * MS);
    let answers = WanOptions { delay_on: DelayOn::Answers, ..options };
    let (mut up, mut there) = line(&answers, Way::Up);
    let (mut down, mut back) = line(&answers, Way::Down);
    assert_eq!(there.send(&mut up, 400 * MS, 1).release, 400 * MS);
    assert_eq!(back.send(&mut down, 400 * MS, 1).release, 500 * MS);
}

#[test]
fn connections_share_the_rate_of_the_line_and_late_reads_cost_none_of_it() {
    let options = wan();
    let mut link = Link::new(&options);
    let mut lanes: Vec<Lane> = (0..512).map(|n| Lane::new(&options, Way::Down, n, 0)).collect();
    let (mut sent, mut last, mut now) = (0u64, 0, 0);
    while now < 2_000 * MS {
        for lane in &mut lanes {
            if link.ready_at(now) <= now {
                last = last.max(lane.send(&mut link, now, 115_000).release);
                sent += 115_000;
            }
        }
        // A timer that fires when it likes: 7 ms late each time.
        now += 7 * MS;
    }
    let seconds = (last - 50 * MS) as f64 / 1e9;
    let share = sent as f64 / seconds / GIGABIT as f64;
    assert!((0.999..=1.001).contains(&share), "{share}");
}

#[test]
fn senders_wait_when_the_queue_of_the_line_is_full() {
    let options = WanOptions { queue_bytes: 12_500_000, ..wan() };
    let (mut link, mut lane) = line(&options, Way::Down);
    lane.send(&mut link, 0, 12_500_000);
    assert_eq!(link.ready_at(0), 0, "a tenth of a second may wait");
    lane.send(&mut link, 0, 1_250_000);
    assert_eq!(link.ready_at(0), 10 * MS);
    assert_eq!(link.ready_at(30 * MS), 30 * MS);
    assert_eq!(options.connection_bytes(1), 50_000_000);
    assert_eq!(options.connection_bytes(512), 256 << 10, "and each connection may have a little under way");
}

#[test]
fn a_connection_has_a_rate_of_its_own_and_leaves_the_line_to_others() {
    let options = WanOptions { connection_bytes_per_second: 1_250_000, ..wan() };
    let mut link = Link::new(&options);
    let [mut one, mut other] = [0, 1].map(|n| Lane::new(&options, Way::Down, n, 0));
    let (mut now, mut sent, mut last) = (0, 0u64, 0);
    while now < 1_000 * MS {
        now = link.ready_at(one.ready_at(now));
        last = one.send(&mut link, now, options.piece_bytes()).release;
        sent += options.piece_bytes() as u64;
    }
    let rate = sent as f64 / ((last - 50 * MS) as f64 / 1e9);
    assert!((1_240_000.0..1_260_000.0).contains(&rate), "{rate}");
    let alone = other.send(&mut link, now, 1250).release;
    assert!(alone < now + 53 * MS, "the other is not behind the first one's cap: {}", alone - now);
}

#[test]
fn stalls_jitter_and_cuts_come_by_seed_and_bytes_never_overtake() {
    let options = WanOptions {
        jitter: Duration::from_millis(5),
        stall_share: 0.01,
        stall: Duration::from_secs(1),
        ..wan()
    };
    let draw = |seed, way| {
        let options = WanOptions { seed, cut_share: 0.001, ..options.clone() };
        let (mut link, mut lane) = line(&options, way);
        (0..20_000).map(|n| lane.send(&mut link, n * 100 * MS, 100)).collect::<Vec<_>>()
    };
    let up = draw(1, Way::Up);
    assert_eq!(up, draw(1, Way::Up));
    assert_ne!(up, draw(2, Way::Up));
    assert!(up.is_sorted_by_key(|passage| passage.release));
    let stalls = up.iter().filter(|passage| passage.stalled).count();
    assert!((150..250).contains(&stalls), "1 % of 20,000 requests: {stalls}");
    assert!(up.iter().all(|passage| !passage.cut));
    let down = draw(1, Way::Down);
    assert!(down.iter().all(|passage| !passage.stalled), "an answer is not stalled a second time");
    assert!((5..45).contains(&down.iter().filter(|passage| passage.cut).count()));
}

#[test]
fn pieces_are_small_on_slow_lines() {
    assert_eq!(WanOptions::default().piece_bytes(), 128 << 10);
    assert_eq!(wan().piece_bytes(), 125_000);
    assert_eq!(WanOptions { bytes_per_second: 1_250_000, ..wan() }.piece_bytes(), 4 << 10);
}
