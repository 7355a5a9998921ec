//! Promises of halves: two of them make the whole, to the bit, and hostile pixels are refused.

use super::*;
use crate::collate::{BatchBuilder, Column};
use crate::encode::{self, JpegOptions, Subsampling};
use crate::{BufferPool, Input, Program};
use bytes::Bytes;
use forebay_core::recipe::{
    Decode, Direction, FieldRecipe, Filter, Op, Orientation, Recipe, Size, default_max_pixels,
};
use forebay_core::tensor::{Dtype, Layout};
use forebay_core::{ErrorKind, Result};
use proptest::prelude::*;

fn photo(width: u32, height: u32) -> Image {
    let mut image = Image::new(width, height, 3);
    for (index, value) in image.pixels_mut().iter_mut().enumerate() {
        let (x, y) = ((index / 3) as u32 % width, (index / 3) as u32 / width);
        let wave = 128.0 + (x as f32 * 0.7).sin() * 70.0 + (y as f32 * 0.45).cos() * 50.0;
        *value = (wave as u8).wrapping_add((index % 3) as u8 * 9).wrapping_add((x * y) as u8 & 15);
    }
    image
}

fn png(image: &Image) -> Bytes {
    let mut stored = Vec::new();
    let mut encoder = ::png::Encoder::new(&mut stored, image.width(), image.height());
    encoder.set_color(::png::ColorType::Rgb);
    encoder.write_header().unwrap().write_image_data(image.pixels()).unwrap();
    stored.into()
}

fn run(program: &Program, input: Input, context: &SampleContext) -> Result<Column> {
    let builder = BatchBuilder::new(program.outputs(), 1, &BufferPool::new(0));
    let mut writer = builder.claim(0).unwrap();
    program.prepare(context, &[input], &mut writer.slots(), &mut program.scratch())?;
    writer.commit();
    Ok(builder.finish(&[true])?.remove(0).1)
}

fn bytes(column: &Column) -> (Vec<usize>, &[u8]) {
    match column {
        Column::Tensor { data, spec, .. } => (spec.shape.clone(), data.as_slice()),
        Column::Tensors(tensors) => (tensors[0].spec.shape.clone(), tensors[0].data.as_slice()),
        other => panic!("{other:?}"),
    }
}

fn size() -> impl Strategy<Value = Size> {
    prop_oneof![
        (1u32..60).prop_map(Size::Side),
        (1u32..60, 1u32..60).prop_map(|(height, width)| Size::Exact([height, width]))
    ]
}

fn filter() -> impl Strategy<Value = Filter> {
    prop_oneof![Just(Filter::Nearest), Just(Filter::Bilinear), Just(Filter::Bicubic), Just(Filter::Lanczos)]
}

fn fixed_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (size(), filter()).prop_map(|(size, filter)| Op::Resize { size, filter }),
        size().prop_map(|size| Op::CenterCrop { size }),
        (0u32..5, 0u8..3).prop_map(|(side, value)| Op::Pad { border: [side, 0, 1, side], value }),
        Just(Op::Grayscale { p: 1.0 }),
        Just(Op::ColorJitter { brightness: 0.0, contrast: 0.0, saturation: 0.0, hue: 0.0 }),
        Just(Op::Delay { seconds: 0.0 }),
        Just(Op::Flip { p: 0.0, direction: Direction::Horizontal }),
    ]
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        fixed_op(),
        (size(), 0u32..9).prop_map(|(size, padding)| Op::RandomCrop { size, padding }),
        (size(), filter()).prop_map(|(size, filter)| Op::RandomResizedCrop {
            size,
            scale: [0.08, 1.0],
            ratio: [0.75, 1.33],
            filter
        }),
        any::<bool>().prop_map(|across| Op::Flip {
            p: 0.6,
            direction: if across { Direction::Horizontal } else { Direction::Vertical }
        }),
        Just(Op::ColorJitter { brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0.1 }),
        Just(Op::Grayscale { p: 0.5 }),
        Just(Op::RandomErasing { p: 0.7, scale: [0.02, 0.33], ratio: [0.3, 3.3], value: 7.0 }),
    ]
}

/// A recipe that begins with ops without chance, so that it has something to keep.
fn any_field() -> impl Strategy<Value = FieldRecipe> {
    let mode = prop_oneof![Just(ImageMode::Rgb), Just(ImageMode::Gray), Just(ImageMode::Rgba)];
    let ops = (prop::collection::vec(fixed_op(), 0..4), prop::collection::vec(any_op(), 0..4));
    (mode, ops, any::<[bool; 3]>()).prop_map(|(mode, (mut ops, rest), [normalize, chw, upright])| {
        ops.extend(rest);
        let channels = mode.channels();
        if normalize {
            ops.push(Op::Normalize { mean: vec![0.4; channels], std: vec![0.2; channels] });
        }
        let orientation = if upright { Orientation::Apply } else { Orientation::Ignore };
        FieldRecipe {
            field: "jpg".into(),
            name: None,
            decode: Decode::Image { mode, orientation, max_pixels: default_max_pixels() },
            ops,
            dtype: normalize.then_some(Dtype::F32),
            layout: if chw { Layout::Chw } else { Layout::Hwc },
            follow: None,
        }
    })
}

fn any_payload() -> impl Strategy<Value = Bytes> {
    let subsampling = prop_oneof![Just(Subsampling::S444), Just(Subsampling::S422), Just(Subsampling::S420)];
    let jpeg = (1u32..120, 1u32..90, any::<bool>(), subsampling).prop_map(
        |(width, height, progressive, subsampling)| {
            let options = JpegOptions { subsampling, progressive, ..JpegOptions::default() };
            Bytes::from(encode::jpeg_with(&photo(width, height), &options).unwrap())
        },
    );
    let png = (1u32..90, 1u32..90).prop_map(|(width, height)| png(&photo(width, height)));
    prop_oneof![3 => jpeg, 1 => png]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn p067_two_halves_give_the_bits_of_the_whole(
        field in any_field(), payload in any_payload(), epoch in 0u64..3, sample: u64,
    ) {
        let cuts = field.cuts();
        let program = Program::compile(&Recipe { fields: vec![field], ..Recipe::default() }).unwrap();
        let context = SampleContext { seed: 5, epoch, sample_id: SampleId(sample) };
        let whole = run(&program, Input::Payload(payload.clone()), &context);
        for cut in cuts {
            let mut scratch = program.scratch();
            let kept = match program.prepare_until(0, cut.ops, &payload, &mut scratch) {
                Ok(kept) => kept,
                // An image that is too large after the first half is made whole instead, and may fit.
                Err(error) => {
                    prop_assert_eq!(error.kind(), ErrorKind::Exhausted);
                    continue;
                }
            };
            prop_assert_eq!(program.bytes_until(0, cut.ops, &payload, &mut scratch).unwrap(), kept.len() as u64);
            if let Some(bytes) = cut.pixel_bytes {
                prop_assert_eq!(bytes + Program::PIXELS_HEADER_BYTES, kept.len() as u64);
            }
            let halves = run(&program, Input::Pixels(kept.into()), &context);
            prop_assert_eq!(bytes(whole.as_ref().unwrap()), bytes(halves.as_ref().unwrap()), "cut at {:?}", cut);
        }
    }

    #[test]
    fn no_kept_bytes_make_preparing_panic(mut kept in prop::collection::vec(any::<u8>(), 0..120), sound: bool) {
        let field = FieldRecipe {
            field: "jpg".into(),
            name: None,
            decode: Decode::Image {
                mode: ImageMode::Rgb,
                orientation: Orientation::Ignore,
                max_pixels: default_max_pixels(),
            },
            ops: vec![Op::Resize { size: Size::Side(9), filter: Filter::Bilinear }],
            dtype: None,
            layout: Layout::Hwc,
            follow: None,
        };
        if sound && kept.len() >= HEADER_BYTES {
            kept[..4].copy_from_slice(&MAGIC);
            kept[4..8].copy_from_slice(&VERSION.to_le_bytes());
        }
        let program = Program::compile(&Recipe { fields: vec![field], ..Recipe::default() }).unwrap();
        let _ = run(&program, Input::Pixels(kept.into()), &NOBODY);
    }
}
