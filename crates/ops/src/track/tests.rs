//! Moves of single places and boxes; whole recipes are in `boxes/tests.rs`. Expected boxes are torchvision's, in
//! `tests/data/augment/boxes.json`.

use super::*;
use crate::geometry::{Border, Chain};
use crate::image::Rect;
use crate::kernels::bend::Motion;
use forebay_core::recipe::Filter;
use proptest::prelude::*;
use serde_json::Value;

const SIZE: [f64; 2] = [40.0, 30.0];

fn expected() -> Value {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/augment/boxes.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn geometry(apply: impl Fn(&mut Chain)) -> Vec<Move> {
    let mut chain = Chain::new(40, 30);
    apply(&mut chain);
    chain.geometries().cloned().map(Move::Geometry).collect()
}

fn bent(motion: Motion) -> Move {
    let [xx, xy, x, yx, yy, y] = motion.inverse();
    let x = x + 20.0 - xx * 20.0 - xy * 15.0;
    let y = y + 15.0 - yx * 20.0 - yy * 15.0;
    Move::Matrix([xx, xy, x, yx, yy, y, 0.0, 0.0, 1.0], SIZE)
}

#[test]
fn boxes_go_where_torchvisions_go() {
    let expected = expected();
    let stored: Vec<[f64; 4]> = serde_json::from_value(expected["boxes"].clone()).unwrap();
    let [a, b, c, d, e, f, g, h]: [f64; 8] =
        serde_json::from_value(expected["coefficients"].clone()).unwrap();
    let turned =
        Motion { degrees: 25.0, translate: [3.0, -2.0], scale: 0.8, shear: [5.0, -3.0], ..Motion::NONE };
    let rect = Rect { x: 10, y: 5, width: 25, height: 20 };
    let border = Border { left: 3, top: 1, right: 2, bottom: 4, value: 0 };
    let cases = [
        ("flip", geometry(|chain| chain.mirror(Mirror { horizontal: true, vertical: false }))),
        ("turned", vec![bent(turned)]),
        ("tilted", vec![Move::Matrix([a, b, c, d, e, f, g, h, 1.0], SIZE)]),
        ("resized", geometry(|chain| chain.resize(80, 45, Filter::Bilinear))),
        ("cropped", geometry(|chain| chain.crop(rect))),
        ("padded", geometry(|chain| chain.pad(border))),
    ];
    for (name, moves) in cases {
        let theirs: Vec<[f64; 4]> = serde_json::from_value(expected["moved"][name].clone()).unwrap();
        for (stored, theirs) in stored.iter().zip(theirs) {
            let Some((ours, _)) = bounds(&moves, SIZE, *stored) else {
                // What is nothing any more is a line for them.
                assert!(theirs[0] >= theirs[2] || theirs[1] >= theirs[3], "{name}: {theirs:?}");
                continue;
            };
            for (at, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
                // They bound all of a turned box and cut that; here the box is cut and then bounded, which is tighter.
                let tighter = if at < 2 { *ours >= theirs - 1e-3 } else { *ours <= theirs + 1e-3 };
                let near = (ours - theirs).abs() < 1e-3;
                assert!(
                    near || tighter && name != "cropped" && name != "flip",
                    "{name}: {ours}, not {theirs}"
                );
            }
        }
    }
    // A box well inside is bounded as they do.
    for (name, moves) in
        [("turned", vec![bent(turned)]), ("tilted", vec![Move::Matrix([a, b, c, d, e, f, g, h, 1.0], SIZE)])]
    {
        let (ours, visible) = bounds(&moves, SIZE, stored[3]).unwrap();
        let theirs: [f64; 4] = serde_json::from_value(expected["moved"][name][3].clone()).unwrap();
        assert!(
            ours.iter().zip(theirs).all(|(a, b)| (a - b).abs() < 1e-3),
            "{name}: {ours:?}, not {theirs:?}"
        );
        assert!((visible - 1.0).abs() < 1e-9);
    }
}

#[test]
fn visibility_is_the_share_that_is_left_and_nothing_is_dropped() {
    let half = geometry(|chain| chain.crop(Rect { x: 0, y: 0, width: 20, height: 30 }));
    let (bounds_of, visible) = bounds(&half, SIZE, [10.0, 0.0, 30.0, 10.0]).unwrap();
    assert_eq!((bounds_of, visible), ([10.0, 0.0, 20.0, 10.0], 0.5));
    assert_eq!(bounds(&half, SIZE, [20.0, 0.0, 30.0, 10.0]), None);
    // What lies outside of the image from the beginning was never visible.
    let (_, visible) = bounds(&half, SIZE, [-10.0, 0.0, 10.0, 10.0]).unwrap();
    assert_eq!(visible, 1.0);
    for empty in [[5.0, 5.0, 5.0, 9.0], [9.0, 5.0, 9.0, 5.0], [50.0, 50.0, 60.0, 60.0]] {
        assert_eq!(bounds(&[], SIZE, empty), None, "{empty:?}");
    }
}

#[test]
fn a_border_shows_nothing_of_what_was_cut_off() {
    let moves = geometry(|chain| {
        chain.crop(Rect { x: 10, y: 10, width: 10, height: 10 });
        chain.pad(Border { left: 10, top: 10, right: 10, bottom: 10, value: 0 });
        chain.mirror(Mirror { horizontal: true, vertical: false });
    });
    assert_eq!(bounds(&moves, SIZE, [0.0, 0.0, 15.0, 40.0]).unwrap().0, [15.0, 10.0, 20.0, 20.0]);
    assert_eq!(point(&moves, SIZE, [5.0, 15.0]), None);
    assert_eq!(point(&moves, SIZE, [11.0, 15.0]), Some([19.0, 15.0]));
    assert!(is_mirrored(&moves));
}

proptest! {
    #[test]
    fn bounds_are_inside_what_is_seen_and_hold_every_point_of_the_box(
        corners in prop::array::uniform4(-10.0f64..50.0),
        degrees in -360.0f64..360.0,
        coefficients in prop::array::uniform8(-0.05f64..0.05),
        shares in prop::array::uniform2(0.0f64..1.0),
        mirror: bool,
    ) {
        let [x, y, width, height] = corners.map(f64::abs);
        let mut moves = vec![bent(Motion { degrees, ..Motion::NONE })];
        let [a, b, c, d, e, f, g, h] = coefficients;
        moves.push(Move::Matrix([1.0 + a, b, c, d, 1.0 + e, f, g * 0.1, h * 0.1, 1.0], SIZE));
        moves.extend(geometry(|chain| {
            chain.crop(Rect { x: 3, y: 4, width: 30, height: 20 });
            chain.mirror(Mirror { horizontal: mirror, vertical: false });
            chain.resize(60, 50, Filter::Bilinear);
        }));
        let stored = [x, y, x + width, y + height];
        let place = [x + shares[0] * width, y + shares[1] * height];
        let seen = point(&moves, SIZE, place);
        match bounds(&moves, SIZE, stored) {
            Some(([left, top, right, bottom], visible)) => {
                prop_assert!((0.0..=1.0).contains(&visible));
                prop_assert!(left >= -1e-9 && top >= -1e-9 && right <= 60.0 + 1e-9 && bottom <= 50.0 + 1e-9);
                if let Some([x, y]) = seen {
                    prop_assert!(left - 1e-6 <= x && x <= right + 1e-6 && top - 1e-6 <= y && y <= bottom + 1e-6);
                }
            }
            // Only a point on the edge of a box can be seen when nothing of the box is.
            None => prop_assert!(seen.is_none() || width * height < 1e-3),
        }
    }
}
