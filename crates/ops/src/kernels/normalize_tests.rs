use super::*;
use crate::Image;
use half::bf16;
use proptest::prelude::*;

/// One value at a time, straight from the definition.
fn naive(finish: &Finish, image: &Image, mirror: bool) -> Vec<u8> {
    let (width, height, channels) = (image.width(), image.height(), image.channels());
    let mut row = vec![0; finish.row_bytes(width, height, channels)];
    let size = finish.dtype.size();
    for y in 0..height {
        for x in 0..width {
            for channel in 0..channels {
                let from = image.pixel(if mirror { width - 1 - x } else { x }, y)[channel];
                let value = f32::from(from) * finish.affine.scale[channel] + finish.affine.bias[channel];
                let (x, y, w, h) = (x as usize, y as usize, width as usize, height as usize);
                let at = match finish.layout {
                    Layout::Chw => (channel * h + y) * w + x,
                    Layout::Hwc => (y * w + x) * channels + channel,
                };
                let target = &mut row[at * size..][..size];
                match finish.dtype {
                    Dtype::U8 => target.copy_from_slice(&[from]),
                    Dtype::F16 => target.copy_from_slice(&f16::from_f32(value).to_ne_bytes()),
                    Dtype::Bf16 => target.copy_from_slice(&bf16::from_f32(value).to_ne_bytes()),
                    _ => target.copy_from_slice(&value.to_ne_bytes()),
                }
            }
        }
    }
    row
}

fn images() -> impl Strategy<Value = Image> {
    (1u32..70, 1u32..6, prop::sample::select(vec![1usize, 3, 4])).prop_flat_map(
        |(width, height, channels)| {
            prop::collection::vec(any::<u8>(), (width * height) as usize * channels)
                .prop_map(move |pixels| Image::from_pixels(width, height, channels, pixels).unwrap())
        },
    )
}

fn affines() -> impl Strategy<Value = Affine> {
    (prop::array::uniform4(-0.1f32..0.1), prop::array::uniform4(-9f32..9.0))
        .prop_map(|(scale, bias)| Affine { scale, bias })
}

proptest! {
    #[test]
    fn every_row_is_bit_for_bit_what_the_definition_says(
        image in images(),
        affine in prop::option::of(affines()),
        dtype in prop::sample::select(vec![Dtype::U8, Dtype::F16, Dtype::Bf16, Dtype::F32]),
        chw: bool,
        mirror: bool,
        skew in 0usize..8,
    ) {
        let layout = if chw { Layout::Chw } else { Layout::Hwc };
        let affine = if dtype == Dtype::U8 { None } else { affine };
        let finish = Finish::new(dtype, layout, affine).unwrap();
        let expected = naive(&finish, &image, mirror);
        // Rows of a batch begin anywhere, so the target begins at every alignment.
        let mut memory = vec![0xAA; expected.len() + skew];
        finish.run(image.as_ref(), mirror, &mut memory[skew..]);
        prop_assert!(memory[skew..] == expected, "{dtype:?} {layout:?} mirror {mirror}");
        prop_assert!(memory[..skew].iter().all(|byte| *byte == 0xAA));
    }
}

#[test]
fn without_normalize_floats_are_the_pixel_values() {
    let image = Image::from_pixels(256, 1, 1, (0..=255).collect()).unwrap();
    let finish = Finish::new(Dtype::F32, Layout::Chw, None).unwrap();
    let mut row = vec![0; 1024];
    finish.run(image.as_ref(), false, &mut row);
    let values: Vec<f32> = row.chunks(4).map(|v| f32::from_ne_bytes(v.try_into().unwrap())).collect();
    assert_eq!(values, (0..=255u8).map(f32::from).collect::<Vec<_>>());
}

#[test]
fn types_that_cannot_hold_the_values_are_refused_when_the_recipe_is_compiled() {
    assert!(Finish::new(Dtype::U8, Layout::Chw, Some(Affine::IDENTITY)).is_err());
    assert!(Finish::new(Dtype::I64, Layout::Chw, None).is_err());
    assert!(Finish::new(Dtype::F64, Layout::Chw, None).is_err());
}

#[test]
fn an_empty_image_gives_an_empty_row() {
    let finish = Finish::new(Dtype::F32, Layout::Chw, None).unwrap();
    finish.run(Image::new(0, 5, 3).as_ref(), false, &mut []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]
    #[test]
    fn halves_are_rounded_as_the_half_crate_rounds(bits: u32) {
        let value = f32::from_bits(bits);
        prop_assume!(!value.is_nan());
        prop_assert_eq!(f16_bits(value), f16::from_f32(value).to_bits(), "{}", value);
    }
}

#[test]
fn halves_are_rounded_alike_at_every_border() {
    // Every half, the middle to its neighbor, and one step of f32 to both sides of each.
    for half in 0..0x7c00u16 {
        let (low, high) = (f16::from_bits(half).to_f32(), f16::from_bits(half + 1).to_f32());
        let middle = if high.is_finite() { f32::midpoint(low, high) } else { 65520.0 };
        for value in [low, middle].into_iter().flat_map(|v| [v, v.next_up(), v.next_down()]) {
            for value in [value, -value] {
                assert_eq!(f16_bits(value), f16::from_f32(value).to_bits(), "{value:e}");
            }
        }
    }
}
