//! Who was heard of when, and what they said about themselves: what a restart may forget.
//!
//! A restarted dispatcher takes everybody it knows as heard of right now; who is really gone lapses a time-out later.
//! Each one known has one entry in a heap of deadlines. Hearing of someone does not touch the heap: an entry whose
//! time has come is put back when there was news meanwhile.

use super::command::Settings;
use super::state::State;
use super::words::{JobName, Load, Progress, WorkerId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// One who can fall silent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Silent {
    Worker(WorkerId),
    Consumer(JobName, u64),
    /// A job that nobody is attached to.
    Job(JobName),
}

/// Times of one who can fall silent.
#[derive(Clone, Copy, Debug)]
struct Heard {
    at: u64,
    /// The deadline of its entry in the heap; entries with another are of no meaning.
    due: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WorkerPulse {
    pub(super) heard: u64,
    pub(super) load: Load,
    pub(super) batches_per_second: f64,
    pub(super) bytes_per_second: f64,
    /// A client could not reach it, and it has not been heard of since.
    pub(super) suspected: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ConsumerPulse {
    pub(super) heard: u64,
    /// When it last said how far it is; it is heard of more often than that.
    pub(super) told: Option<u64>,
    pub(super) progress: Progress,
    pub(super) samples_per_second: f64,
    /// Share of its time that it waits.
    pub(super) waiting_share: f64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Pulses {
    pub(super) workers: BTreeMap<WorkerId, WorkerPulse>,
    pub(super) consumers: BTreeMap<JobName, BTreeMap<u64, ConsumerPulse>>,
    heard: BTreeMap<Silent, Heard>,
    due: BinaryHeap<Reverse<(u64, Silent)>>,
}

impl Pulses {
    /// Everybody known is heard of now.
    pub(super) fn new(state: &State, settings: &Settings, now: u64) -> Self {
        let mut pulses = Self::default();
        for worker in state.workers.keys() {
            pulses.worker(*worker, settings, now).heard = now;
        }
        for (name, job) in &state.jobs {
            for rank in job.consumers.keys() {
                pulses.consumer(name, *rank, settings, now);
            }
            if job.consumers.is_empty() {
                pulses.hear(Silent::Job(name.clone()), settings.job_timeout_ms, now);
            }
        }
        pulses
    }

    /// A worker is heard of.
    pub(super) fn worker(&mut self, worker: WorkerId, settings: &Settings, now: u64) -> &mut WorkerPulse {
        self.hear(Silent::Worker(worker), settings.worker_timeout_ms, now);
        let pulse = self.workers.entry(worker).or_default();
        pulse.suspected = false;
        pulse
    }

    pub(super) fn load(&mut self, worker: WorkerId, load: Load, settings: &Settings, now: u64) {
        let pulse = self.worker(worker, settings, now);
        let passed = now.saturating_sub(pulse.heard);
        let (made, sent) = (pulse.load.made_batches, pulse.load.sent_bytes);
        smooth(&mut pulse.batches_per_second, load.made_batches.saturating_sub(made), passed);
        smooth(&mut pulse.bytes_per_second, load.sent_bytes.saturating_sub(sent), passed);
        (pulse.heard, pulse.load) = (now, load);
    }

    /// A consumer is heard of.
    pub(super) fn consumer(&mut self, job: &JobName, rank: u64, settings: &Settings, now: u64) {
        self.hear(Silent::Consumer(job.clone(), rank), settings.consumer_timeout_ms, now);
        if let Some(pulses) = self.consumers.get_mut(job) {
            pulses.entry(rank).or_default().heard = now;
        } else {
            let pulse = ConsumerPulse { heard: now, ..ConsumerPulse::default() };
            self.consumers.insert(job.clone(), BTreeMap::from([(rank, pulse)]));
        }
    }

    pub(super) fn progress(
        &mut self,
        job: &JobName,
        rank: u64,
        progress: Progress,
        settings: &Settings,
        now: u64,
    ) {
        self.consumer(job, rank, settings, now);
        let Some(pulse) = self.consumers.get_mut(job).and_then(|pulses| pulses.get_mut(&rank)) else {
            return;
        };
        let passed = now.saturating_sub(pulse.told.unwrap_or(now));
        smooth(&mut pulse.samples_per_second, progress.taken.saturating_sub(pulse.progress.taken), passed);
        if passed > 0 {
            let waited = progress.waits_ms.saturating_sub(pulse.progress.waits_ms);
            let share = (waited as f64 / passed as f64).min(1.0);
            pulse.waiting_share = pulse.waiting_share * 0.5 + share * 0.5;
        }
        (pulse.told, pulse.progress) = (Some(now), progress);
    }

    /// A job without consumers is kept for a while.
    pub(super) fn keep_job(&mut self, job: &JobName, settings: &Settings, now: u64) {
        self.hear(Silent::Job(job.clone()), settings.job_timeout_ms, now);
    }

    /// Forgets someone.
    pub(super) fn forget(&mut self, who: &Silent) {
        self.heard.remove(who);
        match who {
            Silent::Worker(worker) => drop(self.workers.remove(worker)),
            Silent::Consumer(job, rank) => {
                if let Some(pulses) = self.consumers.get_mut(job) {
                    pulses.remove(rank);
                    if pulses.is_empty() {
                        self.consumers.remove(job);
                    }
                }
            }
            Silent::Job(_) => {}
        }
        // Entries of those who came and went stay until their time; many of them are swept out together.
        if self.due.len() > 2 * self.heard.len() + 64 {
            let heard = &self.heard;
            self.due.retain(|Reverse((due, who))| heard.get(who).is_some_and(|heard| heard.due == *due));
        }
    }

    /// One who was silent for too long, if there is one.
    pub(super) fn lapsed(&mut self, settings: &Settings, now: u64) -> Option<Silent> {
        while let Some(Reverse((due, _))) = self.due.peek() {
            if *due > now {
                return None;
            }
            let Reverse((due, who)) = self.due.pop()?;
            let Some(heard) = self.heard.get_mut(&who).filter(|heard| heard.due == due) else { continue };
            let timeout = match who {
                Silent::Worker(_) => settings.worker_timeout_ms,
                Silent::Consumer(..) => settings.consumer_timeout_ms,
                Silent::Job(_) => settings.job_timeout_ms,
            };
            let deadline = heard.at.saturating_add(timeout);
            if deadline <= now {
                return Some(who);
            }
            heard.due = deadline;
            self.due.push(Reverse((deadline, who)));
        }
        None
    }

    fn hear(&mut self, who: Silent, timeout: u64, now: u64) {
        if let Some(heard) = self.heard.get_mut(&who) {
            heard.at = heard.at.max(now);
            return;
        }
        let due = now.saturating_add(timeout);
        self.due.push(Reverse((due, who.clone())));
        self.heard.insert(who, Heard { at: now, due });
    }
}

/// Follows a rate, so that one late report does not make it jump.
fn smooth(rate: &mut f64, count: u64, passed_ms: u64) {
    if passed_ms > 0 {
        let now = count as f64 * 1000.0 / passed_ms as f64;
        *rate = if *rate == 0.0 { now } else { *rate * 0.5 + now * 0.5 };
    }
}
