//! The ledger against a job that is remembered whole: ranks, restarts, other world sizes, arrival order.

use super::*;
use crate::arrival::ArrivalOrder;
use crate::cursor::Remaining;
use crate::plan::block::Blocks;
use crate::plan::{BlockShuffle, Plan, Sampler, Shuffle};
use crate::portion::{Place, Portion};
use crate::rng::Rng;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const POLICIES: [LastBatch; 4] = [LastBatch::Drop, LastBatch::Partial, LastBatch::Pad, LastBatch::Wrap];

fn sampler(samples: u64, seed: u64) -> Sampler {
    let settings = BlockShuffle { block_bytes: 1, group_blocks: 5 };
    Sampler::from_blocks(samples, Blocks::uniform(samples, 23, 4), Shuffle::Block(settings), seed).unwrap()
}

/// One receipt as a naive bookkeeper has it.
#[derive(Clone, Debug, PartialEq)]
struct Receipt {
    section: usize,
    epoch: u64,
    step: u64,
    rank: u64,
    position: u64,
}

/// A job that crashes and is started again, with what its ranks wrote and what counts of it.
struct Job {
    sampler: Sampler,
    arrival: bool,
    last_batch: LastBatch,
    rng: Rng,
    clock: u64,
    sections: Vec<Section>,
    counts: Vec<Receipt>,
    received: usize,
    steps: u64,
    ended: Vec<u64>,
}

/// Where a rank of a run stands.
struct Rank {
    section: usize,
    consumer: Consumer,
    portion: Portion,
    local: Remaining,
    order: Vec<u64>,
}

/// What a checkpoint holds: the states of all ranks, and what the job had received.
#[derive(Clone)]
struct Checkpoint {
    cursors: Vec<Cursor>,
    batch_size: u64,
    counts: Vec<Receipt>,
    steps: u64,
    ended: Vec<u64>,
}

impl Job {
    fn new(samples: u64, seed: u64, arrival: bool, last_batch: LastBatch) -> Self {
        Self {
            sampler: sampler(samples, seed),
            arrival,
            last_batch,
            rng: Rng::keyed(seed, 1, 2),
            clock: 1_000_000,
            sections: Vec::new(),
            counts: Vec::new(),
            received: 0,
            steps: 0,
            ended: Vec::new(),
        }
    }

    /// Runs from a checkpoint on; gives one that was made on the way.
    fn run(&mut self, from: &Checkpoint, world_size: u64, batch_size: u64, steps: u64) -> Checkpoint {
        (self.counts, self.steps, self.ended) = (from.counts.clone(), from.steps, from.ended.clone());
        let positions = self.sampler.samples();
        let same = from.cursors.len() as u64 == world_size && from.batch_size == batch_size;
        let merged = Cursor::merge(&from.cursors, positions).unwrap();
        self.clock += 5_000_000;
        let mut ranks: Vec<Rank> = Vec::new();
        for rank in 0..world_size {
            let consumer = Consumer { rank, world_size, batch_size, last_batch: self.last_batch };
            let cursor = if same { from.cursors[rank as usize].clone() } else { merged.clone() };
            self.clock += 100;
            let head = SectionHead {
                started_micros: self.clock,
                dataset: "v".into(),
                samples: positions,
                positions,
                order: "block".into(),
                lists_places: self.arrival,
                ..SectionHead::new(consumer, cursor.clone())
            };
            self.sections.push(Section { head, epochs: vec![Vec::new()] });
            let section = self.sections.len() - 1;
            ranks.push(self.begin(section, consumer, &cursor));
        }
        let mut epoch = from.cursors[0].epoch;
        let (mut within, mut saved) = (0, from.clone());
        let save_at = self.rng.below(steps + 1);
        'run: for number in 0..steps {
            if number == save_at {
                let cursors = ranks.iter().map(|rank| rank.cursor(epoch, within, self.arrival)).collect();
                let (counts, mut ended) = (self.counts.clone(), self.ended.clone());
                if within >= ranks[0].portion.steps() {
                    ended.push(epoch);
                }
                saved = Checkpoint { cursors, batch_size, counts, steps: self.steps, ended };
            }
            while within >= ranks[0].portion.steps() {
                // With `drop` a step may need more samples than there are.
                if within == 0 && ranks[0].portion.local().is_empty() && epoch > from.cursors[0].epoch {
                    break 'run;
                }
                self.ended.push(epoch);
                (epoch, within) = (epoch + 1, 0);
                for rank in &mut ranks {
                    self.sections[rank.section].epochs.push(Vec::new());
                    *rank = self.begin(rank.section, rank.consumer, &Cursor::start_of(epoch));
                }
            }
            for rank in &mut ranks {
                self.receive(rank, epoch, within);
            }
            (within, self.steps) = (within + 1, self.steps + 1);
        }
        if within >= ranks[0].portion.steps() {
            self.ended.push(epoch);
        }
        self.clock += 3_600_000_000;
        saved
    }

    fn begin(&mut self, section: usize, consumer: Consumer, cursor: &Cursor) -> Rank {
        let portion = Portion::new(self.sampler.samples(), consumer, cursor).unwrap();
        let local = portion.local().clone();
        let mut order: Vec<u64> = (0..local.count()).map(|ordinal| local.nth(ordinal)).collect();
        if self.arrival {
            let mut arrivals = ArrivalOrder::new(7);
            let (mut next, mut delivered) = (0, Vec::new());
            let mut flying: Vec<u64> = Vec::new();
            while delivered.len() < order.len() {
                while next < order.len() && flying.len() < 5 {
                    flying.push(next as u64);
                    next += 1;
                }
                if !flying.is_empty() {
                    arrivals.arrive(flying.swap_remove(self.rng.below(flying.len() as u64) as usize));
                }
                while let Some(number) = arrivals.next_row() {
                    delivered.push(order[number as usize]);
                }
            }
            order = delivered;
        }
        Rank { section, consumer, portion, local, order }
    }

    fn receive(&mut self, rank: &mut Rank, epoch: u64, within: u64) {
        let plan = self.sampler.plan(epoch);
        let rows = rank.portion.batch_len(within);
        let places: Vec<Place> = if self.arrival {
            rank.order.drain(..rows as usize).map(|local| rank.portion.place(local)).collect()
        } else {
            rank.portion.batch(within).collect()
        };
        let locals: Vec<u64> = places.iter().map(|place| place.local).collect();
        rank.local = rank.local.without(&locals);
        for place in places.iter().filter(|place| !place.padding) {
            let (position, step) = (place.position, self.steps);
            let receipt = Receipt { section: rank.section, epoch, step, rank: rank.consumer.rank, position };
            self.counts.push(receipt);
            self.received += 1;
        }
        let more = self.arrival.then(|| Box::new(Details { locals, odd: Vec::new() }));
        let check = rows_check(places.iter().map(|place| plan.at(place.position)));
        let batches = self.sections[rank.section].epochs.last_mut().unwrap();
        batches.push(Received { check, millis: 3, more });
    }

    /// The ledger as it comes back from files, in any order.
    fn stream(&mut self, without: Option<usize>) -> Stream {
        let kept = (0..self.sections.len()).filter(|section| Some(*section) != without);
        let mut read: Vec<Section> =
            kept.flat_map(|section| parse(&bytes_of(&self.sections[section])).unwrap().sections).collect();
        for index in (1..read.len()).rev() {
            read.swap(index, self.rng.below(index as u64 + 1) as usize);
        }
        let mut streams = streams(read);
        assert_eq!(streams.len(), 1);
        streams.remove(0)
    }
}

impl Rank {
    fn cursor(&self, epoch: u64, within: u64, arrival: bool) -> Cursor {
        if arrival {
            self.portion.cursor_after_arrival(epoch, within, &self.local)
        } else {
            self.portion.cursor_after(epoch, within)
        }
    }
}

fn bytes_of(section: &Section) -> Vec<u8> {
    let mut encoder = Encoder::default();
    let mut bytes = encoder.head(&section.head).unwrap();
    for (number, batches) in section.epochs.iter().enumerate() {
        if number > 0 {
            bytes.extend(encoder.epoch().unwrap());
        }
        for batch in batches {
            bytes.extend(encoder.received(batch).unwrap());
        }
    }
    bytes
}

fn start(job: &Job) -> Checkpoint {
    let _ = job;
    Checkpoint {
        cursors: vec![Cursor::start_of(0)],
        batch_size: 0,
        counts: Vec::new(),
        steps: 0,
        ended: Vec::new(),
    }
}

/// World size, batch size, steps, and whether it starts from the checkpoint before the last.
type Start = (u64, u64, u64, bool);

fn play(job: &mut Job, starts: &[Start]) {
    let mut saved = vec![start(job)];
    for (world_size, batch_size, steps, older) in starts {
        if *older && saved.len() > 1 {
            saved.pop();
        }
        let from = saved.last().unwrap().clone();
        // Per-rank states of an arrival run need all its ranks.
        let next = job.run(&from, *world_size, *batch_size, *steps);
        saved.push(next);
    }
}

fn starts() -> impl Strategy<Value = Vec<Start>> {
    prop::collection::vec((1u64..4, 1u64..9, 1u64..30, any::<bool>()), 1..6)
}

proptest! {
    #[test]
    fn what_counts_is_what_a_job_without_crashes_would_have_received(
        samples in 1u64..150, seed: u64, arrival: bool, policy in 0usize..4, starts in starts(),
    ) {
        let mut job = Job::new(samples, seed, arrival, POLICIES[policy]);
        play(&mut job, &starts);
        // With `drop` a step may need more samples than there are; a run that received nothing supersedes nothing.
        prop_assume!(job.sections.iter().all(|section| section.epochs.iter().any(|batches| !batches.is_empty())));
        let stream = job.stream(None);
        let verdict = stream.check(Some(&job.sampler.clone()), 10).unwrap();
        prop_assert!(verdict.exact, "{:?}", verdict.epochs);
        prop_assert!(verdict.by_id);
        let positions = |epoch| -> BTreeSet<u64> {
            job.counts.iter().filter(|r| r.epoch == epoch).map(|r| r.position).collect()
        };
        for epoch in &verdict.epochs {
            let counted = positions(epoch.epoch);
            prop_assert_eq!(epoch.received, counted.len() as u64, "epoch {}", epoch.epoch);
            prop_assert_eq!((epoch.gaps, epoch.doubles, epoch.altered), (0, 0, 0));
            let ended = job.ended.contains(&epoch.epoch);
            let state = if ended {
                EpochState::Exact
            } else if counted.is_empty() {
                epoch.state
            } else {
                EpochState::Open
            };
            prop_assert_eq!(epoch.state, state, "epoch {}", epoch.epoch);
            if ended {
                prop_assert_eq!(epoch.received + epoch.left_out, samples);
                prop_assert!(epoch.left_out == 0 || job.last_batch == LastBatch::Drop);
            }
        }
        let superseded: u64 = verdict.epochs.iter().map(|epoch| epoch.superseded).sum();
        prop_assert_eq!(superseded as usize, job.received - job.counts.len());
        // Positions alone give the same answer.
        let blind = stream.check(None, 10).unwrap();
        prop_assert!(!blind.by_id);
        prop_assert_eq!(&blind.epochs, &verdict.epochs);
    }

    #[test]
    fn a_sample_is_found_where_the_job_received_it(
        samples in 1u64..100, seed: u64, arrival: bool, starts in starts(), sample: u64,
    ) {
        let mut job = Job::new(samples, seed, arrival, LastBatch::Partial);
        play(&mut job, &starts);
        let sample = SampleId(sample % samples);
        let sampler = job.sampler.clone();
        let found = job.stream(None).find(&sampler, sample).unwrap();
        let mut found: Vec<_> = found.iter().filter(|s| s.counts && !s.padding).collect();
        found.sort_by_key(|sighting| sighting.epoch);
        let plans: BTreeMap<u64, Plan> =
            job.counts.iter().map(|receipt| (receipt.epoch, sampler.plan(receipt.epoch))).collect();
        let wanted = job.counts.iter().filter(|r| plans[&r.epoch].at(r.position) == sample);
        let wanted: Vec<_> = wanted.map(|r| (r.epoch, r.step, r.rank, r.position)).collect();
        let found: Vec<_> = found.iter().map(|s| (s.epoch, s.step, s.rank, s.position)).collect();
        prop_assert_eq!(found, wanted);
    }

    #[test]
    fn what_a_lost_file_held_is_missing_and_named(
        samples in 30u64..150, seed: u64, world_size in 2u64..4, batch_size in 1u64..9, lost: u64,
    ) {
        let mut job = Job::new(samples, seed, false, LastBatch::Partial);
        play(&mut job, &[(world_size, batch_size, 200, false)]);
        let lost = (lost % world_size) as usize;
        let sampler = job.sampler.clone();
        let verdict = job.stream(Some(lost)).check(Some(&sampler), 1000).unwrap();
        for epoch in verdict.epochs.iter().filter(|epoch| job.ended.contains(&epoch.epoch)) {
            let plan = sampler.plan(epoch.epoch);
            let held = job.counts.iter().filter(|r| r.section == lost && r.epoch == epoch.epoch);
            let mut wanted: Vec<_> = held.map(|r| (r.position, plan.at(r.position).0, r.rank, r.step)).collect();
            wanted.sort_unstable();
            let named = epoch.faults.iter().map(|fault| {
                assert_eq!(fault.kind, FaultKind::Gap);
                (fault.position, fault.sample_id.unwrap(), fault.seen[0].rank, fault.seen[0].step)
            });
            prop_assert_eq!(named.collect::<Vec<_>>(), wanted);
            prop_assert_eq!(epoch.gaps as usize, epoch.faults.len());
            let state = if epoch.gaps > 0 { EpochState::Faulty } else { EpochState::Exact };
            prop_assert_eq!(epoch.state, state);
        }
    }

    #[test]
    fn a_file_cut_at_any_byte_keeps_every_record_before_it(
        samples in 20u64..60, seed: u64, arrival: bool, steps in 1u64..20,
    ) {
        let mut job = Job::new(samples, seed, arrival, LastBatch::Partial);
        play(&mut job, &[(1, 5, steps, false)]);
        let section = &job.sections[0];
        let bytes = bytes_of(section);
        let mut shorter = section.clone();
        shorter.epochs.last_mut().unwrap().pop();
        let before = bytes_of(&shorter).len();
        for cut in before..bytes.len() {
            let parsed = parse(&bytes[..cut]).unwrap();
            prop_assert_eq!(&parsed.sections, std::slice::from_ref(&shorter));
            prop_assert_eq!((parsed.whole_bytes as usize, &parsed.damage), (before, &None));
        }
        prop_assert_eq!(&parse(&bytes).unwrap().sections, std::slice::from_ref(section));
    }

    #[test]
    fn a_changed_byte_is_noticed_and_what_stood_before_it_is_kept(
        samples in 20u64..60, seed: u64, at: prop::sample::Index, flip in 1u8..=255,
    ) {
        let mut job = Job::new(samples, seed, false, LastBatch::Partial);
        play(&mut job, &[(1, 5, 12, false)]);
        let mut bytes = bytes_of(&job.sections[0]);
        let at = 8 + at.index(bytes.len() - 8);
        bytes[at] ^= flip;
        // A head that reads well and is another one has another check.
        let parsed = parse(&bytes).unwrap();
        prop_assert!((parsed.whole_bytes as usize) <= at);
        prop_assert_ne!(&parsed.sections, &job.sections);
    }

    #[test]
    fn no_bytes_make_reading_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes);
        let _ = parse(&[b"FBLEDGR1".as_slice(), &bytes].concat());
    }
}

fn one_epoch(samples: u64, batch_size: u64) -> Job {
    let mut job = Job::new(samples, 3, false, LastBatch::Partial);
    play(&mut job, &[(1, batch_size, samples.div_ceil(batch_size), false)]);
    job
}

#[test]
fn a_batch_takes_eleven_bytes_and_a_sample_by_arrival_less_than_two() {
    let bytes = |arrival: bool| {
        let mut job = Job::new(64 * 100, 1, arrival, LastBatch::Partial);
        play(&mut job, &[(1, 64, 100, false)]);
        let mut head = job.sections[0].clone();
        head.epochs = vec![Vec::new()];
        bytes_of(&job.sections[0]).len() - bytes_of(&head).len()
    };
    assert_eq!(bytes(false), 100 * 11);
    assert!(bytes(true) < 2 * 6400, "{} bytes for 6400 samples", bytes(true));
}

#[test]
fn rows_that_became_something_else_are_excused_and_counted() {
    let mut job = one_epoch(20, 10);
    let sampler = job.sampler.clone();
    let plan = sampler.plan(0);
    let odd = |row, fate| OddRow { row, fate };
    let rows = vec![odd(0, Fate::Skipped), odd(3, Fate::Filtered), odd(9, Fate::Substituted(SampleId(7)))];
    let ids = [1, 2, 4, 5, 6, 7, 8].map(|position| plan.at(position)).into_iter().chain([SampleId(7)]);
    let more = Some(Box::new(Details { locals: Vec::new(), odd: rows }));
    job.sections[0].epochs[0][0] = Received { check: rows_check(ids), millis: 1, more };
    let stream = job.stream(None);
    let verdict = stream.check(Some(&sampler), 5).unwrap();
    let epoch = &verdict.epochs[0];
    assert_eq!((epoch.state, epoch.received), (EpochState::Exact, 20));
    assert_eq!((epoch.skipped, epoch.filtered, epoch.substituted, epoch.altered), (1, 1, 1, 0));
    let found = stream.find(&sampler, SampleId(7)).unwrap();
    let stood_in = found.iter().find(|sighting| sighting.instead_of.is_some()).unwrap();
    assert_eq!(stood_in.instead_of, Some(plan.at(9).0));
    let absent = stream.find(&sampler, plan.at(9)).unwrap();
    assert_eq!(absent[0].absent, Some("substituted"));
}

#[test]
fn rows_that_were_not_planned_are_a_fault() {
    let mut job = one_epoch(20, 5);
    job.sections[0].epochs[0][2].check ^= 1;
    let sampler = job.sampler.clone();
    let verdict = job.stream(None).check(Some(&sampler), 5).unwrap();
    let epoch = &verdict.epochs[0];
    assert!(!verdict.exact);
    assert_eq!((epoch.state, epoch.altered), (EpochState::Faulty, 1));
    assert_eq!(epoch.faults[0].seen, [Seen { run: 1, rank: 0, step: 2 }]);
}

#[test]
fn processes_that_all_take_themselves_for_rank_0_are_found_out() {
    let mut job = one_epoch(20, 5);
    let mut twin = job.sections[0].clone();
    twin.head.started_micros += 4;
    job.sections.push(twin);
    let verdict = job.stream(None).check(None, 5).unwrap();
    assert_eq!(verdict.epochs[0].doubles, 20);
    assert_eq!(verdict.epochs[0].faults.len(), 5);
    assert_eq!(verdict.epochs[0].faults[0].seen.len(), 2);
    // After the other's end it is a restart.
    job.sections[1].head.started_micros += 1_000_000;
    let verdict = job.stream(None).check(None, 5).unwrap();
    assert_eq!((verdict.epochs[0].doubles, verdict.epochs[0].superseded), (0, 20));
    assert!(verdict.exact);
}

#[test]
fn a_resume_behind_what_was_received_and_an_epoch_that_was_left_are_gaps() {
    let mut job = Job::new(40, 3, false, LastBatch::Partial);
    play(&mut job, &[(1, 5, 3, false)]);
    let portion = Portion::new(
        40,
        Consumer { rank: 0, world_size: 1, batch_size: 5, last_batch: LastBatch::Partial },
        &Cursor::start_of(0),
    )
    .unwrap();
    let ahead = Checkpoint { cursors: vec![portion.cursor_after(0, 5)], batch_size: 5, ..start(&job) };
    job.run(&ahead, 1, 5, 1);
    let verdict = job.stream(None).check(None, 50).unwrap();
    assert_eq!((verdict.epochs[0].state, verdict.epochs[0].gaps), (EpochState::Faulty, 10));
    // The loop went on to the next epoch.
    let mut job = Job::new(40, 3, false, LastBatch::Partial);
    play(&mut job, &[(1, 5, 16, false)]);
    job.sections[0].epochs[0].truncate(6);
    let verdict = job.stream(None).check(None, 50).unwrap();
    assert_eq!((verdict.epochs[0].gaps, verdict.epochs[1].state), (10, EpochState::Exact));
}

#[test]
fn heads_of_other_formats_and_foreign_files_are_refused() {
    assert!(parse(b"something else").is_err());
    assert_eq!(parse(b"FBLE").unwrap(), Parsed::default());
    let mut job = one_epoch(20, 5);
    job.sections[0].head.format = 9;
    let error = parse(&bytes_of(&job.sections[0])).unwrap_err();
    assert!(error.message().contains("format is 9"), "{error:?}");
    job.sections[0].head.format = FORMAT;
    job.sections[0].head.positions = u64::MAX;
    assert!(parse(&bytes_of(&job.sections[0])).is_err());
}
