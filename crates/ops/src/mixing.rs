//! `mixup` and `cutmix`: the samples of a batch mixed with each other, and their labels as shares of classes.
//!
//! What is drawn for a batch is keyed by seed, epoch and the samples it holds, so that the same batch is mixed in the same
//! way wherever it is made. Every sample has one partner: the one so many rows before it, around the end, as in
//! torchvision's `MixUp` and `CutMix`, where that number is always one.

use crate::buffer::BufferPool;
use crate::collate::Column;
use crate::decode::label;
use crate::function::Named;
use crate::image::Rect;
use crate::kernels::blend;
use forebay_core::recipe::{FieldRecipe, Mixing, Recipe, SampleOp};
use forebay_core::rng::{Rng, fold};
use forebay_core::tensor::{Dtype, Layout, TensorSpec};
use forebay_core::{Error, Facts, Result, SampleId};

/// Keeps the chance of mixing apart from that of ops on samples.
const MIX_STREAM: u64 = u64::MAX - 2;

/// An op that mixes, ready to be done.
#[derive(Debug)]
pub(crate) struct Mixer {
    op: Mixing,
    name: &'static str,
    layout: Layout,
}

/// What is done to one batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Draw {
    /// Rows from a sample back to its partner.
    pub(crate) back: usize,
    /// How images are mixed.
    pub(crate) way: Way,
    /// Share of the sample itself in its label.
    pub(crate) own: f64,
}

/// How images are mixed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Way {
    /// They stay.
    Keep,
    /// By the same share as labels.
    Blend,
    /// This box is the partner's.
    Cut(Rect),
}

impl Draw {
    const NONE: Self = Self { back: 0, way: Way::Keep, own: 1.0 };
}

impl Mixer {
    /// The mixer that an op of a checked recipe is, if it is one.
    pub(crate) fn of(recipe: &Recipe, op: &SampleOp) -> Option<Self> {
        let mixing = op.mixing()?;
        let image = recipe.fields.iter().find(|field| field.output_name() == mixing.image);
        let layout = image.map_or(Layout::default(), |field: &FieldRecipe| field.layout);
        Some(Self { op: mixing, name: op.name(), layout })
    }

    /// Mixes the columns of a batch of these samples.
    pub(crate) fn run(
        &self,
        (seed, epoch): (u64, u64),
        ids: &[SampleId],
        mut columns: Named,
        pool: &BufferPool,
    ) -> Result<Named> {
        let members = ids.iter().fold(ids.len() as u64, |folded, id| fold(&[folded, id.0]));
        let mut rng = Rng::keyed(fold(&[seed, epoch]), members, MIX_STREAM);
        let mixed = self.images(ids.len(), &mut columns, &mut rng);
        let done = mixed.and_then(|draw| self.labels(draw, &mut columns, pool));
        done.map(|()| columns).map_err(|error| {
            let facts = Facts { op: Some(self.name.to_owned()), epoch: Some(epoch), ..Facts::default() };
            error.with_facts(facts).while_doing(format_args!("do `{}` to a batch", self.name))
        })
    }

    fn images(&self, rows: usize, columns: &mut Named, rng: &mut Rng) -> Result<Draw> {
        let name = &self.op.image;
        let (spec, found, data) = match column(columns, name)? {
            Column::Tensor { spec, rows, data } => (spec.clone(), *rows, data),
            // A batch of which nothing was left.
            other if other.rows() == 0 => return Ok(Draw::NONE),
            _ => return Err(unfit(name, "its images are not of one size")),
        };
        let size = match (spec.shape.as_slice(), self.layout) {
            (&[_, height, width], Layout::Chw) | (&[height, width, _], Layout::Hwc) => (width, height),
            _ => return Err(unfit(name, "it holds no images")),
        };
        if found != rows {
            return Err(unfit(name, "it has not one row for each sample"));
        }
        let draw = draw(&self.op, rows, size, rng);
        match draw.way {
            Way::Keep => {}
            Way::Blend => {
                let blend =
                    blend::of(spec.dtype).ok_or_else(|| unfit(name, "its elements cannot be blended"))?;
                let (own, other) = (draw.own as f32, (1.0 - draw.own) as f32);
                with_partners(data.as_mut_slice(), spec.bytes(), draw.back, |row, partner| {
                    blend(row, partner, own, other);
                });
            }
            Way::Cut(rect) => {
                let runs = runs(&spec, self.layout, size, rect);
                with_partners(data.as_mut_slice(), spec.bytes(), draw.back, |row, partner| {
                    for run in runs.clone() {
                        row[run.clone()].copy_from_slice(&partner[run]);
                    }
                });
            }
        }
        Ok(draw)
    }

    /// Replaces labels by a row of shares each.
    fn labels(&self, draw: Draw, columns: &mut Named, pool: &BufferPool) -> Result<()> {
        let (name, classes) = (&self.op.label, self.op.classes as usize);
        let found = column(columns, name)?;
        let numbers: Vec<usize> = match &*found {
            Column::Tensor { spec, data, .. } if spec.shape.is_empty() => {
                let elements = data.as_slice().chunks_exact(spec.dtype.size().max(1));
                let known = |element: &[u8]| {
                    let number = label::read(spec.dtype, element);
                    let class = number.and_then(|number| usize::try_from(number).ok());
                    class.filter(|class| *class < classes).ok_or_else(|| {
                        let number =
                            number.map_or_else(|| "no integer".to_owned(), |number| number.to_string());
                        unfit(name, &format!("{number} is none of {classes} classes"))
                    })
                };
                elements.map(known).collect::<Result<_>>()?
            }
            other if other.rows() == 0 => Vec::new(),
            _ => return Err(unfit(name, "it holds no labels")),
        };
        let spec = TensorSpec { dtype: Dtype::F32, shape: vec![classes] };
        let rows = numbers.len();
        let mut data = pool.take(spec.bytes() * rows);
        data.as_mut_slice().fill(0);
        let (own, other) = (draw.own as f32, (1.0 - draw.own) as f32);
        for (at, shares) in data.as_mut_slice().chunks_exact_mut(spec.bytes()).enumerate() {
            let partner = numbers[(at + rows - draw.back) % rows];
            let mut add = |class: usize, share: f32| {
                let place = &mut shares[class * 4..][..4];
                let before = f32::from_ne_bytes([place[0], place[1], place[2], place[3]]);
                place.copy_from_slice(&(before + share).to_ne_bytes());
            };
            add(partner, other);
            add(numbers[at], own);
        }
        *found = Column::Tensor { spec, rows, data };
        Ok(())
    }
}

/// Draws what is done to a batch of `rows` images of `size` columns and rows.
pub(crate) fn draw(op: &Mixing, rows: usize, (width, height): (usize, usize), rng: &mut Rng) -> Draw {
    if rows < 2 || !rng.chance(op.p) {
        return Draw::NONE;
    }
    let cuts = rng.chance(op.cutmix_share);
    let back = 1 + rng.below(rows as u64 - 1) as usize;
    let mut shares = [0.0; 2];
    rng.shares(if cuts { op.cutmix_alpha } else { op.mixup_alpha }, &mut shares);
    let own = shares[0];
    if !cuts {
        return Draw { back, way: Way::Blend, own };
    }
    let half = 0.5 * (1.0 - own).sqrt();
    let mut span = |side: usize| {
        let (middle, reach) = (rng.below(side as u64) as i64, (half * side as f64) as i64);
        let (low, high) = ((middle - reach).max(0), (middle + reach).min(side as i64));
        (low as u32, (high - low) as u32)
    };
    let ((x, width_cut), (y, height_cut)) = (span(width), span(height));
    let rect = Rect { x, y, width: width_cut, height: height_cut };
    let cut = f64::from(width_cut) * f64::from(height_cut) / (width as f64 * height as f64);
    Draw { back, way: Way::Cut(rect), own: 1.0 - cut }
}

/// Calls `mix` once with every row and its partner as it was before, `back` rows before it.
fn with_partners(data: &mut [u8], row_bytes: usize, back: usize, mut mix: impl FnMut(&mut [u8], &[u8])) {
    let rows = data.len().checked_div(row_bytes).unwrap_or(0);
    if rows == 0 || back.is_multiple_of(rows) {
        return;
    }
    // Rows form rings, each sample's partner the next; of each ring, one row must be remembered until the end.
    let mut done = vec![false; rows];
    let mut first = Vec::with_capacity(row_bytes);
    for start in 0..rows {
        if done[start] {
            continue;
        }
        first.clear();
        first.extend_from_slice(&data[start * row_bytes..][..row_bytes]);
        let mut at = start;
        loop {
            done[at] = true;
            let partner = (at + rows - back) % rows;
            if partner == start {
                mix(&mut data[at * row_bytes..][..row_bytes], &first);
                break;
            }
            let (low, high) = data.split_at_mut(at.max(partner) * row_bytes);
            let smaller = &mut low[at.min(partner) * row_bytes..][..row_bytes];
            let larger = &mut high[..row_bytes];
            if at < partner {
                mix(smaller, larger);
            } else {
                mix(larger, smaller);
            }
            at = partner;
        }
    }
}

/// The bytes of a box in an image.
fn runs(
    spec: &TensorSpec,
    layout: Layout,
    (width, height): (usize, usize),
    rect: Rect,
) -> impl Iterator<Item = std::ops::Range<usize>> + Clone {
    let (x, y) = (rect.x as usize, rect.y as usize);
    let (wide, high) = (rect.width as usize, rect.height as usize);
    let size = spec.dtype.size();
    // Planes of pixels of one element, or one plane of pixels of several.
    let channels = spec.bytes() / (size * width * height).max(1);
    let (planes, pixel) = if layout == Layout::Chw { (channels, size) } else { (1, size * channels) };
    let rows = (0..planes).flat_map(move |plane| (y..y + high).map(move |row| plane * height + row));
    rows.map(move |row| {
        let start = (row * width + x) * pixel;
        start..start + wide * pixel
    })
}

fn column<'a>(columns: &'a mut Named, name: &str) -> Result<&'a mut Column> {
    let found = columns.iter_mut().find(|(column, _)| column == name);
    found.map(|(_, column)| column).ok_or_else(|| unfit(name, "it is not in the batch"))
}

fn unfit(column: &str, why: &str) -> Error {
    Error::corrupt(format!("mix column `{column}`: {why}"))
}

#[cfg(test)]
mod tests;
