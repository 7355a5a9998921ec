//! The split of a loop's stall against pipelines whose truth is known: each is run twice in virtual time, as it is and with
//! every payload resident, and what the second run waits is what the split of the first must call prep stall.

use super::*;
use proptest::prelude::*;
use std::time::Duration;

/// A pipeline in virtual time. Times are seconds.
struct Pipeline {
    threads: usize,
    open_batches: usize,
    announced: usize,
    rows: usize,
    batches: usize,
    /// Time of a row's payload on a link that carries one after the other.
    fetch: fn(u64) -> f64,
    scale: [f64; 3],
    prep: fn(u64) -> f64,
    step: fn(u64) -> f64,
}

/// What a loop saw, batch by batch.
struct Seen {
    away: Vec<f64>,
    stall: Vec<f64>,
    making: Vec<Making>,
    seconds: f64,
}

fn time(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

impl Pipeline {
    fn run(&self, resident: bool) -> Seen {
        let mut seen = Seen { away: Vec::new(), stall: Vec::new(), making: Vec::new(), seconds: 0.0 };
        let mut free = vec![0.0f64; self.threads];
        let (mut link, mut row) = (0.0f64, 0);
        let mut handed: Vec<f64> = Vec::new();
        for batch in 0..self.batches {
            let taken = |back: usize| batch.checked_sub(back).map_or(0.0, |earlier| handed[earlier]);
            let (announced, opened) = (taken(self.announced), taken(self.open_batches));
            let (mut ready, mut work, mut longest) = (0.0f64, 0.0, 0.0f64);
            for _ in 0..self.rows {
                let fetch = if resident { 0.0 } else { (self.fetch)(row) * self.scale[0] };
                let cost = (self.prep)(row) * self.scale[1];
                link = if resident { 0.0 } else { link.max(announced) + fetch };
                let next = (0..self.threads).min_by(|a, b| free[*a].total_cmp(&free[*b])).unwrap();
                free[next] = free[next].max(link).max(opened) + cost;
                ready = ready.max(free[next]);
                work += cost;
                longest = longest.max(cost);
                row += 1;
            }
            let away = if batch == 0 { 0.0 } else { (self.step)(batch as u64) * self.scale[2] };
            let asked = taken(1) + away;
            handed.push(asked.max(ready));
            seen.away.push(away);
            seen.stall.push((ready - asked).max(0.0));
            let (servers, fetch_limit) = (self.threads as u32, Duration::MAX);
            seen.making.push(Making { work: time(work), longest: time(longest), servers, fetch_limit });
        }
        seen.seconds = handed.last().copied().unwrap_or(0.0);
        seen
    }

    /// Fetch stall and prep stall as shares of all time: as they were split, and as they are.
    fn shares(&self) -> ([f64; 2], [f64; 2]) {
        let (real, resident) = (self.run(false), self.run(true));
        let mut run = ResidentRun::new(self.open_batches, Duration::ZERO);
        let mut sums = [0.0; 2];
        for ((away, stall), making) in real.away.iter().zip(&real.stall).zip(&real.making) {
            let split = run.split(time(*away), time(*stall), making);
            assert_eq!(split.fetch + split.prep, time(*stall), "a stall has two parts and no rest");
            sums[0] += split.fetch.as_secs_f64();
            sums[1] += split.prep.as_secs_f64();
        }
        let prep: f64 = resident.stall.iter().sum();
        let all: f64 = real.stall.iter().sum();
        (sums.map(|sum| sum / real.seconds), [(all - prep) / real.seconds, prep / real.seconds])
    }

    fn steady(ingest: f64, prep: f64, fetch: f64, threads: usize) -> Self {
        let rows = 8;
        Self {
            threads,
            open_batches: 3,
            announced: 8,
            rows,
            batches: 400,
            fetch: |_| 1.0,
            prep: |_| 1.0,
            step: |_| 1.0,
            scale: [1.0 / fetch, threads as f64 / prep, rows as f64 / ingest],
        }
    }
}

#[test]
fn p070_stalls_of_steady_pipelines_are_split_as_they_are() {
    let rates = [25.0, 50.0, 100.0, 200.0, 400.0];
    let mut cases = 0;
    for case in 0..125 {
        let [ingest, prep, fetch] = [case / 25, case / 5 % 5, case % 5].map(|rate: usize| rates[rate]);
        for threads in [1, 2, 5] {
            let (split, truth) = Pipeline::steady(ingest, prep, fetch, threads).shares();
            let setup = Setup {
                prep_rate_per_core: prep,
                store_bytes_per_second: fetch,
                ..Setup::unlimited(3200, 1.0, ingest)
            };
            let model = predict(&setup).unwrap().first;
            let model = [model.fetch_stall_seconds, model.prep_stall_seconds].map(|s| s / model.seconds);
            for part in 0..2 {
                let case = format!("{ingest} {prep} {fetch} on {threads}: {split:?}, {truth:?}, {model:?}");
                assert!((split[part] - truth[part]).abs() < 0.02, "against the truth: {case}");
                assert!((split[part] - model[part]).abs() < 0.05, "against the model: {case}");
            }
            cases += 1;
        }
    }
    assert_eq!(cases, 375);
}

#[test]
fn p069_what_if_is_within_a_tenth_of_pipelines_to_which_it_is_then_done() {
    type Hits = fn(u64) -> f64;
    let cached: [(&str, Hits); 5] = [
        ("cache=0%", |_| 1.0),
        ("cache=25%", |row| if row % 4 < 1 { 0.0 } else { 1.0 }),
        ("cache=50%", |row| if row % 4 < 2 { 0.0 } else { 1.0 }),
        ("cache=75%", |row| if row % 4 < 3 { 0.0 } else { 1.0 }),
        ("cache=100%", |_| 0.0),
    ];
    let mut cases = 0;
    // Samples a second that the loop takes, one thread prepares and the store gives; two threads were measured.
    for [ingest, thread, fetch] in [[400.0, 150.0, 100.0], [400.0, 50.0, 900.0], [100.0, 80.0, 900.0]] {
        let with =
            |ingest, threads: usize, fetch| Pipeline::steady(ingest, thread * threads as f64, fetch, threads);
        let mut changes: Vec<(String, Pipeline)> = vec![
            ("bandwidth=x0.5".into(), with(ingest, 2, fetch / 2.0)),
            ("bandwidth=x2".into(), with(ingest, 2, fetch * 2.0)),
            ("step=x0.5".into(), with(ingest * 2.0, 2, fetch)),
            ("step=x2".into(), with(ingest / 2.0, 2, fetch)),
        ];
        changes.extend((1..=8).map(|cores| (format!("cores={cores}"), with(ingest, cores, fetch))));
        changes.extend(cached.iter().map(|(change, hits)| {
            ((*change).to_owned(), Pipeline { fetch: *hits, ..with(ingest, 2, fetch) })
        }));
        let rates = Rates {
            ingest: Rate::exact(ingest),
            prep: Rate::exact(2.0 * thread),
            fetch: Some(Rate::exact(fetch)),
        };
        let facts =
            RunFacts { samples: 3200, sample_bytes: 1.0, batch_size: 8, threads: 2, ..RunFacts::default() };
        for (change, pipeline) in changes {
            let predicted =
                analyze(rates, facts, Some(&change)).unwrap().what_if.unwrap().prediction.later.rate;
            let measured = (pipeline.rows * pipeline.batches) as f64 / pipeline.run(false).seconds;
            let case = format!("{change} of {ingest} {thread} {fetch}: {predicted:.1} for {measured:.1}");
            assert!((predicted / measured - 1.0).abs() < 0.1, "{case}");
            cases += 1;
        }
    }
    assert_eq!(cases, 51);
}

#[test]
fn a_burst_of_payloads_after_a_long_silence_does_not_hide_prep_stall() {
    // One payload in four hundred takes as long as all others together; prep is slower than the loop.
    let bursts = Pipeline {
        fetch: |row| if row % 400 == 399 { 400.0 } else { 0.01 },
        ..Pipeline::steady(200.0, 100.0, 200.0, 2)
    };
    let (split, truth) = bursts.shares();
    assert!(truth[0] > 0.2 && truth[1] > 0.2, "both are there: {truth:?}");
    assert!((split[0] - truth[0]).abs() < 0.05, "{split:?} {truth:?}");
}

#[test]
fn what_is_waited_for_resident_payloads_is_prep_stall() {
    let mut run = ResidentRun::new(2, Duration::ZERO);
    // The hand-over took 5 ms, though ops took nothing and nothing was fetched.
    let resident = Making { servers: 1, ..Making::default() };
    let split = run.split(Duration::ZERO, time(0.005), &resident);
    assert_eq!(split, StallSplit { fetch: Duration::ZERO, prep: time(0.005) });
    let fetched = Making { fetch_limit: Duration::MAX, ..resident };
    let split = run.split(time(0.010), time(0.005), &fetched);
    assert_eq!(split, StallSplit { fetch: time(0.005), prep: Duration::ZERO });
}

#[test]
fn making_threads_ready_is_not_fetching() {
    let mut run = ResidentRun::new(2, time(0.5));
    let making = Making { work: time(0.1), longest: time(0.1), servers: 1, fetch_limit: Duration::MAX };
    let split = run.split(Duration::ZERO, time(0.9), &making);
    assert_eq!(split, StallSplit { fetch: time(0.3), prep: time(0.6) });
}

proptest! {
    #[test]
    fn p070_stalls_of_uneven_pipelines_are_split_as_they_are(
        rates in prop::array::uniform3(20.0f64..400.0),
        threads in 1usize..9, open_batches in 2usize..6, rows in 1usize..24, pattern in 0usize..4,
    ) {
        let noise: fn(u64) -> f64 = |n| {
            0.2 + 1.6 * (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as f64 / (1u64 << 24) as f64
        };
        let rare: fn(u64) -> f64 = |n| if n % 64 == 63 { 30.0 } else { 0.5 };
        let (fetch, prep) = [(noise, noise), (rare, noise), (noise, rare), (rare, rare)][pattern];
        let steady = Pipeline::steady(rates[0], rates[1], rates[2], threads);
        let scale = [steady.scale[0], steady.scale[1], rows as f64 / rates[0]];
        let pipeline = Pipeline {
            open_batches, announced: open_batches + 4, rows, fetch, prep, step: noise, scale, ..steady
        };
        let (split, truth) = pipeline.shares();
        // With a single open batch, rows that do not fill all threads leave them idle, which the replay does not see.
        prop_assert!((split[0] - truth[0]).abs() < 0.1, "{:?} {:?}", split, truth);
        prop_assert!(truth[0] > 0.02 || split[0] < 0.1);
    }

    #[test]
    fn every_part_of_a_ledger_adds_up(
        steps in prop::collection::vec(prop::array::uniform5(0u64..1_000_000_000), 1..300)
    ) {
        let mut ledger = Ledger::default();
        let mut total = 0;
        for (number, [fetch, prep, queue, transfer, work]) in steps.iter().copied().enumerate() {
            let stall = StallSplit { fetch: Duration::from_nanos(fetch), prep: Duration::from_nanos(prep) };
            let (epoch, step) = (number as u64 / 100, number as u64 % 100);
            ledger.took(&Took { epoch, step, samples: 3, bytes: 1, stall, queue: Duration::from_nanos(queue) });
            ledger.transferred(Duration::from_nanos(transfer));
            ledger.worked(Duration::from_nanos(work));
            total += fetch + prep + queue + transfer + work;
        }
        let close = |seconds: f64| (seconds - total as f64 * 1e-9).abs() < 1e-6 * seconds.max(1.0);
        prop_assert!(close(ledger.total().seconds()));
        prop_assert!(close(ledger.epochs().map(Split::seconds).sum()));
        prop_assert!(close(ledger.steps().map(Split::seconds).sum()));
        prop_assert_eq!(ledger.total().samples, 3 * steps.len() as u64);
        prop_assert_eq!(ledger.epochs().count(), steps.len().div_ceil(100));
        prop_assert_eq!(ledger.times().step.count(), steps.len() as u64);
    }
}

#[test]
fn a_ledger_keeps_a_bounded_past_and_a_bounded_number_of_phases() {
    let mut ledger = Ledger::default();
    let (stall, queue) = (StallSplit::default(), Duration::ZERO);
    for number in 0..5000 {
        ledger.took(&Took { epoch: number / 10, step: number % 10, samples: 1, bytes: 1, stall, queue });
    }
    assert_eq!((ledger.steps().count(), ledger.epochs().count()), (KEPT_STEPS, KEPT_EPOCHS));
    assert_eq!(ledger.total().batches, 5000);
    for number in 0..MAX_PHASES {
        ledger.add_phase(&number.to_string(), Duration::from_millis(1)).unwrap();
        ledger.add_phase("0", Duration::from_millis(1)).unwrap();
    }
    assert_eq!(ledger.add_phase("more", Duration::ZERO).unwrap_err().kind(), crate::ErrorKind::Exhausted);
    assert_eq!(ledger.phases()[0].times.count(), 1 + MAX_PHASES as u64);
}
