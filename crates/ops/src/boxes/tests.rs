//! Columns that follow an image, seen through a program: what is drawn in the mask lies in the box, whatever was drawn.

use crate::collate::{BatchBuilder, Column};
use crate::{BufferPool, Image, Input, Program, SampleContext};
use bytes::Bytes;
use forebay_core::recipe::Recipe;
use forebay_core::tensor::Dtype;
use forebay_core::{Result, SampleId};

fn png(image: &Image) -> Input {
    let mut stored = Vec::new();
    let mut encoder = ::png::Encoder::new(&mut stored, image.width(), image.height());
    encoder.set_color(::png::ColorType::Grayscale);
    encoder.write_header().unwrap().write_image_data(image.pixels()).unwrap();
    Input::Payload(stored.into())
}

/// White where the box is.
fn picture(width: u32, height: u32, [left, top, right, bottom]: [u32; 4]) -> Image {
    let mut image = Image::new(width, height, 1);
    for (at, level) in image.pixels_mut().iter_mut().enumerate() {
        let (x, y) = (at as u32 % width, at as u32 / width);
        *level = if (left..right).contains(&x) && (top..bottom).contains(&y) { 255 } else { 0 };
    }
    image
}

fn recipe(ops: &str, rule: &str) -> Program {
    let text = format!(
        r#"[{{"field": "json", "name": "boxes", "decode": {{"kind": "boxes"{rule}}}, "follow": "png"}},
            {{"field": "png", "decode": {{"kind": "image", "mode": "gray"}}, "layout": "hwc", "ops": [{ops}]}},
            {{"field": "mask", "decode": {{"kind": "image", "mode": "gray"}}, "layout": "hwc", "follow": "png"}},
            {{"field": "json", "name": "labels", "decode": {{"kind": "boxes", "part": "labels"{rule}}}, "follow": "png"}},
            {{"field": "json", "name": "points", "decode": {{"kind": "boxes", "part": "keypoints", "swap": [[0, 1]]{rule}}},
              "follow": "png"}}]"#
    );
    Program::compile(&Recipe::from_json(&text).unwrap()).unwrap()
}

fn run(program: &Program, image: &Image, json: &str, epoch: u64) -> Result<Vec<Column>> {
    let builder = BatchBuilder::new(program.outputs(), 1, &BufferPool::new(0));
    let mut writer = builder.claim(0).unwrap();
    let context = SampleContext { seed: 5, epoch, sample_id: SampleId(3) };
    let json = Input::Payload(Bytes::copy_from_slice(json.as_bytes()));
    let inputs = [json.clone(), png(image), png(image), json.clone(), json];
    program.prepare(&context, &inputs, &mut writer.slots(), &mut program.scratch())?;
    writer.commit();
    Ok(builder.finish(&[true])?.into_iter().map(|(_, column)| column).collect())
}

fn values(column: &Column) -> (Vec<usize>, Vec<f64>) {
    let Column::Tensor { spec, data, .. } = column else { panic!("{column:?}") };
    let size = spec.dtype.size();
    let number = |bytes: &[u8]| match spec.dtype {
        Dtype::F32 => f64::from(f32::from_ne_bytes(bytes.try_into().unwrap())),
        Dtype::I64 => i64::from_ne_bytes(bytes.try_into().unwrap()) as f64,
        _ => f64::from(bytes[0]),
    };
    (spec.shape.clone(), data.as_slice().chunks(size).map(number).collect())
}

const JSON: &str = r#"[{"bbox": [20, 10, 30, 24], "category_id": 7, "keypoints": [25, 15, 2, 45, 30, 1]}]"#;

#[test]
fn the_box_bounds_what_the_mask_shows_whatever_is_drawn() {
    let image = picture(80, 60, [20, 10, 50, 34]);
    for ops in [
        r#"{"op": "random_resized_crop", "size": [50, 70]}, {"op": "flip"}"#,
        r#"{"op": "flip", "direction": "vertical"}, {"op": "resize", "size": 90}, {"op": "random_crop", "size": 64}"#,
        r#"{"op": "pad", "border": [9, 3, 0, 20], "value": 7}, {"op": "flip", "p": 1}, {"op": "center_crop", "size": 120}"#,
        r#"{"op": "affine", "degrees": [-40, 40], "translate": [0.1, 0.2], "scale": [0.7, 1.3], "shear": [-9, 9, -9, 9]}"#,
        r#"{"op": "perspective", "p": 1}, {"op": "flip"}, {"op": "random_resized_crop", "size": 60, "scale": [0.3, 1]}"#,
        r#"{"op": "flip"}, {"op": "gaussian_blur", "kernel": 3}, {"op": "rand_augment", "n": 3}, {"op": "resize", "size": 48}"#,
        r#"{"op": "trivial_augment"}, {"op": "color_jitter", "hue": 0.1}, {"op": "flip"}, {"op": "auto_augment", "policy": "svhn"}"#,
    ] {
        let program = recipe(ops, "");
        let mut seen = 0;
        for epoch in 0..40 {
            let columns = run(&program, &image, JSON, epoch).unwrap();
            let (shape, mask) = values(&columns[2]);
            assert_eq!(values(&columns[1]).0, shape, "a mask has the size of its image");
            let (_, boxes) = values(&columns[0]);
            let lit = mask.iter().enumerate().filter(|(_, level)| **level > 127.0).map(|(at, _)| at);
            let places: Vec<[f64; 2]> =
                lit.map(|at| [(at % shape[1]) as f64, (at / shape[1]) as f64]).collect();
            let [left, top, right, bottom] = boxes[..] else {
                assert!(
                    places.len() < 12,
                    "a box was dropped of which {} pixels are seen: {ops}",
                    places.len()
                );
                continue;
            };
            seen += 1;
            let mut found = [f64::INFINITY, f64::INFINITY, 0.0, 0.0];
            for [x, y] in &places {
                found = [found[0].min(*x), found[1].min(*y), found[2].max(x + 1.0), found[3].max(y + 1.0)];
            }
            // A corner as sharp as a needle has no pixel of its own.
            let near = [left, top, right, bottom]
                .into_iter()
                .zip(found)
                .all(|(ours, found)| (ours - found).abs() < 3.0);
            assert!(near || places.len() < 60, "{boxes:?}, not {found:?}, in epoch {epoch} of {ops}");
        }
        assert!(seen > 20, "{seen} boxes in 40 epochs: {ops}");
    }
}

#[test]
fn labels_and_keypoints_stay_with_their_boxes() {
    let json = r#"{"boxes": [[0, 0, 10, 10], [20, 10, 30, 24], [35, 0, 10, 10]], "labels": [1, 2, 3],
        "keypoints": [[[1, 1, 2], [2, 2, 2]], [[25, 15, 2], [45, 30, 1]], [[36, 1, 2], [44, 9, 0]]]}"#;
    let image = picture(80, 60, [20, 10, 50, 34]);
    let crop = r#"{"op": "center_crop", "size": [60, 40]}, {"op": "flip", "p": 1}"#;
    // The middle forty columns begin at 20, so the first box is gone; mirrored, 20 becomes 40.
    let columns = run(&recipe(crop, ""), &image, json, 0).unwrap();
    assert_eq!(values(&columns[0]), (vec![2, 4], vec![10.0, 10.0, 40.0, 34.0, 15.0, 0.0, 25.0, 10.0]));
    assert_eq!(values(&columns[3]), (vec![2], vec![2.0, 3.0]));
    let points = vec![15.0, 30.0, 1.0, 35.0, 15.0, 2.0, 0.0, 0.0, 0.0, 24.0, 1.0, 2.0];
    assert_eq!(values(&columns[4]), (vec![2, 2, 3], points), "keypoints 0 and 1 change places in a mirror");
    let small = run(&recipe(crop, r#", "min_area": 101"#), &image, json, 0).unwrap();
    assert_eq!(values(&small[3]).1, [2.0]);
    let half = r#"{"op": "center_crop", "size": [60, 20]}"#;
    // Columns 30 to 50: two thirds of the second box, all but nothing of the third.
    let seen = run(&recipe(half, r#", "min_visibility": 0.7, "format": "xywh""#), &image, json, 0).unwrap();
    assert_eq!(values(&seen[0]), (vec![1, 4], vec![5.0, 0.0, 10.0, 10.0]));
    let none = run(&recipe(half, r#", "min_area": 10000"#), &image, json, 0).unwrap();
    assert_eq!(
        (values(&none[0]).0, values(&none[3]).0, values(&none[4]).0),
        (vec![0, 4], vec![0], vec![0, 2, 3])
    );
}

#[test]
fn a_mask_of_another_size_and_a_box_without_a_label_are_said() {
    let program = recipe(r#"{"op": "resize", "size": 20}"#, "");
    let image = picture(80, 60, [20, 10, 50, 34]);
    let error = run(&program, &image, r#"[{"bbox": [1, 2, 3, 4]}]"#, 0).unwrap_err();
    assert!(error.message().contains("has no label"), "{error}");
    let builder = BatchBuilder::new(program.outputs(), 1, &BufferPool::new(0));
    let mut writer = builder.claim(0).unwrap();
    let context = SampleContext { seed: 5, epoch: 0, sample_id: SampleId(3) };
    let json = Input::Payload(Bytes::from_static(JSON.as_bytes()));
    let other = png(&picture(60, 80, [0, 0, 1, 1]));
    let inputs = [json.clone(), png(&image), other, json.clone(), json];
    let error = program.prepare(&context, &inputs, &mut writer.slots(), &mut program.scratch()).unwrap_err();
    assert!(error.message().contains("follow an image of 80x60: this one is 60x80"), "{error}");
    assert_eq!(error.facts().field.as_deref(), Some("mask"));
}
