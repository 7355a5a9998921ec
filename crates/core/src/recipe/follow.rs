//! Columns that follow an image: boxes, their labels and keypoints, and masks, moved as the geometry of another column moves
//! its pixels.
//!
//! Geometry is drawn for the image; because draws are keyed by sample and place in the recipe, whoever follows it draws
//! the same again. This module holds the words and the checks; how coordinates move is in the `ops` crate.

use super::augment::{Fault, within};
use super::{Decode, FieldRecipe, Op, Recipe};
use crate::tensor::Dtype;
use serde::{Deserialize, Serialize};

/// Most pairs of keypoints that change places in a mirror.
const MAX_PAIRS: usize = 1024;

/// What a column takes of annotations, and which of them stay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Boxes {
    /// What the column holds.
    #[serde(default)]
    pub part: BoxPart,
    /// How boxes are stored.
    #[serde(default = "xywh")]
    pub stored: BoxFormat,
    /// How boxes are delivered.
    #[serde(default)]
    pub format: BoxFormat,
    /// Boxes with a smaller area are dropped, in pixels of the result.
    #[serde(default)]
    pub min_area: f64,
    /// Boxes of which a smaller share is left are dropped.
    #[serde(default)]
    pub min_visibility: f64,
    /// Keypoints that change places when the image is mirrored, such as left and right eye.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub swap: Vec<[u32; 2]>,
}

/// What is taken of annotations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BoxPart {
    /// Four numbers for each.
    #[default]
    Boxes,
    /// An integer for each.
    Labels,
    /// Points of `x`, `y` and visibility for each.
    Keypoints,
}

/// What the four numbers of a box are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BoxFormat {
    /// Left, top, right, bottom.
    #[default]
    Xyxy,
    /// Left, top, width, height: what COCO stores.
    Xywh,
    /// Middle, width, height.
    Cxcywh,
}

impl Boxes {
    /// Element type of the column.
    pub fn dtype(&self) -> Dtype {
        if self.part == BoxPart::Labels { Dtype::I64 } else { Dtype::F32 }
    }

    pub(super) fn faults(&self) -> Vec<Fault> {
        let mut faults: Vec<Fault> = [
            within("min_area", self.min_area, 0.0, 1e12),
            within("min_visibility", self.min_visibility, 0.0, 1.0),
            within("swap", self.swap.len() as f64, 0.0, MAX_PAIRS as f64),
        ]
        .into_iter()
        .flatten()
        .collect();
        if !self.swap.is_empty() && self.part != BoxPart::Keypoints {
            faults.push(("swap", "only keypoints change places".to_owned()));
        }
        faults
    }
}

impl Recipe {
    /// The place of the column that column `index` follows.
    pub fn followed(&self, index: usize) -> Option<usize> {
        let name = self.fields.get(index)?.follow.as_deref()?;
        self.fields.iter().position(|field| field.output_name() == name)
    }

    /// The column with all that is done to it: a mask that follows an image goes through the image's ops first, of which
    /// those that move pixels count.
    pub fn effective(&self, index: usize) -> FieldRecipe {
        let field = self.fields[index].clone();
        let followed = self.followed(index).filter(|_| matches!(field.decode, Decode::Image { .. }));
        let Some(followed) = followed else { return field };
        let native = |op: &&Op| op.function().is_none() && !op.closes_batch();
        let mut ops: Vec<Op> = self.fields[followed].ops.iter().filter(native).cloned().collect();
        ops.retain(|op| !matches!(op, Op::Normalize { .. }));
        ops.extend(field.ops.iter().cloned());
        FieldRecipe { ops, ..field }
    }
}

/// What is wrong with how column `index` follows another one.
pub(super) fn faults(recipe: &Recipe, index: usize) -> Vec<Fault> {
    let field = &recipe.fields[index];
    let mut faults = Vec::new();
    let Some(name) = &field.follow else {
        if matches!(field.decode, Decode::Boxes(_)) {
            faults.push(("follow", "boxes need it: say which column of images they belong to".to_owned()));
        }
        return faults;
    };
    if !matches!(field.decode, Decode::Boxes(_) | Decode::Image { .. }) {
        faults.push(("follow", "only boxes and images follow an image".to_owned()));
    }
    let image = recipe.followed(index).filter(|at| *at != index).map(|at| &recipe.fields[at]);
    let Some(image) = image.filter(|image| matches!(image.decode, Decode::Image { .. })) else {
        faults.push(("follow", format!("`{name}` is no other column of images")));
        return faults;
    };
    if matches!(field.decode, Decode::Image { .. })
        && field.padded().is_some()
        && image.fixed_image_size().is_some()
    {
        faults.push(("ops", "all samples are of one size already: leave `pad_batch` out".to_owned()));
    }
    if image.follow.is_some() {
        faults.push(("follow", format!("`{name}` follows a column itself: follow that one")));
    }
    if image.ops.iter().any(|op| matches!(op, Op::AugMix(_))) {
        let why = "lays images over each other that are bent in several ways, so nothing can follow";
        faults.push(("follow", format!("`{name}` has `aug_mix`, which {why}")));
    }
    if matches!(field.decode, Decode::Image { .. }) {
        let own = |op: &&Op| !matches!(op, Op::PadBatch(_)) && op.function().is_none();
        if let Some(op) = field.ops.iter().find(own) {
            let why = "does what its image does: only `pad_batch` and functions may be added";
            faults.push((
                "ops",
                format!("`{}` cannot be done to a column that follows, which {why}", op.name()),
            ));
        }
    }
    faults
}

fn xywh() -> BoxFormat {
    BoxFormat::Xywh
}
