//! Parameters of `perspective`, `auto_augment` and `aug_mix`, with their defaults and what they must obey.
//!
//! Names and defaults are torchvision's where it has the op. The ops that its policies draw from are in [`super::augment`].

use super::augment::{Fault, within};
use super::{Interpolation, Op};
use serde::{Deserialize, Serialize};

/// Most chains of one `aug_mix`, and most ops of a chain.
const MAX_CHAINS: u32 = 16;
/// Strengths that `aug_mix` draws from at most.
const MAX_SEVERITY: u32 = 10;
/// Largest parameter of a Beta or Dirichlet distribution; shares are all but equal long before.
pub(super) const MAX_ALPHA: f64 = 1000.0;

/// Looks at the image from the side: its corners move inwards at random.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Perspective {
    /// How far corners move at most, as a share of half a side.
    #[serde(default = "half")]
    pub distortion: f64,
    /// Probability.
    #[serde(default = "half")]
    pub p: f64,
    /// How pixels between pixels are made.
    #[serde(default = "bilinear")]
    pub interpolation: Interpolation,
    /// Value of all channels where there was no image.
    #[serde(default)]
    pub fill: u8,
}

/// Two ops of fixed strengths, drawn from a list of pairs that was found by search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AutoAugment {
    /// Which list.
    #[serde(default)]
    pub policy: Policy,
    /// How pixels between pixels are made.
    #[serde(default)]
    pub interpolation: Interpolation,
    /// Value of all channels where there was no image.
    #[serde(default)]
    pub fill: u8,
}

/// The data that a list of `auto_augment` was found on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// ImageNet.
    #[default]
    Imagenet,
    /// CIFAR-10.
    Cifar10,
    /// Street view house numbers.
    Svhn,
}

/// The image laid over what several chains of ops made of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AugMix {
    /// Strengths that ops are drawn from, 1 to 10.
    #[serde(default = "three")]
    pub severity: u32,
    /// Chains.
    #[serde(default = "three")]
    pub width: u32,
    /// Ops of each chain; 0 draws one to three.
    #[serde(default)]
    pub depth: u32,
    /// Parameter of the distributions that shares are drawn from.
    #[serde(default = "alpha")]
    pub alpha: f64,
    /// Whether brightness, color, contrast and sharpness are among the ops.
    #[serde(default = "yes")]
    pub all_ops: bool,
    /// How pixels between pixels are made.
    #[serde(default = "bilinear")]
    pub interpolation: Interpolation,
    /// Value of all channels where there was no image.
    #[serde(default)]
    pub fill: u8,
}

impl Perspective {
    fn faults(&self) -> Vec<Fault> {
        let both = [within("distortion", self.distortion, 0.0, 1.0), within("p", self.p, 0.0, 1.0)];
        both.into_iter().flatten().collect()
    }
}

impl AugMix {
    fn faults(&self) -> Vec<Fault> {
        let mut faults: Vec<Fault> = [
            within("severity", f64::from(self.severity), 1.0, f64::from(MAX_SEVERITY)),
            within("width", f64::from(self.width), 1.0, f64::from(MAX_CHAINS)),
            within("depth", f64::from(self.depth), 0.0, f64::from(MAX_CHAINS)),
        ]
        .into_iter()
        .flatten()
        .collect();
        faults.extend(check_alpha("alpha", self.alpha));
        faults
    }
}

/// What is wrong with an op of this file; nothing with others.
pub(super) fn faults(op: &Op) -> Vec<Fault> {
    match op {
        Op::Perspective(op) => op.faults(),
        Op::AugMix(op) => op.faults(),
        _ => Vec::new(),
    }
}

/// Parameters of Beta and Dirichlet distributions.
pub(super) fn check_alpha(name: &'static str, alpha: f64) -> Option<Fault> {
    let sound = alpha > 0.0 && alpha <= MAX_ALPHA;
    (!sound).then(|| (name, format!("{alpha} is not above 0 and at most {MAX_ALPHA}")))
}

fn half() -> f64 {
    0.5
}
fn three() -> u32 {
    3
}
fn alpha() -> f64 {
    1.0
}
fn yes() -> bool {
    true
}
fn bilinear() -> Interpolation {
    Interpolation::Bilinear
}
