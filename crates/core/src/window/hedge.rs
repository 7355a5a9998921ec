//! When a second request should be sent for a first one that is slow.
//!
//! A request is slow when it has waited well beyond what nearly all requests of its size wait. How many second
//! requests may be sent is a fixed share of the first ones: when the whole link becomes slow, every request looks
//! slow, and without the allowance the answer to an overloaded link would be twice the load.

use std::time::Duration;

/// Latencies kept for each size class.
const KEPT: usize = 128;
/// Latencies needed before a class says anything.
const ENOUGH: usize = 16;
/// Their quantile is found again after so many new ones.
const SORTED_EVERY: usize = 8;
/// The quantile that nearly all requests keep, and how far beyond it a request is slow.
const QUANTILE: f64 = 0.95;
const BEYOND: f64 = 2.0;
/// A second request sooner than this after the first wins nothing worth its cost.
const SOONEST: Duration = Duration::from_millis(10);
/// Second requests that may be saved up, so that several slow requests of one large batch are all helped.
const BURST: f64 = 32.0;

/// Decides on second requests, from the latencies of all requests of one store.
#[derive(Clone, Debug)]
pub struct Hedge {
    share: f64,
    allowance: f64,
    /// By size class: the base-2 logarithm of the bytes asked for.
    classes: Vec<Class>,
}

#[derive(Clone, Debug, Default)]
struct Class {
    /// The latest latencies in seconds; a ring once it is full.
    latencies: Vec<f64>,
    next: usize,
    /// Of them; 0 while there are too few.
    quantile: f64,
    /// Latencies added since it was found.
    fresh: usize,
}

impl Class {
    fn add(&mut self, latency: f64) {
        if self.latencies.len() < KEPT {
            self.latencies.push(latency);
        } else {
            self.latencies[self.next] = latency;
            self.next = (self.next + 1) % KEPT;
        }
        self.fresh += 1;
        if self.latencies.len() >= ENOUGH && (self.quantile == 0.0 || self.fresh >= SORTED_EVERY) {
            let mut sorted = self.latencies.clone();
            let at = ((sorted.len() - 1) as f64 * QUANTILE) as usize;
            (self.quantile, self.fresh) = (*sorted.select_nth_unstable_by(at, f64::total_cmp).1, 0);
        }
    }

    fn quantile(&self) -> Option<f64> {
        (self.latencies.len() >= ENOUGH).then_some(self.quantile)
    }
}

fn class_of(bytes: u64) -> usize {
    bytes.max(1).ilog2() as usize
}

impl Hedge {
    /// Second requests may be `share` of the first ones; 0 turns them off.
    pub fn new(share: f64) -> Self {
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        Self { share, allowance: 0.0, classes: vec![Class::default(); u64::BITS as usize] }
    }

    /// A request for `bytes` was answered after `latency`.
    pub fn observe(&mut self, bytes: u64, latency: Duration) {
        self.classes[class_of(bytes)].add(latency.as_secs_f64());
    }

    /// How long to wait for an answer of `bytes` before asking again; `None` while too little is known.
    ///
    /// A size without enough requests of its own borrows from the nearest size that has them: a smaller one's
    /// latency grows with the bytes, because how much of it was transfer is not known.
    pub fn delay(&self, bytes: u64) -> Option<Duration> {
        if self.share == 0.0 {
            return None;
        }
        let class = class_of(bytes);
        let larger = (class..self.classes.len()).find_map(|c| Some((c, self.classes[c].quantile()?)));
        let smaller = (0..class).rev().find_map(|c| Some((c, self.classes[c].quantile()?)));
        let latency = match (smaller, larger) {
            (_, Some((c, latency))) if c == class => latency,
            (Some((s, latency)), Some((l, _))) if class - s < l - class => {
                latency * (1u64 << (class - s)) as f64
            }
            (_, Some((_, latency))) => latency,
            (Some((s, latency)), None) => latency * (1u64 << (class - s)) as f64,
            (None, None) => return None,
        };
        Some(Duration::try_from_secs_f64(latency * BEYOND).unwrap_or(Duration::MAX).max(SOONEST))
    }

    /// Takes one second request from the allowance; false when it is used up.
    pub fn spend(&mut self) -> bool {
        let granted = self.allowance >= 1.0;
        if granted {
            self.allowance -= 1.0;
        }
        granted
    }

    /// A first request was sent: the allowance grows.
    pub fn started(&mut self) {
        self.allowance = (self.allowance + self.share).min(BURST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    const BASE: f64 = 0.1;

    /// Latency of one request: 100 ms with a little spread, and one in a hundred hangs for 10 s.
    fn latency(rng: &mut Rng) -> f64 {
        if rng.chance(0.01) { 10.0 } else { BASE * rng.uniform(1.0, 1.3) }
    }

    #[test]
    fn p014_second_requests_keep_hung_ones_from_holding_batches_up() {
        let mut rng = Rng::keyed(14, 0, 0);
        let mut hedge = Hedge::new(0.04);
        let (mut first, mut second, mut waits) = (0u32, 0u32, Vec::new());
        for _ in 0..2000 {
            let mut wait = 0.0_f64;
            for _ in 0..32 {
                hedge.started();
                first += 1;
                let mut took = latency(&mut rng);
                if let Some(delay) = hedge.delay(115_000).map(|delay| delay.as_secs_f64())
                    && took > delay
                    && hedge.spend()
                {
                    second += 1;
                    took = took.min(delay + latency(&mut rng));
                }
                hedge.observe(115_000, Duration::from_secs_f64(took));
                wait = wait.max(took);
            }
            waits.push(wait);
        }
        waits.sort_unstable_by(f64::total_cmp);
        let p99 = waits[waits.len() * 99 / 100];
        assert!(p99 < 1.0, "99 % of batches came within {p99} s");
        assert!(f64::from(second) < 0.05 * f64::from(first), "{second} extra of {first}");
    }

    #[test]
    fn a_link_that_becomes_slow_causes_no_storm_of_second_requests() {
        let mut hedge = Hedge::new(0.04);
        let mut second = 0;
        for request in 0..10_000 {
            hedge.started();
            let took = Duration::from_millis(if request < 1000 { 100 } else { 5000 });
            if hedge.delay(4096).is_some_and(|delay| took > delay) && hedge.spend() {
                second += 1;
            }
            hedge.observe(4096, took);
        }
        assert!(second <= 128, "{second} second requests: the new latency was not learned");
        assert!(hedge.delay(4096) >= Some(Duration::from_secs(10)));
        let mut spent = 0;
        while hedge.spend() {
            spent += 1;
        }
        assert!(spent <= BURST as u32, "the allowance is saved up only to its bound");
    }

    #[test]
    fn nothing_is_said_before_enough_is_known_and_sizes_borrow_from_each_other() {
        let mut hedge = Hedge::new(0.04);
        for _ in 0..ENOUGH {
            assert_eq!(hedge.delay(1 << 20), None);
            hedge.observe(1 << 20, Duration::from_millis(50));
        }
        assert_eq!(hedge.delay(1 << 20), Some(Duration::from_millis(100)));
        assert_eq!(hedge.delay(1 << 10), Some(Duration::from_millis(100)), "smaller ones are no slower");
        assert_eq!(hedge.delay(4 << 20), Some(Duration::from_millis(400)), "larger ones may be");
        assert!(hedge.delay(u64::MAX).is_some());
        assert_eq!(Hedge::new(f64::NAN).delay(1), None);
        assert!(!Hedge::new(0.0).spend());
    }
}
