//! Prepare: threads that take the sample needed first and write it into its row of its batch.
//!
//! A bad sample never ends a thread: the policy decides whether its batch fails, goes on without it, or gets a
//! substitute chosen by seed. A panic inside an op is our fault and becomes an `internal` error of that sample.

use crate::batch::{Batch, Fault};
use crate::board::{Assembly, Board, Job, Outcome, Work};
use crate::cache::Cache;
use crate::config::{LoaderConfig, OnError};
use crate::inputs::Inputs;
use crate::meter::{Lap, Meter};
use crate::sync::thread;
use forebay_core::quarantine::{MAX_SUBSTITUTES, substitute_for};
use forebay_core::{Error, Result};
use forebay_ops::{Program, SampleContext, Scratch};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;

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
        let mut lap = Lap::begin(self.meter.is_on());
        while let Some(work) = self.board.take_work(thread, &mut lap) {
            self.prepare(work, &mut scratch, &mut lap);
        }
    }

    /// Prepares what is here and may be. For programs that do no work on payloads: this is called by network threads.
    pub(crate) fn prepare_ready(&self) {
        let mut scratch = self.program.scratch();
        // Handing on is too little to be timed one by one: the clock would take as long.
        let mut untimed = Lap::begin(false);
        while let Some(work) = self.board.try_take_work() {
            self.prepare(work, &mut scratch, &mut untimed);
        }
    }

    fn prepare(&self, work: Work, scratch: &mut Scratch, lap: &mut Lap) {
        let Work { mut job, batch, mut writer } = work;
        let row = writer.row();
        let context = SampleContext { seed: self.config.seed, epoch: job.epoch, sample_id: job.sample };
        let inputs = std::mem::replace(&mut job.inputs, Ok(Vec::new()));
        let claims = std::mem::take(&mut job.claims);
        let result = inputs.and_then(|mut inputs| {
            let run = || {
                self.inputs.take(job.sample, &mut inputs)?;
                if let Some(cache) = &self.cache {
                    cache.make_values(claims, &mut inputs, scratch);
                }
                self.program.prepare(&context, &inputs, &mut writer.slots(), scratch)
            };
            let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(panicked(&*panic)));
            result.map_err(|error| self.explain(&job, error))
        });
        job.prep += lap.hand_over();
        job.holds.clear();
        match result {
            Ok(true) => {
                writer.commit();
                self.finish(batch, row, job, Outcome::Done, lap);
            }
            Ok(false) => {
                drop(writer);
                self.finish(batch, row, job, Outcome::LeftOut, lap);
            }
            Err(error) => {
                // The writer travels with the job: it must be gone before the board hears that the row is finished.
                job.writer = Some(writer);
                match self.config.on_error {
                    OnError::Raise => self.give_up(batch, row, job, error, true, lap),
                    OnError::Skip => self.give_up(batch, row, job, error, false, lap),
                    OnError::Substitute => self.substitute(batch, row, job, error, lap),
                }
            }
        }
    }

    fn give_up(&self, batch: u64, row: usize, mut job: Job, error: Error, fatal: bool, lap: &mut Lap) {
        drop(job.writer.take());
        self.finish(batch, row, job, Outcome::Failed { error, fatal }, lap);
    }

    /// Tells the board of a row; with the last one of a batch, does what is to be done to the whole of it.
    fn finish(&self, batch: u64, row: usize, job: Job, outcome: Outcome, lap: &mut Lap) {
        let Some(assembly) = self.board.finish(batch, row, job, outcome) else { return };
        lap.hand_over();
        let run = AssertUnwindSafe(|| self.finish_batch(assembly));
        let finished = catch_unwind(run).unwrap_or_else(|panic| Err(panicked(&*panic)));
        let took = lap.hand_over();
        self.meter.prep_nanos.add_time(took);
        self.board.finish_batch(batch, finished, took);
    }

    fn finish_batch(&self, assembly: Assembly) -> Result<Batch> {
        let mut batch = assembly.into_batch()?;
        let explain = |error: Error, batch: (u64, u64)| {
            error.while_doing(format_args!("prepare batch {} of epoch {}", batch.1, batch.0))
        };
        let name = (batch.epoch, batch.step);
        let seeds = (self.config.seed, batch.epoch);
        let columns = std::mem::take(&mut batch.columns);
        batch.columns =
            self.program.finish_batch(seeds, &batch.ids, columns).map_err(|error| explain(error, name))?;
        match &self.config.finish_batch {
            Some(finish) => finish(batch).map_err(|error| explain(error, name)),
            None => Ok(batch),
        }
    }

    fn substitute(&self, batch: u64, row: usize, mut job: Job, error: Error, lap: &mut Lap) {
        if job.attempt >= MAX_SUBSTITUTES || self.samples < 2 {
            let tried = job.attempt;
            return self.give_up(
                batch,
                row,
                job,
                error.while_doing(format!("after {tried} substitutes")),
                true,
                lap,
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

fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    Error::internal(format!("an op panicked: {text}"))
        .with_hint("this is a fault of Forebay: please report it with the sample")
}

/// Sees to it that so many threads run; they end when the board is stopped, or when fewer are wanted.
pub(crate) fn run_threads(preparer: &Arc<Preparer>, threads: usize) -> Result<()> {
    let missing = preparer.board.want_threads(threads);
    for (started, thread) in missing.iter().copied().enumerate() {
        let guard = preparer.board.enter_thread();
        let inside = Arc::clone(preparer);
        let spawned = thread::Builder::new().name(format!("forebay-prep-{thread}")).spawn(move || {
            inside.run(thread);
            drop(guard);
        });
        if let Err(cause) = spawned {
            preparer.board.not_started(&missing[started..]);
            return Err(Error::exhausted("start preparing threads").with_source(cause));
        }
    }
    Ok(())
}
