//! Ranks of known slowness in virtual time, waiting for each other or not: the late one is named in time, and nobody is
//! when none is late.

use super::*;
use proptest::prelude::*;
use std::time::Duration;

const RANKS: usize = 4;
/// What a step of a rank that is not late takes, by stage, in microseconds: fetch, prep, queue, transfer, step.
const USUAL: [f64; 5] = [20_000.0, 10_000.0, 200.0, 800.0, 60_000.0];

/// A job in virtual time.
struct Job {
    ledgers: Vec<Ledger>,
    /// Whether a step ends when the last rank is through with it.
    together: bool,
    /// The late rank, its late stage, and by which factor of its whole step.
    late: Option<(usize, usize, f64)>,
    /// Largest share by which a part is longer or shorter than usual.
    jitter: f64,
    seed: u64,
    steps: u64,
}

fn micros(us: f64) -> Duration {
    Duration::from_secs_f64(us / 1e6)
}

/// From -1 to 1, keyed.
fn draw(seed: u64, step: u64, rank: usize, part: usize) -> f64 {
    let key = seed ^ (step << 20) ^ ((rank as u64) << 8) ^ part as u64;
    let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed ^ (mixed >> 32)) & 0xffff) as f64 / 32_768.0 - 1.0
}

impl Job {
    fn new(together: bool, late: Option<(usize, usize, f64)>, jitter: f64, seed: u64) -> Self {
        Self { ledgers: vec![Ledger::default(); RANKS], together, late, jitter, seed, steps: 0 }
    }

    fn step(&mut self) {
        let (step, seed, jitter) = (self.steps, self.seed, self.jitter);
        self.steps += 1;
        let times: Vec<[f64; 5]> = (0..RANKS)
            .map(|rank| {
                let mut parts = USUAL;
                for (part, time) in parts.iter_mut().enumerate() {
                    *time *= 1.0 + jitter * draw(seed, step, rank, part);
                }
                if let Some((late, stage, factor)) = self.late
                    && late == rank
                {
                    parts[stage] += (factor - 1.0) * USUAL.iter().sum::<f64>();
                }
                parts
            })
            .collect();
        let end = times.iter().map(|parts| parts.iter().sum::<f64>()).fold(0.0, f64::max);
        for (ledger, parts) in self.ledgers.iter_mut().zip(&times) {
            let stall = StallSplit { fetch: micros(parts[0]), prep: micros(parts[1]) };
            ledger.took(&Took { epoch: 0, step, samples: 8, bytes: 1, stall, queue: micros(parts[2]) });
            ledger.transferred(micros(parts[3]));
            let own = if self.together { end - parts[..4].iter().sum::<f64>() } else { parts[4] };
            ledger.worked(micros(own));
        }
    }

    fn paces(&self) -> Vec<(u64, Pace)> {
        let none = Evidence::default();
        self.ledgers
            .iter()
            .enumerate()
            .map(|(rank, one)| (rank as u64, Pace::of(one, &none, &none)))
            .collect()
    }

    /// Steps until somebody is named, of at most so many.
    fn named_after(&mut self, most: u64) -> Option<(u64, Straggler)> {
        (1..=most).find_map(|step| {
            self.step();
            judge(&self.paces()).late.map(|late| (step, late))
        })
    }
}

/// Which stages can be told apart: a slow step of ranks that wait for each other looks the same on all.
fn stages(together: bool) -> std::ops::Range<usize> {
    if together { 0..4 } else { 0..5 }
}

#[test]
fn p071_a_rank_that_takes_twice_as_long_is_named_within_20_steps_with_its_stage() {
    for together in [true, false] {
        for stage in stages(together) {
            for rank in 0..RANKS {
                let mut job = Job::new(together, Some((rank, stage, 2.0)), 0.2, 7);
                let (after, late) =
                    job.named_after(20).unwrap_or_else(|| panic!("{together} {stage} {rank}"));
                assert!(after <= 20);
                assert_eq!((late.rank, late.stage), (rank as u64, Stage::ALL[stage]), "{together} {late:?}");
                let times = late.own_us as f64 / late.usual_us as f64;
                assert!((1.7..2.3).contains(&times), "{times}");
            }
        }
    }
}

#[test]
fn p071_a_rank_that_becomes_slow_later_is_named_within_20_steps_of_that() {
    for together in [true, false] {
        let mut job = Job::new(together, None, 0.2, 3);
        assert_eq!(job.named_after(200), None);
        job.late = Some((2, 1, 2.0));
        let (_, late) = job.named_after(20).unwrap();
        assert_eq!((late.rank, late.stage), (2, Stage::Prep));
    }
}

#[test]
fn a_slow_step_of_ranks_that_wait_for_each_other_is_not_seen() {
    // It is in the step of all of them alike. Asserted so that the docs stay true.
    let mut job = Job::new(true, Some((1, 4, 2.0)), 0.1, 5);
    assert_eq!(job.named_after(100), None);
}

#[test]
fn one_long_pause_makes_no_rank_late() {
    let mut job = Job::new(true, None, 0.1, 11);
    assert_eq!(job.named_after(30), None);
    job.late = Some((3, 0, 30.0));
    assert_eq!(job.named_after(1), None);
    job.late = None;
    assert_eq!(job.named_after(40), None);
}

#[test]
fn p070_what_ranks_wait_for_each_other_is_found_step_by_step() {
    let mut job = Job::new(true, Some((1, 0, 1.6)), 0.3, 9);
    for _ in 0..50 {
        job.step();
    }
    let told: Vec<Vec<ToldStep>> = job.ledgers.iter().map(told_steps).collect();
    assert!(told.iter().all(|steps| steps.len() == 50));
    let (mut found, mut wall) = (0.0, 0.0);
    for (step, own) in told[0].iter().enumerate() {
        let others = told[1..].iter().map(|steps| steps[step]);
        found += waited_for_others(own, others) as f64;
        wall += (own.data_us + own.step_us) as f64;
    }
    // The truth: from when the rank was through with its own work until the last one was.
    let own: f64 = (0..50)
        .map(|step| (0..5).map(|part| USUAL[part] * (1.0 + 0.3 * draw(9, step, 0, part))).sum::<f64>())
        .sum();
    let truth = wall - own;
    assert!((found - truth).abs() <= 0.05 * wall, "{found} {truth} {wall}");
}

#[test]
fn p070_every_step_is_looked_at_once_when_all_ranks_have_told_of_it() {
    let told = |steps: std::ops::Range<u64>, data_us| -> Vec<ToldStep> {
        steps.map(|step| ToldStep { epoch: 0, step, data_us, step_us: 100 - data_us }).collect()
    };
    let mut watch = OthersWatch::default();
    assert_eq!(watch.found(&told(0..4, 10), &[]), []);
    let found = watch.found(&told(0..4, 10), &[told(0..3, 30), told(0..9, 0)]);
    assert_eq!(found, [(0, 0, 20), (0, 1, 20), (0, 2, 20)]);
    // Step 4 is told of no more by one of them.
    let found = watch.found(&told(2..6, 10), &[told(2..6, 30), told(5..9, 0)]);
    assert_eq!(found, [(0, 5, 20)]);
    assert_eq!(watch.found(&told(2..6, 10), &[told(2..6, 30), told(5..9, 0)]), []);
}

#[test]
fn p070_waits_for_others_are_part_of_steps_epochs_and_the_total_and_parts_still_add_up() {
    let mut ledger = Ledger::default();
    for step in 0..3 {
        let stall = StallSplit { fetch: micros(500.0), prep: micros(100.0) };
        ledger.took(&Took { epoch: 2, step, samples: 1, bytes: 1, stall, queue: micros(10.0) });
        assert!(ledger.is_working() && told_steps(&ledger).len() == step as usize);
        ledger.worked(micros(2_000.0));
    }
    let before = ledger.total().seconds();
    ledger.waited_for_others(2, 1, micros(1_500.0));
    assert!((ledger.total().seconds() - before).abs() < 1e-12);
    let waits: Vec<f64> = ledger.steps().map(|split| split.others_seconds).collect();
    assert_eq!(waits, [0.0, 0.0015, 0.0]);
    assert_eq!(ledger.epochs().next().unwrap().others_seconds, 0.0015);
    assert_eq!(ledger.total().others_seconds, 0.0015);
}

#[test]
fn the_cause_is_told_where_it_shows() {
    let usual = Pace {
        over_steps: 12,
        step_us: 50_000,
        request_us: 4_000,
        hits_permille: Some(900),
        ..Pace::default()
    };
    let late = Pace {
        fetch_stall_us: 60_000,
        request_us: 30_000,
        hits_permille: Some(100),
        steal_permille: 200,
        ..usual
    };
    let verdict = judge(&[(0, usual), (1, late), (2, usual), (3, usual)]);
    let late = verdict.late.unwrap();
    assert_eq!(
        late.to_string(),
        "rank 1 is late: 2.2 times the step of others, in fetch (requests take 30.0 ms, others' 4.0 ms, \
         10 % of payloads in its cache, others' 90 %, 20 % of its processors' time goes to other machines)"
    );
}

#[test]
fn a_lone_rank_and_ranks_that_just_began_are_not_judged() {
    assert_eq!(judge(&[]), Verdict::default());
    let slow = Pace { over_steps: 9, step_us: 1 << 40, ..Pace::default() };
    let new = Pace { over_steps: LEAST_STEPS - 1, ..Pace::default() };
    assert_eq!(judge(&[(0, slow)]).late, None);
    assert_eq!(judge(&[(0, slow), (1, new)]).late, None);
}

proptest! {
    #[test]
    fn p071_alike_ranks_are_never_named(seed: u64, together: bool, jitter in 0.0..0.3f64) {
        prop_assert_eq!(Job::new(together, None, jitter, seed).named_after(200), None);
    }

    #[test]
    fn p071_whatever_the_jitter_a_rank_twice_as_slow_is_named_within_20_steps(
        seed: u64, together: bool, jitter in 0.0..0.3f64, rank in 0..RANKS, stage in 0usize..4,
    ) {
        let named = Job::new(together, Some((rank, stage, 2.0)), jitter, seed).named_after(20);
        let (_, late) = named.expect("named");
        prop_assert_eq!((late.rank, late.stage), (rank as u64, Stage::ALL[stage]));
    }

    #[test]
    fn any_paces_are_judged_without_a_panic(
        paces in prop::collection::vec(prop::array::uniform8(any::<u64>()), 0..6),
    ) {
        let paces: Vec<(u64, Pace)> = paces.iter().enumerate().map(|(rank, of)| (rank as u64, Pace {
            steps: of[0], over_steps: of[1], step_us: of[2], fetch_stall_us: of[3], prep_stall_us: of[4],
            queue_us: of[5], transfer_us: of[6], request_us: of[7], hits_permille: Some(of[0]),
            steal_permille: of[1],
        })).collect();
        let verdict = judge(&paces);
        prop_assert_eq!(verdict.others_us.len(), paces.len());
    }
}
