//! A rank's pace, from its meter and what the machine says about its processors.
//!
//! What is late and why `forebay_core::stall` decides; here counters are read, at most a few times a second and off the loop's
//! own thread.

use crate::meter::Meter;
use forebay_core::stall::{Evidence, PACE_STEPS, Pace};
use std::sync::Arc;

/// Tells the pace of one loader, again and again.
#[derive(Debug)]
pub struct Pacer {
    meter: Arc<Meter>,
    /// What had been counted at two earlier steps, far enough apart that the older one is some steps away.
    before: [(u64, Evidence); 2],
}

impl Pacer {
    /// Of what this meter counts.
    pub fn new(meter: &Arc<Meter>) -> Self {
        let now = (0, evidence(meter));
        Self { meter: Arc::clone(meter), before: [now, now] }
    }

    /// The pace now; none when no time is kept.
    pub fn pace(&mut self) -> Option<Pace> {
        if !self.meter.is_on() {
            return None;
        }
        let now = evidence(&self.meter);
        let pace = self.meter.look(|ledger| Pace::of(ledger, &self.before[0].1, &now));
        if pace.steps >= self.before[1].0 + PACE_STEPS as u64 {
            self.before = [self.before[1], (pace.steps, now)];
        }
        Some(pace)
    }
}

fn evidence(meter: &Meter) -> Evidence {
    let (stolen, processors) = processor_time().unwrap_or_default();
    Evidence {
        requests: meter.requests.get(),
        request_us: (meter.request_nanos.seconds() * 1e6) as u64,
        hits: meter.cache_memory_hits.get() + meter.cache_disk_hits.get() + meter.cache_peer_hits.get(),
        misses: meter.cache_misses.get(),
        stolen,
        processors,
    }
}

/// Stolen and all time of this machine's processors, in ticks; none where the system does not say.
fn processor_time() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    read_processor_time(text.lines().next()?)
}

/// From the line of all processors: `cpu user nice system idle iowait irq softirq steal ...`. Time of guests is in `user`.
fn read_processor_time(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_ascii_whitespace();
    (words.next()? == "cpu").then_some(())?;
    let ticks: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
    let all = ticks.iter().fold(0u64, |all, one| all.saturating_add(*one));
    (ticks.len() == 8).then(|| (ticks[7], all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_the_eighth_number_and_nonsense_is_none() {
        let line = "cpu  100 1 50 800 10 0 5 34 7 0";
        assert_eq!(read_processor_time(line), Some((34, 1000)));
        for none in ["", "cpu", "cpu 1 2 3", "cpu0 1 1 1 1 1 1 1 1", "cpu a b c d e f g h"] {
            assert_eq!(read_processor_time(none), None, "{none}");
        }
    }

    #[test]
    fn without_time_there_is_no_pace() {
        assert_eq!(Pacer::new(&Arc::new(Meter::untimed())).pace(), None);
        assert_eq!(Pacer::new(&Arc::default()).pace().map(|pace| pace.over_steps), Some(0));
    }
}
