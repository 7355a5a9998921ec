//! Lists and strengths of `auto_augment` and `aug_mix` against torchvision's, and what is drawn how often.

use super::*;
use crate::augment::aug_mix::{self, Mix};
use forebay_core::SampleId;
use forebay_core::recipe::{AugMix, Interpolation};
use serde_json::Value;
use std::path::Path;

const FRAME: Frame = Frame { size: (331, 500), bins: BINS, interpolation: Interpolation::Nearest, fill: 0 };

fn expected() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/augment/policies.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn lists_are_torchvisions() {
    for policy in [Policy::Imagenet, Policy::Cifar10, Policy::Svhn] {
        let name = serde_json::to_value(policy).unwrap();
        let found: Vec<Value> = pairs(policy)
            .iter()
            .map(|pair| {
                let entries = pair.iter().map(|(entry, tenths, magnitude)| {
                    let plain = matches!(entry, AutoContrast | Equalize | Invert);
                    let magnitude = (!plain).then_some(*magnitude);
                    serde_json::json!([format!("{entry:?}"), f64::from(*tenths) / 10.0, magnitude])
                });
                entries.collect()
            })
            .collect();
        assert_eq!(expected()["policies"][name.as_str().unwrap()], Value::from(found), "{policy:?}");
    }
}

#[test]
fn strengths_are_torchvisions() {
    for (name, space) in [("AutoAugment", SPACE), ("AugMix", aug_mix::SPACE)] {
        for entry in Entry::ALL.into_iter().chain([Invert]) {
            let expected = &expected()["strengths"][name][format!("{entry:?}")];
            for (magnitude, expected) in (0..).zip(expected.as_array().into_iter().flatten()) {
                let strength = space.strength(entry, magnitude, &FRAME);
                let far = (strength - expected.as_f64().unwrap()).abs();
                assert!(far < 1e-5, "{name} {entry:?} {magnitude}: {strength}, not {expected}");
            }
        }
    }
}

#[test]
fn every_pair_is_drawn_equally_often_and_its_ops_as_often_as_it_says() {
    let op = AutoAugment { policy: Policy::Svhn, interpolation: Interpolation::Nearest, fill: 0 };
    let (mut inverted, mut drawn_at_all) = (0, 0);
    for sample in 0..20_000 {
        let mut rng = Rng::for_op(2, 0, SampleId(sample), 3);
        let drawn: Vec<Adjustment> = draw(&op, FRAME.size, &mut rng).collect();
        drawn_at_all += drawn.len();
        inverted += drawn.iter().filter(|drawn| matches!(drawn, Adjustment::Invert)).count();
    }
    let sum = |wanted: &dyn Fn(Entry) -> bool| {
        let all = SVHN.iter().flatten().filter(|(entry, ..)| wanted(*entry));
        all.map(|(_, tenths, _)| f64::from(*tenths) / 10.0).sum::<f64>() / 25.0
    };
    for (count, share) in [(inverted, sum(&|entry| entry == Invert)), (drawn_at_all, sum(&|_| true))] {
        let mean = share * 20_000.0;
        assert!((count as f64 - mean).abs() < 300.0, "{count}, not {mean}");
    }
}

#[test]
fn aug_mix_draws_shares_that_sum_to_one_and_one_to_three_ops() {
    let op = AugMix {
        severity: 3,
        width: 3,
        depth: 0,
        alpha: 1.0,
        all_ops: true,
        interpolation: Interpolation::Nearest,
        fill: 0,
    };
    let mixes = |op: &AugMix| -> Vec<Mix> {
        let drawn = (0..6000).map(|sample| {
            match aug_mix::draw(op, FRAME.size, &mut Rng::for_op(2, 0, SampleId(sample), 3)) {
                Adjustment::Mix(mix) => *mix,
                other => panic!("{other:?}"),
            }
        });
        drawn.collect()
    };
    let mut depths = [0u32; 4];
    let mut own = 0.0;
    for mix in mixes(&op) {
        let sum: f64 = mix.own + mix.chains.iter().map(|(share, _)| share).sum::<f64>();
        assert!((sum - 1.0).abs() < 1e-9, "{mix:?}");
        own += mix.own;
        for (_, changes) in &mix.chains {
            depths[changes.len()] += 1;
            for change in changes {
                // Of three strengths, the strongest are two of nine.
                match change {
                    Adjustment::Solarize { threshold } => assert!(*threshold >= 198.3 - 0.01, "{threshold}"),
                    Adjustment::Posterize { bits } => assert!(matches!(bits, 3 | 4), "{bits}"),
                    Adjustment::Brightness { factor } => assert!((factor - 1.0).abs() < 0.2 + 1e-6),
                    _ => {}
                }
            }
        }
    }
    assert!((own / 6000.0 - 0.5).abs() < 0.012, "{own}: Beta(1, 1) has a mean of a half");
    assert!(depths[1..].iter().all(|count| (5700..6300).contains(count)), "{depths:?} of 18000 chains");
    let few = mixes(&AugMix { all_ops: false, depth: 2, ..op });
    let changes: Vec<&Adjustment> = few.iter().flat_map(|mix| &mix.chains).flat_map(|(_, all)| all).collect();
    assert_eq!(changes.len(), 36_000);
    let colored = |change: &&&Adjustment| {
        matches!(
            change,
            Adjustment::Brightness { .. } | Adjustment::Sharpness { .. } | Adjustment::Saturation { .. }
        )
    };
    assert_eq!(changes.iter().filter(colored).count(), 0);
}
