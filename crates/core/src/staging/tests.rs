//! Staging beside a naive model: random jobs, random order of everything, every promise checked after every step.

use super::*;
use crate::feed::Run;
use crate::rng::Rng;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const BYTES: u64 = 10;
const SAMPLES: u64 = 1000;

fn name(number: u64) -> BatchName {
    BatchName {
        epoch: number / (SAMPLES / 4),
        runs: vec![Run { first: number % (SAMPLES / 4) * 4, len: 4, padding: false }],
    }
}

fn options(late: Late, batches: u64) -> StagingOptions {
    StagingOptions {
        limit_bytes: batches * BYTES,
        batch_bytes: BYTES,
        epoch_samples: SAMPLES,
        late,
        making_batches: 8,
        sends: 2,
    }
}

/// One connection that wants every `world_size`-th batch.
#[derive(Clone, Debug)]
struct Reader {
    id: ConsumerId,
    job: usize,
    rank: u64,
    wanted: Vec<BatchName>,
    asked: usize,
    planned: usize,
    asking: BTreeMap<u64, BatchName>,
    /// Numbers of `wanted` that were answered.
    answered: BTreeSet<usize>,
    got: Vec<BatchName>,
    skipped: Vec<BatchName>,
    faults: usize,
}

impl Reader {
    fn frontier(&self) -> Option<&BatchName> {
        self.wanted.iter().enumerate().find(|(at, _)| !self.answered.contains(at)).map(|(_, name)| name)
    }

    fn is_done(&self) -> bool {
        self.answered.len() == self.wanted.len()
    }
}

/// Everything outside of the machine.
struct World {
    staging: Staging,
    rng: Rng,
    ranks: Vec<Reader>,
    memory: BTreeMap<Name, u64>,
    disk: BTreeSet<Name>,
    making: Vec<Name>,
    sends: Vec<(ConsumerId, Name)>,
    spilling: Vec<Name>,
    loading: Vec<Name>,
    makes: BTreeMap<Name, u64>,
    requests: u64,
    connections: u64,
    /// How often out of 16 a disk refuses, a batch cannot be made.
    disk_faults: u64,
    make_faults: u64,
    most: u64,
}

#[derive(Clone, Debug)]
struct Case {
    seed: u64,
    late: Late,
    limit: u64,
    names: u64,
    /// Ranks of each job.
    jobs: Vec<u64>,
}

impl World {
    fn new(case: &Case) -> Self {
        let mut world = Self {
            staging: Staging::new(options(case.late, case.limit)),
            rng: Rng::keyed(case.seed, 1, 2),
            ranks: Vec::new(),
            memory: BTreeMap::new(),
            disk: BTreeSet::new(),
            making: Vec::new(),
            sends: Vec::new(),
            spilling: Vec::new(),
            loading: Vec::new(),
            makes: BTreeMap::new(),
            requests: 0,
            connections: 0,
            disk_faults: 0,
            make_faults: 0,
            most: case.limit * BYTES,
        };
        for (job, world_size) in case.jobs.iter().enumerate() {
            for rank in 0..*world_size {
                let wanted: Vec<BatchName> =
                    (rank..case.names).step_by(*world_size as usize).map(name).collect();
                world.attach(job, rank, *world_size, wanted);
            }
        }
        world
    }

    fn attach(&mut self, job: usize, rank: u64, world_size: u64, wanted: Vec<BatchName>) {
        let id = ConsumerId(self.connections);
        self.connections += 1;
        self.apply(Command::Attach { consumer: id, job: format!("job {job}"), rank, world_size });
        self.ranks.push(Reader {
            id,
            job,
            rank,
            wanted,
            asked: 0,
            planned: 0,
            asking: BTreeMap::new(),
            answered: BTreeSet::new(),
            got: Vec::new(),
            skipped: Vec::new(),
            faults: 0,
        });
    }

    fn apply(&mut self, command: Command) {
        for action in self.staging.apply(command) {
            self.act(action);
        }
        let held: u64 = self.memory.values().sum::<u64>() + self.making.len() as u64 * BYTES;
        let held = held + self.loading.len() as u64 * BYTES;
        let accounts = self.staging.accounts();
        assert_eq!(accounts.held_bytes, held, "the accounts are right");
        assert_eq!(accounts.staged, self.memory.len() as u64);
        assert_eq!(accounts.making, self.making.len() as u64);
        let alone = self.memory.len() + self.making.len() + self.loading.len() <= 1;
        assert!(held <= self.most || alone, "{held} bytes are held, {} may be", self.most);
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Make(name) => {
                assert!(
                    !self.making.contains(&name) && !self.memory.contains_key(&name),
                    "made twice at once"
                );
                *self.makes.entry(Name::clone(&name)).or_default() += 1;
                self.making.push(name);
            }
            Action::Give { consumer, request, name } => {
                assert!(self.memory.contains_key(&name), "{name} is given and not here");
                self.answer(consumer, request, |rank, answered| {
                    assert_eq!(answered, *name);
                    rank.got.push(answered);
                });
                self.sends.push((consumer, name));
            }
            Action::Skip { consumer, request } => {
                self.answer(consumer, request, |rank, name| rank.skipped.push(name));
            }
            Action::Fault { consumer, request } => {
                self.answer(consumer, request, |rank, _| rank.faults += 1);
            }
            Action::Drop(name) => {
                assert!(
                    self.sends.iter().all(|(_, sent)| *sent != name),
                    "{name} is dropped while it is sent"
                );
                let memory = self.memory.remove(&name).is_some();
                assert!(self.disk.remove(&name) || memory, "{name} is dropped and not here");
            }
            Action::Unload(name) => {
                assert!(self.sends.iter().all(|(_, sent)| *sent != name));
                assert!(self.disk.contains(&name) && self.memory.remove(&name).is_some());
            }
            Action::Spill(name) => {
                assert!(self.memory.contains_key(&name) && !self.disk.contains(&name));
                self.spilling.push(name);
            }
            Action::Load(name) => {
                assert!(self.disk.contains(&name) && !self.memory.contains_key(&name));
                self.loading.push(name);
            }
        }
    }

    fn answer(&mut self, consumer: ConsumerId, request: u64, note: impl FnOnce(&mut Reader, BatchName)) {
        let rank = self.ranks.iter_mut().find(|rank| rank.id == consumer);
        let rank = rank.expect("an answer to somebody who is attached");
        let name = rank.asking.remove(&request).expect("a request is answered once");
        let at = rank.wanted.iter().position(|wanted| *wanted == name).unwrap();
        rank.answered.insert(at);
        note(rank, name);
    }

    /// Does one thing that can be done, by chance; false when there is none.
    fn step(&mut self) -> bool {
        let movers: Vec<usize> = (0..self.ranks.len())
            .filter(|at| {
                let rank = &self.ranks[*at];
                rank.asked < rank.wanted.len() && rank.asking.len() < 3
            })
            .collect();
        let choices =
            [self.making.len(), self.sends.len(), self.spilling.len(), self.loading.len(), movers.len()];
        let mut pick = match choices.iter().sum::<usize>() as u64 {
            0 => return false,
            some => self.rng.below(some) as usize,
        };
        let mut kind = 0;
        while pick >= choices[kind] {
            pick -= choices[kind];
            kind += 1;
        }
        match kind {
            0 => {
                let name = self.making.swap_remove(pick);
                if self.rng.below(16) < self.make_faults {
                    self.apply(Command::Failed { name });
                } else {
                    self.memory.insert(Name::clone(&name), BYTES);
                    self.apply(Command::Made { name, bytes: BYTES });
                }
            }
            1 => {
                let (consumer, name) = self.sends.swap_remove(pick);
                self.apply(Command::Sent { consumer, name });
            }
            2 => {
                let name = self.spilling.swap_remove(pick);
                if self.rng.below(16) < self.disk_faults {
                    self.apply(Command::NotSpilled { name });
                } else {
                    self.disk.insert(Name::clone(&name));
                    self.apply(Command::Spilled { name });
                }
            }
            3 => {
                let name = self.loading.swap_remove(pick);
                if self.rng.below(16) < self.disk_faults {
                    self.apply(Command::NotLoaded { name });
                } else {
                    self.memory.insert(Name::clone(&name), BYTES);
                    self.apply(Command::Loaded { name });
                }
            }
            _ => self.ask(movers[pick]),
        }
        self.pass_done();
        true
    }

    /// The next batch of a rank, after its plan and what it has passed.
    fn ask(&mut self, at: usize) {
        let ahead = self.rng.below(7) as usize;
        let rank = &mut self.ranks[at];
        let (consumer, next) = (rank.id, rank.asked);
        let to = (next + ahead).min(rank.wanted.len()).max(rank.planned);
        let names = rank.wanted[rank.planned.max(next).min(to)..to].to_vec();
        rank.planned = to.max(next + 1);
        rank.asked += 1;
        let wanted = rank.wanted[next].clone();
        let frontier = rank.frontier().map(|name| (name.epoch, name.first()));
        let request = self.requests;
        self.requests += 1;
        self.ranks[at].asking.insert(request, wanted.clone());
        if let Some((epoch, position)) = frontier {
            self.apply(Command::Passed { consumer, epoch, position });
        }
        self.apply(Command::Plan { consumer, names });
        self.apply(Command::Take { consumer, request, name: wanted });
    }

    /// Who has everything says so, or would hold up others as long as it stays.
    fn pass_done(&mut self) {
        let done: Vec<ConsumerId> =
            self.ranks.iter().filter(|rank| rank.is_done()).map(|rank| rank.id).collect();
        for consumer in done {
            self.apply(Command::Passed { consumer, epoch: 9, position: 0 });
        }
    }

    fn detach(&mut self, at: usize) -> Reader {
        let rank = self.ranks.remove(at);
        self.apply(Command::Detach { consumer: rank.id });
        rank
    }

    fn run(&mut self) {
        self.pass_done();
        while self.step() {}
        for rank in &self.ranks {
            assert!(
                rank.is_done(),
                "job {} rank {} waits forever for {:?}",
                rank.job,
                rank.rank,
                rank.asking
            );
        }
    }

    /// All leave: nothing may be left.
    fn end(&mut self) {
        while !self.ranks.is_empty() {
            self.detach(0);
        }
        while self.step() {}
        assert!(self.memory.is_empty() && self.disk.is_empty(), "nobody is left who needs it");
        assert_eq!(self.staging.accounts().held_bytes, 0);
        assert!(!self.staging.is_busy());
    }

    fn check_all_got_all(&self) {
        for rank in &self.ranks {
            let mut got = rank.got.clone();
            got.sort();
            assert_eq!(got, rank.wanted, "job {} rank {}", rank.job, rank.rank);
        }
    }
}

fn cases(lates: &'static [Late], single: bool) -> impl Strategy<Value = Case> {
    let jobs = proptest::collection::vec(1u64..=if single { 1 } else { 3 }, 1..5);
    (any::<u64>(), 0..lates.len(), 1u64..12, 1u64..60, jobs).prop_map(
        move |(seed, late, limit, names, jobs)| Case { seed, late: lates[late], limit, names, jobs },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn p050_jobs_that_read_one_epoch_share_one_preparation(case in cases(&[Late::Wait, Late::Spill], true)) {
        let mut world = World::new(&case);
        world.run();
        world.check_all_got_all();
        prop_assert_eq!(world.makes.len() as u64, case.names);
        prop_assert!(world.makes.values().all(|makes| *makes == 1), "{:?}", world.makes);
        world.end();
    }

    #[test]
    fn p050_ranks_of_several_jobs_share_one_preparation_on_disk_or_with_room(
        case in cases(&[Late::Wait, Late::Spill, Late::Remake], false),
    ) {
        // Without a disk, all that ranks may be apart has to fit.
        let limit = if case.late == Late::Spill { case.limit } else { case.names + 2 };
        let mut world = World::new(&Case { limit, ..case.clone() });
        world.run();
        world.check_all_got_all();
        prop_assert!(world.makes.values().all(|makes| *makes == 1), "{:?}", world.makes);
        world.end();
    }

    #[test]
    fn p053_every_job_gets_every_batch_at_any_speed_with_any_room(
        case in cases(&[Late::Remake, Late::Wait, Late::Spill], false),
    ) {
        let mut world = World::new(&case);
        world.disk_faults = case.seed % 8;
        world.run();
        world.check_all_got_all();
        prop_assert_eq!(world.makes.len() as u64, case.names);
        let accounts = world.staging.accounts();
        prop_assert_eq!(accounts.made, world.makes.values().sum::<u64>());
        prop_assert_eq!(accounts.given, case.names * case.jobs.len() as u64);
        prop_assert_eq!(accounts.skipped, 0);
        world.end();
    }

    #[test]
    fn p061_a_late_job_is_told_of_every_batch_it_does_not_get(case in cases(&[Late::Skip], false)) {
        let mut world = World::new(&case);
        world.run();
        let mut told = BTreeMap::<usize, u64>::new();
        for rank in &world.ranks {
            let mut all = [rank.got.clone(), rank.skipped.clone()].concat();
            all.sort();
            prop_assert_eq!(&all, &rank.wanted);
            *told.entry(rank.job).or_default() += rank.skipped.len() as u64;
        }
        let views = world.staging.jobs();
        for (job, skipped) in &told {
            let view = views.iter().find(|view| view.job == format!("job {job}")).unwrap();
            prop_assert_eq!(view.skipped, *skipped);
        }
        prop_assert_eq!(world.staging.accounts().skipped, told.values().sum::<u64>());
        if case.jobs.len() == 1 {
            prop_assert_eq!(world.staging.accounts().skipped, 0, "alone, nobody is late");
        }
        world.end();
    }

    #[test]
    fn p052_jobs_that_die_and_come_back_hold_nobody_up_and_lose_nothing(
        case in cases(&[Late::Remake, Late::Wait, Late::Spill], false), deaths in 1u64..6,
    ) {
        let mut world = World::new(&case);
        let mut dead: Vec<Reader> = Vec::new();
        for _ in 0..deaths {
            for _ in 0..world.rng.below(40) {
                world.step();
            }
            if world.ranks.is_empty() {
                break;
            }
            let victim = world.rng.below(world.ranks.len() as u64) as usize;
            let rank = world.detach(victim);
            prop_assert!(rank.asking.keys().all(|request| *request < world.requests));
            if world.rng.below(2) == 0 {
                // It goes on where its loop was: what was received out of order after that is asked for again.
                let done = rank.wanted.iter().position(|name| Some(name) == rank.frontier());
                let left = rank.wanted[done.unwrap_or(rank.wanted.len())..].to_vec();
                world.attach(rank.job, rank.rank, case.jobs[rank.job], left);
            } else {
                dead.push(rank);
            }
        }
        world.run();
        world.check_all_got_all();
        world.end();
    }

    #[test]
    fn a_batch_that_cannot_be_made_is_told_to_all_who_wait_and_tried_again_for_the_next(
        case in cases(&[Late::Remake, Late::Wait, Late::Spill, Late::Skip], false),
    ) {
        let mut world = World::new(&case);
        world.make_faults = 5;
        world.run();
        for rank in &world.ranks {
            prop_assert_eq!(rank.got.len() + rank.skipped.len() + rank.faults, rank.wanted.len());
        }
        world.end();
    }
}

/// A machine with attached jobs of one rank each, and what it said last.
struct Bench(Staging);

impl Bench {
    fn new(late: Late, batches: u64, jobs: u64) -> Self {
        let mut bench = Self(Staging::new(options(late, batches)));
        (0..jobs).for_each(|job| bench.attach(job));
        bench
    }

    fn attach(&mut self, job: u64) {
        let job_name = format!("job {job}");
        self.0.apply(Command::Attach { consumer: ConsumerId(job), job: job_name, rank: 0, world_size: 1 });
    }

    fn take(&mut self, job: u64, number: u64) -> Vec<Action> {
        self.0.apply(Command::Take { consumer: ConsumerId(job), request: number, name: name(number) })
    }

    fn made(&mut self, number: u64) -> Vec<Action> {
        self.0.apply(Command::Made { name: Name::new(name(number)), bytes: BYTES })
    }

    fn sent(&mut self, job: u64, number: u64) -> Vec<Action> {
        self.0.apply(Command::Sent { consumer: ConsumerId(job), name: Name::new(name(number)) })
    }

    fn pass(&mut self, job: u64, number: u64) -> Vec<Action> {
        let position = name(number).first();
        self.0.apply(Command::Passed { consumer: ConsumerId(job), epoch: name(number).epoch, position })
    }

    /// Takes a batch that has to be made; false when it is not made now.
    fn take_new(&mut self, job: u64, number: u64) -> bool {
        if !self.take(job, number).contains(&make(number)) {
            return false;
        }
        assert!(self.made(number).contains(&give(job, number)));
        self.sent(job, number);
        self.pass(job, number + 1);
        true
    }
}

fn make(number: u64) -> Action {
    Action::Make(Name::new(name(number)))
}

fn give(job: u64, number: u64) -> Action {
    Action::Give { consumer: ConsumerId(job), request: number, name: Name::new(name(number)) }
}

fn drop_of(number: u64) -> Action {
    Action::Drop(Name::new(name(number)))
}

#[test]
fn p051_the_fastest_waits_when_asked_to_and_others_are_served_up_to_the_limit() {
    let mut bench = Bench::new(Late::Wait, 4, 3);
    assert!((0..4).all(|number| bench.take_new(0, number)));
    assert_eq!(bench.take(0, 4), [], "four batches wait for the others");
    for number in 0..3 {
        assert_eq!(bench.take(1, number), [give(1, number)]);
        assert_eq!(bench.sent(1, number), []);
    }
    assert_eq!(bench.take(2, 0), [give(2, 0)]);
    assert_eq!(bench.sent(2, 0), [drop_of(0), make(4)], "the slowest lets the fastest go on");
    assert_eq!(bench.made(4), [give(0, 4)]);
    assert_eq!(bench.0.accounts().peak_bytes, 4 * BYTES);
}

#[test]
fn p051_what_is_needed_last_gives_way_and_is_made_again() {
    let mut bench = Bench::new(Late::Remake, 3, 2);
    // The other job begins at 0 and does not come on.
    bench.pass(1, 0);
    assert!((0..10).all(|number| bench.take_new(0, number)), "nobody waits");
    assert_eq!(bench.0.accounts().peak_bytes, 3 * BYTES);
    assert_eq!(bench.take(1, 0), [give(1, 0)], "what it comes to first was kept");
    bench.sent(1, 0);
    assert_eq!(bench.take(1, 5), [make(5)], "what was dropped is made again");
    let accounts = bench.0.accounts();
    assert_eq!((accounts.remade, accounts.skipped), (1, 0));
}

#[test]
fn p051_a_batch_larger_than_all_room_is_held_alone() {
    let mut bench =
        Bench(Staging::new(StagingOptions { limit_bytes: BYTES / 2, ..options(Late::Remake, 1) }));
    bench.attach(0);
    assert_eq!(bench.take(0, 0), [make(0)]);
    assert_eq!(bench.take(0, 1), [], "one at a time");
    assert_eq!(bench.made(0), [give(0, 0)]);
    assert_eq!(bench.sent(0, 0), [drop_of(0), make(1)]);
}

#[test]
fn p061_the_oldest_are_skipped_so_that_a_late_job_catches_up() {
    let mut bench = Bench::new(Late::Skip, 3, 2);
    bench.pass(1, 0);
    assert!((0..10).all(|number| bench.take_new(0, number)));
    for number in 0..7 {
        let skip = Action::Skip { consumer: ConsumerId(1), request: number };
        assert_eq!(bench.take(1, number), [skip]);
    }
    assert_eq!(bench.take(1, 7), [give(1, 7)], "the window holds the newest");
    assert_eq!(bench.0.accounts().skipped, 7);
    assert_eq!(bench.0.jobs()[1].skipped, 7);
}

#[test]
fn p052_a_job_that_dies_frees_what_only_it_was_to_take() {
    let mut bench = Bench::new(Late::Wait, 2, 2);
    assert!(bench.take_new(0, 0) && bench.take_new(0, 1));
    assert_eq!(bench.take(0, 2), [], "the other job holds it up");
    let actions = bench.0.apply(Command::Detach { consumer: ConsumerId(1) });
    assert_eq!(actions, [drop_of(0), drop_of(1), make(2)]);
}

#[test]
fn p052_a_job_that_joins_late_is_served_what_is_staged_and_has_the_rest_made() {
    let mut bench = Bench::new(Late::Remake, 8, 2);
    assert!((0..4).all(|number| bench.take_new(0, number)));
    (0..2).for_each(|number| {
        assert_eq!(bench.take(1, number), [give(1, number)]);
        bench.sent(1, number);
    });
    bench.attach(2);
    assert_eq!(bench.take(2, 0), [make(0)], "both others have taken it: it is made for this one");
    assert_eq!(bench.take(2, 2), [give(2, 2)]);
}

#[test]
fn jobs_that_are_only_expected_keep_batches_and_hold_nobody_up() {
    let mut bench = Bench::new(Late::Wait, 2, 1);
    bench.0.apply(Command::Expect { jobs: vec!["job 1".into()] });
    assert!(bench.take_new(0, 0) && bench.take_new(0, 1));
    assert_eq!(bench.0.accounts().staged, 2);
    assert!(bench.take_new(0, 2), "one gives way");
    bench.attach(1);
    assert_eq!(bench.take(1, 0), [give(1, 0)]);
    bench.0.apply(Command::Expect { jobs: Vec::new() });
}

#[test]
fn one_who_does_not_read_holds_two_batches_and_no_more() {
    let mut bench = Bench::new(Late::Remake, 4, 1);
    for number in 0..4 {
        bench.take(0, number);
    }
    assert_eq!(bench.made(0), [give(0, 0)]);
    assert_eq!(bench.made(1), [give(0, 1)]);
    assert_eq!(bench.made(2), []);
    bench.attach(1);
    let others = bench.take(1, 9);
    assert_eq!(others, [drop_of(2), make(9)], "what it does not take gives way to others");
    assert_eq!(bench.sent(0, 0), [drop_of(0), make(2)]);
}

#[test]
fn one_that_plans_before_it_takes_still_needs_what_it_takes_first() {
    let mut bench = Bench::new(Late::Remake, 8, 2);
    assert!(bench.take_new(0, 0));
    let planned = bench.0.apply(Command::Plan { consumer: ConsumerId(1), names: vec![name(1), name(2)] });
    assert_eq!(planned, [make(1), make(2)]);
    assert_eq!(bench.take(1, 0), [give(1, 0)]);
}

#[test]
fn a_forgotten_request_is_not_answered() {
    let mut bench = Bench::new(Late::Remake, 4, 1);
    assert_eq!(bench.take(0, 0), [make(0)]);
    bench.0.apply(Command::Forget { consumer: ConsumerId(0), request: 0 });
    bench.pass(0, 1);
    assert_eq!(bench.made(0), [drop_of(0)]);
    assert!(!bench.0.is_busy());
}
