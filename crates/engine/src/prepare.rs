//! Prepare: threads that take the sample needed first and write it into its row of its batch.
//!
//! A bad sample never ends a thread: the policy decides whether its batch fails, goes on without it, or gets a
//! substitute chosen by seed. A panic inside an op is our fault and becomes an `internal` error of that sample.

use crate::batch::Fault;
use crate::board::{Board, Job, Outcome, Work};
use crate::cache::Cache;
use crate::config::{LoaderConfig, OnError};
use crate::inputs::Inputs;
use crate::meter::Meter;
use crate::sync::thread;
use forebay_core::rng::{Rng, fold};
use forebay_core::{Error, Result, SampleId};
use forebay_ops::{Program, SampleContext, Scratch};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc::UnboundedSender;

/// Substitutes tried for one row before the batch fails.
const MAX_SUBSTITUTES: u32 = 8;

/// Keeps substitution's chance apart from that of ops, whose numbers are small.
const SUBSTITUTE_STREAM: u64 = u64::MAX;

/// A row that waits for a substitute: batch, row and what was tried.
pub(crate) type Retry = (u64, usize, Job);

/// What every preparing thread shares.
pub(crate) struct Preparer {
    pub(crate) program: Arc<Program>,
    pub(crate) inputs: Inputs,
    pub(crate) config: LoaderConfig,
    /// Samples of the dataset: any of them may stand in for a bad one.
    pub(crate) samples: u64,
    pub(crate) board: Arc<Board>,
    /// Keeps values that are made here, when the loader has one.
    pub(crate) cache: Option<Arc<Cache>>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) retries: UnboundedSender<Retry>,
}

impl Preparer {
    /// The life of one thread.
    pub(crate) fn run(&self, thread: usize) {
        if let Some(init) = &self.config.thread_init {
            if let Err(error) = init(thread) {
                return self.board.stop(error.while_doing(format!("start preparing thread {thread}")));
            }
            self.board.thread_is_ready();
        }
        let mut scratch = self.program.scratch();
        while let Some(work) = self.board.take_work() {
            self.prepare(work, &mut scratch, self.meter.is_on());
        }
    }

    /// Prepares what is here and may be. For programs that do no work on payloads: this is called by network threads.
    pub(crate) fn prepare_ready(&self) {
        let mut scratch = self.program.scratch();
        while let Some(work) = self.board.try_take_work() {
            // Handing on is too little to be timed one by one: the clock would take as long.
            self.prepare(work, &mut scratch, false);
        }
    }

    fn prepare(&self, work: Work, scratch: &mut Scratch, timed: bool) {
        let Work { mut job, batch, mut writer } = work;
        let row = writer.row();
        let context = SampleContext { seed: self.config.seed, epoch: job.epoch, sample_id: job.sample };
        let since = timed.then(Instant::now);
        let inputs = std::mem::replace(&mut job.inputs, Ok(Vec::new()));
        let claims = std::mem::take(&mut job.claims);
        let result = inputs.and_then(|mut inputs| {
            let run = || {
                if let Some(cache) = &self.cache {
                    cache.make_values(claims, &mut inputs, scratch);
                }
                self.program.prepare(&context, &inputs, &mut writer.slots(), scratch)
            };
            let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(panicked(&*panic)));
            result.map_err(|error| self.explain(&job, error))
        });
        if let Some(since) = since {
            let time = since.elapsed();
            self.meter.prep_nanos.add_time(time);
            job.prep += time;
        }
        job.holds.clear();
        match result {
            Ok(()) => {
                writer.commit();
                self.board.finish(batch, row, job, Outcome::Done);
            }
            Err(error) => {
                // The writer travels with the job: it must be gone before the board hears that the row is finished.
                job.writer = Some(writer);
                match self.config.on_error {
                    OnError::Raise => self.give_up(batch, row, job, error, true),
                    OnError::Skip => self.give_up(batch, row, job, error, false),
                    OnError::Substitute => self.substitute(batch, row, job, error),
                }
            }
        }
    }

    fn give_up(&self, batch: u64, row: usize, mut job: Job, error: Error, fatal: bool) {
        drop(job.writer.take());
        self.board.finish(batch, row, job, Outcome::Failed { error, fatal });
    }

    fn substitute(&self, batch: u64, row: usize, mut job: Job, error: Error) {
        if job.attempt >= MAX_SUBSTITUTES || self.samples < 2 {
            let tried = job.attempt;
            return self.give_up(
                batch,
                row,
                job,
                error.while_doing(format!("after {tried} substitutes")),
                true,
            );
        }
        let bad = job.sample;
        let next = substitute_for(self.config.seed, job.epoch, bad, job.attempt, self.samples);
        let key = self.inputs.key(bad);
        job.faults.push(Fault { sample_id: bad, key, epoch: job.epoch, error, substitute: Some(next) });
        job.sample = next;
        job.attempt += 1;
        // The receiver is gone only while the session is being closed; the row is of no interest then.
        let _ = self.retries.send((batch, row, job));
    }

    fn explain(&self, job: &Job, error: Error) -> Error {
        let facts = self.inputs.facts(job.sample, job.epoch);
        let object = facts.object.clone().unwrap_or_default();
        let what = format!("prepare sample {} (`{}` in `{object}`)", job.sample, self.inputs.key(job.sample));
        error.with_facts(facts).while_doing(what)
    }
}

/// The sample that stands in for `bad`: another one, the same on every machine.
fn substitute_for(seed: u64, epoch: u64, bad: SampleId, attempt: u32, samples: u64) -> SampleId {
    let key = fold(&[seed, epoch, SUBSTITUTE_STREAM]);
    let step = 1 + Rng::keyed(key, bad.0, u64::from(attempt)).below(samples - 1);
    SampleId((bad.0 + step) % samples)
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    Error::internal(format!("an op panicked: {text}"))
        .with_hint("this is a fault of Forebay: please report it with the sample")
}

/// Starts the threads; they end when the board is stopped.
pub(crate) fn start_threads(preparer: &Arc<Preparer>) -> Result<()> {
    for thread in 0..preparer.config.threads {
        let guard = preparer.board.enter_thread();
        let preparer = Arc::clone(preparer);
        thread::Builder::new()
            .name(format!("forebay-prep-{thread}"))
            .spawn(move || {
                preparer.run(thread);
                drop(guard);
            })
            .map_err(|cause| Error::exhausted("start preparing threads").with_source(cause))?;
    }
    Ok(())
}
