//! Whether every sample was received exactly once.
//!
//! An epoch is *finished* when a rank received its last batch of it, or the job went on to a later one. Of a finished
//! epoch every position must have been received once, but for those that no rank reads. Of one that is open every position
//! before its last start must have been, and none twice. With the order at hand, what was in each batch is compared too:
//! the check that was written when its rows were handed over against the rows of the plan.

use super::bits::Bits;
use super::history::Stream;
use super::verdict::{EpochState, EpochVerdict, Fault, FaultKind, RunVerdict, Seen};
use super::walk::{Part, Visit, Walk};
use super::{Fate, OddRow, rows_check};
use crate::cursor::Cursor;
use crate::plan::{Plan, Sampler};
use crate::portion::Consumer;
use crate::{Result, SampleId};
use serde::Serialize;
use std::collections::BTreeMap;

/// Steps by which ranks of a running job may be apart: what the last ones have not received yet is no gap.
const LIVE_STEPS: u64 = 2;

/// What was found of a stream.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamVerdict {
    /// Version of the dataset.
    pub dataset: String,
    /// Samples of the dataset.
    pub samples: u64,
    /// The order.
    pub order: serde_json::Value,
    /// Fingerprints of the recipes that were used, in the order of runs.
    pub recipes: Vec<String>,
    /// Whether the ids of rows were compared, and not positions alone.
    pub by_id: bool,
    /// Whether every finished epoch is exact and nothing came twice.
    pub exact: bool,
    /// The starts of the job.
    pub runs: Vec<RunVerdict>,
    /// The epochs.
    pub epochs: Vec<EpochVerdict>,
}

impl Stream {
    /// Checks all epochs; `sampler` is the order when it is known. At most `limit` faults of an epoch are named.
    pub fn check(&self, sampler: Option<&Sampler>, limit: usize) -> Result<StreamVerdict> {
        let walk = Walk::new(self, sampler)?;
        let epochs: Vec<EpochVerdict> =
            walk.epochs().into_iter().map(|epoch| check_epoch(&walk, epoch, limit)).collect::<Result<_>>()?;
        let mut recipes: Vec<String> = Vec::new();
        for section in self.runs.iter().flat_map(|run| &run.sections) {
            if !recipes.contains(&section.head.recipe) {
                recipes.push(section.head.recipe.clone());
            }
        }
        let runs = self.runs.iter().enumerate().map(|(number, run)| RunVerdict {
            run: number as u64 + 1,
            started_micros: run.sections.iter().map(|section| section.head.started_micros).min().unwrap_or(0),
            job: run.head().job.clone(),
            world_size: run.head().world_size,
            ranks: run.sections.len() as u64,
            batch_size: run.head().batch_size,
            epoch: run.head().cursor.epoch,
            first_step: walk.first_step(number),
            batches: run.sections.iter().flat_map(|section| &section.epochs).map(|e| e.len() as u64).sum(),
        });
        Ok(StreamVerdict {
            dataset: self.dataset().to_owned(),
            samples: self.head().samples,
            order: self.order().clone(),
            recipes,
            by_id: sampler.is_some(),
            exact: epochs.iter().all(|epoch| epoch.state != EpochState::Faulty),
            runs: runs.collect(),
            epochs,
        })
    }
}

fn check_epoch(walk: &Walk<'_>, epoch: u64, limit: usize) -> Result<EpochVerdict> {
    let plan = walk.sampler.map(|sampler| sampler.plan(epoch));
    let mut count = Counting::new(walk, epoch, plan.as_ref(), limit)?;
    walk.visit(epoch, |visit| {
        count.add(visit);
        Ok(())
    })?;
    let Counting { mut verdict, seen, twice, .. } = count;
    let Some(newest) = walk.newest(epoch) else { return Ok(verdict) };
    let parts = walk.parts(newest, epoch)?;
    let finished = is_finished(walk, newest, epoch, &parts);
    let unread = parts.first().map(|part| part.portion.unread());
    let begins_here = walk.stream.runs[newest].head().cursor.epoch == epoch;
    let sample_at = |position| plan.as_ref().map(|plan: &Plan| plan.at(position).0);
    let (mut gaps, mut doubles) = (Vec::new(), Vec::new());
    for position in 0..verdict.positions {
        if twice.has(position) && doubles.len() < limit {
            doubles.push(position);
        }
        if seen.has(position) {
            continue;
        }
        if finished && unread.as_ref().is_some_and(|unread| unread.contains(position)) {
            verdict.left_out += 1;
        } else if finished || (begins_here && !walk.is_to_come(newest, position)) {
            verdict.gaps += 1;
            if gaps.len() < limit {
                gaps.push(position);
            }
        }
    }
    let mut receivers = receivers_of(walk, epoch, &doubles)?;
    receivers.extend(owners_of(walk, newest, epoch, &gaps)?);
    for (kind, positions) in [(FaultKind::Gap, gaps), (FaultKind::Double, doubles)] {
        verdict.faults.extend(positions.into_iter().map(|position| Fault {
            kind,
            position,
            sample_id: sample_at(position),
            seen: receivers.remove(&position).unwrap_or_default(),
        }));
    }
    let sound = verdict.gaps + verdict.doubles + verdict.altered == 0;
    verdict.state = match (sound, finished) {
        (false, _) => EpochState::Faulty,
        (true, true) => EpochState::Exact,
        (true, false) => EpochState::Open,
    };
    Ok(verdict)
}

/// What is counted while an epoch is walked.
struct Counting<'a> {
    verdict: EpochVerdict,
    seen: Bits,
    twice: Bits,
    plan: Option<&'a Plan>,
    /// Samples that were met, in orders that have each once.
    samples: Option<Bits>,
    limit: usize,
    ids: Vec<SampleId>,
}

impl<'a> Counting<'a> {
    fn new(walk: &Walk<'_>, epoch: u64, plan: Option<&'a Plan>, limit: usize) -> Result<Self> {
        let head = walk.stream.head();
        let positions = head.positions;
        let verdict = EpochVerdict {
            epoch,
            state: EpochState::Superseded,
            positions,
            received: 0,
            superseded: 0,
            left_out: 0,
            padding: 0,
            skipped: 0,
            filtered: 0,
            substituted: 0,
            gaps: 0,
            doubles: 0,
            altered: 0,
            faults: Vec::new(),
        };
        let once = plan.is_some_and(|plan| !plan.is_empty() && plan.position_of(plan.at(0)).is_some());
        let samples = once.then(|| Bits::new(head.samples)).transpose()?;
        let (seen, twice) = (Bits::new(positions)?, Bits::new(positions)?);
        Ok(Self { verdict, seen, twice, plan, samples, limit, ids: Vec::new() })
    }

    fn add(&mut self, visit: &Visit<'_>) {
        let odd = odd_rows(visit);
        let mut next_odd = odd.iter().peekable();
        for (row, place) in visit.places.iter().enumerate() {
            let fate = next_odd.next_if(|odd| odd.row == row as u64).map(|odd| odd.fate);
            if place.padding {
                self.verdict.padding += u64::from(visit.batch_counts());
                continue;
            }
            if !visit.counts(place.position) {
                self.verdict.superseded += 1;
                continue;
            }
            match fate {
                None => {}
                Some(Fate::Skipped) => self.verdict.skipped += 1,
                Some(Fate::Filtered) => self.verdict.filtered += 1,
                Some(Fate::Substituted(_)) => self.verdict.substituted += 1,
            }
            let is_new = self.seen.put(place.position);
            let sample_is_new = match (&mut self.samples, self.plan) {
                (Some(samples), Some(plan)) => samples.put(plan.at(place.position).0),
                _ => is_new,
            };
            if is_new && sample_is_new {
                self.verdict.received += 1;
            } else if self.twice.put(place.position) {
                self.verdict.doubles += 1;
            }
        }
        self.compare(visit, odd);
    }

    /// Whether the batch had the rows of the plan.
    fn compare(&mut self, visit: &Visit<'_>, odd: &[OddRow]) {
        let Some(plan) = self.plan.filter(|_| visit.batch_counts()) else { return };
        let mut next_odd = odd.iter().peekable();
        self.ids.clear();
        for (row, place) in visit.places.iter().enumerate() {
            match next_odd.next_if(|odd| odd.row == row as u64).map(|odd| odd.fate) {
                None => self.ids.push(plan.at(place.position)),
                Some(Fate::Substituted(id)) => self.ids.push(id),
                Some(Fate::Skipped | Fate::Filtered) => {}
            }
        }
        if rows_check(self.ids.iter().copied()) == visit.part.batches[visit.step].check {
            return;
        }
        self.verdict.altered += 1;
        if self.verdict.faults.len() < self.limit {
            let position = visit.places.first().map_or(0, |place| place.position);
            self.verdict.faults.push(Fault {
                kind: FaultKind::Altered,
                position,
                sample_id: Some(plan.at(position).0),
                seen: vec![seen_at(visit)],
            });
        }
    }
}

pub(super) fn odd_rows<'a>(visit: &Visit<'a>) -> &'a [OddRow] {
    let part: &'a Part<'a> = visit.part;
    part.batches[visit.step].more.as_ref().map_or(&[], |more| &more.odd)
}

fn seen_at(visit: &Visit<'_>) -> Seen {
    Seen { run: visit.run as u64 + 1, rank: visit.part.head.rank, step: visit.global_step() }
}

/// Whether an epoch is over for the job, as far as its newest run tells.
fn is_finished(walk: &Walk<'_>, newest: usize, epoch: u64, parts: &[Part<'_>]) -> bool {
    if newest + 1 < walk.stream.runs.len() {
        // A later run began behind it, or it would not be the newest.
        return true;
    }
    let sections = &walk.stream.runs[newest].sections;
    let steps = |section: &super::Section| section.epochs.iter().map(|e| e.len() as u64).sum::<u64>();
    let furthest = sections.iter().map(steps).max().unwrap_or(0);
    let ends = |section: &super::Section| section.head.cursor.epoch + section.epochs.len() as u64 - 1;
    // Ranks of a running job are not all at the same step.
    let behind = |section: &super::Section| {
        let part = parts.iter().find(|part| part.head.rank == section.head.rank);
        let done = ends(section) > epoch || part.is_some_and(Part::is_finished);
        !done && steps(section) + LIVE_STEPS >= furthest
    };
    let over = parts.iter().any(Part::is_finished) || sections.iter().any(|section| ends(section) > epoch);
    over && !sections.iter().any(behind)
}

/// Who received some positions.
fn receivers_of(walk: &Walk<'_>, epoch: u64, positions: &[u64]) -> Result<BTreeMap<u64, Vec<Seen>>> {
    let mut found: BTreeMap<u64, Vec<Seen>> = positions.iter().map(|p| (*p, Vec::new())).collect();
    if found.is_empty() {
        return Ok(found);
    }
    walk.visit(epoch, |visit| {
        for place in visit.places.iter().filter(|place| !place.padding) {
            if let Some(seen) = found.get_mut(&place.position).filter(|_| visit.counts(place.position)) {
                seen.push(seen_at(visit));
            }
        }
        Ok(())
    })?;
    Ok(found)
}

/// Who of the newest run should have received some positions. By arrival only ranks that are there can tell.
fn owners_of(
    walk: &Walk<'_>,
    newest: usize,
    epoch: u64,
    positions: &[u64],
) -> Result<BTreeMap<u64, Vec<Seen>>> {
    let mut found = BTreeMap::new();
    let run = &walk.stream.runs[newest];
    let head = run.head();
    if positions.is_empty() || (head.cursor.is_by_arrival() && head.cursor.epoch == epoch) {
        return Ok(found);
    }
    let cursor = if head.cursor.epoch == epoch { head.cursor.clone() } else { Cursor::start_of(epoch) };
    let first_step = walk.parts(newest, epoch)?.iter().map(|part| part.first_step).min().unwrap_or(0);
    for rank in 0..head.world_size {
        let portion = walk.portion(head, Consumer { rank, ..head.consumer() }, &cursor)?;
        for step in 0..portion.steps() {
            for place in portion.batch(step).filter(|place| !place.padding) {
                if positions.binary_search(&place.position).is_ok() {
                    let seen = Seen { run: newest as u64 + 1, rank, step: first_step + step };
                    found.insert(place.position, vec![seen]);
                }
            }
        }
    }
    Ok(found)
}
