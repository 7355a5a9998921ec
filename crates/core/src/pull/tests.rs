//! Pulling in virtual time from workers that are slow, silent, killed and restarted, with answers doubled and reordered.

use super::*;
use crate::portion::{Consumer, LastBatch, Portion};
use crate::rng::Rng;

/// What goes wrong beside slow, doubled and reordered answers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trouble {
    None,
    Kills,
    Silence,
    Skips,
}

/// What a simulated run is like.
#[derive(Clone, Copy, Debug)]
struct Case {
    seed: u64,
    workers: u64,
    window_batches: u64,
    ready_batches: usize,
    skip_lost: bool,
    trouble: Trouble,
    last_batch: LastBatch,
    rank: u64,
    world_size: u64,
}

const CALM: Case = Case {
    seed: 1,
    workers: 3,
    window_batches: 0,
    ready_batches: 4,
    skip_lost: false,
    trouble: Trouble::None,
    last_batch: LastBatch::Partial,
    rank: 0,
    world_size: 1,
};

const SAMPLES: u64 = 203;
const BATCH: u64 = 4;
const EPOCHS: u64 = 2;

#[derive(Clone, Debug)]
enum Happens {
    Attached(WorkerKey, u64),
    Answer(WorkerKey, u64, u64),
    Skip(WorkerKey, u64, u64),
    Lost(WorkerKey, u64),
    Located(Vec<Span>, Vec<WorkerKey>),
    Kill(WorkerKey),
    Revive(WorkerKey),
    Hush(WorkerKey),
    Wake,
}

/// Worker 0 always lives and answers; the others need not.
#[derive(Clone, Debug, Default)]
struct SimWorker {
    dead: bool,
    silent: bool,
    /// Raised when a link is opened or lost.
    link: u64,
    open: bool,
}

struct Run {
    delivered: Vec<(u64, BatchName, Outcome)>,
    steps: Vec<u64>,
    counts: Counts,
    told: u64,
    now: u64,
}

struct Simulation {
    case: Case,
    rng: Rng,
    now: u64,
    queue: BTreeMap<(u64, u64), Happens>,
    next: u64,
    workers: Vec<SimWorker>,
    names: BTreeMap<u64, BatchName>,
    kept: BTreeMap<u64, BatchName>,
    told: u64,
}

impl Simulation {
    fn at(&mut self, after: u64, happens: Happens) {
        self.next += 1;
        self.queue.insert((self.now + after, self.next), happens);
    }

    fn delay(&mut self) -> u64 {
        match self.rng.below(20) {
            0 => 3_000 + self.rng.below(9_000),
            1..4 => 200 + self.rng.below(500),
            _ => 5 + self.rng.below(50),
        }
    }

    /// A link that is open, or is being opened.
    fn link(&mut self, worker: WorkerKey) -> u64 {
        let after = 1 + self.rng.below(30);
        let state = &mut self.workers[worker as usize];
        if !state.open {
            state.open = true;
            state.link += 1;
            let (link, dead) = (state.link, state.dead);
            let happens = if dead { Happens::Lost(worker, link) } else { Happens::Attached(worker, link) };
            self.at(after, happens);
        }
        self.workers[worker as usize].link
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Take { worker, request, name } => {
                let link = self.link(worker);
                self.names.insert(request, name);
                let after = 31 + self.delay();
                let state = &self.workers[worker as usize];
                if state.dead || state.silent {
                    return;
                }
                if self.case.trouble == Trouble::Skips && self.rng.below(10) == 0 {
                    return self.at(after, Happens::Skip(worker, link, request));
                }
                self.at(after, Happens::Answer(worker, link, request));
                if self.rng.below(10) == 0 {
                    self.at(after + 3, Happens::Answer(worker, link, request));
                }
            }
            Action::Plan { worker, names } => {
                self.link(worker);
                self.told += names.len() as u64;
            }
            Action::Locate { spans, avoid, .. } => {
                let after = 1 + self.rng.below(40);
                self.at(after, Happens::Located(spans, avoid));
            }
            Action::Close { worker } => self.workers[worker as usize].open = false,
            Action::Forget { .. } | Action::Passed(_) => {}
        }
    }

    fn happen(&mut self, pull: &mut Pull, happens: Happens) {
        let current = |workers: &[SimWorker], worker: WorkerKey, link| {
            let state = &workers[worker as usize];
            state.open && state.link == link
        };
        match happens {
            Happens::Attached(worker, link) if current(&self.workers, worker, link) => {
                pull.attached(self.now, worker);
            }
            Happens::Lost(worker, link) if current(&self.workers, worker, link) => {
                self.workers[worker as usize].open = false;
                pull.lost(self.now, worker);
            }
            Happens::Answer(worker, link, request) if current(&self.workers, worker, link) => {
                if let Arrival::Keep(number) = pull.arrived(self.now, request) {
                    assert!(self.kept.insert(number, self.names[&request].clone()).is_none());
                }
            }
            Happens::Skip(worker, link, request) if current(&self.workers, worker, link) => {
                pull.skipped(self.now, request);
            }
            Happens::Located(spans, avoid) => {
                let may: Vec<u64> = (0..self.case.workers)
                    .filter(|worker| !avoid.contains(worker))
                    .filter(|worker| !self.workers[*worker as usize].dead || self.rng.below(4) == 0)
                    .collect();
                if may.is_empty() {
                    return pull.not_located(self.now, &spans);
                }
                let found: Vec<(Span, WorkerKey)> = spans
                    .iter()
                    .map(|span| {
                        (
                            *span,
                            may[(crate::rng::fold(&[span.epoch, span.number]) % may.len() as u64) as usize],
                        )
                    })
                    .collect();
                pull.located(self.now, &found);
            }
            Happens::Kill(worker) => {
                let (link, open) = (self.workers[worker as usize].link, self.workers[worker as usize].open);
                self.workers[worker as usize].dead = true;
                if open {
                    self.at(1, Happens::Lost(worker, link));
                }
                let back = 50 + self.rng.below(20_000);
                self.at(back, Happens::Revive(worker));
            }
            Happens::Revive(worker) => {
                self.workers[worker as usize].dead = false;
                self.workers[worker as usize].silent = false;
                let again = 50 + self.rng.below(4_000);
                self.at(again, Happens::Kill(worker));
            }
            Happens::Hush(worker) => self.workers[worker as usize].silent = true,
            _ => {}
        }
    }
}

fn settings(case: &Case) -> PullSettings {
    let Case { rank, world_size, last_batch, ready_batches, .. } = *case;
    PullSettings {
        consumer: Consumer { rank, world_size, batch_size: BATCH, last_batch },
        sampler: crate::plan::Sampler::stored(SAMPLES),
        epochs: Some(EPOCHS),
        window_batches: case.window_batches,
        ready_batches,
        plan_ahead: ready_batches + 16,
        routing: if case.workers == 1 { Routing::One(0) } else { Routing::Spans(16) },
        home: None,
        skip_lost: case.skip_lost,
        late_ms: 1_000,
    }
}

fn run(case: Case, cursor: &Cursor) -> Run {
    let mut pull = Pull::new(settings(&case), cursor).unwrap();
    let mut sim = Simulation {
        rng: Rng::keyed(case.seed, 7, 7),
        case,
        now: 0,
        queue: BTreeMap::new(),
        next: 0,
        workers: vec![SimWorker::default(); case.workers as usize],
        names: BTreeMap::new(),
        kept: BTreeMap::new(),
        told: 0,
    };
    for worker in 1..case.workers {
        let when = sim.rng.below(2_000);
        match case.trouble {
            Trouble::Kills => sim.at(when, Happens::Kill(worker)),
            Trouble::Silence => sim.at(when, Happens::Hush(worker)),
            Trouble::None | Trouble::Skips => {}
        }
    }
    let (mut delivered, mut steps) = (Vec::new(), Vec::new());
    while !pull.is_over() || delivered.is_empty() {
        for action in pull.drive(sim.now) {
            sim.act(action);
        }
        // A loop that is sometimes busy elsewhere.
        if sim.rng.below(3) > 0 {
            while let Some(delivery) = pull.deliver() {
                let kept = sim.kept.remove(&delivery.number);
                assert_eq!(kept.as_ref(), (delivery.outcome == Outcome::Batch).then_some(&delivery.name));
                delivered.push((delivery.epoch, delivery.name, delivery.outcome));
                steps.push(delivery.step);
            }
            for action in pull.drive(sim.now) {
                sim.act(action);
            }
        }
        assert!(sim.kept.len() <= case.ready_batches, "{case:?}");
        if pull.is_over() {
            break;
        }
        let tick = pull.next_tick(sim.now).unwrap_or(sim.now + 25).max(sim.now + 1);
        let (now, happens) = match sim.queue.first_entry() {
            Some(entry) if entry.key().0 <= tick => (entry.key().0, entry.remove()),
            _ => (tick, Happens::Wake),
        };
        sim.now = now;
        assert!(now < 3_600_000, "stuck at {:?}: {case:?}", pull.waits_for());
        sim.happen(&mut pull, happens);
    }
    Run { delivered, steps, counts: pull.counts(), told: sim.told, now: sim.now }
}

/// The names of a rank from a cursor on, in plan order.
fn planned(case: &Case, cursor: &Cursor) -> Vec<(u64, BatchName)> {
    let consumer = settings(case).consumer;
    let mut names = Vec::new();
    let mut cursor = cursor.clone();
    while cursor.epoch < EPOCHS {
        let portion = Portion::new(SAMPLES, consumer, &cursor).unwrap();
        let epoch = cursor.epoch;
        names.extend((0..portion.steps()).map(|step| (epoch, BatchName::new(epoch, portion.batch(step)))));
        cursor = Cursor::start_of(epoch + 1);
    }
    names
}

fn names(run: &Run) -> Vec<(u64, BatchName)> {
    run.delivered.iter().map(|(epoch, name, _)| (*epoch, name.clone())).collect()
}

/// Batches whose names came without a batch.
fn skipped(run: &Run) -> u64 {
    run.delivered.iter().filter(|(_, _, outcome)| *outcome == Outcome::Skipped).count() as u64
}

fn seeds() -> impl Iterator<Item = u64> {
    let only = std::env::var("FOREBAY_SEED").ok().and_then(|seed| seed.parse().ok());
    (0..100).filter(move |seed| only.is_none_or(|only: u64| only == *seed))
}

#[test]
fn p054_batches_of_several_workers_are_handed_over_in_the_order_of_the_portion() {
    for seed in seeds() {
        let policies = [LastBatch::Drop, LastBatch::Partial, LastBatch::Pad, LastBatch::Wrap];
        let last_batch = policies[(seed % 4) as usize];
        let case = Case { seed, workers: 1 + seed % 5, last_batch, ..CALM };
        let mut samples = 0;
        for rank in 0..2 {
            let case = Case { rank, world_size: 2, ..case };
            let run = run(case, &Cursor::start_of(0));
            assert_eq!(names(&run), planned(&case, &Cursor::start_of(0)), "{case:?}");
            let real = |name: &BatchName| name.positions().filter(|(_, padding)| !padding).count() as u64;
            samples += run.delivered.iter().map(|(_, name, _)| real(name)).sum::<u64>();
            assert_eq!(run.counts.asked, run.delivered.len() as u64);
            let hedges = run.counts.asked / 20 + 1 + run.now / 10_000;
            assert!(
                run.counts.hedged <= hedges && run.counts.asked_again <= hedges,
                "{:?} {case:?}",
                run.counts
            );
            assert!(case.workers > 1 || run.counts.asked_again == 0);
            // Names are told once, and not those that were asked for right away.
            assert!(run.told <= run.counts.asked, "{} {case:?}", run.told);
        }
        let left_out = if last_batch == LastBatch::Drop { SAMPLES % (2 * BATCH) } else { 0 };
        assert_eq!(samples, EPOCHS * (SAMPLES - left_out));
    }
}

#[test]
fn p056_killed_and_silent_workers_cost_no_batch_and_double_none() {
    for seed in seeds() {
        let case = Case {
            seed,
            workers: 2 + seed % 4,
            trouble: if seed % 3 == 2 { Trouble::Silence } else { Trouble::Kills },
            ready_batches: 1 + (seed % 7) as usize,
            ..CALM
        };
        let run = run(case, &Cursor::start_of(0));
        assert_eq!(names(&run), planned(&case, &Cursor::start_of(0)), "{case:?}");
        assert!(run.delivered.iter().all(|(_, _, outcome)| *outcome == Outcome::Batch));
    }
}

#[test]
fn p056_at_most_once_leaves_out_what_lost_workers_had_and_counts_it() {
    let mut left_out = 0;
    for seed in seeds() {
        let case = Case { seed, workers: 3, trouble: Trouble::Kills, skip_lost: true, ..CALM };
        let run = run(case, &Cursor::start_of(0));
        assert_eq!(names(&run), planned(&case, &Cursor::start_of(0)), "{case:?}");
        assert_eq!(skipped(&run), run.counts.skipped);
        left_out += run.counts.skipped;
    }
    assert!(left_out > 0 || std::env::var_os("FOREBAY_SEED").is_some());
}

#[test]
fn p061_batches_that_workers_skipped_are_counted_by_name_and_the_rest_comes_in_order() {
    for seed in seeds() {
        let case = Case { seed, workers: 1 + seed % 2, trouble: Trouble::Skips, ..CALM };
        let run = run(case, &Cursor::start_of(0));
        assert_eq!(names(&run), planned(&case, &Cursor::start_of(0)), "{case:?}");
        assert_eq!(skipped(&run), run.counts.skipped);
    }
}

#[test]
fn by_arrival_no_batch_is_later_than_the_window_and_epochs_do_not_mix() {
    let mut reordered = 0;
    for seed in seeds() {
        let case = Case {
            seed,
            workers: 1 + seed % 4,
            window_batches: 1 + seed % 6,
            ready_batches: 6,
            trouble: if seed % 2 == 0 { Trouble::Kills } else { Trouble::None },
            ..CALM
        };
        let run = run(case, &Cursor::start_of(0));
        let (got, plan) = (names(&run), planned(&case, &Cursor::start_of(0)));
        assert!(got.is_sorted_by_key(|(epoch, _)| *epoch), "{case:?}");
        let (mut sorted_got, mut sorted_plan) = (got.clone(), plan.clone());
        sorted_got.sort();
        sorted_plan.sort();
        assert_eq!(sorted_got, sorted_plan, "{case:?}");
        for (row, wanted) in plan.iter().enumerate() {
            let at = got.iter().position(|name| name == wanted).unwrap();
            assert!(at <= row + case.window_batches as usize, "{wanted:?} came {at} for {row}: {case:?}");
            // A shorter batch is the last one of its epoch, as cursors count on.
            assert!(wanted.1.rows() == BATCH || at == row);
        }
        let steps = plan.len() as u64 / EPOCHS;
        assert_eq!(run.steps, (0..EPOCHS).flat_map(|_| 0..steps).collect::<Vec<_>>());
        reordered += usize::from(got != plan);
    }
    assert!(reordered > 0 || std::env::var_os("FOREBAY_SEED").is_some());
}

#[test]
fn p058_pulling_from_a_cursor_gives_what_an_uninterrupted_run_gives_after_it() {
    let case = Case { world_size: 2, rank: 1, trouble: Trouble::Kills, ..CALM };
    let consumer = settings(&case).consumer;
    let whole = planned(&case, &Cursor::start_of(0));
    for steps in [1, 7, 24] {
        let cursor = Portion::new(SAMPLES, consumer, &Cursor::start_of(0)).unwrap().cursor_after(0, steps);
        let run = run(case, &cursor);
        assert_eq!(names(&run), whole[steps as usize..], "after {steps}");
    }
}

fn quiet(workers: &[WorkerKey]) -> (Pull, Vec<Action>) {
    let mut pull = Pull::new(settings(&CALM), &Cursor::start_of(0)).unwrap();
    let actions = pull.drive(0);
    let [Action::Locate { spans, .. }] = &actions[..] else { panic!("{actions:?}") };
    let found: Vec<_> =
        spans.iter().map(|span| (*span, workers[(span.number % workers.len() as u64) as usize])).collect();
    pull.located(0, &found);
    let actions = pull.drive(0);
    for worker in workers {
        pull.attached(0, *worker);
    }
    (pull, actions)
}

fn takes(actions: &[Action]) -> Vec<(WorkerKey, u64, u64)> {
    let take = |action: &Action| match action {
        Action::Take { worker, request, name } => Some((*worker, *request, name.first())),
        _ => None,
    };
    actions.iter().filter_map(take).collect()
}

#[test]
fn a_late_answer_is_asked_for_elsewhere_once_and_the_first_answer_wins() {
    let (mut pull, actions) = quiet(&[5, 6]);
    assert_eq!(takes(&actions), [(5, 1, 0), (5, 2, 4), (5, 3, 8), (5, 4, 12)]);
    assert!(pull.drive(1_000).is_empty(), "not late yet");
    assert_eq!(takes(&pull.drive(1_001)), [(6, 5, 0)]);
    assert!(pull.drive(1_900).is_empty());
    assert_eq!(pull.arrived(2_000, 5), Arrival::Keep(0));
    assert_eq!(pull.arrived(2_001, 1), Arrival::Drop);
    assert_eq!(pull.drive(2_001)[0], Action::Forget { worker: 5, request: 1 });
    assert_eq!(pull.deliver().unwrap().number, 0);
    assert_eq!(pull.deliver(), None);
    let Counts { asked, asked_again, hedged, dropped, .. } = pull.counts();
    assert_eq!((asked, asked_again, hedged, dropped), (4, 1, 1, 1));
}

#[test]
fn what_a_lost_worker_was_asked_for_is_asked_for_elsewhere_at_once() {
    let (mut pull, _) = quiet(&[5, 6]);
    pull.lost(10, 5);
    let actions = pull.drive(10);
    let Action::Locate { spans, avoid, lost } = &actions[0] else { panic!("{actions:?}") };
    assert_eq!((avoid.as_slice(), *lost), (&[5][..], Some(5)));
    let found: Vec<_> = spans.iter().map(|span| (*span, 6)).collect();
    pull.located(11, &found);
    assert_eq!(takes(&pull.drive(11)), [(6, 5, 0), (6, 6, 4), (6, 7, 8), (6, 8, 12)]);
    assert_eq!(pull.counts().asked_again, 4);
}

#[test]
fn a_draining_worker_answers_what_it_has_and_is_asked_for_nothing_more() {
    let (mut pull, _) = quiet(&[5, 6]);
    pull.draining(5);
    assert_eq!(pull.arrived(1, 1), Arrival::Keep(0));
    assert!(pull.deliver().is_some());
    let actions = pull.drive(2);
    assert!(takes(&actions).iter().all(|(worker, ..)| *worker == 6), "{actions:?}");
    for request in 2..5 {
        assert!(matches!(pull.arrived(3, request), Arrival::Keep(_)));
    }
}

#[test]
fn a_passing_fault_is_asked_for_elsewhere_once_and_a_lasting_one_is_handed_over_in_its_place() {
    let (mut pull, _) = quiet(&[5, 6]);
    assert_eq!(pull.faulted(1, 1, true), Arrival::Drop);
    assert_eq!(takes(&pull.drive(1)), [(6, 5, 0)]);
    assert_eq!(pull.faulted(2, 2, false), Arrival::Keep(1));
    assert_eq!(pull.deliver(), None, "the first one may still come");
    assert_eq!(pull.faulted(3, 5, true), Arrival::Keep(0));
    assert_eq!(pull.deliver().unwrap().outcome, Outcome::Fault);
    assert_eq!(pull.deliver().unwrap().outcome, Outcome::Fault);
}

#[test]
fn one_worker_that_is_lost_is_asked_again_after_growing_pauses() {
    let case = Case { workers: 1, ..CALM };
    let mut pull = Pull::new(settings(&case), &Cursor::start_of(0)).unwrap();
    assert_eq!(takes(&pull.drive(0)).len(), 4);
    let mut now = 0;
    for pause in [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000] {
        pull.lost(now, 0);
        assert_eq!(pull.drive(now + pause - 1), []);
        assert_eq!(pull.next_tick(now), Some(now + pause));
        now += pause;
        assert_eq!(takes(&pull.drive(now)).len(), 4);
    }
}

#[test]
fn workers_learn_how_far_the_rank_is() {
    let (mut pull, _) = quiet(&[5, 6]);
    let mut passed = Vec::new();
    for request in 1..9 {
        pull.arrived(1, request);
        pull.deliver().unwrap();
        passed.extend(pull.drive(1).into_iter().filter_map(|action| match action {
            Action::Passed(reach) => Some(reach.position),
            _ => None,
        }));
    }
    assert_eq!(passed, [16, 32]);
}
