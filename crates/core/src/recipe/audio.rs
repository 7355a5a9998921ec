//! The ops of an audio column, with their parameters and defaults, and what they must obey.
//!
//! They have names of their own: `random_crop` of audio takes a length, that of images a size. Names and defaults are
//! torchaudio's where it has the op. What the result looks like without a file is in [`form`].

mod form;
mod mix_noise;
mod templates;

pub use form::AudioForm;
pub use mix_noise::MixNoise;
pub(super) use templates::templates;

use super::Interval;
use serde::{Deserialize, Serialize};

/// Most samples, all channels together, that are decoded of one file: 512 MiB, three quarters of an hour at 48 kHz.
pub const fn default_max_samples() -> u64 {
    1 << 27
}

/// Highest rate that audio may have or be given.
pub const MAX_RATE: u32 = 768_000;
/// Lowest rate that audio may have or be given.
pub const MIN_RATE: u32 = 100;
/// Most samples of a crop.
const MAX_CROP: u64 = 1 << 31;
/// Longest transform.
const MAX_FFT: u32 = 1 << 16;
/// Largest prime factor of its length; the time of a transform grows with it.
const MAX_PRIME: u32 = 61;
/// Most bands of a mel scale.
const MAX_BANDS: u32 = 4096;
/// Most speeds that one is drawn from.
const MAX_FACTORS: usize = 64;
/// Most masks along one axis.
const MAX_MASKS: u32 = 1000;
/// Widest mask.
const MAX_MASK: u32 = 1 << 24;
/// Loudest and softest change, either way.
const MAX_DECIBELS: f64 = 200.0;

/// One transformation of audio: of a waveform, until one of them makes it a spectrum, and of a spectrum then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum AudioOp {
    /// The mean of all channels as one.
    Mono {},
    /// Two channels: one is repeated, more than two are refused.
    Stereo {},
    /// Gives the waveform another rate by a windowed sinc.
    Resample {
        /// Samples a second and channel.
        rate: u32,
        /// How sharp the filter is.
        #[serde(default)]
        quality: Quality,
    },
    /// Cuts a random part; what is shorter is followed by silence.
    RandomCrop(Length),
    /// Cuts the middle; what is shorter is followed by silence.
    CenterCrop(Length),
    /// Silence behind up to a length; what is longer stays as it is.
    Pad(Length),
    /// Makes it louder or softer.
    Gain {
        /// Decibels of amplitude, drawn uniformly.
        db: Interval,
    },
    /// Plays it faster or slower, which moves its pitch too.
    Speed {
        /// Speeds, of which one is drawn.
        factors: Vec<f64>,
    },
    /// Adds white noise with probability `p`.
    Noise {
        /// Decibels of the signal above the noise, drawn uniformly.
        snr: Interval,
        /// Probability.
        #[serde(default = "one")]
        p: f64,
    },
    /// Mixes a part of a recording out of another dataset into it.
    MixNoise(MixNoise),
    /// Magnitude or power of short Fourier transforms.
    Spectrogram(Spectrogram),
    /// A spectrogram in bands of a mel scale.
    Mel(Mel),
    /// The logarithm of mel bands.
    LogMel(LogMel),
    /// Cepstral coefficients of mel bands.
    Mfcc(Mfcc),
    /// Masks random spans of frames and of bands.
    SpecAugment(SpecAugment),
}

/// How sharp the filter of a change of rate is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quality {
    /// 6 zero crossings under a Hann window: torchaudio's default.
    #[default]
    Fast,
    /// 16 zero crossings under a Kaiser window: torchaudio's and resampy's `kaiser_fast`.
    Good,
    /// 64 zero crossings under a Kaiser window: torchaudio's and resampy's `kaiser_best`.
    Best,
}

/// A length of time: one of the two is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Length {
    /// Samples of one channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Seconds, at the rate that the waveform has there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// Shape of the window that a transform looks through; all are periodic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Window {
    /// Raised cosine.
    #[default]
    Hann,
    /// Raised cosine on a pedestal.
    Hamming,
    /// Three cosines.
    Blackman,
    /// All ones.
    Rectangular,
}

/// What stands before and behind a waveform when frames are centred on its ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PadMode {
    /// Its mirror image.
    #[default]
    Reflect,
    /// Silence.
    Constant,
}

/// Formula of a mel scale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MelScale {
    /// Logarithmic throughout, of the Hidden Markov Toolkit: torchaudio's default.
    #[default]
    Htk,
    /// Linear below 1 kHz, of Slaney's Auditory Toolbox: librosa's default.
    Slaney,
}

/// How wide bands are weighed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MelNorm {
    /// Every triangle is one high.
    #[default]
    None,
    /// Every triangle has one area.
    Slaney,
}

/// Unit of a logarithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogUnit {
    /// Natural.
    #[default]
    Ln,
    /// To the base of ten.
    Log10,
    /// Decibels: ten times the one to the base of ten of a power, twenty times that of a magnitude.
    Db,
}

/// What fills a mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaskFill {
    /// The mean of the sample's values.
    #[default]
    Mean,
    /// Zero.
    Zero,
}

/// Parameters that all ops which look at a spectrum have, followed by those of one of them.
macro_rules! spectral {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// Points of the transform.
            #[serde(default = "n_fft")]
            pub n_fft: u32,
            /// Samples that the window covers, in the middle of the points; all of them when not given.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub win_length: Option<u32>,
            /// Samples from one frame to the next; half of the window when not given.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub hop_length: Option<u32>,
            /// Shape of the window.
            #[serde(default)]
            pub window: Window,
            /// Exponent of the magnitude: 1 or 2.
            #[serde(default = "two")]
            pub power: u32,
            /// Whether frames are centred on their place, so that the waveform is padded at both ends.
            #[serde(default = "yes")]
            pub center: bool,
            /// What it is padded with.
            #[serde(default)]
            pub pad_mode: PadMode,
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $name {
            /// The transform alone.
            pub fn stft(&self) -> Stft {
                let win_length = self.win_length.unwrap_or(self.n_fft);
                Stft {
                    n_fft: self.n_fft,
                    win_length,
                    hop_length: self.hop_length.unwrap_or(win_length / 2),
                    window: self.window,
                    power: self.power,
                    center: self.center,
                    pad_mode: self.pad_mode,
                }
            }

            fn spell_out(&mut self) {
                let stft = self.stft();
                (self.win_length, self.hop_length) = (Some(stft.win_length), Some(stft.hop_length));
            }
        }
    };
}

/// The same, and those of a mel scale.
macro_rules! mel {
    ($(#[$doc:meta])* $name:ident { $($rest:tt)* }) => {
        spectral! {
            $(#[$doc])* $name {
                /// Bands.
                #[serde(default = "n_mels")]
                n_mels: u32,
                /// Lowest frequency in hertz.
                #[serde(default)]
                f_min: f64,
                /// Highest frequency in hertz; half of the rate when not given.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                f_max: Option<f64>,
                /// Formula of the scale.
                #[serde(default)]
                mel_scale: MelScale,
                /// How wide bands are weighed.
                #[serde(default)]
                norm: MelNorm,
                $($rest)*
            }
        }

        impl $name {
            /// The bands alone.
            pub fn bands(&self) -> Bands {
                let Self { n_mels, f_min, f_max, mel_scale, norm, .. } = *self;
                Bands { n_mels, f_min, f_max, mel_scale, norm }
            }
        }
    };
}

spectral! {
    /// Parameters of `spectrogram`.
    Spectrogram {}
}
mel! {
    /// Parameters of `mel`.
    Mel {}
}
mel! {
    /// Parameters of `log_mel`.
    LogMel {
        /// Unit of the logarithm.
        #[serde(default)]
        log: LogUnit,
        /// Smaller values are raised to this first.
        #[serde(default = "floor")]
        floor: f64,
        /// Values are raised to the sample's largest less this, in units of the logarithm.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        range: Option<f64>,
    }
}
mel! {
    /// Parameters of `mfcc`.
    Mfcc {
        /// Coefficients.
        #[serde(default = "n_mfcc")]
        n_mfcc: u32,
    }
}

/// A short Fourier transform, with nothing left open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stft {
    /// Points of the transform.
    pub n_fft: u32,
    /// Samples that the window covers.
    pub win_length: u32,
    /// Samples from one frame to the next.
    pub hop_length: u32,
    /// Shape of the window.
    pub window: Window,
    /// Exponent of the magnitude.
    pub power: u32,
    /// Whether frames are centred on their place.
    pub center: bool,
    /// What the ends are padded with.
    pub pad_mode: PadMode,
}

/// Bands of a mel scale.
#[derive(Clone, Debug, PartialEq)]
pub struct Bands {
    /// How many.
    pub n_mels: u32,
    /// Lowest frequency in hertz.
    pub f_min: f64,
    /// Highest frequency in hertz; half of the rate when not given.
    pub f_max: Option<f64>,
    /// Formula of the scale.
    pub mel_scale: MelScale,
    /// How wide bands are weighed.
    pub norm: MelNorm,
}

/// Parameters of `spec_augment`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpecAugment {
    /// Masks over frames.
    pub n_time_masks: u32,
    /// Frames that no mask is as wide as.
    pub time_mask_param: u32,
    /// Masks over bands.
    pub n_freq_masks: u32,
    /// Bands that no mask is as wide as.
    pub freq_mask_param: u32,
    /// Largest share of the frames that one mask may cover.
    #[serde(default = "one")]
    pub p: f64,
    /// What fills the masks.
    #[serde(default)]
    pub fill: MaskFill,
}

/// What is wrong: the name of a parameter, and why.
type Fault = (&'static str, String);

impl Stft {
    /// Frames of a waveform of this many samples; none when it is too short.
    pub fn frames(&self, samples: usize) -> usize {
        let (n_fft, hop) = (self.n_fft as usize, self.hop_length as usize);
        let padded = if self.center { samples + n_fft / 2 * 2 } else { samples };
        if samples == 0 || padded < n_fft { 0 } else { 1 + (padded - n_fft) / hop.max(1) }
    }

    /// Frequencies of one frame.
    pub fn bins(&self) -> usize {
        self.n_fft as usize / 2 + 1
    }

    fn faults(&self) -> Vec<Fault> {
        let Self { n_fft, win_length, hop_length, power, .. } = *self;
        let mut faults = Vec::new();
        if !(2..=MAX_FFT).contains(&n_fft) {
            faults.push(("n_fft", format!("{n_fft} is not in 2..={MAX_FFT}")));
        }
        if (2..=MAX_FFT).contains(&n_fft) && largest_prime(n_fft) > MAX_PRIME {
            let why = "has a prime factor of more than";
            faults.push(("n_fft", format!("{n_fft} {why} {MAX_PRIME}, which takes too long")));
        }
        if !(1..=n_fft).contains(&win_length) {
            faults.push(("win_length", format!("{win_length} is not in 1..={n_fft}, the points")));
        }
        if !(1..=MAX_FFT).contains(&hop_length) {
            faults.push(("hop_length", format!("{hop_length} is not in 1..={MAX_FFT}")));
        }
        if !(1..=2).contains(&power) {
            faults.push(("power", format!("{power} is neither 1, magnitude, nor 2, power")));
        }
        faults
    }
}

impl Bands {
    fn faults(&self, rate: Option<u32>) -> Vec<Fault> {
        let mut faults = Vec::new();
        if !(1..=MAX_BANDS).contains(&self.n_mels) {
            faults.push(("n_mels", format!("{} is not in 1..={MAX_BANDS}", self.n_mels)));
        }
        let Some(rate) = rate else {
            faults.push(("op", "bands need a known rate: put `resample` before it".to_owned()));
            return faults;
        };
        let (half, f_min) = (f64::from(rate) / 2.0, self.f_min);
        let f_max = self.f_max.unwrap_or(half);
        if !(0.0..=half).contains(&f_max) {
            faults.push(("f_max", format!("{f_max} is not in 0..={half}, half of the rate")));
        } else if !(0.0..f_max).contains(&f_min) {
            faults.push(("f_min", format!("{f_min} is not in 0..{f_max}")));
        }
        faults
    }
}

impl Length {
    /// Samples at a rate; `None` when that is not known and needed.
    pub fn at(&self, rate: Option<u32>) -> Option<u64> {
        match (self.samples, self.seconds) {
            (Some(samples), _) => Some(samples),
            (None, Some(seconds)) => rate.map(|rate| ((seconds * f64::from(rate)).round() as u64).max(1)),
            (None, None) => None,
        }
    }

    fn faults(&self) -> Vec<Fault> {
        let most = MAX_CROP as f64 / f64::from(MAX_RATE);
        match (self.samples, self.seconds) {
            (Some(samples), None) if !(1..=MAX_CROP).contains(&samples) => {
                vec![("samples", format!("{samples} is not in 1..={MAX_CROP}"))]
            }
            (None, Some(seconds)) if !(seconds > 0.0 && seconds <= most) => {
                vec![("seconds", format!("{seconds} is not above 0 and at most {most:.0}"))]
            }
            (Some(_), None) | (None, Some(_)) => Vec::new(),
            _ => vec![("samples", "give one of `samples` and `seconds`".to_owned())],
        }
    }
}

impl AudioOp {
    /// Every op's name, for messages that list what is offered.
    pub const NAMES: [&str; 15] = [
        "mono",
        "stereo",
        "resample",
        "random_crop",
        "center_crop",
        "pad",
        "gain",
        "speed",
        "noise",
        "mix_noise",
        "spectrogram",
        "mel",
        "log_mel",
        "mfcc",
        "spec_augment",
    ];

    /// The op's name in recipes, errors and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mono {} => "mono",
            Self::Stereo {} => "stereo",
            Self::Resample { .. } => "resample",
            Self::RandomCrop(_) => "random_crop",
            Self::CenterCrop(_) => "center_crop",
            Self::Pad(_) => "pad",
            Self::Gain { .. } => "gain",
            Self::Speed { .. } => "speed",
            Self::Noise { .. } => "noise",
            Self::MixNoise(_) => "mix_noise",
            Self::Spectrogram(_) => "spectrogram",
            Self::Mel(_) => "mel",
            Self::LogMel(_) => "log_mel",
            Self::Mfcc(_) => "mfcc",
            Self::SpecAugment(_) => "spec_augment",
        }
    }

    /// Whether the result depends on chance.
    pub fn is_random(&self) -> bool {
        match self {
            Self::RandomCrop(_) => true,
            Self::Gain { db: [low, high] } => low < high,
            Self::Speed { factors } => factors.len() > 1,
            Self::Noise { p, .. } => *p > 0.0,
            Self::MixNoise(op) => op.p > 0.0,
            Self::SpecAugment(op) => op.n_time_masks > 0 || op.n_freq_masks > 0,
            _ => false,
        }
    }

    /// The transform, when it makes a waveform a spectrum.
    pub fn stft(&self) -> Option<Stft> {
        match self {
            Self::Spectrogram(op) => Some(op.stft()),
            Self::Mel(op) => Some(op.stft()),
            Self::LogMel(op) => Some(op.stft()),
            Self::Mfcc(op) => Some(op.stft()),
            _ => None,
        }
    }

    /// Lengths that follow from others are written out, so that equal ops are equal.
    pub(super) fn spell_out(&mut self) {
        match self {
            Self::Spectrogram(op) => op.spell_out(),
            Self::Mel(op) => op.spell_out(),
            Self::LogMel(op) => op.spell_out(),
            Self::Mfcc(op) => op.spell_out(),
            Self::MixNoise(op) => op.spell_out(),
            _ => {}
        }
    }

    /// What is wrong with its parameters where the waveform has this rate.
    pub(super) fn faults(&self, rate: Option<u32>) -> Vec<Fault> {
        let mut faults = self.stft().map_or_else(Vec::new, |stft| stft.faults());
        match self {
            Self::Resample { rate, .. } if !(MIN_RATE..=MAX_RATE).contains(rate) => {
                faults.push(("rate", format!("{rate} is not in {MIN_RATE}..={MAX_RATE}")));
            }
            Self::RandomCrop(length) | Self::CenterCrop(length) | Self::Pad(length) => {
                faults.extend(length.faults());
            }
            Self::Gain { db } => faults.extend(decibels("db", *db)),
            Self::Noise { snr, p } => {
                faults.extend(decibels("snr", *snr));
                faults.extend(probability(*p));
            }
            Self::MixNoise(op) => faults.extend(op.faults()),
            Self::Speed { factors } => {
                let sound = factors.iter().all(|factor| (0.1..=10.0).contains(factor));
                if !sound || !(1..=MAX_FACTORS).contains(&factors.len()) {
                    let why = format!("{factors:?} is not a list of 1 to {MAX_FACTORS} numbers in 0.1..=10");
                    faults.push(("factors", why));
                }
            }
            Self::Mel(op) => faults.extend(op.bands().faults(rate)),
            Self::LogMel(op) => {
                faults.extend(op.bands().faults(rate));
                if !(op.floor > 0.0 && op.floor.is_finite()) {
                    faults.push(("floor", format!("{} is not above 0", op.floor)));
                }
                if op.range.is_some_and(|range| !(range > 0.0 && range.is_finite())) {
                    faults.push(("range", "it is not above 0".to_owned()));
                }
            }
            Self::Mfcc(op) => {
                faults.extend(op.bands().faults(rate));
                if !(1..=op.n_mels).contains(&op.n_mfcc) {
                    faults.push(("n_mfcc", format!("{} is not in 1..={}, the bands", op.n_mfcc, op.n_mels)));
                }
            }
            Self::SpecAugment(op) => {
                for (name, value, most) in [
                    ("n_time_masks", op.n_time_masks, MAX_MASKS),
                    ("time_mask_param", op.time_mask_param, MAX_MASK),
                    ("n_freq_masks", op.n_freq_masks, MAX_MASKS),
                    ("freq_mask_param", op.freq_mask_param, MAX_MASK),
                ] {
                    if value > most {
                        faults.push((name, format!("{value} is more than {most}")));
                    }
                }
                faults.extend(probability(op.p));
            }
            _ => {}
        }
        faults
    }
}

fn decibels(name: &'static str, [low, high]: Interval) -> Option<Fault> {
    let sound = -MAX_DECIBELS <= low && low <= high && high <= MAX_DECIBELS;
    let why = || {
        format!("[{low}, {high}] is not an interval in -{MAX_DECIBELS}..={MAX_DECIBELS}, the smaller first")
    };
    (!sound).then(|| (name, why()))
}

fn probability(p: f64) -> Option<Fault> {
    (!(0.0..=1.0).contains(&p)).then(|| ("p", format!("{p} is not in 0..=1")))
}

fn largest_prime(mut number: u32) -> u32 {
    let mut factor = 2;
    while factor * factor <= number {
        if number.is_multiple_of(factor) { number /= factor } else { factor += 1 }
    }
    number
}

fn one() -> f64 {
    1.0
}
fn two() -> u32 {
    2
}
fn yes() -> bool {
    true
}
fn n_fft() -> u32 {
    400
}
fn n_mels() -> u32 {
    128
}
fn n_mfcc() -> u32 {
    40
}
fn floor() -> f64 {
    1e-10
}

#[cfg(test)]
mod tests;
