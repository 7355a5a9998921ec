//! The board: batches in the making, samples waiting to be prepared, and everybody who waits for either.
//!
//! The fetcher announces batches in order and reports arrived samples; preparing threads take the sample that is
//! needed first; the consumer takes the oldest batch when all its rows are done. One lock guards the lists, and no
//! work is done while it is held. Which sample a row gets is decided by the plan, or in arrival order by
//! [`ArrivalOrder`]; the board only keeps the accounts.

mod job;
mod open_batch;

pub(crate) use job::{Job, Outcome, Work};
pub(crate) use open_batch::Assembly;

use crate::batch::{Batch, Fault};
use crate::meter::{Lap, Meter};
use crate::supply::Taken;
use crate::sync::{Condvar, Mutex, MutexGuard};
use forebay_core::Error;
use forebay_core::arrival::ArrivalOrder;
use forebay_ops::{BatchBuilder, BufferPool, Output};
use job::Queued;
use open_batch::{OpenBatch, RowInfo};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
// Moments that are metered are the executor's, so that whole loaders can be metered in virtual time. Waits of threads are
// real: that clock stands still while they last.
use tokio::time::Instant as Moment;

pub(crate) struct Board {
    state: Mutex<State>,
    work: Condvar,
    ready: Condvar,
    /// Wakes the fetcher when a batch was taken.
    pub(crate) taken: Notify,
    outputs: Vec<Output>,
    pool: BufferPool,
    /// Whether somebody does something to whole batches before they are taken.
    finishes: bool,
    meter: Arc<Meter>,
}

#[derive(Default)]
struct State {
    stopped: Option<Error>,
    /// Number of the oldest batch that was not taken.
    first: u64,
    batches: VecDeque<OpenBatch>,
    queue: BinaryHeap<Reverse<Queued>>,
    epochs: BTreeMap<u64, EpochArrival>,
    /// Batches that may be open.
    open_batches: u64,
    /// Threads that should run: those with smaller numbers.
    wanted_threads: usize,
    /// Which of them do, by number.
    running: Vec<bool>,
    /// Threads that still run, those that are about to end included.
    threads: usize,
    /// Those of them that wait for work.
    idle: usize,
    /// When the first of them was ready to work, if it had something else to do before.
    prep_since: Option<Moment>,
}

/// Arrival order of one epoch: which row is filled next, and the samples that wait for a row.
struct EpochArrival {
    order: ArrivalOrder,
    next_batch: u64,
    next_row: usize,
    waiting: HashMap<u64, Job>,
}

impl Board {
    pub(crate) fn new(
        outputs: Vec<Output>,
        pool: BufferPool,
        open_batches: usize,
        finishes: bool,
        meter: Arc<Meter>,
    ) -> Self {
        let state = State { open_batches: open_batches as u64, ..State::default() };
        Self {
            state: Mutex::new(state),
            work: Condvar::new(),
            ready: Condvar::new(),
            taken: Notify::new(),
            outputs,
            pool,
            finishes,
            meter,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fetcher will bring `rows` samples for the next batch. Batches are announced in order.
    pub(crate) fn announce(&self, epoch: u64, step: u64, rows: usize) {
        self.lock().batches.push_back(OpenBatch::new(epoch, step, rows, self.finishes));
    }

    /// Number of announced batches that were not taken yet.
    pub(crate) fn announced(&self) -> usize {
        self.lock().batches.len()
    }

    /// Batches that may be open.
    pub(crate) fn open_batches(&self) -> usize {
        self.lock().open_batches as usize
    }

    /// Lets more batches be open.
    pub(crate) fn open_more(&self, open_batches: usize) {
        let mut state = self.lock();
        state.open_batches = state.open_batches.max(open_batches as u64);
        drop(state);
        self.work.notify_all();
        self.taken.notify_one();
    }

    /// So many threads are wanted from now on. Gives the numbers of those to be started; others end by themselves.
    pub(crate) fn want_threads(&self, wanted: usize) -> Vec<usize> {
        let mut state = self.lock();
        state.wanted_threads = wanted;
        let most = state.running.len().max(wanted);
        state.running.resize(most, false);
        let missing = (0..wanted).filter(|number| !state.running[*number]).collect();
        state.running[..wanted].fill(true);
        drop(state);
        self.work.notify_all();
        missing
    }

    /// These could not be started: they are not wanted, nor is any above them.
    pub(crate) fn not_started(&self, threads: &[usize]) {
        let mut state = self.lock();
        for thread in threads {
            state.running[*thread] = false;
            state.wanted_threads = state.wanted_threads.min(*thread);
        }
    }

    /// Threads that should run.
    pub(crate) fn wanted_threads(&self) -> usize {
        self.lock().wanted_threads
    }

    /// Number of batches that were taken.
    pub(crate) fn taken_batches(&self) -> u64 {
        self.lock().first
    }

    /// The rows of `epoch`, whose first batch has number `batch`, are filled in arrival order.
    pub(crate) fn order_by_arrival(&self, epoch: u64, batch: u64, window: u64) {
        let arrival = EpochArrival {
            order: ArrivalOrder::new(window),
            next_batch: batch,
            next_row: 0,
            waiting: HashMap::new(),
        };
        self.lock().epochs.insert(epoch, arrival);
    }

    /// A sample is here, planned for `row` of `batch`. With `wake` a thread is woken for it, if one sleeps.
    pub(crate) fn arrive(&self, batch: u64, row: usize, job: Job, wake: bool) {
        let mut state = self.lock();
        state.enqueue(batch, row, job);
        let wake = wake && state.has_use_for(batch);
        drop(state);
        if wake {
            self.work.notify_one();
        }
    }

    /// A substitute is here for a row whose planned sample failed.
    pub(crate) fn arrive_again(&self, batch: u64, row: usize, job: Job) {
        let mut state = self.lock();
        if state.stopped.is_none() && batch >= state.first {
            state.queue.push(Reverse(Queued { batch, row, job }));
        }
        drop(state);
        self.work.notify_one();
    }

    /// A sample is here that takes whatever row comes next; `number` counts within what is left of the epoch.
    pub(crate) fn arrive_unordered(&self, number: u64, job: Job, wake: bool) {
        let mut state = self.lock();
        let epoch = job.epoch;
        let Some(arrival) = state.epochs.get_mut(&epoch) else { return };
        arrival.waiting.insert(number, job);
        arrival.order.arrive(number);
        let mut woken = 0;
        while let Some((batch, row, job)) = state.next_in_arrival(epoch) {
            state.enqueue(batch, row, job);
            woken += usize::from(wake && state.has_use_for(batch));
        }
        drop(state);
        (0..woken).for_each(|_| self.work.notify_one());
    }

    /// A thread is done with what it had to do before its first sample.
    pub(crate) fn thread_is_ready(&self) {
        self.lock().prep_since.get_or_insert_with(Moment::now);
    }

    /// Blocks until a sample may be prepared; `None` when the board was stopped, or the thread of this number is not
    /// wanted any more. The thread's clock begins anew after a wait.
    pub(crate) fn take_work(&self, thread: usize, lap: &mut Lap) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if state.stopped.is_some() {
                return None;
            }
            if thread >= state.wanted_threads {
                state.running[thread] = false;
                return None;
            }
            let open_until = state.first + state.open_batches;
            let blocked = match state.queue.peek() {
                Some(Reverse(next)) if next.batch < open_until => return state.pop_work(self),
                next => next.is_some(),
            };
            let since = Instant::now();
            state.idle += 1;
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
            let waited =
                if blocked { &self.meter.prep_blocked_nanos } else { &self.meter.prep_starved_nanos };
            let now = Instant::now();
            waited.add_time(now - since);
            lap.restart(now);
        }
    }

    /// A sample that may be prepared now, if there is one.
    pub(crate) fn try_take_work(&self) -> Option<Work> {
        let mut state = self.lock();
        let open_until = state.first + state.open_batches;
        let is_open = state.queue.peek().is_some_and(|Reverse(next)| next.batch < open_until);
        if is_open { state.pop_work(self) } else { None }
    }

    /// A row was prepared or given up. The writer must be gone by now. What the batch is made of comes back with its last
    /// row, when something is to be done to the whole of it: [`Self::finish_batch`] is told of the result.
    pub(crate) fn finish(&self, batch: u64, row: usize, mut job: Job, outcome: Outcome) -> Option<Assembly> {
        let mut state = self.lock();
        let open = batch.checked_sub(state.first).and_then(|i| state.batches.get_mut(i as usize))?;
        open.faults.extend(job.faults.drain(..).map(|fault| (row, fault)));
        open.rows[row] = Some(RowInfo { place: job.place, sample: job.sample });
        if matches!(outcome, Outcome::LeftOut) {
            open.keep[row] = false;
            open.left_out += 1;
        }
        if let Outcome::Failed { error, fatal } = outcome {
            open.keep[row] = false;
            if fatal {
                if open.fatal.as_ref().is_none_or(|(earlier, _)| row < *earlier) {
                    open.fatal = Some((row, error));
                }
            } else {
                let key = error.facts().key.clone().unwrap_or_default();
                let fault = Fault { sample_id: job.sample, key, epoch: job.epoch, error, substitute: None };
                open.faults.push((row, fault));
            }
        }
        open.work += job.prep;
        open.longest = open.longest.max(job.prep);
        open.fetched |= job.fetched;
        open.unfinished -= 1;
        if open.unfinished == 0 {
            // Once a batch: threads that add to one counter for every row wait for each other.
            self.meter.prep_nanos.add_time(open.work);
        }
        let assembly =
            (self.finishes && open.unfinished == 0 && open.fatal.is_none()).then(|| open.assembly());
        if open.is_due() {
            open.done_at = Some(Moment::now());
            drop(state);
            self.ready.notify_all();
        }
        assembly
    }

    /// What came of doing something to a whole batch, which took so long.
    pub(crate) fn finish_batch(&self, batch: u64, finished: Result<Batch, Error>, took: Duration) {
        let mut state = self.lock();
        let open = batch.checked_sub(state.first).and_then(|i| state.batches.get_mut(i as usize));
        let Some(open) = open else { return };
        open.work += took;
        open.longest += took;
        open.finished = Some(finished);
        open.done_at = Some(Moment::now());
        drop(state);
        self.ready.notify_all();
    }

    /// The oldest batch, if all its rows are done within `wait`, or the error that it failed with: what else it waits for
    /// may be as late as a server's silence lasts. Taking it makes room for another one.
    pub(crate) fn take_batch(&self, wait: Duration) -> Result<Option<Taken>, Error> {
        let deadline = Instant::now() + wait;
        let mut state = self.lock();
        loop {
            if state.batches.front().is_some_and(OpenBatch::is_due) {
                break;
            }
            if let Some(error) = &state.stopped {
                return Err(error.duplicate());
            }
            let now = Instant::now();
            if now >= deadline {
                return Ok(None);
            }
            let (next, _) =
                self.ready.wait_timeout(state, deadline - now).unwrap_or_else(PoisonError::into_inner);
            state = next;
        }
        let ready = state.batches.iter().take_while(|batch| batch.is_done()).count();
        let Some(open) = state.batches.pop_front() else { return Ok(None) };
        state.first += 1;
        if open.unfinished > 0 {
            let first = state.first;
            state.queue.retain(|Reverse(next)| next.batch >= first);
        }
        state.forget_finished_epochs();
        let prep_since = state.prep_since;
        let servers = u32::try_from(state.wanted_threads).unwrap_or(u32::MAX);
        drop(state);
        self.work.notify_all();
        self.taken.notify_one();
        let making = open.making(servers);
        open.deliver(ready, making, prep_since).map(Some)
    }

    /// What the oldest batch waits for, in words.
    pub(crate) fn describe_wait(&self) -> String {
        let state = self.lock();
        match state.batches.front() {
            None => "its samples were not asked for yet".to_owned(),
            Some(batch) => format!(
                "{} of its {} samples are still being fetched and {} prepared",
                batch.missing,
                batch.rows.len(),
                batch.unfinished - batch.missing.min(batch.unfinished)
            ),
        }
    }

    /// Ends everything; whoever waits is woken and gets `reason`.
    pub(crate) fn stop(&self, reason: Error) {
        let mut state = self.lock();
        state.stopped.get_or_insert(reason);
        state.queue.clear();
        state.epochs.clear();
        drop(state);
        self.work.notify_all();
        self.ready.notify_all();
        self.taken.notify_one();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.lock().stopped.is_some()
    }

    /// One more preparing thread runs until the guard is dropped.
    pub(crate) fn enter_thread(self: &Arc<Self>) -> ThreadGuard {
        self.lock().threads += 1;
        ThreadGuard(Arc::clone(self))
    }

    /// Waits until no preparing thread runs any more; false when some still do after `wait`.
    pub(crate) fn threads_gone(&self, wait: Duration) -> bool {
        let state = self.lock();
        let result = self.ready.wait_timeout_while(state, wait, |state| state.threads > 0);
        result.unwrap_or_else(PoisonError::into_inner).0.threads == 0
    }
}

/// Counts a running thread.
pub(crate) struct ThreadGuard(Arc<Board>);

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        self.0.lock().threads -= 1;
        self.0.ready.notify_all();
    }
}

impl State {
    fn enqueue(&mut self, batch: u64, row: usize, job: Job) {
        // Of a batch that failed before all of it was here.
        if self.stopped.is_some() || batch < self.first {
            return;
        }
        if let Some(open) = batch.checked_sub(self.first).and_then(|i| self.batches.get_mut(i as usize)) {
            open.missing = open.missing.saturating_sub(1);
        }
        self.queue.push(Reverse(Queued { batch, row, job }));
    }

    /// Whether a thread sleeps that should know of a sample for `batch`: waking one costs more than looking. A sample
    /// that cannot be prepared yet still tells threads what they wait for.
    fn has_use_for(&self, batch: u64) -> bool {
        let is_open = batch < self.first + self.open_batches;
        self.idle > 0 && (is_open || self.queue.len() <= self.idle)
    }

    fn pop_work(&mut self, board: &Board) -> Option<Work> {
        let Reverse(Queued { batch, row, mut job }) = self.queue.pop()?;
        let open = self.batches.get_mut((batch - self.first) as usize)?;
        let rows = open.rows.len();
        let builder =
            open.builder.get_or_insert_with(|| BatchBuilder::new(&board.outputs, rows, &board.pool));
        let writer = job.writer.take().or_else(|| builder.claim(row))?;
        Some(Work { job, batch, writer })
    }

    fn next_in_arrival(&mut self, epoch: u64) -> Option<(u64, usize, Job)> {
        let arrival = self.epochs.get_mut(&epoch)?;
        let index = arrival.next_batch.checked_sub(self.first)?;
        let rows = self.batches.get(index as usize)?.rows.len();
        let number = arrival.order.next_row()?;
        let job = arrival.waiting.remove(&number)?;
        let (batch, row) = (arrival.next_batch, arrival.next_row);
        arrival.next_row += 1;
        if arrival.next_row == rows {
            (arrival.next_batch, arrival.next_row) = (batch + 1, 0);
        }
        Some((batch, row, job))
    }

    fn forget_finished_epochs(&mut self) {
        if let Some(epoch) = self.batches.front().map(|batch| batch.epoch) {
            self.epochs = self.epochs.split_off(&epoch);
        }
    }
}
