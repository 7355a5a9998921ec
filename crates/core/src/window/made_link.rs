//! Links and demands to simulate.

use crate::rng::Rng;

/// A link and the server behind it. Seconds and bytes a second.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) rate: f64,
    pub(super) delay: f64,
    /// Uniform extra delay of each request, up to this.
    pub(super) jitter: f64,
    pub(super) connection_rate: f64,
    /// Chance that a request stalls, and for how long.
    pub(super) stall: (f64, f64),
    /// Requests beyond this many are refused, with this pause.
    pub(super) refuse_above: usize,
    pub(super) pause: f64,
    /// Completions are noticed only at multiples of this; 0 for at once.
    pub(super) tick: f64,
    pub(super) seed: u64,
}

impl Link {
    pub(super) fn new(rate: f64, delay: f64) -> Self {
        Self {
            rate,
            delay,
            jitter: 0.0,
            connection_rate: f64::INFINITY,
            stall: (0.0, 0.0),
            refuse_above: usize::MAX,
            pause: 0.0,
            tick: 0.0,
            seed: 1,
        }
    }

    /// Mean seconds a request of `bytes` takes when it is alone, stalls included.
    pub(super) fn alone(&self, bytes: f64) -> f64 {
        self.delay
            + self.jitter / 2.0
            + self.stall.0 * self.stall.1
            + self.tick / 2.0
            + bytes / self.connection_rate.min(self.rate)
    }

    /// Bytes a second that `requests` in flight can bring at most.
    pub(super) fn achievable(&self, bytes: f64, requests: usize) -> f64 {
        let requests = requests.min(self.refuse_above) as f64;
        self.rate.min(requests * bytes / self.alone(bytes))
    }
}

/// What the training loop asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// Smallest and largest request; sizes between are spread evenly by logarithm.
    pub(super) bytes: (f64, f64),
    /// Bytes a second that are asked for.
    pub(super) rate: f64,
}

impl Demand {
    pub(super) fn of(bytes: f64) -> Self {
        Self { bytes: (bytes, bytes), rate: f64::INFINITY }
    }

    pub(super) fn draw(self, rng: &mut Rng) -> f64 {
        let (low, high) = self.bytes;
        if high > low { rng.uniform(low.ln(), high.ln()).exp().floor() } else { low }
    }
}
