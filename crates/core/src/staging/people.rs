//! Jobs and their connections: how far each has come, and what it waits for.

use super::entry::{Point, point};
use super::{ConsumerId, JobView, Name};
use std::collections::{BTreeMap, BTreeSet};

/// Names that one connection may have planned; what is more is forgotten, since a plan is only a wish.
const PLANNED: usize = 4096;

/// Ranks of a job that are told apart.
const RANKS: usize = 1 << 16;

/// One connection.
#[derive(Clone, Debug)]
pub(super) struct Consumer {
    pub(super) job: String,
    /// Everything of its own before this was received; unknown until it says or takes something.
    pub(super) passed: Option<Point>,
    /// Whether it said so.
    said: bool,
    /// What it waits for, in the order of asking.
    pub(super) tickets: BTreeSet<u64>,
    pub(super) planned: BTreeSet<Name>,
    /// Batches on their way to it.
    pub(super) sending: usize,
}

impl Consumer {
    /// Where it is, as far as that is known.
    pub(super) fn place(&self) -> Option<Point> {
        self.passed.or_else(|| self.planned.first().map(|name| point(name)))
    }

    /// Notes that it wants a name; false when it wants too many.
    pub(super) fn plan(&mut self, name: &Name) -> bool {
        self.planned.len() < PLANNED && self.planned.insert(Name::clone(name))
    }
}

/// One attached job.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// Never used twice, so that a job that comes back has taken nothing.
    pub(super) id: u64,
    pub(super) consumers: BTreeSet<ConsumerId>,
    world_size: u64,
    ranks: BTreeSet<u64>,
    /// The frontier of the slowest connection.
    pub(super) passed: Option<Point>,
    pub(super) given: u64,
    pub(super) skipped: u64,
    /// Under `Skip`: what begins at or before this and is not here is not to be had. A batch that this job had not taken
    /// was dropped there; ranks of a faster job that are behind their fellows lose nothing.
    pub(super) skipped_to: Option<Point>,
}

impl Job {
    /// Whether some of its ranks have never been here.
    pub(super) fn lacks_ranks(&self) -> bool {
        (self.ranks.len() as u64) < self.world_size
    }
}

/// All jobs and connections, and who is expected.
#[derive(Clone, Debug, Default)]
pub(super) struct People {
    pub(super) jobs: BTreeMap<String, Job>,
    pub(super) consumers: BTreeMap<ConsumerId, Consumer>,
    pub(super) expected: BTreeSet<String>,
    jobs_seen: u64,
}

impl People {
    /// Adds a connection; false when it is known already.
    pub(super) fn attach(&mut self, id: ConsumerId, job: String, rank: u64, world_size: u64) -> bool {
        if self.consumers.contains_key(&id) {
            return false;
        }
        self.jobs_seen += 1;
        let found = self.jobs.entry(job.clone()).or_insert_with(|| Job {
            id: self.jobs_seen,
            consumers: BTreeSet::new(),
            world_size,
            ranks: BTreeSet::new(),
            passed: None,
            given: 0,
            skipped: 0,
            skipped_to: None,
        });
        found.world_size = world_size.max(1);
        found.consumers.insert(id);
        if rank < found.world_size && found.ranks.len() < RANKS {
            found.ranks.insert(rank);
        }
        found.passed = None;
        let consumer = Consumer {
            job,
            passed: None,
            said: false,
            tickets: BTreeSet::new(),
            planned: BTreeSet::new(),
            sending: 0,
        };
        self.consumers.insert(id, consumer);
        true
    }

    /// Takes a connection out, and its job with the last one.
    pub(super) fn detach(&mut self, id: ConsumerId) -> Option<Consumer> {
        let gone = self.consumers.remove(&id)?;
        if let Some(job) = self.jobs.get_mut(&gone.job) {
            job.consumers.remove(&id);
            if job.consumers.is_empty() {
                self.jobs.remove(&gone.job);
            }
        }
        self.look_again(&gone.job);
        Some(gone)
    }

    /// Moves a connection's frontier. Returns its job's frontier before and after.
    pub(super) fn pass(&mut self, id: ConsumerId, to: Point) -> Option<(Option<Point>, Option<Point>)> {
        let consumer = self.consumers.get_mut(&id)?;
        consumer.passed = if consumer.said { consumer.passed.max(Some(to)) } else { Some(to) };
        consumer.said = true;
        self.passed(id)
    }

    /// Notes what a connection takes: until it says more, it begins with the first of that in the order of the plan.
    pub(super) fn notice(&mut self, id: ConsumerId, at: Point) -> Option<(Option<Point>, Option<Point>)> {
        let consumer = self.consumers.get_mut(&id).filter(|consumer| !consumer.said)?;
        consumer.passed = Some(consumer.passed.map_or(at, |passed| passed.min(at)));
        self.passed(id)
    }

    fn passed(&mut self, id: ConsumerId) -> Option<(Option<Point>, Option<Point>)> {
        let consumer = self.consumers.get(&id)?;
        let job = consumer.job.clone();
        let before = self.jobs.get(&job)?.passed;
        Some((before, self.look_again(&job)))
    }

    fn look_again(&mut self, name: &str) -> Option<Point> {
        let job = self.jobs.get_mut(name)?;
        let frontiers = job.consumers.iter().map(|id| self.consumers.get(id).and_then(|one| one.passed));
        // Unknown is less than everything known.
        job.passed = frontiers.min().flatten();
        job.passed
    }

    pub(super) fn job_of(&mut self, id: ConsumerId) -> Option<&mut Job> {
        let consumer = self.consumers.get(&id)?;
        self.jobs.get_mut(&consumer.job)
    }

    /// Whether what begins at `at` was dropped, or older than what was, before this consumer's job took it.
    pub(super) fn is_too_late(&self, id: ConsumerId, at: Point) -> bool {
        let job = self.consumers.get(&id).and_then(|consumer| self.jobs.get(&consumer.job));
        job.is_some_and(|job| job.skipped_to.is_some_and(|to| at <= to))
    }

    pub(super) fn view(&self) -> Vec<JobView> {
        let view = |(name, job): (&String, &Job)| JobView {
            job: name.clone(),
            consumers: job.consumers.len() as u64,
            given: job.given,
            skipped: job.skipped,
            passed: job.passed,
        };
        self.jobs.iter().map(view).collect()
    }
}
