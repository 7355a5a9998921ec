//! What a bend does to small images, and that none makes it panic. Parity with torchvision is in `adjustment_tests.rs`.

use super::*;
use crate::Image;
use proptest::prelude::*;

fn run(image: &Image, motion: Motion, interpolation: Interpolation, fill: u8) -> Image {
    let mut made = Image::new(image.width(), image.height(), image.channels());
    Bend { matrix: motion.inverse(), interpolation, fill }.run(image.as_ref(), made.pixels_mut());
    made
}

fn count_up(width: u32, height: u32) -> Image {
    let pixels = (1..=width * height).map(|level| level as u8).collect();
    Image::from_pixels(width, height, 1, pixels).unwrap()
}

#[test]
fn whole_moves_and_quarter_turns_move_pixels_as_they_are() {
    for interpolation in [Interpolation::Nearest, Interpolation::Bilinear] {
        let moved = Motion { translate: [1.0, -1.0], ..Motion::NONE };
        let made = run(&count_up(3, 3), moved, interpolation, 77);
        assert_eq!(made.pixels(), [77, 4, 5, 77, 7, 8, 77, 77, 77], "{interpolation:?}");
        let quarter = Motion { degrees: 90.0, ..Motion::NONE };
        let made = run(&count_up(3, 3), quarter, Interpolation::Nearest, 0);
        assert_eq!(made.pixels(), [7, 4, 1, 8, 5, 2, 9, 6, 3]);
    }
    let twice = Motion { scale: 2.0, centre: [-1.0, -1.0], ..Motion::NONE };
    assert_eq!(run(&count_up(2, 2), twice, Interpolation::Nearest, 0).pixels(), [1, 1, 1, 1]);
}

#[test]
fn half_a_pixel_is_blended_and_the_edge_with_black_and_fill() {
    let half = Motion { translate: [0.5, 0.0], ..Motion::NONE };
    let image = Image::from_pixels(2, 1, 1, vec![100, 200]).unwrap();
    // Half of 100 is 50; half of the way from there to the fill of 10 is 30.
    assert_eq!(run(&image, half, Interpolation::Bilinear, 10).pixels(), [30, 150]);
}

#[test]
fn no_motion_is_the_identity() {
    let image = count_up(13, 11);
    for interpolation in [Interpolation::Nearest, Interpolation::Bilinear] {
        let bend = Bend { matrix: Motion::NONE.inverse(), interpolation, fill: 3 };
        assert!(bend.is_identity());
        assert_eq!(run(&image, Motion::NONE, interpolation, 3), image);
    }
}

proptest! {
    #[test]
    fn any_motion_of_any_image_is_done_and_makes_no_new_levels(
        (width, height, channels) in (1u32..24, 1u32..24, prop::sample::select(vec![1usize, 3, 4])),
        degrees in -360.0f64..=360.0,
        translate in [-30.0f64..30.0, -30.0f64..30.0],
        scale in prop_oneof![1e-300f64..1e300, 0.1f64..4.0, Just(f64::MIN_POSITIVE)],
        shear in [-89.0f64..=89.0, -89.0f64..=89.0],
        fill: u8,
    ) {
        let mut image = Image::new(width, height, channels);
        image.pixels_mut().fill(fill);
        let motion = Motion { centre: [0.0; 2], degrees, translate, scale, shear };
        prop_assert_eq!(&run(&image, motion, Interpolation::Nearest, fill), &image);
        // Black enters at the edges only.
        let blended = run(&image, motion, Interpolation::Bilinear, fill);
        prop_assert!(blended.pixels().iter().all(|level| *level <= fill));
    }
}
