//! The shell around core's [`Tuner`]: reads the meter at hand-overs, hands what was chosen to the stages, and says why.
//!
//! Only what the user did not set is tuned. More open batches take memory from payloads when both share a limit, so they may
//! have to wait until it is free; until then they are asked for at every step.

use crate::config::{LoaderConfig, MOST_THREADS};
use crate::memory::MemoryPlan;
use crate::meter::Meter;
use crate::supply::Supply;
use forebay_core::tune::{Choice, Knobs, Tuner};

/// Tunes one loader as long as it lives.
#[derive(Debug)]
pub(crate) struct Tuning {
    tuner: Tuner,
    /// What holds: what was chosen, as far as it was possible.
    held: Knobs,
}

impl Tuning {
    /// From the settings and the split of memory.
    pub(crate) fn new(config: &LoaderConfig, memory: &MemoryPlan) -> Self {
        let from = Knobs { threads: config.threads, open_batches: memory.open_batches };
        let threads = if config.more_threads { MOST_THREADS.max(4 * config.threads).min(256) } else { 0 };
        let most = Knobs { threads, open_batches: memory.most_open_batches };
        Self { tuner: Tuner::new(from, most), held: from }
    }

    /// A supply was started: it begins with what was found out so far.
    pub(crate) fn started(&mut self, supply: &dyn Supply) {
        self.apply(supply);
    }

    /// A batch was handed over.
    pub(crate) fn handed_over(&mut self, meter: &Meter, supply: &dyn Supply) {
        if self.tuner.is_due(meter.batches.get())
            && let Some(choice) = self.tuner.look(&meter.totals())
        {
            let Choice { step, knobs, why } = choice;
            tracing::info!(step, threads = knobs.threads, open_batches = knobs.open_batches, "tuned: {why}");
            self.apply(supply);
        } else if self.held != self.tuner.knobs() {
            self.apply(supply);
        }
    }

    fn apply(&mut self, supply: &dyn Supply) {
        let wanted = self.tuner.knobs();
        self.held = supply.tune(wanted);
        if self.held.threads < wanted.threads {
            // The system gives no more.
            self.tuner.limit_threads(self.held.threads);
        }
    }

    /// What holds now.
    pub(crate) fn knobs(&self) -> Knobs {
        self.held
    }

    /// What was changed and why, the newest last.
    pub(crate) fn choices(&self) -> Vec<Choice> {
        self.tuner.choices().cloned().collect()
    }
}
