//! Parity with torchvision. Expected pixels are in `tests/data/augment`, made by `make.py` there with transforms v2.

use super::*;
use crate::augment::space::{self, Entry, Frame};
use crate::kernels::bend::Motion;
use crate::kernels::tilt;
use forebay_core::SampleId;
use forebay_core::recipe::Interpolation;
use std::path::Path;

fn data(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)).unwrap()
}

fn source() -> Image {
    Image::from_pixels(17, 16, 3, data("color/source.raw")).unwrap()
}

fn dull() -> Image {
    Image::from_pixels(17, 16, 3, data("augment/dull.raw")).unwrap()
}

fn run(mut image: Image, adjustment: &Adjustment) -> Image {
    adjustment.apply(&mut image, &mut Image::default());
    image
}

/// How many levels differ, and by how much at most.
fn differences(image: &Image, name: &str) -> (usize, u8) {
    let expected = data(&format!("augment/{name}.raw"));
    assert_eq!(image.pixels().len(), expected.len(), "{name}");
    let far: Vec<u8> = image.pixels().iter().zip(&expected).map(|(a, b)| a.abs_diff(*b)).collect();
    (far.iter().filter(|far| **far > 0).count(), far.into_iter().max().unwrap_or(0))
}

#[test]
fn changes_of_levels_are_torchvisions_to_the_level() {
    for threshold in [0.0, 99.5, 128.0, 255.0] {
        let made = run(source(), &Adjustment::Solarize { threshold });
        assert_eq!(differences(&made, &format!("solarize_{threshold:?}")), (0, 0));
    }
    for bits in [0, 1, 4, 7, 8] {
        let made = run(source(), &Adjustment::Posterize { bits });
        assert_eq!(differences(&made, &format!("posterize_{bits}")), (0, 0));
    }
    assert_eq!(differences(&run(dull(), &Adjustment::Autocontrast), "autocontrast"), (0, 0));
    // Nine of it, because an image of so few pixels is left as it is.
    let mut tiled = Image::new(51, 48, 3);
    for (at, pixel) in tiled.pixels_mut().chunks_exact_mut(3).enumerate() {
        pixel.copy_from_slice(dull().pixel(at as u32 % 51 % 17, at as u32 / 51 % 16));
    }
    assert_eq!(differences(&run(tiled, &Adjustment::Equalize), "equalize"), (0, 0));
}

#[test]
fn blurs_and_sharpness_are_torchvisions_within_a_level() {
    for (kernel, sigma) in [(3, 0.5), (5, 1.3), (9, 2.0), (23, 0.1)] {
        let made = run(source(), &Adjustment::Blur { kernel, sigma });
        let (count, most) = differences(&made, &format!("blur_{kernel}_{sigma:?}"));
        assert!(most <= 1 && count <= 8, "{count} levels off by {most} at {kernel}, {sigma}");
    }
    for factor in [0.0, 0.5, 1.0, 1.9, 7.3] {
        let made = run(source(), &Adjustment::Sharpness { factor });
        let (count, most) = differences(&made, &format!("sharpness_{factor:?}"));
        assert!(most <= 1 && count <= 8, "{count} levels off by {most} at {factor}");
    }
}

#[test]
fn bends_are_torchvisions_to_the_pixel_or_within_a_level() {
    let motion =
        |degrees, translate, scale, shear| Motion { centre: [0.0; 2], degrees, translate, scale, shear };
    for (name, motion) in [
        ("rotated", motion(30.0, [0.0; 2], 1.0, [0.0; 2])),
        ("moved", motion(0.0, [3.0, -2.0], 1.0, [0.0; 2])),
        ("all", motion(-17.5, [2.0, 1.0], 1.3, [11.0, -7.0])),
        ("small", motion(100.0, [0.0; 2], 0.6, [0.0, 20.0])),
        ("corner", Motion { centre: [-8.5, -8.0], ..motion(0.0, [0.0; 2], 1.0, [16.7, 0.0]) }),
    ] {
        for (interpolation, kind) in
            [(Interpolation::Nearest, "nearest"), (Interpolation::Bilinear, "bilinear")]
        {
            let bend = Bend { matrix: motion.inverse(), interpolation, fill: 90 };
            let made = run(source(), &Adjustment::Bend(bend));
            let (count, most) = differences(&made, &format!("affine_{name}_{kind}"));
            match interpolation {
                // 272 pixels, of which none lies so near to the middle between two that the last bit decides.
                Interpolation::Nearest => assert_eq!(count, 0, "{name}"),
                Interpolation::Bilinear => assert!(most <= 1 && count <= 8, "{count} by {most}: {name}"),
            }
        }
    }
}

#[test]
fn views_are_torchvisions_to_the_pixel_or_within_a_level() {
    let whole = [[0.0, 0.0], [16.0, 0.0], [16.0, 15.0], [0.0, 15.0]];
    for (name, seen) in [
        ("left", [[3.0, 1.0], [16.0, 0.0], [15.0, 15.0], [1.0, 12.0]]),
        ("far", [[5.0, 4.0], [12.0, 6.0], [14.0, 13.0], [2.0, 11.0]]),
    ] {
        let coefficients = tilt::coefficients(&whole, &seen).unwrap();
        for (interpolation, kind) in
            [(Interpolation::Nearest, "nearest"), (Interpolation::Bilinear, "bilinear")]
        {
            let made = run(source(), &Adjustment::Tilt(Tilt { coefficients, interpolation, fill: 90 }));
            let (count, most) = differences(&made, &format!("perspective_{name}_{kind}"));
            match interpolation {
                Interpolation::Nearest => assert_eq!(count, 0, "{name}"),
                Interpolation::Bilinear => assert!(most <= 1 && count <= 8, "{count} by {most}: {name}"),
            }
        }
    }
}

#[test]
fn inversion_and_mixed_chains_are_torchvisions() {
    assert_eq!(differences(&run(source(), &Adjustment::Invert), "invert"), (0, 0));
    let frame = Frame { size: (17, 16), bins: 10, interpolation: Interpolation::Nearest, fill: 90 };
    let made = |entry, magnitude, way: f64| {
        let strength = way * aug_mix::SPACE.strength(entry, magnitude, &frame);
        space::adjustment(entry, strength, &frame).unwrap()
    };
    let chains = vec![
        (0.6 * 0.2, vec![made(Entry::Rotate, 5, -1.0), made(Entry::Solarize, 4, 1.0)]),
        (0.6 * 0.5, vec![made(Entry::ShearX, 8, 1.0), made(Entry::Posterize, 3, 1.0)]),
        (0.6 * 0.3, vec![made(Entry::Equalize, 0, 1.0), made(Entry::TranslateY, 7, -1.0)]),
    ];
    let made = run(source(), &Adjustment::Mix(Box::new(Mix { own: 0.4, chains })));
    let (count, most) = differences(&made, "aug_mix");
    // Sums are cut to levels: one next to a whole number may fall either way.
    assert!(most <= 1 && count <= 8, "{count} levels off by {most}");
}

#[test]
fn neutral_parameters_leave_the_image_as_it_is() {
    for neutral in [
        Adjustment::Blur { kernel: 1, sigma: 3.0 },
        Adjustment::Blur { kernel: 9, sigma: 1e-9 },
        Adjustment::Posterize { bits: 8 },
        Adjustment::Sharpness { factor: 1.0 },
        Adjustment::Brightness { factor: 1.0 },
        Adjustment::Contrast { factor: 1.0 },
        Adjustment::Saturation { factor: 1.0 },
        Adjustment::Bend(Bend {
            matrix: Motion::NONE.inverse(),
            interpolation: Interpolation::Bilinear,
            fill: 9,
        }),
    ] {
        assert_eq!(run(source(), &neutral), source(), "{neutral:?}");
    }
}

#[test]
fn every_op_happens_as_often_as_asked_and_is_the_same_for_the_same_sample() {
    for op in [
        r#"{"op": "gaussian_blur", "kernel": 3, "p": 0.3}"#,
        r#"{"op": "solarize", "threshold": 9, "p": 0.3}"#,
        r#"{"op": "posterize", "bits": 3, "p": 0.3}"#,
        r#"{"op": "equalize", "p": 0.3}"#,
        r#"{"op": "autocontrast", "p": 0.3}"#,
        r#"{"op": "sharpness", "factor": 3, "p": 0.3}"#,
    ] {
        let adjuster = Adjuster::of(&serde_json::from_str(op).unwrap()).unwrap();
        let drawn = |sample| {
            let mut all = Vec::new();
            let rng = &mut Rng::for_op(3, 0, SampleId(sample), 1);
            adjuster.draw((9, 9), rng, |adjustment| all.push(adjustment));
            all
        };
        let hits: usize = (0..10_000).map(|sample| drawn(sample).len()).sum();
        assert!((2850..3150).contains(&hits), "{hits} of 10000 at p = 0.3, three deviations are 138: {op}");
        assert!((0..50).all(|sample| drawn(sample) == drawn(sample)));
    }
}
