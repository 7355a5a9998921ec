//! Promises of the image path, seen through a program.

use crate::collate::{BatchBuilder, Column};
use crate::encode::{self, JpegOptions, Subsampling};
use crate::{BufferPool, Image, Input, OutputKind, Program, SampleContext, Scratch};
use bytes::Bytes;
use forebay_core::recipe::{
    Decode, FieldRecipe, Filter, ImageMode, Op, Orientation, Recipe, Size, default_max_pixels,
};
use forebay_core::tensor::{Dtype, Layout};
use forebay_core::{ErrorKind, Result, SampleId};
use proptest::prelude::*;

fn image(ops: Vec<Op>) -> FieldRecipe {
    FieldRecipe {
        field: "jpg".into(),
        name: None,
        decode: Decode::Image {
            mode: ImageMode::Rgb,
            orientation: Orientation::Ignore,
            max_pixels: default_max_pixels(),
        },
        ops,
        dtype: None,
        layout: Layout::Hwc,
        follow: None,
    }
}

fn compile(field: FieldRecipe) -> Program {
    Program::compile(&Recipe { fields: vec![field], ..Recipe::default() }).unwrap()
}

fn photo(width: u32, height: u32) -> Image {
    let mut image = Image::new(width, height, 3);
    for (index, value) in image.pixels_mut().iter_mut().enumerate() {
        let (x, y) = ((index / 3) as u32 % width, (index / 3) as u32 / width);
        *value = (128.0 + (x as f32 * 0.1).sin() * 70.0 + (y as f32 * 0.07).cos() * 50.0) as u8;
        *value = value.wrapping_add((index % 3) as u8 * 9);
    }
    image
}

fn jpeg(width: u32, height: u32) -> Bytes {
    encode::jpeg(&photo(width, height), 92, Subsampling::S420).unwrap().into()
}

fn run(program: &Program, payload: &Bytes, epoch: u64, sample: u64, scratch: &mut Scratch) -> Result<Column> {
    let builder = BatchBuilder::new(program.outputs(), 1, &BufferPool::new(0));
    let mut writer = builder.claim(0).unwrap();
    let context = SampleContext { seed: 5, epoch, sample_id: SampleId(sample) };
    program.prepare(&context, &[Input::Payload(payload.clone())], &mut writer.slots(), scratch)?;
    writer.commit();
    Ok(builder.finish(&[true])?.remove(0).1)
}

fn bytes(column: &Column) -> &[u8] {
    let Column::Tensor { data, .. } = column else { panic!("{column:?}") };
    data.as_slice()
}

fn once(field: FieldRecipe, payload: &Bytes) -> Vec<u8> {
    let program = compile(field);
    bytes(&run(&program, payload, 0, 0, &mut program.scratch()).unwrap()).to_vec()
}

fn random_resized_crop() -> Op {
    serde_json::from_str(r#"{"op": "random_resized_crop", "size": 32}"#).unwrap()
}

fn flip(p: f64) -> Op {
    Op::Flip { p, direction: forebay_core::recipe::Direction::Horizontal }
}

#[test]
fn the_shape_is_known_beforehand_when_the_recipe_fixes_it() {
    let side = |side| Op::Resize { size: Size::Side(side), filter: Filter::Bilinear };
    let crop = Op::CenterCrop { size: Size::Exact([20, 30]) };
    let cases: [(Vec<Op>, Option<[usize; 3]>); 5] = [
        (vec![], None),
        (vec![side(50)], None),
        (vec![side(50), crop.clone()], Some([20, 30, 3])),
        (vec![crop.clone(), side(40)], None),
        (vec![crop, Op::Pad { border: [1, 2, 3, 4], value: 0 }], Some([26, 34, 3])),
    ];
    for (ops, shape) in cases {
        let program = compile(image(ops.clone()));
        let kind = program.outputs()[0].kind.clone();
        match shape {
            None => assert_eq!(kind, OutputKind::Tensors, "{ops:?}"),
            Some(shape) => {
                let OutputKind::Tensor(spec) = kind else { panic!("{ops:?}") };
                assert_eq!((spec.dtype, spec.shape.as_slice()), (Dtype::U8, shape.as_slice()), "{ops:?}");
            }
        }
        let column = run(&program, &jpeg(90, 70), 0, 0, &mut program.scratch()).unwrap();
        assert_eq!(column.rows(), 1);
    }
}

#[test]
fn layout_and_element_type_hold_the_same_values() {
    let payload = jpeg(70, 50);
    let ops = vec![Op::CenterCrop { size: Size::Exact([40, 48]) }, flip(1.0)];
    let hwc = once(image(ops.clone()), &payload);
    let chw = once(FieldRecipe { layout: Layout::Chw, ..image(ops.clone()) }, &payload);
    let float = once(FieldRecipe { dtype: Some(Dtype::F32), ..image(ops) }, &payload);
    for (pixel, values) in hwc.chunks(3).enumerate() {
        for (channel, value) in values.iter().enumerate() {
            assert_eq!(chw[channel * 40 * 48 + pixel], *value);
            let at = (pixel * 3 + channel) * 4;
            assert_eq!(f32::from_ne_bytes(float[at..at + 4].try_into().unwrap()), f32::from(*value));
        }
    }
}

#[test]
fn p034_crops_differ_between_epochs_and_samples_and_are_equal_for_the_same_key() {
    let payload = jpeg(200, 150);
    let program = compile(image(vec![random_resized_crop(), flip(0.5)]));
    let (mut one, mut other) = (program.scratch(), program.scratch());
    let base = run(&program, &payload, 1, 7, &mut one).unwrap();
    // The other thread prepared something else before.
    run(&program, &jpeg(33, 44), 4, 4, &mut other).unwrap();
    assert_eq!(bytes(&base), bytes(&run(&program, &payload, 1, 7, &mut other).unwrap()));
    assert_ne!(bytes(&base), bytes(&run(&program, &payload, 2, 7, &mut other).unwrap()));
    assert_ne!(bytes(&base), bytes(&run(&program, &payload, 1, 8, &mut other).unwrap()));
}

#[test]
fn a_mirror_before_a_change_of_color_equals_a_mirror_after_it() {
    let payload = jpeg(80, 60);
    let jitter = || serde_json::from_str(r#"{"op": "grayscale", "p": 1.0}"#).unwrap();
    let crop = || Op::CenterCrop { size: Size::Side(50) };
    let before = once(image(vec![crop(), flip(1.0), jitter()]), &payload);
    let after = once(image(vec![crop(), jitter(), flip(1.0)]), &payload);
    assert_eq!(before, after);
    assert_ne!(before, once(image(vec![crop(), jitter()]), &payload));
}

#[test]
fn orientation_is_applied_when_asked_and_the_size_follows() {
    let stored = jpeg(40, 20);
    let tiff = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
    let mut turned = stored[..2].to_vec();
    turned.extend([0xFF, 0xE1]);
    turned.extend((tiff.len() as u16 + 2).to_be_bytes());
    turned.extend(tiff);
    turned.extend(&stored[2..]);
    let turned = Bytes::from(turned);
    let shape = |orientation| {
        let decode = Decode::Image { mode: ImageMode::Rgb, orientation, max_pixels: 1000 };
        let program = compile(FieldRecipe { decode, ..image(vec![]) });
        match run(&program, &turned, 0, 0, &mut program.scratch()).unwrap() {
            Column::Tensor { spec, data, .. } => (spec.shape, data.as_slice().to_vec()),
            other => panic!("{other:?}"),
        }
    };
    let (ignored, upright) = (shape(Orientation::Ignore), shape(Orientation::Apply));
    assert_eq!((ignored.0, upright.0), (vec![20, 40, 3], vec![40, 20, 3]));
    // Orientation 6: the stored bottom left corner is the upright top left one.
    assert_eq!(upright.1[..3], ignored.1[19 * 40 * 3..][..3]);
}

#[test]
fn errors_name_field_sample_epoch_and_op() {
    let program = compile(image(vec![]));
    let error = run(&program, &Bytes::from_static(b"GIF89a.."), 3, 9, &mut program.scratch()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let facts = error.facts();
    assert_eq!((facts.field.as_deref(), facts.op.as_deref()), (Some("jpg"), Some("decode")));
    assert_eq!((facts.sample_id, facts.epoch), (Some(SampleId(9)), Some(3)));
    assert!(error.message().contains("47 49 46 38"), "{error}");
}

#[test]
fn images_above_max_pixels_are_refused_before_they_are_decoded() {
    let decode = Decode::Image { mode: ImageMode::Rgb, orientation: Orientation::Ignore, max_pixels: 100 };
    let program = compile(FieldRecipe { decode, ..image(vec![]) });
    let error = run(&program, &jpeg(11, 10), 0, 0, &mut program.scratch()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted);
    assert!(run(&program, &jpeg(10, 10), 0, 0, &mut program.scratch()).is_ok());
}

#[test]
fn a_needle_of_an_image_cannot_be_blown_up() {
    let program = compile(image(vec![Op::Resize { size: Size::Side(4000), filter: Filter::Bilinear }]));
    let error = run(&program, &jpeg(8000, 1), 0, 0, &mut program.scratch()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted);
    let cropped = vec![
        Op::Resize { size: Size::Side(4000), filter: Filter::Bilinear },
        Op::CenterCrop { size: Size::Side(10) },
    ];
    assert_eq!(once(image(cropped), &jpeg(8000, 1)).len(), 300);
}

#[test]
fn a_window_into_an_enlarged_image_with_alpha_begins_at_any_weight() {
    for (side, height, width) in [(33, 1, 2), (33, 2, 1), (60, 3, 3), (44, 5, 1)] {
        let resize = Op::Resize { size: Size::Side(side), filter: Filter::Bicubic };
        let crop = Op::CenterCrop { size: Size::Exact([height, width]) };
        let decode = Decode::Image {
            mode: ImageMode::Rgba,
            orientation: Orientation::Ignore,
            max_pixels: default_max_pixels(),
        };
        for stored in 1..40 {
            let field = FieldRecipe { decode: decode.clone(), ..image(vec![resize.clone(), crop.clone()]) };
            let pixels = once(field, &jpeg(stored, stored));
            assert_eq!(pixels.len(), (height * width * 4) as usize);
            assert!(pixels.chunks(4).all(|pixel| pixel[3] == 255), "opaque stays opaque");
        }
    }
}

#[test]
fn every_fault_of_a_recipe_is_named_at_once() {
    let normalize = Op::Normalize { mean: vec![0.5; 3], std: vec![0.5; 3] };
    let wrong = image(vec![normalize, flip(0.5)]);
    let text =
        FieldRecipe { field: "txt".into(), decode: Decode::Text {}, ops: vec![flip(0.5)], ..image(vec![]) };
    let error = Program::compile(&Recipe { fields: vec![wrong, text], ..Recipe::default() }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.message().contains("recipe[0]") && error.message().contains("recipe[1]"), "{error}");
}

const ADJUSTERS: [&str; 12] = [
    r#"{"op": "gaussian_blur", "kernel": 9}"#,
    r#"{"op": "solarize", "threshold": 100}"#,
    r#"{"op": "posterize", "bits": 3}"#,
    r#"{"op": "equalize"}"#,
    r#"{"op": "autocontrast"}"#,
    r#"{"op": "sharpness", "factor": 3}"#,
    r#"{"op": "affine", "degrees": [-90, 90], "translate": [0.2, 0.2], "interpolation": "bilinear"}"#,
    r#"{"op": "rand_augment", "n": 3}"#,
    r#"{"op": "trivial_augment"}"#,
    r#"{"op": "perspective", "p": 1}"#,
    r#"{"op": "auto_augment", "policy": "svhn"}"#,
    r#"{"op": "aug_mix", "severity": 10}"#,
];

fn op() -> impl Strategy<Value = Op> {
    let size = prop_oneof![
        (1u32..60).prop_map(Size::Side),
        (1u32..60, 1u32..60).prop_map(|(h, w)| Size::Exact([h, w]))
    ];
    prop_oneof![
        size.clone().prop_map(|size| Op::Resize { size, filter: Filter::Bicubic }),
        size.clone().prop_map(|size| Op::Resize { size, filter: Filter::Nearest }),
        size.clone().prop_map(|size| Op::CenterCrop { size }),
        (size.clone(), 0u32..9).prop_map(|(size, padding)| Op::RandomCrop { size, padding }),
        size.prop_map(|size| match random_resized_crop() {
            Op::RandomResizedCrop { scale, ratio, .. } =>
                Op::RandomResizedCrop { size, scale, ratio, filter: Filter::Bilinear },
            other => other,
        }),
        Just(flip(0.5)),
        (0u32..5).prop_map(|side| Op::Pad { border: [side, 0, 1, side], value: 9 }),
        Just(Op::ColorJitter { brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0.1 }),
        Just(Op::Grayscale { p: 0.5 }),
        prop::sample::select(ADJUSTERS.to_vec()).prop_map(|op| serde_json::from_str(op).unwrap()),
        Just(serde_json::from_str(r#"{"op": "random_erasing", "p": 0.7}"#).unwrap()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_chain_runs_on_any_image_and_a_reused_scratch_changes_nothing(
        ops in prop::collection::vec(op(), 0..6),
        (width, height) in (1u32..90, 1u32..90),
        progressive: bool,
        gray: bool,
        sample: u64,
    ) {
        let options = JpegOptions { progressive, ..JpegOptions::default() };
        let payload = Bytes::from(encode::jpeg_with(&photo(width, height), &options).unwrap());
        let mode = if gray { ImageMode::Gray } else { ImageMode::Rgba };
        let decode = Decode::Image { mode, orientation: Orientation::Apply, max_pixels: 10_000 };
        let program = compile(FieldRecipe { decode, layout: Layout::Chw, ..image(ops) });
        let mut used = program.scratch();
        run(&program, &jpeg(50, 31), 0, 1, &mut used).unwrap();
        let again = run(&program, &payload, 0, sample, &mut used).unwrap();
        let fresh = run(&program, &payload, 0, sample, &mut program.scratch()).unwrap();
        prop_assert_eq!(bytes(&again), bytes(&fresh));
    }
}
