//! A stream made ready to be walked: which batches have which positions, and which of them still count.
//!
//! A run is superseded at and beyond the place where any later one began. Epochs are walked one at a time, runs from the
//! last to the first, so that one set of bits says what later runs took over.

use super::bits::Bits;
use super::history::{Run, Stream};
use super::{Received, Section, SectionHead};
use crate::cursor::{Cursor, Remaining};
use crate::plan::Sampler;
use crate::portion::{Consumer, Place, Portion};
use crate::{Error, Result};

/// A stream with the numbers of its steps.
pub(super) struct Walk<'a> {
    pub(super) stream: &'a Stream,
    pub(super) sampler: Option<&'a Sampler>,
    /// For every run what was still to come when it began, and the step of the job that it began with.
    starts: Vec<(ToCome, u64)>,
}

/// What a run was to receive of its first epoch. Of later epochs it is everything.
enum ToCome {
    Rest(Remaining),
    /// By arrival every rank has its own rest.
    Ranks(Bits),
}

impl ToCome {
    fn has(&self, position: u64) -> bool {
        match self {
            Self::Rest(rest) => rest.contains(position),
            Self::Ranks(bits) => bits.has(position),
        }
    }
}

/// Batches of one rank in one epoch of one run.
pub(super) struct Part<'a> {
    pub(super) head: &'a SectionHead,
    pub(super) portion: Portion,
    pub(super) batches: &'a [Received],
    /// The step of the job at which its first batch was received.
    pub(super) first_step: u64,
}

impl Part<'_> {
    /// The places of a batch, in the order of its rows as planned.
    pub(super) fn places(&self, step: usize, places: &mut Vec<Place>) -> Result<()> {
        let fail = |why: &str| {
            let rank = self.head.rank;
            Error::corrupt(format!("check ledger: batch {step} of rank {rank}: {why}"))
        };
        places.clear();
        let Some(batch) = self.batches.get(step) else { return Ok(()) };
        if !self.head.lists_places {
            if step as u64 >= self.portion.steps() {
                return Err(fail("the epoch has fewer"));
            }
            places.extend(self.portion.batch(step as u64));
            return Ok(());
        }
        let locals = batch.more.as_ref().map_or(&[][..], |more| &more.locals);
        if locals.iter().any(|local| *local >= self.portion.local().len()) {
            return Err(fail("a place lies beyond the end"));
        }
        places.extend(locals.iter().map(|local| self.portion.place(*local)));
        Ok(())
    }

    /// Whether all of the epoch was received.
    pub(super) fn is_finished(&self) -> bool {
        self.batches.len() as u64 >= self.portion.steps()
    }
}

/// One batch on the way of a walk.
pub(super) struct Visit<'a> {
    /// Number of the run, from 0.
    pub(super) run: usize,
    pub(super) part: &'a Part<'a>,
    pub(super) step: usize,
    pub(super) places: &'a [Place],
    taken_over: &'a TakenOver,
}

impl Visit<'_> {
    /// Whether a position of this batch still counts.
    pub(super) fn counts(&self, position: u64) -> bool {
        !self.taken_over.all && !self.taken_over.some.has(position)
    }

    /// Whether the batch does: padding alone counts unless its run was given up before it.
    pub(super) fn batch_counts(&self) -> bool {
        let mut real = self.places.iter().filter(|place| !place.padding).peekable();
        match real.peek() {
            Some(_) => real.any(|place| self.counts(place.position)),
            None => !self.taken_over.all,
        }
    }

    /// The step of the job.
    pub(super) fn global_step(&self) -> u64 {
        self.part.first_step + self.step as u64
    }
}

struct TakenOver {
    all: bool,
    some: Bits,
}

impl<'a> Walk<'a> {
    pub(super) fn new(stream: &'a Stream, sampler: Option<&'a Sampler>) -> Result<Self> {
        let head = stream.head();
        if let Some(sampler) = sampler.filter(|sampler| sampler.samples() != head.positions) {
            return Err(Error::stale(format!(
                "check ledger: it has epochs of {} positions, the dataset gives {}",
                head.positions,
                sampler.samples()
            )));
        }
        if head.is_cut && sampler.is_none() {
            return Err(Error::invalid_config(
                "check ledger: its batches are cut by length or bytes, which only the dataset tells",
            )
            .with_hint("name the dataset too"));
        }
        let mut walk = Self { stream, sampler, starts: Vec::new() };
        for run in &stream.runs {
            let to_come = walk.to_come(run)?;
            walk.starts.push((to_come, 0));
        }
        walk.number_steps()?;
        Ok(walk)
    }

    /// Epochs of which anything was received, ascending.
    pub(super) fn epochs(&self) -> Vec<u64> {
        let of = |section: &Section| {
            let first = section.head.cursor.epoch;
            let received = section.epochs.iter().enumerate().filter(|(_, batches)| !batches.is_empty());
            received.map(|(number, _)| first + number as u64).collect::<Vec<_>>()
        };
        let sections = self.stream.runs.iter().flat_map(|run| run.sections.iter().chain(&run.abandoned));
        let mut epochs: Vec<u64> = sections.flat_map(of).collect();
        epochs.sort_unstable();
        epochs.dedup();
        epochs
    }

    /// The last run that has something of an epoch, unless a later one began before it.
    pub(super) fn newest(&self, epoch: u64) -> Option<usize> {
        for (number, run) in self.stream.runs.iter().enumerate().rev() {
            let begins = run.head().cursor.epoch;
            if run.sections.iter().any(|section| received_of(section, epoch).is_some()) {
                return Some(number);
            }
            if begins < epoch {
                return None;
            }
        }
        None
    }

    /// The parts of an epoch that a run's ranks received.
    pub(super) fn parts(&self, run: usize, epoch: u64) -> Result<Vec<Part<'a>>> {
        self.parts_of(run, &self.stream.runs[run].sections, epoch)
    }

    fn parts_of(&self, run: usize, sections: &'a [Section], epoch: u64) -> Result<Vec<Part<'a>>> {
        let with = sections.iter().filter_map(|section| Some((section, received_of(section, epoch)?)));
        with.map(|(section, (cursor, batches, before))| {
            let portion = self.portion(&section.head, section.head.consumer(), &cursor)?;
            Ok(Part { head: &section.head, portion, batches, first_step: self.starts[run].1 + before })
        })
        .collect()
    }

    /// What a rank of a section's run reads of an epoch.
    pub(super) fn portion(&self, head: &SectionHead, consumer: Consumer, cursor: &Cursor) -> Result<Portion> {
        if head.is_cut && head.lists_places {
            return Err(Error::corrupt("check ledger: batches are cut and follow arrival"));
        }
        match self.sampler {
            Some(sampler) => sampler.portion(consumer, cursor),
            None => Portion::new(head.positions, consumer, cursor),
        }
    }

    /// Every batch of an epoch, whether it counts or not.
    pub(super) fn visit(&self, epoch: u64, mut visit: impl FnMut(&Visit<'_>) -> Result<()>) -> Result<()> {
        let positions = self.stream.head().positions;
        let mut taken_over = TakenOver { all: false, some: Bits::new(positions)? };
        let mut places = Vec::new();
        for (number, run) in self.stream.runs.iter().enumerate().rev() {
            let given_up = TakenOver { all: true, some: Bits::new(0)? };
            let kept = (self.parts_of(number, &run.sections, epoch)?, &taken_over);
            let lost = (self.parts_of(number, &run.abandoned, epoch)?, &given_up);
            for (parts, taken_over) in [kept, lost] {
                for part in &parts {
                    for step in 0..part.batches.len() {
                        part.places(step, &mut places)?;
                        visit(&Visit { run: number, part, step, places: &places, taken_over })?;
                    }
                }
            }
            let begins = run.head().cursor.epoch;
            if begins < epoch {
                taken_over.all = true;
            } else if begins == epoch && !taken_over.all {
                let to_come = &self.starts[number].0;
                (0..positions).filter(|position| to_come.has(*position)).for_each(|position| {
                    taken_over.some.put(position);
                });
            }
        }
        Ok(())
    }

    /// Whether a run was to receive a position of the epoch that it began in.
    pub(super) fn is_to_come(&self, run: usize, position: u64) -> bool {
        self.starts[run].0.has(position)
    }

    /// The step of the job with which a run began.
    pub(super) fn first_step(&self, run: usize) -> u64 {
        self.starts[run].1
    }

    fn to_come(&self, run: &Run) -> Result<ToCome> {
        let head = run.head();
        if !head.cursor.is_by_arrival() {
            return Ok(ToCome::Rest(head.cursor.start(head.positions)?));
        }
        let mut bits = Bits::new(head.positions)?;
        for section in &run.sections {
            let portion = self.portion(&section.head, section.head.consumer(), &section.head.cursor)?;
            let local = portion.local();
            let places = (0..local.count()).map(|ordinal| portion.place(local.nth(ordinal)));
            places.filter(|place| !place.padding).for_each(|place| {
                bits.put(place.position);
            });
            // What fills no batch of this run was not received before it either: an earlier run may have read it.
            let unread = portion.unread();
            (0..unread.count()).for_each(|ordinal| {
                bits.put(unread.nth(ordinal));
            });
        }
        Ok(ToCome::Ranks(bits))
    }

    /// A run goes on with the step after the last one that still counts of those before it.
    fn number_steps(&mut self) -> Result<()> {
        // Of every run so far: steps that no later run has taken over.
        let mut counting: Vec<u64> = Vec::new();
        for number in 0..self.stream.runs.len() {
            let mut first = 0;
            for (earlier, steps) in counting.iter_mut().enumerate() {
                let mut before = 0;
                for section in tellers(&self.stream.runs[earlier]) {
                    before = before.max(self.steps_before(section, number)?);
                }
                *steps = before.min(*steps);
                if *steps > 0 {
                    first = first.max(self.starts[earlier].1 + *steps);
                }
            }
            self.starts[number].1 = first;
            counting.push(u64::MAX);
        }
        Ok(())
    }

    /// How many batches of a section had been received where a later run began.
    fn steps_before(&self, section: &Section, later: usize) -> Result<u64> {
        let begins = self.stream.runs[later].head().cursor.epoch;
        let mut steps = 0;
        for (cursor, batches) in section.parts() {
            if cursor.epoch < begins {
                steps += batches.len() as u64;
            } else if cursor.epoch == begins {
                let portion = self.portion(&section.head, section.head.consumer(), &cursor)?;
                let part = Part { head: &section.head, portion, batches, first_step: 0 };
                steps += self.steps_within(&part, later)?;
            }
        }
        Ok(steps)
    }

    /// How many batches of a part had been received where a later run began in the same epoch.
    fn steps_within(&self, part: &Part<'_>, later: usize) -> Result<u64> {
        let mut places = Vec::new();
        let mut is_received = |step: usize| -> Result<bool> {
            part.places(step, &mut places)?;
            let real = places.iter().find(|place| !place.padding);
            Ok(real.is_some_and(|place| !self.starts[later].0.has(place.position)))
        };
        if part.head.lists_places {
            for step in (0..part.batches.len()).rev() {
                if is_received(step)? {
                    return Ok(step as u64 + 1);
                }
            }
            return Ok(0);
        }
        // In plan order the first batch that is to come again ends the search.
        let (mut low, mut high) = (0, part.batches.len());
        while low < high {
            let middle = low.midpoint(high);
            if is_received(middle)? {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low as u64)
    }
}

/// The ranks that tell how far a run came. All go in step; but by arrival a batch may be nothing but padding, and then
/// only other ranks can tell.
fn tellers(run: &Run) -> Vec<&Section> {
    if run.head().lists_places {
        return run.sections.iter().collect();
    }
    let received = |section: &&Section| section.epochs.iter().map(Vec::len).sum::<usize>();
    run.sections.iter().max_by_key(received).into_iter().collect()
}

/// What a section received of an epoch, where that began, and how many batches it received before.
fn received_of(section: &Section, epoch: u64) -> Option<(Cursor, &[Received], u64)> {
    let number = usize::try_from(epoch.checked_sub(section.head.cursor.epoch)?).ok()?;
    // One that it went past without a batch counts too: with `drop` the rest may be less than a step.
    let went_past = section.epochs.len() > number + 1;
    let batches = section.epochs.get(number).filter(|batches| went_past || !batches.is_empty())?;
    let before = section.epochs[..number].iter().map(|batches| batches.len() as u64).sum();
    let cursor = if number == 0 { section.head.cursor.clone() } else { Cursor::start_of(epoch) };
    Some((cursor, batches, before))
}
