//! Short Fourier transforms of a waveform: frames are cut, windowed and transformed, several side by side.

use super::fourier::{Fourier, LANES, Lane, Space};
use forebay_core::recipe::{PadMode, Stft, Window};
use std::f64::consts::PI;

/// A transform made ready.
pub(crate) struct Frames {
    stft: Stft,
    /// As long as the transform, zero where the window does not reach.
    window: Vec<f32>,
    fourier: Fourier,
}

impl Frames {
    pub(crate) fn new(stft: Stft) -> Self {
        let (points, covered) = (stft.n_fft as usize, stft.win_length as usize);
        let mut window = vec![0.0; points];
        let start = (points - covered) / 2;
        for (at, weight) in window[start..start + covered].iter_mut().enumerate() {
            let angle = 2.0 * PI * at as f64 / covered as f64;
            let value = match stft.window {
                Window::Hann => 0.5 - 0.5 * angle.cos(),
                Window::Hamming => 0.54 - 0.46 * angle.cos(),
                Window::Blackman => 0.42 - 0.5 * angle.cos() + 0.08 * (2.0 * angle).cos(),
                Window::Rectangular => 1.0,
            };
            *weight = value as f32;
        }
        Self { fourier: Fourier::new(points), window, stft }
    }

    /// Frames of a waveform of this many samples.
    pub(crate) fn count(&self, samples: usize) -> usize {
        self.stft.frames(samples)
    }

    /// Spectra of all frames: `take(first, count, bins)` is given those of frames `first..first + count`, one a lane.
    pub(crate) fn each(
        &self,
        samples: &[f32],
        space: &mut Space,
        mut take: impl FnMut(usize, usize, &[Lane]),
    ) {
        let (points, hop) = (self.stft.n_fft as usize, self.stft.hop_length as usize);
        let frames = self.count(samples.len());
        let before = if self.stft.center { points / 2 } else { 0 };
        let mut bins = Vec::new();
        let mut cut: Vec<Lane> = vec![[0.0; LANES]; points];
        for first in (0..frames).step_by(LANES) {
            let count = LANES.min(frames - first);
            for lane in 0..count {
                let start = ((first + lane) * hop) as i64 - before as i64;
                let inside = usize::try_from(start).ok().and_then(|start| samples.get(start..start + points));
                if let Some(inside) = inside {
                    for ((place, sample), weight) in cut.iter_mut().zip(inside).zip(&self.window) {
                        place[lane] = sample * weight;
                    }
                } else {
                    for (at, (place, weight)) in cut.iter_mut().zip(&self.window).enumerate() {
                        place[lane] = self.outside(samples, start + at as i64) * weight;
                    }
                }
            }
            for place in cut.iter_mut().filter(|_| count < LANES) {
                place[count..].fill(0.0);
            }
            self.fourier.powers(|at| cut[at], space, &mut bins);
            if self.stft.power == 1 {
                for bin in &mut bins {
                    *bin = bin.map(f32::sqrt);
                }
            }
            take(first, count, &bins);
        }
    }

    /// A sample, or what stands for it beyond the ends.
    fn outside(&self, samples: &[f32], at: i64) -> f32 {
        let len = samples.len() as i64;
        let at = match self.stft.pad_mode {
            PadMode::Constant => at,
            PadMode::Reflect if len == 1 => 0,
            PadMode::Reflect => {
                // Back and forth as often as needed, where a mirror image alone is too short.
                let turn = at.rem_euclid(2 * (len - 1));
                if turn < len { turn } else { 2 * (len - 1) - turn }
            }
        };
        usize::try_from(at).ok().and_then(|at| samples.get(at)).copied().unwrap_or_default()
    }
}
