//! A waveform at another rate, by a windowed sinc in as many phases as the two rates need.
//!
//! Formulas are torchaudio's `resample`. Every sample of the result is a sum over its own neighbours, so any part can
//! be made from the part of the source that it needs, and is the same bits as in the whole.

use forebay_core::recipe::Quality;
use multiversion::multiversion;
use std::f64::consts::PI;
use std::ops::Range;

/// Weights that are kept; where two rates need more, they are made anew for every sample.
const MAX_TABLE: usize = 1 << 20;
/// Sums that run side by side.
const LANES: usize = 8;

/// How a waveform goes from one rate to another.
pub(crate) struct Sinc {
    /// The two rates without common factors.
    from: u64,
    to: u64,
    shape: Shape,
    /// Neighbours that a sample has on each side at most.
    reach: i64,
    /// Weights of each phase, `taps` each; empty when there are too many.
    table: Vec<f32>,
    taps: usize,
}

#[derive(Clone, Copy)]
struct Shape {
    /// Zero crossings on a side.
    zeros: f64,
    /// Share of the band that is left.
    rolloff: f64,
    /// Kaiser's beta, or a Hann window.
    beta: Option<f64>,
}

impl Sinc {
    pub(crate) fn new(from: u32, to: u32, quality: Quality) -> Self {
        let divisor = gcd(from.max(1), to.max(1));
        let (from, to) = (u64::from(from.max(1) / divisor), u64::from(to.max(1) / divisor));
        let shape = match quality {
            Quality::Fast => Shape { zeros: 6.0, rolloff: 0.99, beta: None },
            Quality::Good => Shape { zeros: 16.0, rolloff: 0.85, beta: Some(8.555_504_641_634_386) },
            Quality::Best => {
                Shape { zeros: 64.0, rolloff: 0.947_593_716_739_959_6, beta: Some(14.769_656_459_379_492) }
            }
        };
        let base = from.min(to) as f64 * shape.rolloff;
        let reach = (shape.zeros * from as f64 / base).ceil() as i64;
        let taps = 2 * reach as usize + 1;
        let mut made = Self { from, to, shape, reach, table: Vec::new(), taps };
        if to as usize * taps <= MAX_TABLE {
            let mut row = Vec::new();
            let mut table = Vec::with_capacity(to as usize * taps);
            for phase in 0..to {
                made.weigh(phase, &mut row);
                table.extend_from_slice(&row);
            }
            made.table = table;
        }
        made
    }

    /// Samples of the result of a whole waveform.
    pub(crate) fn len(&self, samples: u64) -> u64 {
        u64::try_from((u128::from(samples) * u128::from(self.to)).div_ceil(u128::from(self.from)))
            .unwrap_or(u64::MAX)
    }

    /// The samples of a waveform of `samples` that a part of the result needs.
    pub(crate) fn needs(&self, part: &Range<u64>, samples: u64) -> Range<u64> {
        if part.is_empty() {
            return 0..0;
        }
        let centre = |at: u64| (u128::from(at) * u128::from(self.from) / u128::from(self.to)) as i64;
        let clip = |at: i64| u64::try_from(at).unwrap_or_default().min(samples);
        clip(centre(part.start) - self.reach)..clip(centre(part.end - 1) + self.reach + 1)
    }

    /// A part of the result, from the samples `at..` of a channel; what lies beyond them is silence.
    pub(crate) fn apply(&self, source: &[f32], at: u64, part: Range<u64>, out: &mut [f32]) {
        let mut row = Vec::new();
        let (mut phase, mut centre) = {
            let place = u128::from(part.start) * u128::from(self.from);
            ((place % u128::from(self.to)) as u64, (place / u128::from(self.to)) as i64)
        };
        for value in out.iter_mut().take((part.end - part.start) as usize) {
            let weights = if self.table.is_empty() {
                self.weigh(phase, &mut row);
                row.as_slice()
            } else {
                &self.table[phase as usize * self.taps..][..self.taps]
            };
            let first = centre - self.reach - at as i64;
            *value = if first >= 0 && first as usize + self.taps <= source.len() {
                dot(weights, &source[first as usize..][..self.taps])
            } else {
                dot_at_edge(weights, source, first)
            };
            // Not beyond 2^21, so sums do not overflow.
            let next = phase + self.from;
            centre += (next / self.to) as i64;
            phase = next % self.to;
        }
    }

    /// Weights of the neighbours of a sample that lies `phase / to` behind one of the source.
    fn weigh(&self, phase: u64, row: &mut Vec<f32>) {
        let Shape { zeros, rolloff, beta } = self.shape;
        let (from, to) = (self.from as f64, self.to as f64);
        let base = from.min(to) * rolloff;
        let offset = phase as f64 / to;
        row.clear();
        row.extend((-self.reach..=self.reach).map(|neighbour| {
            let t = ((neighbour as f64 - offset) / from * base).clamp(-zeros, zeros);
            let window = match beta {
                None => (t * PI / zeros / 2.0).cos().powi(2),
                Some(beta) => bessel(beta * (1.0 - (t / zeros).powi(2)).max(0.0).sqrt()) / bessel(beta),
            };
            let sinc = if t == 0.0 { 1.0 } else { (t * PI).sin() / (t * PI) };
            (sinc * window * base / from) as f32
        }));
    }
}

#[multiversion(targets("x86_64+avx512f+avx512vl", "x86_64+avx2"))]
fn dot(weights: &[f32], samples: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    let (blocks, rest) = weights.as_chunks::<LANES>();
    let (others, other_rest) = samples.as_chunks::<LANES>();
    for (block, other) in blocks.iter().zip(others) {
        for lane in 0..LANES {
            sums[lane] += block[lane] * other[lane];
        }
    }
    for (lane, (weight, sample)) in rest.iter().zip(other_rest).enumerate() {
        sums[lane] += weight * sample;
    }
    ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]))
}

/// The same sum in the same order, with silence around the source.
fn dot_at_edge(weights: &[f32], source: &[f32], first: i64) -> f32 {
    let sample = |tap: usize| {
        let at = usize::try_from(first + tap as i64).ok();
        at.and_then(|at| source.get(at)).copied().unwrap_or_default()
    };
    let mut sums = [0.0f32; LANES];
    for (tap, weight) in weights.iter().enumerate() {
        sums[tap % LANES] += weight * sample(tap);
    }
    ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]))
}

/// The modified Bessel function of the first kind and order zero.
fn bessel(x: f64) -> f64 {
    let (mut sum, mut term, quarter) = (1.0, 1.0, x * x / 4.0);
    for k in 1..=200 {
        term *= quarter / f64::from(k * k);
        sum += term;
        if term < sum * 1e-17 {
            break;
        }
    }
    sum
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
