//! Settling a sample before a pixel exists: chance is drawn, geometry folded, changes of pixels noted.

use super::{ImagePath, ImageScratch, follow};
use crate::augment::adjustment::{Adjuster, Adjustment};
use crate::augment::{center_crop, flip, pad, random_crop, random_resized_crop, resize};
use crate::augment::{color_jitter, grayscale::Grayscale, random_erasing::RandomErasing};
use crate::geometry::Chain;
use crate::image::{Image, Rect};
use crate::kernels::erase::{self, RowForm};
use crate::value::SampleContext;
use forebay_core::recipe::{Direction, Filter, Interval, Size, default_max_pixels};
use forebay_core::rng::Rng;
use forebay_core::tensor::{Dtype, Layout};
use forebay_core::{Error, Result};
use std::time::Duration;

/// An op with its place in the recipe and the number that keys its chance.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) at: usize,
    pub(super) key: u64,
    pub(super) act: Act,
}

#[derive(Debug)]
pub(super) enum Act {
    Resize(Size, Filter),
    CenterCrop(Size),
    RandomCrop(Size, u32),
    RandomResizedCrop { size: Size, scale: Interval, ratio: Interval, filter: Filter },
    Flip(f64, Direction),
    Pad([u32; 4], u8),
    ColorJitter(color_jitter::ColorJitter),
    Grayscale(Grayscale),
    Adjust(Adjuster),
    RandomErasing(RandomErasing),
    Delay(Duration),
}

/// A change of pixels whose chance is drawn.
#[derive(Debug)]
pub(super) enum Change {
    Color([Option<color_jitter::Change>; 4]),
    Gray(Grayscale),
    Adjust(Adjustment),
    Erase(Rect, f64),
}

impl ImagePath {
    /// Draws all chance and settles all sizes of the wanted ops on an image of this size.
    pub(super) fn settle(
        &self,
        sample: &SampleContext,
        (from_width, from_height): (u32, u32),
        wanted: impl Fn(&&Step) -> bool,
        scratch: &mut ImageScratch,
    ) -> Result<()> {
        let ImageScratch { chain, changes, .. } = scratch;
        chain.restart(from_width, from_height);
        changes.clear();
        for Step { key, act, .. } in self.steps.iter().filter(wanted) {
            let rng = &mut Rng::for_op(sample.seed, sample.epoch, sample.sample_id, *key);
            let change = match act {
                Act::Resize(size, filter) => {
                    resize::apply(*size, *filter, chain);
                    None
                }
                Act::CenterCrop(size) => {
                    center_crop::apply(*size, chain);
                    None
                }
                Act::RandomCrop(size, padding) => {
                    random_crop::apply(*size, *padding, chain, rng);
                    None
                }
                Act::RandomResizedCrop { size, scale, ratio, filter } => {
                    random_resized_crop::apply(*size, *scale, *ratio, *filter, chain, rng);
                    None
                }
                Act::Flip(p, direction) => {
                    flip::apply(*p, *direction, chain, rng);
                    None
                }
                Act::Pad(border, value) => {
                    pad::apply(*border, *value, chain);
                    None
                }
                Act::ColorJitter(op) => Some(Change::Color(op.draw(rng))),
                Act::Grayscale(op) => op.draw(rng).then_some(Change::Gray(Grayscale { p: 1.0 })),
                Act::Adjust(op) => {
                    op.draw(chain.size(), rng, |drawn| {
                        let drawn = if self.follows { follow::change_of_mask(&drawn) } else { Some(drawn) };
                        if let Some(drawn) = drawn {
                            note(Change::Adjust(drawn), chain, changes);
                        }
                    });
                    None
                }
                Act::RandomErasing(op) => {
                    let (width, height) = chain.size();
                    op.draw(width, height, rng).map(|rect| Change::Erase(rect, op.value))
                }
                Act::Delay(time) => {
                    std::thread::sleep(*time);
                    None
                }
            };
            if let Some(change) = change {
                note(change, chain, changes);
            }
        }
        let limit = self.max_pixels.max(default_max_pixels());
        for geometry in chain.geometries() {
            let (width, height) = (geometry.width(), geometry.height());
            if u64::from(width) * u64::from(height) > limit {
                return Err(Error::exhausted(format!(
                    "resample an image of {from_width}x{from_height}: {width}x{height} is more than {limit} pixels"
                ))
                .with_hint("crop before resizing, or give `resize` both sides"));
            }
        }
        Ok(())
    }
}

/// Has a change made after everything that is in the chain.
fn note(change: Change, chain: &mut Chain, changes: &mut Vec<(usize, Change)>) {
    // Color does not care which way an image faces, so a mirror may wait for the finishing pass.
    let waits = match &change {
        Change::Color(_) | Change::Gray(_) => true,
        Change::Adjust(adjustment) => adjustment.lets_mirrors_wait(),
        Change::Erase(..) => false,
    };
    chain.close(waits);
    changes.push((chain.count() - 1, change));
}

impl Change {
    /// Makes the change. `spare` is memory to work in.
    pub(super) fn apply(&self, image: &mut Image, spare: &mut Image) {
        match self {
            Self::Color(changes) => {
                changes.iter().flatten().for_each(|change| change.apply(&mut image.as_mut()));
            }
            // The chance was drawn; what is left happens for certain.
            Self::Gray(op) => op.apply(&mut image.as_mut(), &mut Rng::keyed(0, 0, 0)),
            Self::Adjust(adjustment) => adjustment.apply(image, spare),
            Self::Erase(rect, value) => {
                let (width, height, channels) = (image.width(), image.height(), image.channels());
                let form = RowForm { width, height, channels, layout: Layout::Hwc, dtype: Dtype::U8 };
                erase::fill(image.pixels_mut(), form, *rect, *value);
            }
        }
    }
}
