//! A column of boxes, labels or keypoints: from the annotations of an image to a tensor of what is left of them.
//!
//! The same rule decides for all three parts, so that rows of columns with the same rule belong together: what is not
//! seen any more is dropped, and so is what is smaller, or less visible, than the recipe says.

use crate::buffer::BufferPool;
use crate::decode::boxes::{self, Annotation};
use crate::track::{self, Move};
use crate::value::{Tensor, Value};
use forebay_core::recipe::{BoxFormat, BoxPart, Boxes};
use forebay_core::tensor::TensorSpec;
use forebay_core::{Error, Result};

/// What the column holds of the annotations in `payload`, whose image of `size` columns and rows is moved so.
pub(crate) fn prepare(
    recipe: &Boxes,
    payload: &[u8],
    size: (u32, u32),
    moves: &[Move],
    pool: &BufferPool,
) -> Result<Value> {
    let annotations = boxes::decode(payload, recipe.stored)?;
    let size = [size.0, size.1].map(f64::from);
    let seen = annotations.iter().filter_map(|one| {
        let (bounds, visible) = track::bounds(moves, size, one.bounds)?;
        let [left, top, right, bottom] = bounds;
        let large = (right - left) * (bottom - top) >= recipe.min_area;
        (large && visible >= recipe.min_visibility).then_some((one, bounds))
    });
    let mut bytes: Vec<u8> = Vec::new();
    let mut rows = 0;
    let mut put =
        |values: &[f64]| bytes.extend(values.iter().flat_map(|value| (*value as f32).to_ne_bytes()));
    let mut labels: Vec<u8> = Vec::new();
    for (one, bounds) in seen {
        rows += 1;
        match recipe.part {
            BoxPart::Boxes => put(&delivered(bounds, recipe.format)),
            BoxPart::Labels => {
                let label = one.label.ok_or_else(|| Error::corrupt("decode boxes: a box has no label"))?;
                labels.extend(label.to_ne_bytes());
            }
            BoxPart::Keypoints => points(one, recipe, moves, size).iter().for_each(|point| put(point)),
        }
    }
    let points = annotations.first().map_or(0, |one| one.keypoints.len());
    let (bytes, shape) = match recipe.part {
        BoxPart::Boxes => (bytes, vec![rows, 4]),
        BoxPart::Labels => (labels, vec![rows]),
        BoxPart::Keypoints => (bytes, vec![rows, points, 3]),
    };
    let mut data = pool.take(bytes.len());
    data.as_mut_slice().copy_from_slice(&bytes);
    Ok(Value::Tensor(Tensor { spec: TensorSpec { dtype: recipe.dtype(), shape }, data }))
}

fn delivered([left, top, right, bottom]: [f64; 4], format: BoxFormat) -> [f64; 4] {
    let (width, height) = (right - left, bottom - top);
    match format {
        BoxFormat::Xyxy => [left, top, right, bottom],
        BoxFormat::Xywh => [left, top, width, height],
        BoxFormat::Cxcywh => [left + 0.5 * width, top + 0.5 * height, width, height],
    }
}

/// Keypoints where they are now; those that are not seen are all zero, as COCO has it.
fn points(one: &Annotation, recipe: &Boxes, moves: &[Move], size: [f64; 2]) -> Vec<[f64; 3]> {
    let moved = one.keypoints.iter().map(|&[x, y, visibility]| {
        let seen = (visibility != 0.0).then(|| track::point(moves, size, [x, y])).flatten();
        seen.map_or([0.0; 3], |[x, y]| [x, y, visibility])
    });
    let mut points: Vec<[f64; 3]> = moved.collect();
    if track::is_mirrored(moves) {
        for [one, other] in &recipe.swap {
            let (one, other) = (*one as usize, *other as usize);
            if one.max(other) < points.len() {
                points.swap(one, other);
            }
        }
    }
    points
}

#[cfg(test)]
mod tests;
