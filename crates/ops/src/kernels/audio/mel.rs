//! Bands of a mel scale, their logarithm, and cosine transforms of it: the formulas of torchaudio and librosa.

use super::fourier::{LANES, Lane};
use forebay_core::recipe::{Bands, LogUnit, MelNorm, MelScale};
use std::f64::consts::PI;

/// Hertz of a mel on Slaney's scale, which is linear below.
const LINEAR_STEP: f64 = 200.0 / 3.0;
/// Where it becomes logarithmic.
const LINEAR_UNTIL: f64 = 1000.0;

/// Triangles over frequencies, each with where it begins.
pub(crate) struct Filters {
    bands: Vec<(usize, Vec<f32>)>,
}

impl Filters {
    pub(crate) fn new(bands: &Bands, rate: u32, n_fft: usize) -> Self {
        let f_max = bands.f_max.unwrap_or(f64::from(rate) / 2.0);
        let (low, high) = (to_mel(bands.f_min, bands.mel_scale), to_mel(f_max, bands.mel_scale));
        let count = bands.n_mels as usize;
        let edge = |at: usize| to_hertz(low + (high - low) * at as f64 / (count + 1) as f64, bands.mel_scale);
        let triangle = |band: usize| {
            let (from, top, to) = (edge(band), edge(band + 1), edge(band + 2));
            let height = match bands.norm {
                MelNorm::None => 1.0,
                MelNorm::Slaney => 2.0 / (to - from),
            };
            let weight = |bin: usize| {
                let hertz = bin as f64 * f64::from(rate) / n_fft as f64;
                height * ((hertz - from) / (top - from)).min((to - hertz) / (to - top)).max(0.0)
            };
            let bins = n_fft / 2 + 1;
            let first = (0..bins).find(|bin| weight(*bin) > 0.0).unwrap_or(bins);
            let last = (first..bins).rfind(|bin| weight(*bin) > 0.0).map_or(first, |last| last + 1);
            (first, (first..last).map(|bin| weight(bin) as f32).collect())
        };
        Self { bands: (0..count).map(triangle).collect() }
    }

    /// Each band of some frames side by side.
    pub(crate) fn apply(&self, bins: &[Lane], mut put: impl FnMut(usize, &Lane)) {
        for (number, (first, weights)) in self.bands.iter().enumerate() {
            let mut sum = [0.0f32; LANES];
            for (weight, bin) in weights.iter().zip(&bins[*first..]) {
                for lane in 0..LANES {
                    sum[lane] += weight * bin[lane];
                }
            }
            put(number, &sum);
        }
    }
}

/// Logarithms in place, no lower than the largest of them less `range`.
pub(crate) fn logarithms(values: &mut [f32], unit: LogUnit, power: u32, floor: f64, range: Option<f64>) {
    let floor = floor as f32;
    for value in values.iter_mut() {
        let raised = value.max(floor);
        *value = match unit {
            LogUnit::Ln => raised.ln(),
            LogUnit::Log10 => raised.log10(),
            LogUnit::Db => raised.log10() * if power == 1 { 20.0 } else { 10.0 },
        };
    }
    if let Some(range) = range {
        let least = values.iter().copied().fold(f32::NEG_INFINITY, f32::max) - range as f32;
        for value in values {
            *value = value.max(least);
        }
    }
}

/// Weights of the first cosines of `bands` values, orthonormal, one row each.
pub(crate) fn cosines(coefficients: usize, bands: usize) -> Vec<f32> {
    let weight = |k: usize, at: usize| {
        let scale = if k == 0 { 1.0 / bands as f64 } else { 2.0 / bands as f64 };
        (scale.sqrt() * (PI / bands as f64 * (at as f64 + 0.5) * k as f64).cos()) as f32
    };
    (0..coefficients).flat_map(|k| (0..bands).map(move |at| weight(k, at))).collect()
}

/// Rows of `values`, `frames` long each, multiplied by a matrix.
pub(crate) fn multiply(matrix: &[f32], values: &[f32], frames: usize) -> Vec<f32> {
    let bands = values.len() / frames.max(1);
    let mut out = vec![0.0f32; matrix.len() / bands.max(1) * frames];
    if values.is_empty() {
        return out;
    }
    for (row, weights) in out.chunks_exact_mut(frames).zip(matrix.chunks_exact(bands)) {
        for (weight, band) in weights.iter().zip(values.chunks_exact(frames)) {
            row.iter_mut().zip(band).for_each(|(sum, value)| *sum += weight * value);
        }
    }
    out
}

fn to_mel(hertz: f64, scale: MelScale) -> f64 {
    match scale {
        MelScale::Htk => 2595.0 * (1.0 + hertz / 700.0).log10(),
        MelScale::Slaney if hertz < LINEAR_UNTIL => hertz / LINEAR_STEP,
        MelScale::Slaney => LINEAR_UNTIL / LINEAR_STEP + (hertz / LINEAR_UNTIL).ln() / slaney_step(),
    }
}

fn to_hertz(mel: f64, scale: MelScale) -> f64 {
    match scale {
        MelScale::Htk => 700.0 * (10f64.powf(mel / 2595.0) - 1.0),
        MelScale::Slaney if mel < LINEAR_UNTIL / LINEAR_STEP => mel * LINEAR_STEP,
        MelScale::Slaney => LINEAR_UNTIL * ((mel - LINEAR_UNTIL / LINEAR_STEP) * slaney_step()).exp(),
    }
}

fn slaney_step() -> f64 {
    6.4f64.ln() / 27.0
}
