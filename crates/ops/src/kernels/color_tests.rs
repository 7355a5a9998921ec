//! Expected pixels are in `tests/data/color`, made by `make.py` there with torchvision's formulas.

use super::*;
use crate::Image;
use std::path::Path;

fn data(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/color").join(name)).unwrap()
}

fn source() -> Image {
    Image::from_pixels(17, 16, 3, data("source.raw")).unwrap()
}

/// Runs a change on the source image and compares with the expected pixels.
fn check(name: &str, tolerance: u8, change: impl Fn(&mut ImageMut<'_>)) {
    let mut image = source();
    change(&mut image.as_mut());
    let expected = data(name);
    let worst = image.pixels().iter().zip(&expected).map(|(a, b)| a.abs_diff(*b)).max();
    assert!(worst <= Some(tolerance) && expected.len() == image.pixels().len(), "{name}: off by {worst:?}");
}

#[test]
fn changes_are_torchvisions_on_tensors() {
    for factor in [0.0, 0.4, 1.0, 1.7] {
        check(&format!("brightness_{factor:?}.raw"), 0, |image| brightness(image, factor));
    }
    for factor in [0.0, 0.5, 1.3] {
        check(&format!("contrast_{factor:?}.raw"), 0, |image| contrast(image, factor));
    }
    for factor in [0.0, 0.6, 1.8] {
        check(&format!("saturation_{factor:?}.raw"), 0, |image| saturation(image, factor));
    }
    // The turn is added before and not after the whole turns are taken off: a last bit, and then a level.
    for turn in [-0.5, -0.1, 0.03, 0.25, 0.5] {
        check(&format!("hue_{turn:?}.raw"), 1, |image| hue(image, turn));
    }
}

#[test]
fn the_neutral_factor_leaves_every_color_as_it_is() {
    let mut image = source();
    brightness(&mut image.as_mut(), 1.0);
    contrast(&mut image.as_mut(), 1.0);
    saturation(&mut image.as_mut(), 1.0);
    hue(&mut image.as_mut(), 0.0);
    assert_eq!(image, source());
}

#[test]
fn a_turn_and_its_opposite_give_nearly_the_same_color_back() {
    let mut image = source();
    hue(&mut image.as_mut(), 0.3);
    assert_ne!(image, source());
    hue(&mut image.as_mut(), -0.3);
    let far = image.pixels().iter().zip(source().pixels()).filter(|(a, b)| a.abs_diff(**b) > 4).count();
    assert_eq!(far, 0);
}

#[test]
fn opacity_stays_and_color_is_the_same_with_it() {
    let with_opacity: Vec<u8> =
        source().pixels().chunks(3).zip(0usize..).flat_map(|(c, a)| [c[0], c[1], c[2], a as u8]).collect();
    for change in [
        (&|image: &mut ImageMut<'_>| brightness(image, 0.5)) as &dyn Fn(&mut ImageMut<'_>),
        &|image| contrast(image, 1.5),
        &|image| saturation(image, 0.5),
        &|image| hue(image, 0.2),
    ] {
        let mut three = source();
        let mut four = Image::from_pixels(17, 16, 4, with_opacity.clone()).unwrap();
        change(&mut three.as_mut());
        change(&mut four.as_mut());
        for (at, (color, pixel)) in three.pixels().chunks(3).zip(four.pixels().chunks(4)).enumerate() {
            assert_eq!((color, at as u8), (&pixel[..3], pixel[3]));
        }
    }
}

#[test]
fn gray_images_have_brightness_and_contrast_only() {
    let run = |change: &dyn Fn(&mut ImageMut<'_>)| {
        let mut image = Image::from_pixels(4, 1, 1, vec![0, 10, 200, 255]).unwrap();
        change(&mut image.as_mut());
        image.pixels().to_vec()
    };
    assert_eq!(run(&|image| brightness(image, 2.0)), [0, 20, 255, 255]);
    assert_eq!(run(&|image| contrast(image, 0.0)), [116; 4]);
    assert_eq!(run(&|image| saturation(image, 0.0)), [0, 10, 200, 255]);
    assert_eq!(run(&|image| hue(image, 0.5)), [0, 10, 200, 255]);
}

#[test]
fn an_empty_image_stays_empty() {
    let mut image = Image::new(0, 0, 3);
    contrast(&mut image.as_mut(), 0.5);
    saturation(&mut image.as_mut(), 0.5);
    hue(&mut image.as_mut(), 0.5);
}
