//! A folded chain gives the pixels that its ops give one by one.

use super::*;
use crate::image::Image;
use crate::kernels::orient;
use crate::kernels::resample::Resampler;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Crop(f64, f64, f64, f64),
    Resize(u32, u32, Filter),
    Pad(Border),
    Mirror(Mirror),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let unit = || 0.0..1.0f64;
    let crop = (unit(), unit(), unit(), unit()).prop_map(|(x, y, w, h)| Step::Crop(x, y, w, h));
    let filter = prop_oneof![Just(Filter::Nearest), Just(Filter::Bilinear)];
    let resize = (1u32..40, 1u32..40, filter).prop_map(|(w, h, filter)| Step::Resize(w, h, filter));
    let border = (0u32..5, 0u32..5, 0u32..5, 0u32..5, prop_oneof![Just(0u8), Just(200)]);
    let pad = border
        .prop_map(|(left, top, right, bottom, value)| Step::Pad(Border { left, top, right, bottom, value }));
    let mirror = any::<(bool, bool)>()
        .prop_map(|(horizontal, vertical)| Step::Mirror(Mirror { horizontal, vertical }));
    prop::collection::vec(prop_oneof![crop, resize, pad, mirror], 0..7)
}

impl Step {
    fn add(self, chain: &mut Chain) {
        let (width, height) = chain.size();
        let within = |at: f64, len: u32| (at * f64::from(len)) as u32;
        match self {
            Self::Crop(x, y, w, h) => {
                let rect_width = 1 + within(w, width - 1);
                let rect_height = 1 + within(h, height - 1);
                let x = within(x, width - rect_width + 1);
                let y = within(y, height - rect_height + 1);
                chain.crop(Rect { x, y, width: rect_width, height: rect_height });
            }
            Self::Resize(width, height, filter) => chain.resize(width, height, filter),
            Self::Pad(border) => chain.pad(border),
            Self::Mirror(mirror) => chain.mirror(mirror),
        }
    }
}

/// Executes a chain. Only the needed pixels of the source are shown to it.
fn execute(chain: &Chain, source: &Image) -> Image {
    let mut current = source.clone();
    for geometry in chain.geometries() {
        let needed = geometry.needed();
        let piece = if needed.is_empty() { Image::new(0, 0, 3) } else { current.cropped(needed) };
        let mut result = Image::new(geometry.width(), geometry.height(), 3);
        Resampler::default().run(piece.as_ref(), needed, geometry, result.pixels_mut()).unwrap();
        orient::mirror(&mut result.as_mut(), geometry.mirror);
        current = result;
    }
    current
}

fn photo(width: u32, height: u32) -> Image {
    let mut image = Image::new(width, height, 3);
    for (index, value) in image.pixels_mut().iter_mut().enumerate() {
        let (x, y) = ((index / 3) as u32 % width, (index / 3) as u32 / width);
        *value = (x * 37 + y * 91 + (x * y) % 13 * 11 + (index % 3) as u32 * 50) as u8;
    }
    image
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_folded_chain_gives_the_pixels_of_its_ops_one_by_one(width in 1u32..50, height in 1u32..50, steps in steps()) {
        let source = photo(width, height);
        let mut folded = Chain::new(width, height);
        let mut stepwise = source.clone();
        let mut convolved = false;
        for step in &steps {
            step.add(&mut folded);
            let mut single = Chain::new(stepwise.width(), stepwise.height());
            step.add(&mut single);
            stepwise = execute(&single, &stepwise);
            convolved |= matches!(step, Step::Resize(_, _, Filter::Bilinear));
        }
        prop_assert_eq!(folded.size(), (stepwise.width(), stepwise.height()));
        let made = execute(&folded, &source);
        let difference = made.pixels().iter().zip(stepwise.pixels()).map(|(a, b)| a.abs_diff(*b)).max();
        // Convolution rounds its weights to the largest of them, which a window may not have.
        prop_assert!(difference.unwrap_or(0) <= if convolved { 2 } else { 0 }, "{:?} off, {:?}", difference, folded);
    }
}

#[test]
fn usual_chains_fold_into_one_geometry() {
    let mut chain = Chain::new(500, 375);
    chain.crop(Rect { x: 10, y: 20, width: 300, height: 200 });
    chain.resize(224, 224, Filter::Bilinear);
    chain.mirror(Mirror { horizontal: true, vertical: false });
    assert_eq!(chain.count(), 1);

    let mut chain = Chain::new(500, 375);
    chain.resize(341, 256, Filter::Bilinear);
    chain.crop(Rect { x: 58, y: 16, width: 224, height: 224 });
    assert_eq!(chain.count(), 1);
    assert_eq!(chain.get(0).needed(), Rect { x: 82, y: 20, width: 334, height: 335 });

    let mut chain = Chain::new(32, 32);
    chain.pad(Border { left: 4, top: 4, right: 4, bottom: 4, value: 0 });
    chain.crop(Rect { x: 0, y: 5, width: 32, height: 32 });
    assert_eq!(chain.count(), 1);
}

#[test]
fn a_second_resize_and_a_resize_of_a_border_start_anew() {
    let mut chain = Chain::new(100, 100);
    chain.resize(50, 50, Filter::Bilinear);
    chain.resize(20, 20, Filter::Bilinear);
    assert_eq!(chain.count(), 2);
    chain.pad(Border { left: 1, ..Border::default() });
    chain.resize(10, 10, Filter::Bilinear);
    assert_eq!(chain.count(), 3);
}
