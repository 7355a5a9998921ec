//! Strengths against torchvision's, and what is drawn how often.

use super::*;
use crate::augment::{rand_augment, trivial_augment};
use forebay_core::SampleId;
use forebay_core::recipe::{RandAugment, TrivialAugment};
use std::collections::HashMap;
use std::path::Path;

const FRAME: Frame = Frame { size: (331, 500), bins: 31, interpolation: Interpolation::Nearest, fill: 0 };

#[test]
fn strengths_are_torchvisions() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/augment/strengths.json");
    let expected: HashMap<String, HashMap<String, Vec<f64>>> =
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    for (name, space) in
        [("RandAugment", rand_augment::SPACE), ("TrivialAugmentWide", trivial_augment::SPACE)]
    {
        assert_eq!(expected[name].len(), 14);
        for entry in Entry::ALL {
            for (magnitude, expected) in (0..).zip(&expected[name][&format!("{entry:?}")]) {
                let strength = space.strength(entry, magnitude, &FRAME);
                let far = (strength - expected).abs();
                assert!(far < 1e-5, "{name} {entry:?} {magnitude}: {strength}, not {expected}");
            }
        }
    }
}

/// Kinds of adjustments drawn by 14 000 samples.
fn kinds(draw: impl Fn(&mut Rng) -> Vec<Adjustment>) -> HashMap<&'static str, u32> {
    let mut counts = HashMap::new();
    for sample in 0..14_000 {
        for drawn in draw(&mut Rng::for_op(2, 0, SampleId(sample), 3)) {
            *counts.entry(kind(&drawn)).or_default() += 1;
        }
    }
    counts
}

fn kind(adjustment: &Adjustment) -> &'static str {
    match adjustment {
        Adjustment::Bend(bend) => match bend.matrix {
            [_, xy, _, 0.0, ..] if xy != 0.0 => "shear x",
            [_, 0.0, _, yx, ..] if yx != 0.0 => "shear y",
            [_, 0.0, x, 0.0, ..] if x != 0.0 => "move x",
            [_, 0.0, _, 0.0, _, y] if y != 0.0 => "move y",
            [_, 0.0, ..] => "nothing",
            _ => "rotate",
        },
        Adjustment::Brightness { .. } => "brightness",
        Adjustment::Saturation { .. } => "color",
        Adjustment::Contrast { .. } => "contrast",
        Adjustment::Sharpness { .. } => "sharpness",
        Adjustment::Posterize { .. } => "posterize",
        Adjustment::Solarize { .. } => "solarize",
        Adjustment::Autocontrast => "autocontrast",
        Adjustment::Equalize => "equalize",
        Adjustment::Blur { .. } => "blur",
        Adjustment::Invert => "invert",
        Adjustment::Tilt(_) => "tilt",
        Adjustment::Mix(_) => "mix",
    }
}

#[test]
fn rand_augment_draws_every_entry_equally_often_and_either_way() {
    let op = RandAugment { n: 2, magnitude: 9, bins: 31, interpolation: Interpolation::Nearest, fill: 0 };
    let draw = |rng: &mut Rng| rand_augment::draw(&op, FRAME.size, rng).collect::<Vec<_>>();
    let counts = kinds(draw);
    assert_eq!(counts.len(), 13, "{counts:?}");
    // 28 000 draws of 14 entries, of which one does nothing.
    assert!(counts.values().all(|count| (1830..2170).contains(count)), "{counts:?}");
    let mut brighter = [0u32, 0];
    for sample in 0..14_000 {
        for drawn in draw(&mut Rng::for_op(2, 0, SampleId(sample), 3)) {
            match drawn {
                Adjustment::Brightness { factor } if (factor - 1.27).abs() < 1e-6 => brighter[1] += 1,
                Adjustment::Brightness { factor } if (factor - 0.73).abs() < 1e-6 => brighter[0] += 1,
                Adjustment::Brightness { factor } => panic!("{factor}"),
                Adjustment::Posterize { bits } => assert_eq!(bits, 7),
                _ => {}
            }
        }
    }
    assert!(brighter[0].abs_diff(brighter[1]) < 150, "{brighter:?}");
}

#[test]
fn trivial_augment_draws_one_entry_of_any_strength() {
    let op = TrivialAugment { bins: 31, interpolation: Interpolation::Nearest, fill: 0 };
    let draw = |rng: &mut Rng| trivial_augment::draw(&op, FRAME.size, rng).into_iter().collect::<Vec<_>>();
    let counts = kinds(draw);
    for kind in ["brightness", "color", "contrast", "sharpness", "posterize", "solarize", "equalize"] {
        assert!((870..1130).contains(&counts[kind]), "{kind}: {counts:?}");
    }
    // What moves nothing at the lowest strengths is counted apart.
    for kind in ["shear x", "shear y", "move x", "move y", "rotate"] {
        assert!((830..1100).contains(&counts[kind]), "{kind}: {counts:?}");
    }
    let mut bins = [0f64; 31];
    for sample in 0..200_000 {
        let drawn = draw(&mut Rng::for_op(2, 0, SampleId(sample), 3));
        if let [Adjustment::Solarize { threshold }] = drawn[..] {
            bins[(threshold / 255.0 * 30.0).round() as usize] += 1.0;
        }
    }
    let mean = bins.iter().sum::<f64>() / 31.0;
    let chi: f64 = bins.iter().map(|count| (count - mean).powi(2) / mean).sum();
    assert!(chi < 59.7, "chi-square {chi} over 30 degrees of freedom, p < 0.001");
}
