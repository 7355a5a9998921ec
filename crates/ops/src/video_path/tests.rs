//! Promises of a column of video, seen through a program.

use crate::collate::{BatchBuilder, Column};
use crate::encode::{self, Subsampling};
use crate::{BufferPool, Image, Input, OutputKind, Program, SampleContext};
use bytes::Bytes;
use forebay_core::recipe::Recipe;
use forebay_core::{Error, ErrorKind, Result, SampleId};
use serde_json::{Value, json};

fn program(field: &str, decode: &Value, ops: &Value) -> Program {
    let recipe = json!([{"field": field, "decode": decode, "ops": ops}]);
    Program::compile(&Recipe::from_value(recipe).unwrap()).unwrap()
}

fn video(ops: &Value) -> Program {
    program("avi", &json!({"kind": "video"}), ops)
}

fn still(ops: &Value) -> Program {
    program("jpg", &json!({"kind": "image"}), ops)
}

/// A frame that is told from others by its brightness.
fn frame(number: u8, width: u32, height: u32) -> Bytes {
    let mut image = Image::new(width, height, 3);
    for (index, value) in image.pixels_mut().iter_mut().enumerate() {
        *value = number.wrapping_mul(20).wrapping_add((index / 3) as u8 % 16);
    }
    encode::jpeg(&image, 95, Subsampling::S444).unwrap().into()
}

fn chunk(id: &[u8], body: &[u8]) -> Vec<u8> {
    let mut made = [id, &(body.len() as u32).to_le_bytes(), body].concat();
    made.resize(made.len().next_multiple_of(2), 0);
    made
}

fn avi(frames: &[Bytes], height: u32) -> Input {
    let mut format = vec![0; 40];
    format[8..12].copy_from_slice(&height.to_le_bytes());
    format[16..20].copy_from_slice(b"MJPG");
    let stream = [b"strl".to_vec(), chunk(b"strh", b"vids"), chunk(b"strf", &format)].concat();
    let headers = [b"hdrl".to_vec(), chunk(b"LIST", &stream)].concat();
    let stored = frames.iter().flat_map(|frame| chunk(b"00dc", frame));
    let movie: Vec<u8> = b"movi".iter().copied().chain(stored).collect();
    let file = [b"AVI ".to_vec(), chunk(b"LIST", &headers), chunk(b"LIST", &movie)].concat();
    Input::Payload(chunk(b"RIFF", &file).into())
}

fn frames(count: u8) -> Vec<Bytes> {
    (0..count).map(|number| frame(number, 24, 16)).collect()
}

fn run(program: &Program, input: Input, epoch: u64, sample: u64) -> Result<Column> {
    let builder = BatchBuilder::new(program.outputs(), 1, &BufferPool::new(0));
    let mut writer = builder.claim(0).unwrap();
    let context = SampleContext { seed: 5, epoch, sample_id: SampleId(sample) };
    program.prepare(&context, &[input], &mut writer.slots(), &mut program.scratch())?;
    writer.commit();
    Ok(builder.finish(&[true])?.remove(0).1)
}

fn made(program: &Program, input: Input, epoch: u64) -> (Vec<usize>, Vec<u8>) {
    match run(program, input, epoch, 0).unwrap() {
        Column::Tensor { spec, data, .. } => {
            (spec.shape[spec.shape.len() - 4..].to_vec(), data.as_slice().to_vec())
        }
        other => panic!("{other:?}"),
    }
}

fn refused(program: &Program, input: Input) -> Error {
    run(program, input, 0, 0).unwrap_err()
}

#[test]
fn a_clip_holds_the_frames_that_images_of_their_own_would_be() {
    let ops = json!([{"op": "resize", "size": [8, 12]}, {"op": "normalize", "mean": [0.5, 0.5, 0.5], "std": [0.2, 0.2, 0.2]}]);
    let clip = json!({"op": "clip", "frames": 3, "stride": 2, "place": "start"});
    let mut of_video = ops.as_array().unwrap().clone();
    of_video.insert(0, clip);
    let program = video(&Value::from(of_video));
    let OutputKind::Tensor(spec) = &program.outputs()[0].kind else {
        panic!("its shape is known beforehand")
    };
    assert_eq!(spec.shape, [3, 3, 8, 12]);
    let stored = frames(6);
    let (_, bytes) = made(&program, avi(&stored, 16), 0);
    let of_images: Vec<u8> = [0, 2, 4]
        .into_iter()
        .flat_map(|number: usize| {
            let Column::Tensor { data, .. } =
                run(&still(&ops), Input::Payload(stored[number].clone()), 0, 0).unwrap()
            else {
                panic!("an image has one shape")
            };
            data.as_slice().to_vec()
        })
        .collect();
    assert_eq!(bytes, of_images);
}

#[test]
fn frames_in_fields_of_their_own_give_what_a_file_of_them_does() {
    let program = video(&json!([{"op": "clip", "frames": 4, "stride": 1}, {"op": "random_crop", "size": 8}]));
    for epoch in 0..5 {
        let fields = made(&program, Input::Frames(frames(9)), epoch);
        assert_eq!(fields, made(&program, avi(&frames(9), 16), epoch));
        assert_eq!(fields.0, [4, 3, 8, 8]);
    }
}

#[test]
fn all_frames_of_a_clip_draw_the_same_and_other_epochs_draw_anew() {
    let same = vec![frame(3, 64, 48); 4];
    let ops = json!([
        {"op": "clip", "frames": 4}, {"op": "random_resized_crop", "size": 8}, {"op": "flip"},
        {"op": "color_jitter", "brightness": 0.4, "contrast": 0.4}, {"op": "random_erasing", "p": 0.9}
    ]);
    let program = video(&ops);
    let mut seen = Vec::new();
    for epoch in 0..6 {
        let (_, bytes) = made(&program, avi(&same, 48), epoch);
        let one = bytes.len() / 4;
        assert!(bytes.chunks(one).all(|frame| frame == &bytes[..one]), "epoch {epoch}");
        seen.push(bytes);
    }
    seen.dedup();
    assert!(seen.len() > 4, "crops are drawn anew in every epoch");
}

#[test]
fn without_a_clip_every_frame_comes_and_lengths_may_differ() {
    let program = video(&json!([]));
    assert_eq!(program.outputs()[0].kind, OutputKind::Tensors);
    assert_eq!(made(&program, avi(&frames(5), 16), 0).0, [5, 3, 16, 24]);
    assert_eq!(made(&program, avi(&frames(2), 16), 0).0, [2, 3, 16, 24]);
}

#[test]
fn gray_and_channels_last_are_of_each_frame() {
    let decode = json!({"kind": "video", "mode": "gray"});
    let recipe =
        json!([{"field": "avi", "decode": decode, "layout": "hwc", "ops": [{"op": "clip", "frames": 2}]}]);
    let program = Program::compile(&Recipe::from_value(recipe).unwrap()).unwrap();
    assert_eq!(made(&program, avi(&frames(5), 16), 0).0, [2, 16, 24, 1]);
}

#[test]
fn what_is_no_video_is_said_with_the_frame_or_the_format() {
    let program = video(&json!([{"op": "clip", "frames": 2, "place": "start"}]));
    let mp4 = Input::Payload(Bytes::from_static(b"\0\0\0\x20ftypisom\0\0\0\0"));
    let other = Input::Payload(Bytes::from_static(b"GIF89a"));
    let mixed = avi(&[frame(0, 24, 16), frame(1, 16, 16)], 16);
    let broken = avi(&[frame(0, 24, 16), Bytes::from_static(b"\xff\xd8\xff\xe0 no picture")], 16);
    let interlaced = avi(&frames(3), 32);
    let none = Input::Frames(Vec::new());
    let cases = [
        (mp4, ErrorKind::Unsupported, "MP4"),
        (other, ErrorKind::Corrupt, "no AVI"),
        (mixed, ErrorKind::Corrupt, "frame 1: it is 16x16"),
        (broken, ErrorKind::Corrupt, "frame 1"),
        (interlaced, ErrorKind::Unsupported, "interlaced"),
        (none, ErrorKind::Corrupt, "no frame"),
        (Input::Missing, ErrorKind::Corrupt, "no such field"),
    ];
    for (input, kind, expected) in cases {
        let error = refused(&program, input);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(expected), "{expected}: {error}");
    }
}

#[test]
fn p079_a_small_file_cannot_ask_for_more_pixels_than_allowed() {
    let decode = json!({"kind": "video", "max_pixels": 24 * 16 * 3});
    let long = frames(4);
    let error = refused(&program("avi", &decode, &json!([])), avi(&long, 16));
    assert_eq!(error.kind(), ErrorKind::Exhausted);
    assert!(error.message().contains("4 frames of 24x16"), "{error}");
    // Only what is taken counts.
    let clip = program("avi", &decode, &json!([{"op": "clip", "frames": 3}]));
    assert!(run(&clip, avi(&long, 16), 0, 0).is_ok());
}
