//! What is known of an audio column before a file is opened: channels, rate and length after each op.

use super::AudioOp;
use crate::recipe::{Decode, FieldRecipe, Op};

/// What a recipe alone says of a column's values; `None` is what the file decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AudioForm {
    /// Channels.
    pub channels: Option<usize>,
    /// Samples a second and channel.
    pub rate: Option<u32>,
    /// Samples of a channel.
    pub samples: Option<usize>,
    /// Values of one frame once it is a spectrum.
    pub bins: Option<usize>,
    /// Frames, when it is one.
    pub frames: Option<usize>,
}

impl AudioForm {
    /// What it is after one more op.
    #[must_use]
    pub fn after(self, op: &AudioOp) -> Self {
        match op {
            AudioOp::Mono {} => Self { channels: Some(1), ..self },
            AudioOp::Stereo {} => Self { channels: Some(2), ..self },
            AudioOp::Resample { rate, .. } => {
                // The length of a waveform whose rate is not known changes by who knows how much.
                let samples =
                    self.samples.zip(self.rate).map(|(samples, from)| resampled(samples, from, *rate));
                Self { rate: Some(*rate), samples, ..self }
            }
            AudioOp::RandomCrop(length) | AudioOp::CenterCrop(length) => {
                Self { samples: length.at(self.rate).map(|samples| samples as usize), ..self }
            }
            AudioOp::Pad(length) => {
                let least = length.at(self.rate).map(|samples| samples as usize);
                Self { samples: self.samples.zip(least).map(|(samples, least)| samples.max(least)), ..self }
            }
            AudioOp::Speed { .. } => Self { samples: None, ..self },
            AudioOp::Gain { .. } | AudioOp::Noise { .. } | AudioOp::MixNoise(_) | AudioOp::SpecAugment(_) => {
                self
            }
            AudioOp::Spectrogram(_) | AudioOp::Mel(_) | AudioOp::LogMel(_) | AudioOp::Mfcc(_) => {
                let stft = op.stft();
                let bins = match op {
                    AudioOp::Mel(op) => Some(op.n_mels as usize),
                    AudioOp::LogMel(op) => Some(op.n_mels as usize),
                    AudioOp::Mfcc(op) => Some(op.n_mfcc as usize),
                    _ => stft.as_ref().map(super::Stft::bins),
                };
                Self {
                    bins,
                    frames: stft.zip(self.samples).map(|(stft, samples)| stft.frames(samples)),
                    ..self
                }
            }
        }
    }

    /// The shape of every value, when all have one.
    pub fn shape(&self) -> Option<Vec<usize>> {
        match self.bins {
            None => Some(vec![self.channels?, self.samples?]),
            Some(bins) => Some(vec![self.channels?, bins, self.frames?]),
        }
    }

    /// The axis of time, which values may differ in.
    pub fn time_axis(&self) -> usize {
        if self.bins.is_none() { 1 } else { 2 }
    }
}

/// Samples of a waveform after a change of its rate, rounded up.
fn resampled(samples: usize, from: u32, to: u32) -> usize {
    usize::try_from((samples as u128 * u128::from(to)).div_ceil(u128::from(from.max(1))))
        .unwrap_or(usize::MAX)
}

impl FieldRecipe {
    /// What is known of an audio column's values at its end; `None` for other columns.
    pub fn audio_form(&self) -> Option<AudioForm> {
        let Decode::Audio { .. } = self.decode else { return None };
        let ops = self.ops.iter().filter_map(|op| if let Op::Audio(op) = op { Some(op) } else { None });
        Some(ops.fold(AudioForm::default(), AudioForm::after))
    }
}
