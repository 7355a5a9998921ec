//! Counters on every hand-over. What they add up to is in [`stats`](crate::Stats).
//!
//! Each wait is timed once, where it happens: the consumer at `take`, threads at the queue, requests at the store. The
//! consumer's time is kept in a [`Ledger`], whose parts add up to all of it; which part of a stall is fetching's
//! `forebay_core::stall` decides.

use forebay_core::Result;
use forebay_core::stall::{CLASSES, Histogram, Ledger, Split, Took, class_of};
use forebay_core::tune::Totals;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Counters shared by all stages of a loader. They only grow.
#[derive(Debug, Default)]
pub struct Meter {
    pub(crate) batches: Sum,
    pub(crate) samples: Sum,
    pub(crate) padding: Sum,
    pub(crate) skipped: Sum,
    pub(crate) substituted: Sum,
    pub(crate) filtered: Sum,
    pub(crate) ready_at_take: Sum,
    pub(crate) ready_last: Sum,
    pub(crate) requests: Sum,
    pub(crate) payloads: Sum,
    pub(crate) payload_bytes: Sum,
    pub(crate) request_nanos: Times,
    pub(crate) retries: Sum,
    pub(crate) hedges: Sum,
    pub(crate) throttled: Sum,
    pub(crate) cache_memory_hits: Sum,
    pub(crate) cache_disk_hits: Sum,
    pub(crate) cache_peer_hits: Sum,
    pub(crate) cache_value_hits: Sum,
    pub(crate) cache_values_made: Sum,
    pub(crate) cache_misses: Sum,
    pub(crate) cache_hit_bytes: Sum,
    pub(crate) cache_miss_bytes: Sum,
    pub(crate) budget_wait_nanos: Sum,
    pub(crate) prep_nanos: Sum,
    pub(crate) prep_starved_nanos: Sum,
    pub(crate) prep_blocked_nanos: Sum,
    /// Bytes of batches that came from other processes, as they crossed.
    pub wire_bytes: Sum,
    /// Batches that were asked for a second time, because a worker was late or lost.
    pub asked_again: Sum,
    /// Batches that were left out because nobody kept them and making them again was not wanted.
    pub skipped_batches: Sum,
    account: Mutex<Account>,
    /// Whether only events are counted and nothing is timed.
    off: bool,
}

/// The consumer's time.
#[derive(Debug, Default)]
struct Account {
    ledger: Ledger,
    first_batch: Option<Duration>,
    /// When the loop first asked in this iteration, and when it was last heard of.
    iteration: Option<(Instant, Instant)>,
    /// Iterations before this one, from their first question until they were last heard of.
    earlier: Duration,
}

impl Account {
    fn heard(&mut self, now: Instant) {
        if let Some((_, last)) = &mut self.iteration {
            *last = now;
        }
    }

    fn wall(&self) -> Duration {
        self.earlier + self.iteration.map_or(Duration::ZERO, |(began, last)| last - began)
    }
}

/// A counter.
#[derive(Debug, Default)]
pub struct Sum(AtomicU64);

impl Sum {
    /// Adds to it.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Relaxed);
    }

    pub(crate) fn add_time(&self, time: Duration) {
        self.add(time.as_nanos() as u64);
    }

    /// Begins anew from `amount`: for what is a state, not a sum.
    pub(crate) fn set(&self, amount: u64) {
        self.0.store(amount, Relaxed);
    }

    /// The sum so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.get() as f64 * 1e-9
    }
}

/// The clock of a thread that goes from one row to the next: read once a row, where it hands one over. What it does between
/// two rows, such as taking the next one, is part of the next one's time; what it waits for is not.
#[derive(Debug)]
pub(crate) struct Lap(Option<std::time::Instant>);

impl Lap {
    /// Begins now, if anything is to be timed.
    pub(crate) fn begin(timed: bool) -> Self {
        Self(timed.then(std::time::Instant::now))
    }

    /// The time since the last hand-over, of which this is the next.
    pub(crate) fn hand_over(&mut self) -> Duration {
        self.0.as_mut().map_or(Duration::ZERO, |since| {
            let now = std::time::Instant::now();
            now - std::mem::replace(since, now)
        })
    }

    /// What came before this moment was something else.
    pub(crate) fn restart(&mut self, now: std::time::Instant) {
        if let Some(since) = &mut self.0 {
            *since = now;
        }
    }
}

/// Times counted by size, from any thread.
#[derive(Debug)]
pub(crate) struct Times {
    counts: Vec<AtomicU64>,
    sum: Sum,
    longest: AtomicU64,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            counts: (0..CLASSES).map(|_| AtomicU64::new(0)).collect(),
            sum: Sum::default(),
            longest: AtomicU64::new(0),
        }
    }
}

impl Times {
    pub(crate) fn add_time(&self, time: Duration) {
        let nanos = time.as_nanos() as u64;
        self.counts[class_of(nanos)].fetch_add(1, Relaxed);
        self.sum.add(nanos);
        self.longest.fetch_max(nanos, Relaxed);
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.sum.seconds()
    }

    pub(crate) fn histogram(&self) -> Histogram {
        let counts = self.counts.iter().map(|count| count.load(Relaxed)).collect();
        Histogram::from_counts(counts, self.sum.get(), self.longest.load(Relaxed))
    }
}

impl Meter {
    /// A meter that only counts events: nothing is timed, and stalls are not split.
    pub fn untimed() -> Self {
        Self { off: true, ..Self::default() }
    }

    /// Whether time is kept.
    pub(crate) fn is_on(&self) -> bool {
        !self.off
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The loop asks for a batch; gives the time back.
    pub(crate) fn asked(&self, now: Instant) -> Instant {
        if self.is_on() {
            let mut account = self.account();
            account.iteration.get_or_insert((now, now));
            account.heard(now);
        }
        now
    }

    /// A batch was handed over.
    pub(crate) fn took(&self, took: &Took, now: Instant) {
        self.batches.add(1);
        self.samples.add(took.samples);
        if self.is_on() {
            let mut account = self.account();
            account.first_batch.get_or_insert(took.stall.fetch + took.stall.prep + took.queue);
            account.ledger.took(took);
            account.heard(now);
        }
    }

    /// The last batch, handed over at `since`, is the framework's now.
    pub(crate) fn transferred(&self, since: Instant, now: Instant) {
        if self.is_on() {
            let mut account = self.account();
            account.ledger.transferred(now - since);
            account.heard(now);
        }
    }

    /// The loop, which has had a batch since `since`, is done with it.
    pub(crate) fn worked(&self, since: Instant, now: Instant) {
        if self.is_on() {
            let mut account = self.account();
            account.ledger.worked(now - since);
            account.heard(now);
        }
    }

    /// The iteration is over: what passes until the next one asks is nobody's.
    pub(crate) fn paused(&self) {
        if self.is_on() {
            let mut account = self.account();
            account.earlier = account.wall();
            account.iteration = None;
        }
    }

    /// A phase that the user named took so long.
    pub fn add_phase(&self, name: &str, time: Duration) -> Result<()> {
        self.account().ledger.add_phase(name, time)
    }

    /// The last steps one by one, at most [`KEPT_STEPS`](forebay_core::stall::KEPT_STEPS).
    pub fn steps(&self) -> Vec<Split> {
        self.account().ledger.steps().copied().collect()
    }

    /// The last epochs one by one, at most [`KEPT_EPOCHS`](forebay_core::stall::KEPT_EPOCHS).
    pub fn epochs(&self) -> Vec<Split> {
        self.account().ledger.epochs().copied().collect()
    }

    /// Looks at the accounts without copying them. Not for long: the loop waits meanwhile.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Ledger) -> T) -> T {
        look(&self.account().ledger)
    }

    /// What the tuner looks at.
    pub(crate) fn totals(&self) -> Totals {
        let total = *self.account().ledger.total();
        let time = |seconds: f64| Duration::from_secs_f64(seconds.max(0.0));
        let stall = total.fetch_stall_seconds + total.prep_stall_seconds;
        Totals {
            steps: self.batches.get(),
            wall: time(total.step_seconds + stall + total.queue_seconds + total.transfer_seconds),
            stall: time(stall),
            prep_stall: time(total.prep_stall_seconds),
            work: Duration::from_nanos(self.prep_nanos.get()),
            held: Duration::from_nanos(self.prep_blocked_nanos.get()),
        }
    }

    /// Other ranks were waited for in a step.
    pub(crate) fn waited_for_others(&self, epoch: u64, step: u64, time: Duration) {
        self.account().ledger.waited_for_others(epoch, step, time);
    }

    /// The accounts, the wait for the very first batch and all time, for the report.
    pub(crate) fn ledger(&self) -> (Ledger, Duration, Duration) {
        let account = self.account();
        (account.ledger.clone(), account.first_batch.unwrap_or_default(), account.wall())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::stall::{Making, ResidentRun};

    /// Rows of a batch, each timed by the thread that prepares it.
    const ROWS: u32 = 256;

    /// All that metering does for one step: the hand-over with its split, the step, and every row.
    fn meter_a_step(meter: &Meter, run: &mut ResidentRun, step: u64) {
        let mut lap = Lap::begin(meter.is_on());
        let work: Duration = (0..ROWS).map(|_| lap.hand_over()).sum();
        meter.prep_nanos.add_time(work);
        let asked = meter.asked(Instant::now());
        let making = Making { work, longest: work, servers: 2, fetch_limit: Duration::MAX };
        let now = Instant::now();
        let stall = run.split(now - asked, Duration::from_micros(10), &making);
        let took = Took { epoch: 0, step, samples: u64::from(ROWS), bytes: 1, stall, queue: now - asked };
        meter.took(&took, now);
        meter.transferred(now, Instant::now());
        meter.worked(now, Instant::now());
    }

    #[test]
    fn laps_add_up_to_the_time_that_was_not_spent_waiting() {
        let began = std::time::Instant::now();
        let mut lap = Lap::begin(true);
        let first = lap.hand_over();
        let waited_until = std::time::Instant::now() + Duration::from_secs(5);
        lap.restart(waited_until);
        assert_eq!(lap.hand_over(), Duration::ZERO, "a clock that has not come to where the wait ended");
        assert!(first <= began.elapsed());
        let mut off = Lap::begin(false);
        off.restart(waited_until);
        assert_eq!(off.hand_over(), Duration::ZERO);
    }

    #[test]
    fn p070_metering_takes_less_than_a_hundredth_of_a_step_of_100_ms_with_256_samples() {
        let (meter, mut run) = (Meter::default(), ResidentRun::new(9, Duration::ZERO));
        // The shortest of many rounds is what it costs; the others were interrupted. `examples/meter_cost.rs` compares whole
        // loaders with and without it.
        let mut shortest = Duration::MAX;
        for round in 0..200 {
            let began = std::time::Instant::now();
            for step in 0..10 {
                meter_a_step(&meter, &mut run, 10 * round + step);
            }
            shortest = shortest.min(began.elapsed() / 10);
        }
        assert!(100 * shortest < Duration::from_millis(100), "{shortest:?} for a step");
        assert_eq!(meter.batches.get(), 2000);
        // Not timed, nothing of it is kept.
        let off = Meter::untimed();
        meter_a_step(&off, &mut run, 0);
        assert!(off.steps().is_empty() && !meter.steps().is_empty());
    }
}
