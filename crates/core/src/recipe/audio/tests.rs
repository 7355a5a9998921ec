//! Promises of audio recipes: the same words everywhere, shapes known beforehand, faults with their paths.

use super::*;
use crate::recipe::{Op, Recipe};
use serde_json::{Value, json};

fn column(ops: &Value) -> Value {
    json!([{"field": "wav;flac", "decode": "audio", "ops": ops}])
}

fn shape(ops: &Value) -> Option<Vec<usize>> {
    Recipe::from_value(column(ops)).unwrap().fields[0].audio_form().unwrap().shape()
}

fn fault(ops: &Value) -> String {
    Recipe::from_value(column(ops)).unwrap_err().message().to_owned()
}

#[test]
fn every_op_has_a_template_with_all_of_its_parameters() {
    let names: Vec<String> = templates().iter().map(|op| op["op"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, AudioOp::NAMES);
    for template in templates() {
        let op: AudioOp = serde_json::from_value(template.clone()).unwrap();
        assert_eq!(template["op"], op.name());
        assert_eq!(serde_json::to_value(op).unwrap(), template);
    }
}

#[test]
fn a_recipe_survives_json_and_toml_and_defaults_make_no_difference() {
    let ops = json!(["mono", {"op": "resample", "rate": 16_000}, {"op": "random_crop", "seconds": 1.0},
        {"op": "speed", "factors": [0.9, 1.0]}, {"op": "log_mel", "n_fft": 512},
        {"op": "spec_augment", "n_time_masks": 2, "time_mask_param": 30, "n_freq_masks": 2, "freq_mask_param": 9},
        {"op": "pad_batch", "mask": true}]);
    let recipe = Recipe::from_value(column(&ops)).unwrap();
    assert_eq!(Recipe::from_json(&recipe.to_json()).unwrap(), recipe);
    assert_eq!(Recipe::from_toml(&recipe.to_toml().unwrap()).unwrap(), recipe);
    assert!(matches!(recipe.fields[0].ops[0], Op::Audio(AudioOp::Mono {})));
    let spelled = |op: &Value| {
        let ops = json!([{"op": "resample", "rate": 16_000}, op]);
        Recipe::from_value(column(&ops)).unwrap().fingerprint()
    };
    let short = spelled(&json!({"op": "mel", "n_fft": 512}));
    assert_eq!(short, spelled(&json!({"op": "mel", "n_fft": 512, "win_length": 512, "hop_length": 256})));
    assert_ne!(short, spelled(&json!({"op": "mel", "n_fft": 512, "hop_length": 128})));
}

#[test]
fn recordings_are_the_same_by_version_wherever_they_lie() {
    let op = |version: &str, place: &str, max_bytes: u64| {
        let ops = json!(["mono", {"op": "mix_noise", "version": version, "snr": [5, 20], "max_bytes": max_bytes,
            "data": {"spec": [place], "extensions": ["wav"]}}]);
        let recipe = Recipe::from_value(column(&ops)).unwrap();
        assert_eq!(Recipe::from_json(&recipe.to_json()).unwrap(), recipe);
        assert_eq!(Recipe::from_toml(&recipe.to_toml().unwrap()).unwrap(), recipe);
        recipe.fingerprint()
    };
    assert_eq!(op("1", "/data/noise", 5), op("1", "s3://noise/all", 6));
    assert_ne!(op("1", "/data/noise", 5), op("2", "/data/noise", 5));
}

#[test]
fn the_shape_is_known_when_the_recipe_decides_it() {
    let resample = json!({"op": "resample", "rate": 16_000});
    let crop = json!({"op": "random_crop", "seconds": 1.0});
    let samples = json!({"op": "center_crop", "samples": 400});
    for (ops, expected) in [
        (json!(["mono", resample, crop]), Some(vec![1, 16_000])),
        (json!([resample, crop, "stereo"]), Some(vec![2, 16_000])),
        (json!(["mono", crop]), None),
        (json!([resample, crop]), None),
        (json!(["mono", samples]), Some(vec![1, 400])),
        (json!(["mono", samples, resample]), None),
        (json!(["mono", resample, samples, {"op": "resample", "rate": 8001}]), Some(vec![1, 201])),
        (json!(["mono", resample, crop, {"op": "speed", "factors": [1.0]}]), None),
        (json!(["mono", samples, {"op": "pad", "samples": 500}]), Some(vec![1, 500])),
        (json!(["mono", resample, crop, {"op": "log_mel", "n_mels": 80}]), Some(vec![1, 80, 81])),
        (json!(["mono", samples, {"op": "spectrogram", "center": false}]), Some(vec![1, 201, 1])),
        (json!(["mono", resample, crop, {"op": "mfcc"}]), Some(vec![1, 40, 81])),
    ] {
        assert_eq!(shape(&ops), expected, "{ops}");
    }
}

#[test]
fn each_fault_is_found_with_its_path() {
    let resample = json!({"op": "resample", "rate": 16_000});
    for (ops, expected) in [
        (json!([{"op": "random_crop"}]), "ops[0].samples: give one of"),
        (json!([{"op": "random_crop", "samples": 4, "seconds": 1}]), "ops[0].samples: give one of"),
        (json!([{"op": "random_crop", "size": 4}]), "ops[0].size: there is no such parameter"),
        (json!([{"op": "center_crop", "samples": 0}]), "ops[0].samples: 0 is not in"),
        (json!([{"op": "pad", "seconds": -1}]), "ops[0].seconds"),
        (json!([{"op": "resample", "rate": 4}]), "ops[0].rate: 4 is not in 100..=768000"),
        (json!([{"op": "resample", "rate": 8000, "quality": "ideal"}]), "ops[0].quality: unknown variant"),
        (json!([{"op": "gain", "db": [3, -3]}]), "ops[0].db"),
        (json!([{"op": "speed", "factors": []}]), "ops[0].factors"),
        (json!([{"op": "noise", "snr": [1, 2], "p": 2}]), "ops[0].p: 2 is not in 0..=1"),
        (json!([{"op": "mix_noise", "snr": [5, 20], "version": "1"}]), "ops[0].data: it is missing"),
        (json!([{"op": "mix_noise", "snr": [9, 5], "version": "1", "data": {}}]), "ops[0].snr"),
        (
            json!([{"op": "mix_noise", "snr": [5, 9], "version": " ", "data": {}}]),
            "ops[0].version: it is empty",
        ),
        (
            json!([{"op": "mix_noise", "snr": [5, 9], "version": "1", "data": {}, "max_bytes": 0}]),
            "ops[0].max_bytes: 0 is not in",
        ),
        (json!([{"op": "mel"}]), "ops[0].op: bands need a known rate"),
        (json!([resample, {"op": "mel", "f_max": 9000}]), "ops[1].f_max: 9000 is not in 0..=8000"),
        (json!([resample, {"op": "mel", "f_min": 8000}]), "ops[1].f_min"),
        (json!([{"op": "spectrogram", "n_fft": 1}]), "ops[0].n_fft"),
        (
            json!([{"op": "spectrogram", "n_fft": 134}]),
            "ops[0].n_fft: 134 has a prime factor of more than 61",
        ),
        (json!([{"op": "spectrogram", "win_length": 401}]), "ops[0].win_length"),
        (json!([{"op": "spectrogram", "hop_length": 0}]), "ops[0].hop_length"),
        (json!([{"op": "spectrogram", "power": 3}]), "ops[0].power"),
        (json!([resample, {"op": "log_mel", "floor": 0}]), "ops[1].floor"),
        (json!([resample, {"op": "mfcc", "n_mels": 20}]), "ops[1].n_mfcc: 40 is not in 1..=20"),
        (json!([{"op": "spectrogram"}, "mono"]), "ops[1]: `mono` works on a waveform"),
        (json!([{"op": "spectrogram"}, {"op": "spectrogram"}]), "ops[1]: `spectrogram` works on a waveform"),
        (
            json!([{"op": "spec_augment", "n_time_masks": 1, "time_mask_param": 1, "n_freq_masks": 1, "freq_mask_param": 1}]),
            "ops[0]: `spec_augment` works on a spectrum",
        ),
        (json!([{"op": "resize", "size": 4}]), "there is no `resize`"),
        (json!(["monoo"]), "there is no `monoo`, did you mean `mono`?"),
        (json!([{"op": "random_crop", "samples": 300}, {"op": "spectrogram", "center": false}]), "no frame"),
        (json!(["mono", {"op": "random_crop", "samples": 300}, "pad_batch"]), "of one size already"),
        (json!([{"op": "pad_batch", "to": [3, 4]}]), "give one number"),
    ] {
        let message = fault(&ops);
        assert!(message.contains(expected), "{expected}\nis not in\n{message}\nof {ops}");
    }
    let image = json!([{"field": "jpg", "decode": "image", "ops": [{"op": "gain", "db": [0, 1]}]}]);
    let message = Recipe::from_value(image).unwrap_err().message().to_owned();
    assert!(message.contains("`gain` works on audio, but the field is decoded as image"), "{message}");
}

#[test]
fn what_draws_chance_says_so() {
    for (op, random) in [
        (json!({"op": "gain", "db": [1, 1]}), false),
        (json!({"op": "gain", "db": [0, 1]}), true),
        (json!({"op": "speed", "factors": [0.9]}), false),
        (json!({"op": "noise", "snr": [3, 3]}), true),
        (json!({"op": "mix_noise", "snr": [3, 3], "version": "1", "data": {}}), true),
        (json!({"op": "mix_noise", "snr": [3, 3], "version": "1", "data": {}, "p": 0}), false),
        (json!({"op": "random_crop", "samples": 3}), true),
        (json!({"op": "center_crop", "samples": 3}), false),
    ] {
        assert_eq!(serde_json::from_value::<AudioOp>(op).unwrap().is_random(), random);
    }
}
