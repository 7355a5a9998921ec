//! Parameters of the ops that blur, bend and recolor images, with their defaults and what they must obey.
//!
//! Names and defaults are torchvision's where it has the op. A probability that torchvision leaves to a wrapper is a
//! parameter here.

use super::Interval;
use serde::{Deserialize, Serialize};

/// Most taps of a blur.
const MAX_KERNEL: u32 = 1023;
/// Most ops of one `rand_augment`.
const MAX_DRAWN: u32 = 64;
/// Most strengths that an op is drawn from.
const MAX_BINS: u32 = 1 << 16;
/// Strongest sharpening; every edge is black and white long before.
const MAX_FACTOR: f64 = 1000.0;
/// Largest angle, either way.
const MAX_DEGREES: f64 = 360.0;
/// A shear of a right angle has no end.
const MAX_SHEAR: f64 = 89.0;

/// Blurs by a Gaussian of random width.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GaussianBlur {
    /// Taps on a side; odd.
    pub kernel: u32,
    /// Standard deviation in pixels, drawn uniformly.
    #[serde(default = "blur_sigma")]
    pub sigma: Interval,
    /// Probability.
    #[serde(default = "one")]
    pub p: f64,
}

/// Inverts bright levels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Solarize {
    /// Levels of this and more are inverted, 0 to 255.
    pub threshold: f64,
    /// Probability.
    #[serde(default = "half")]
    pub p: f64,
}

/// Keeps the high bits of every level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Posterize {
    /// Bits kept, 0 to 8.
    pub bits: u8,
    /// Probability.
    #[serde(default = "half")]
    pub p: f64,
}

/// Blends with a smoothed image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sharpness {
    /// 0 is smooth, 1 leaves the image as it is, more is sharper.
    pub factor: f64,
    /// Probability.
    #[serde(default = "half")]
    pub p: f64,
}

/// Rotates, moves, scales and shears about the centre; the size stays.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Affine {
    /// Angle, clockwise, drawn uniformly.
    pub degrees: Interval,
    /// Largest shift either way as a share of `[width, height]`.
    #[serde(default)]
    pub translate: [f64; 2],
    /// Factor drawn uniformly.
    #[serde(default = "no_scale")]
    pub scale: Interval,
    /// Degrees of shear along x and along y: `[x low, x high, y low, y high]`.
    #[serde(default)]
    pub shear: [f64; 4],
    /// How pixels between pixels are made.
    #[serde(default)]
    pub interpolation: Interpolation,
    /// Value of all channels where there was no image.
    #[serde(default)]
    pub fill: u8,
}

/// Some ops at random, all of one strength.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandAugment {
    /// Ops drawn, one after the other.
    #[serde(default = "two")]
    pub n: u32,
    /// Strength, below `bins`.
    #[serde(default = "rand_magnitude")]
    pub magnitude: u32,
    /// Number of strengths.
    #[serde(default = "bins")]
    pub bins: u32,
    /// How pixels between pixels are made.
    #[serde(default)]
    pub interpolation: Interpolation,
    /// Value of all channels where there was no image.
    #[serde(default)]
    pub fill: u8,
}

/// One op at random, of random strength.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrivialAugment {
    /// Number of strengths.
    #[serde(default = "bins")]
    pub bins: u32,
    /// How pixels between pixels are made.
    #[serde(default)]
    pub interpolation: Interpolation,
    /// Value of all channels where there was no image.
    #[serde(default)]
    pub fill: u8,
}

/// How pixels between pixels are made when an image is bent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interpolation {
    /// The nearest pixel.
    #[default]
    Nearest,
    /// Between the four pixels around.
    Bilinear,
}

/// What is wrong: the name of a parameter, and why.
pub(super) type Fault = (&'static str, String);

impl GaussianBlur {
    pub(super) fn faults(&self) -> Vec<Fault> {
        let (kernel, [low, high]) = (self.kernel, self.sigma);
        let mut faults = Vec::new();
        if kernel.is_multiple_of(2) || kernel > MAX_KERNEL {
            faults.push(("kernel", format!("{kernel} is not an odd number up to {MAX_KERNEL}")));
        }
        if !(low > 0.0 && low <= high && high.is_finite()) {
            let why = "is not an interval of numbers above 0, the smaller first";
            faults.push(("sigma", format!("[{low}, {high}] {why}")));
        }
        faults
    }
}

impl Solarize {
    pub(super) fn faults(&self) -> Vec<Fault> {
        within("threshold", self.threshold, 0.0, 255.0).into_iter().collect()
    }
}

impl Posterize {
    pub(super) fn faults(&self) -> Vec<Fault> {
        within("bits", f64::from(self.bits), 0.0, 8.0).into_iter().collect()
    }
}

impl Sharpness {
    pub(super) fn faults(&self) -> Vec<Fault> {
        within("factor", self.factor, 0.0, MAX_FACTOR).into_iter().collect()
    }
}

impl Affine {
    /// Whether every sample is bent the same way.
    pub(super) fn is_fixed(&self) -> bool {
        let [x_low, x_high, y_low, y_high] = self.shear;
        let intervals = [self.degrees, self.scale, [x_low, x_high], [y_low, y_high]];
        intervals.iter().all(|[low, high]| low == high) && self.translate == [0.0; 2]
    }

    pub(super) fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let [x_low, x_high, y_low, y_high] = self.shear;
        for (name, [low, high], most) in [
            ("degrees", self.degrees, MAX_DEGREES),
            ("shear", [x_low, x_high], MAX_SHEAR),
            ("shear", [y_low, y_high], MAX_SHEAR),
        ] {
            if !(-most <= low && low <= high && high <= most) {
                let why = format!("is not an interval in -{most}..={most}, the smaller first");
                faults.push((name, format!("[{low}, {high}] {why}")));
            }
        }
        faults.extend(self.translate.iter().find_map(|share| within("translate", *share, 0.0, 1.0)));
        let [low, high] = self.scale;
        if !(low > 0.0 && low <= high && high.is_finite()) {
            let why = "is not an interval of numbers above 0, the smaller first";
            faults.push(("scale", format!("[{low}, {high}] {why}")));
        }
        faults
    }
}

impl RandAugment {
    pub(super) fn faults(&self) -> Vec<Fault> {
        let Self { n, magnitude, bins, .. } = *self;
        let mut faults: Vec<Fault> = check_bins(bins).into_iter().collect();
        faults.extend(within("n", f64::from(n), 0.0, f64::from(MAX_DRAWN)));
        if magnitude >= bins {
            faults.push(("magnitude", format!("{magnitude} is not below `bins`, which is {bins}")));
        }
        faults
    }
}

impl TrivialAugment {
    pub(super) fn faults(&self) -> Vec<Fault> {
        check_bins(self.bins).into_iter().collect()
    }
}

fn check_bins(bins: u32) -> Option<Fault> {
    within("bins", f64::from(bins), 2.0, f64::from(MAX_BINS))
}

pub(super) fn within(name: &'static str, value: f64, low: f64, high: f64) -> Option<Fault> {
    (!(low..=high).contains(&value)).then(|| (name, format!("{value} is not in {low}..={high}")))
}

fn half() -> f64 {
    0.5
}
fn one() -> f64 {
    1.0
}
fn two() -> u32 {
    2
}
fn bins() -> u32 {
    31
}
fn rand_magnitude() -> u32 {
    9
}
fn blur_sigma() -> Interval {
    [0.1, 2.0]
}
fn no_scale() -> Interval {
    [1.0, 1.0]
}
