//! Ops that mix the samples of a batch and their labels: `mixup`, `cutmix`, and one of the two for each batch.
//!
//! They are of whole batches and come last: labels become rows of shares, one number per class.

use super::augment::{Fault, within};
use super::policies::check_alpha;
use super::{Decode, Op, Recipe, SampleOp};
use serde::{Deserialize, Serialize};

/// Most classes: every row of labels holds a number for each.
const MAX_CLASSES: u32 = 1 << 20;

/// Blends every image of a batch with another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mixup {
    /// Column of images, all of one size.
    pub image: String,
    /// Column of labels.
    pub label: String,
    /// Labels are below this.
    pub classes: u32,
    /// Parameter of the Beta distribution that the share is drawn from.
    #[serde(default = "one")]
    pub alpha: f64,
    /// Probability.
    #[serde(default = "one")]
    pub p: f64,
}

/// Puts a box of another image into every image of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cutmix {
    /// Column of images, all of one size.
    pub image: String,
    /// Column of labels.
    pub label: String,
    /// Labels are below this.
    pub classes: u32,
    /// Parameter of the Beta distribution that the share is drawn from.
    #[serde(default = "one")]
    pub alpha: f64,
    /// Probability.
    #[serde(default = "one")]
    pub p: f64,
}

/// One of the two, drawn for each batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixupOrCutmix {
    /// Column of images, all of one size.
    pub image: String,
    /// Column of labels.
    pub label: String,
    /// Labels are below this.
    pub classes: u32,
    /// As `alpha` of `mixup`.
    #[serde(default = "one")]
    pub mixup_alpha: f64,
    /// As `alpha` of `cutmix`.
    #[serde(default = "one")]
    pub cutmix_alpha: f64,
    /// Share of the batches that are mixed at all of which `cutmix` takes.
    #[serde(default = "half")]
    pub cutmix_share: f64,
    /// Probability that a batch is mixed.
    #[serde(default = "one")]
    pub p: f64,
}

/// Any of the three, said in the same words.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixing {
    /// Column of images.
    pub image: String,
    /// Column of labels.
    pub label: String,
    /// Labels are below this.
    pub classes: u32,
    /// Parameter of the share of `mixup`.
    pub mixup_alpha: f64,
    /// Parameter of the share of `cutmix`.
    pub cutmix_alpha: f64,
    /// Share of `cutmix` among both.
    pub cutmix_share: f64,
    /// Probability that a batch is mixed.
    pub p: f64,
}

impl SampleOp {
    /// How samples are mixed, when this does.
    pub fn mixing(&self) -> Option<Mixing> {
        let of = |image: &String, label: &String, classes: u32, p: f64| Mixing {
            image: image.clone(),
            label: label.clone(),
            classes,
            mixup_alpha: 1.0,
            cutmix_alpha: 1.0,
            cutmix_share: 0.0,
            p,
        };
        Some(match self {
            Self::Mixup(Mixup { image, label, classes, alpha, p }) => {
                Mixing { mixup_alpha: *alpha, ..of(image, label, *classes, *p) }
            }
            Self::Cutmix(Cutmix { image, label, classes, alpha, p }) => {
                Mixing { cutmix_alpha: *alpha, cutmix_share: 1.0, ..of(image, label, *classes, *p) }
            }
            Self::MixupOrCutmix(op) => Mixing {
                mixup_alpha: op.mixup_alpha,
                cutmix_alpha: op.cutmix_alpha,
                cutmix_share: op.cutmix_share,
                ..of(&op.image, &op.label, op.classes, op.p)
            },
            Self::Map { .. } | Self::Filter { .. } | Self::MapBatch { .. } => return None,
        })
    }

    /// Whether it is of whole batches.
    pub fn is_of_batches(&self) -> bool {
        matches!(self, Self::MapBatch { .. }) || self.mixing().is_some()
    }

    fn alphas(&self) -> Vec<(&'static str, f64)> {
        match self {
            Self::Mixup(op) => vec![("alpha", op.alpha)],
            Self::Cutmix(op) => vec![("alpha", op.alpha)],
            Self::MixupOrCutmix(op) => {
                vec![("mixup_alpha", op.mixup_alpha), ("cutmix_alpha", op.cutmix_alpha)]
            }
            _ => Vec::new(),
        }
    }
}

/// What is wrong with the op at `index` when it mixes; nothing with others.
pub(super) fn faults(recipe: &Recipe, index: usize) -> Vec<Fault> {
    let op = &recipe.ops[index];
    let Some(mixing) = op.mixing() else { return Vec::new() };
    let mut faults: Vec<Fault> = [
        within("classes", f64::from(mixing.classes), 1.0, f64::from(MAX_CLASSES)),
        within("p", mixing.p, 0.0, 1.0),
        within("cutmix_share", mixing.cutmix_share, 0.0, 1.0),
    ]
    .into_iter()
    .flatten()
    .collect();
    faults.extend(op.alphas().into_iter().filter_map(|(name, alpha)| check_alpha(name, alpha)));
    if index + 1 < recipe.ops.len() {
        faults.push(("op", format!("`{}` mixes what everything else has made: it comes last", op.name())));
    }
    let column = |name: &str| recipe.fields.iter().find(|field| field.output_name() == name);
    let replaced = |name: &str| {
        let of_column =
            column(name).is_some_and(|field| field.ops.iter().any(|op| matches!(op, Op::Map { .. })));
        let given =
            |op: &SampleOp| matches!(op, SampleOp::Map { fields, .. } if fields.iter().any(|f| f == name));
        of_column || recipe.ops.iter().any(given)
    };
    let mut unless = |sound: bool, key: &'static str, name: &str, why: &str| {
        if !sound {
            faults.push((key, format!("`{name}` {why}")));
        }
    };
    let image = column(&mixing.image).is_some_and(|field| field.fixed_image_size().is_some());
    let name = &mixing.image;
    unless(image, "image", name, "is no column of images that the recipe makes all of one size");
    unless(!replaced(name), "image", name, "is what a function makes, and only native images are mixed");
    let label = column(&mixing.label).is_some_and(|field| matches!(field.decode, Decode::Label {}));
    let name = &mixing.label;
    unless(label, "label", name, "is no column of labels");
    unless(!replaced(name), "label", name, "is what a function makes, and only native labels are mixed");
    faults
}

fn one() -> f64 {
    1.0
}
fn half() -> f64 {
    0.5
}
