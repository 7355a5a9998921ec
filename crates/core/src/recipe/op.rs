//! The ops a recipe may name, with their parameters and defaults. Defaults are those of torchvision where it has
//! the op, so that a recipe carried over gives the same distribution.

use super::tokens::{ByteTokens, MaskTokens, Pack, Side, Tokenize};
use super::{
    Affine, AudioOp, AugMix, AutoAugment, Clip, ClipPlace, Function, GaussianBlur, Perspective, Posterize,
    Ragged, RandAugment, Sharpness, Solarize, TrivialAugment,
};
use crate::tensor::Dtype;
use serde::{Deserialize, Serialize, Serializer};

/// One transformation. Random ops draw from a stream keyed by (seed, epoch, sample id, place in the recipe).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Op {
    /// Takes frames of a video. It comes first.
    Clip(Clip),
    /// Scales the short side to a number, keeping the aspect, or both sides to exact numbers.
    Resize {
        /// Short side, or `[height, width]`.
        size: Size,
        /// Interpolation.
        #[serde(default)]
        filter: Filter,
    },
    /// Cuts the middle; smaller images are padded with zeros, as torchvision does.
    CenterCrop {
        /// Side, or `[height, width]`.
        size: Size,
    },
    /// Cuts a random window after optional padding; smaller images are padded to fit.
    RandomCrop {
        /// Side, or `[height, width]`.
        size: Size,
        /// Pixels of zeros added on every side first.
        #[serde(default)]
        padding: u32,
    },
    /// Cuts a window of random area and aspect and scales it to `size`.
    RandomResizedCrop {
        /// Side, or `[height, width]`.
        size: Size,
        /// Share of the image's area.
        #[serde(default = "crop_scale")]
        scale: Interval,
        /// Width divided by height, drawn log-uniformly.
        #[serde(default = "crop_ratio")]
        ratio: Interval,
        /// Interpolation.
        #[serde(default)]
        filter: Filter,
    },
    /// Mirrors with probability `p`.
    Flip {
        /// Probability.
        #[serde(default = "half")]
        p: f64,
        /// Which axis is mirrored.
        #[serde(default)]
        direction: Direction,
    },
    /// Adds a border.
    Pad {
        /// Pixels added at `[left, top, right, bottom]`.
        border: [u32; 4],
        /// Value of the border, the same in all channels.
        #[serde(default)]
        value: u8,
    },
    /// Changes brightness, contrast, saturation and hue in random order, each by a random factor.
    ColorJitter {
        /// Factor drawn from `[max(0, 1 - x), 1 + x]`.
        #[serde(default)]
        brightness: f64,
        /// Factor drawn from `[max(0, 1 - x), 1 + x]`.
        #[serde(default)]
        contrast: f64,
        /// Factor drawn from `[max(0, 1 - x), 1 + x]`.
        #[serde(default)]
        saturation: f64,
        /// Turn of the hue circle drawn from `[-x, x]`, at most 0.5.
        #[serde(default)]
        hue: f64,
    },
    /// Replaces color by luma in all channels, with probability `p`.
    Grayscale {
        /// Probability.
        #[serde(default = "one")]
        p: f64,
    },
    /// Blurs by a Gaussian of random width.
    GaussianBlur(GaussianBlur),
    /// Inverts bright levels, with a probability.
    Solarize(Solarize),
    /// Keeps the high bits of every level, with a probability.
    Posterize(Posterize),
    /// Spreads the levels of each channel so that all are about equally frequent, with probability `p`.
    Equalize {
        /// Probability.
        #[serde(default = "half")]
        p: f64,
    },
    /// Stretches the levels of each channel to the whole range, with probability `p`.
    Autocontrast {
        /// Probability.
        #[serde(default = "half")]
        p: f64,
    },
    /// Sharpens or smooths, with a probability.
    Sharpness(Sharpness),
    /// Rotates, moves, scales and shears at random.
    Affine(Affine),
    /// Some ops of one strength, drawn from a fixed list.
    RandAugment(RandAugment),
    /// One op of random strength, drawn from a fixed list.
    TrivialAugment(TrivialAugment),
    /// Looks at the image from the side, with a probability.
    Perspective(Perspective),
    /// Two ops of fixed strengths, drawn from a list that was found by search.
    AutoAugment(AutoAugment),
    /// The image laid over what chains of ops made of it.
    AugMix(AugMix),
    /// Blanks a random rectangle with probability `p`.
    RandomErasing {
        /// Probability.
        #[serde(default = "half")]
        p: f64,
        /// Share of the image's area.
        #[serde(default = "erase_scale")]
        scale: Interval,
        /// Height divided by width, drawn log-uniformly.
        #[serde(default = "erase_ratio")]
        ratio: Interval,
        /// Value written, in output units (after `normalize` when that comes first).
        #[serde(default)]
        value: f64,
    },
    /// Scales `0..255` to `0..1`, subtracts the mean and divides by the deviation, per channel.
    Normalize {
        /// Mean per channel, in `0..1` units.
        mean: Vec<f64>,
        /// Standard deviation per channel, in `0..1` units.
        std: Vec<f64>,
    },
    /// An op of an audio column, which has words of its own.
    #[serde(skip)]
    Audio(AudioOp),
    /// Makes the bytes of a text its tokens.
    ByteTokens(ByteTokens),
    /// Makes a text its tokens by a tokenizer in a file.
    Tokenize(Tokenize),
    /// Takes tokens from a place on; a sample that has fewer is refused.
    Slice {
        /// The first one taken.
        #[serde(default)]
        start: u64,
        /// How many.
        length: u64,
    },
    /// Cuts off what is more than a number of tokens.
    Truncate {
        /// Most tokens.
        length: u64,
        /// Where the others are cut off.
        #[serde(default)]
        side: Side,
    },
    /// Takes tokens from a random place on; a sample that has no more is taken whole.
    RandomWindow {
        /// Most tokens.
        length: u64,
    },
    /// Replaces tokens for masked-language modelling.
    MaskTokens(MaskTokens),
    /// Packs documents into rows of one length. Of whole batches: it comes last.
    Pack(Pack),
    /// Makes the values of a batch as large as its largest, filled behind. Not a matter of one sample: it comes last.
    PadBatch(Padded),
    /// Puts the values of a batch one behind the other, with the places at which each begins. It comes last.
    Ragged(Ragged),
    /// Waits without using the processor: stands for expensive preparation in experiments and tests.
    Delay {
        /// Seconds per sample.
        seconds: f64,
    },
    /// Replaces the value by what a function makes of it.
    Map {
        /// What is called.
        function: Function,
        /// Shape of every result, which is then written straight into the batch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shape: Option<Vec<usize>>,
        /// Element type of every result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dtype: Option<Dtype>,
    },
    /// Leaves the sample out unless a function of the value says yes.
    Filter {
        /// What is called.
        function: Function,
    },
}

/// How values of different sizes become one tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Padded {
    /// What is behind the values, in output units.
    #[serde(default)]
    pub value: i64,
    /// Lengths are rounded up to a multiple of this.
    #[serde(default = "one_step")]
    pub multiple: u32,
    /// Length in every batch, or `[height, width]`; the longest of the batch decides when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Size>,
    /// Whether a column `NAME_mask` says what is real.
    #[serde(default)]
    pub mask: bool,
    /// Where tokens are filled up.
    #[serde(default, skip_serializing_if = "Side::is_right")]
    pub side: Side,
}

impl Padded {
    /// Fixed lengths, of which arrays take the first.
    pub fn lengths(&self) -> Option<[usize; 2]> {
        self.to.map(|to| {
            let (height, width) = to.height_width();
            [height as usize, width as usize]
        })
    }

    /// The column that says how long values are.
    pub fn length_name(column: &str) -> String {
        format!("{column}_length")
    }

    /// The column that says what is real.
    pub fn mask_name(column: &str) -> String {
        format!("{column}_mask")
    }
}

/// One side for both, or `[height, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Size {
    /// The short side (for `resize`), or both sides of a square (for crops).
    Side(u32),
    /// Height and width.
    Exact([u32; 2]),
}

impl Size {
    /// Height and width of a crop of this size.
    pub fn height_width(self) -> (u32, u32) {
        match self {
            Self::Side(side) => (side, side),
            Self::Exact([height, width]) => (height, width),
        }
    }
}

/// A closed interval `[low, high]`.
pub type Interval = [f64; 2];

/// Interpolation of a resize.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Filter {
    /// The pixel nearest to the centre.
    Nearest,
    /// Triangle filter, widened when shrinking (antialiased), as Pillow does.
    #[default]
    Bilinear,
    /// Cubic filter with a = -0.5, widened when shrinking.
    Bicubic,
    /// Lanczos with three lobes, widened when shrinking.
    Lanczos,
}

/// Axis of a mirror.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Left becomes right.
    #[default]
    Horizontal,
    /// Top becomes bottom.
    Vertical,
}

impl Op {
    /// The op's name in recipes, errors and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Clip(_) => "clip",
            Self::Resize { .. } => "resize",
            Self::CenterCrop { .. } => "center_crop",
            Self::RandomCrop { .. } => "random_crop",
            Self::RandomResizedCrop { .. } => "random_resized_crop",
            Self::Flip { .. } => "flip",
            Self::Pad { .. } => "pad",
            Self::ColorJitter { .. } => "color_jitter",
            Self::Grayscale { .. } => "grayscale",
            Self::GaussianBlur(_) => "gaussian_blur",
            Self::Solarize(_) => "solarize",
            Self::Posterize(_) => "posterize",
            Self::Equalize { .. } => "equalize",
            Self::Autocontrast { .. } => "autocontrast",
            Self::Sharpness(_) => "sharpness",
            Self::Affine(_) => "affine",
            Self::RandAugment(_) => "rand_augment",
            Self::TrivialAugment(_) => "trivial_augment",
            Self::Perspective(_) => "perspective",
            Self::AutoAugment(_) => "auto_augment",
            Self::AugMix(_) => "aug_mix",
            Self::RandomErasing { .. } => "random_erasing",
            Self::Normalize { .. } => "normalize",
            Self::Audio(op) => op.name(),
            Self::ByteTokens(_) => "byte_tokens",
            Self::Tokenize(_) => "tokenize",
            Self::Slice { .. } => "slice",
            Self::Truncate { .. } => "truncate",
            Self::RandomWindow { .. } => "random_window",
            Self::MaskTokens(_) => "mask_tokens",
            Self::Pack(_) => "pack",
            Self::PadBatch(_) => "pad_batch",
            Self::Ragged(_) => "ragged",
            Self::Delay { .. } => "delay",
            Self::Map { .. } => "map",
            Self::Filter { .. } => "filter",
        }
    }

    /// What follows from other parameters is written out, and what changes nothing is left out, so that equal ops are
    /// equal: a tokenizer is the same wherever its file lies.
    pub(super) fn spell_out(&mut self) {
        match self {
            Self::Audio(op) => op.spell_out(),
            Self::Tokenize(op) => op.file.clear(),
            _ => {}
        }
    }

    /// Every op's name, for messages that list what is offered.
    pub const NAMES: [&str; 35] = [
        "clip",
        "resize",
        "center_crop",
        "random_crop",
        "random_resized_crop",
        "flip",
        "pad",
        "color_jitter",
        "grayscale",
        "gaussian_blur",
        "solarize",
        "posterize",
        "equalize",
        "autocontrast",
        "sharpness",
        "affine",
        "rand_augment",
        "trivial_augment",
        "perspective",
        "auto_augment",
        "aug_mix",
        "random_erasing",
        "normalize",
        "byte_tokens",
        "tokenize",
        "slice",
        "truncate",
        "random_window",
        "mask_tokens",
        "pack",
        "pad_batch",
        "ragged",
        "delay",
        "map",
        "filter",
    ];

    /// Whether the result depends on chance, so that it must be drawn anew each epoch and never be cached.
    pub fn is_random(&self) -> bool {
        match self {
            Self::RandomCrop { .. }
            | Self::RandomResizedCrop { .. }
            | Self::TrivialAugment(_)
            | Self::AutoAugment(_)
            | Self::AugMix(_)
            | Self::RandomWindow { .. } => true,
            Self::Clip(op) => op.place == ClipPlace::Random,
            Self::Perspective(op) => op.p > 0.0,
            Self::MaskTokens(op) => op.p > 0.0,
            Self::RandAugment(op) => op.n > 0,
            Self::Audio(op) => op.is_random(),
            Self::Flip { p, .. }
            | Self::Grayscale { p }
            | Self::Solarize(Solarize { p, .. })
            | Self::Posterize(Posterize { p, .. })
            | Self::Equalize { p }
            | Self::Autocontrast { p }
            | Self::Sharpness(Sharpness { p, .. }) => *p > 0.0 && *p < 1.0,
            Self::GaussianBlur(GaussianBlur { sigma: [low, high], p, .. }) => {
                *p > 0.0 && (*p < 1.0 || low < high)
            }
            Self::Affine(op) => !op.is_fixed(),
            Self::RandomErasing { p, .. } => *p > 0.0,
            Self::ColorJitter { brightness, contrast, saturation, hue } => {
                [brightness, contrast, saturation, hue].iter().any(|x| **x > 0.0)
            }
            Self::Map { function, .. } | Self::Filter { function } => function.random,
            Self::Resize { .. }
            | Self::CenterCrop { .. }
            | Self::Pad { .. }
            | Self::Normalize { .. }
            | Self::ByteTokens(_)
            | Self::Tokenize(_)
            | Self::Slice { .. }
            | Self::Truncate { .. }
            | Self::Pack(_)
            | Self::PadBatch(_)
            | Self::Ragged(_)
            | Self::Delay { .. } => false,
        }
    }
}

/// The ops of a column as they are written: those of audio under their own names.
pub(super) fn serialize_all<S: Serializer>(ops: &[Op], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(untagged)]
    enum Written<'a> {
        Audio(&'a AudioOp),
        Other(&'a Op),
    }
    serializer.collect_seq(ops.iter().map(|op| match op {
        Op::Audio(op) => Written::Audio(op),
        other => Written::Other(other),
    }))
}

fn one_step() -> u32 {
    1
}
fn half() -> f64 {
    0.5
}
fn one() -> f64 {
    1.0
}
fn crop_scale() -> Interval {
    [0.08, 1.0]
}
fn crop_ratio() -> Interval {
    [3.0 / 4.0, 4.0 / 3.0]
}
fn erase_scale() -> Interval {
    [0.02, 0.33]
}
fn erase_ratio() -> Interval {
    [0.3, 3.3]
}
