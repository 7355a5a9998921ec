//! Parity with torchaudio and librosa, parts that are those of the whole, and the same draws everywhere.
//!
//! Expected values are in `tests/data/audio`, made by `make.py` there. Waveforms are within 2e-5 of theirs, which rounds phases to `f32`, spectra within
//! 2e-5 of their largest value, decibels and coefficients within 2e-3.

use super::*;
use crate::{BatchBuilder, Column, Input, Program};
use forebay_core::SampleId;
use forebay_core::recipe::Recipe;
use serde_json::{Value as Json, json};
use std::path::Path;

pub(super) fn file(name: &str) -> Bytes {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/audio");
    std::fs::read(folder.join(name)).unwrap().into()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// A WAV file of floats.
fn wav(rate: u32, channels: u16, samples: &[u8]) -> Bytes {
    let mut made = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x03\0".to_vec();
    made.extend(channels.to_le_bytes());
    made.extend(rate.to_le_bytes());
    made.extend((rate * 4 * u32::from(channels)).to_le_bytes());
    made.extend([(channels * 4).to_le_bytes(), 32u16.to_le_bytes()].concat());
    made.extend(b"data");
    made.extend((samples.len() as u32).to_le_bytes());
    made.extend(samples);
    made.into()
}

fn signal() -> Bytes {
    wav(8000, 1, &file("signal.f32"))
}

fn program(ops: &Json) -> Program {
    let recipe = json!([{"field": "wav", "decode": "audio", "ops": ops}]);
    Program::compile(&Recipe::from_value(recipe).unwrap()).unwrap()
}

/// Shape and values that a recipe makes of one payload.
pub(super) fn make(ops: &Json, payload: &Bytes, sample: u64) -> Result<(Vec<usize>, Vec<f32>)> {
    let program = program(ops);
    let batch = BatchBuilder::new(program.outputs(), 1, &BufferPool::new(0));
    let mut writer = batch.claim(0).unwrap();
    let context = SampleContext { seed: 5, epoch: 1, sample_id: SampleId(sample) };
    let input = [Input::Payload(payload.clone())];
    program.prepare(&context, &input, &mut writer.slots(), &mut program.scratch())?;
    writer.commit();
    match batch.finish(&[true])?.swap_remove(0).1 {
        Column::Tensor { spec, data, .. } => Ok((spec.shape, floats(data.as_slice()))),
        other => panic!("{other:?}"),
    }
}

/// The largest difference, and the largest value.
fn compare(ops: &Json, name: &str) -> (f32, f32) {
    let (_, made) = make(ops, &signal(), 0).unwrap();
    let expected = floats(&file(&format!("{name}.f32")));
    assert_eq!(made.len(), expected.len(), "{name}");
    let far = made.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    (far, expected.iter().fold(0.0, |most, value| value.abs().max(most)))
}

#[test]
fn waveforms_are_torchaudios() {
    let resample = |rate: u32, quality: &str| json!([{"op": "resample", "rate": rate, "quality": quality}]);
    for (ops, name) in [
        (resample(16_000, "fast"), "resample_fast_16000"),
        (resample(5512, "fast"), "resample_fast_5512"),
        (resample(11_025, "fast"), "resample_fast_11025"),
        (resample(11_025, "good"), "resample_good_11025"),
        (resample(5512, "best"), "resample_best_5512"),
        (json!([{"op": "speed", "factors": [0.9]}]), "speed_0.9"),
    ] {
        let (far, _) = compare(&ops, name);
        assert!(far < 2e-5, "{name}: {far}");
    }
}

#[test]
fn spectra_are_torchaudios_and_librosas() {
    let with = |op: &str, rest: Json| {
        let mut made = json!({"op": op, "n_fft": 400, "hop_length": 160});
        made.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        json!([{"op": "resample", "rate": 8000}, made])
    };
    let slaney = |more: Json| {
        let mut made = json!({"n_fft": 512, "n_mels": 40, "f_min": 60, "f_max": 3800, "mel_scale": "slaney",
            "norm": "slaney"});
        made.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        made
    };
    for (ops, name) in [
        (with("spectrogram", json!({})), "spectrogram"),
        (with("spectrogram", json!({"n_fft": 256, "win_length": 200, "power": 1})), "spectrogram_magnitude"),
        (
            with("spectrogram", json!({"n_fft": 225, "center": false, "window": "hamming"})),
            "spectrogram_open",
        ),
        (with("mel", json!({"n_mels": 40})), "mel_htk"),
        (with("mel", slaney(json!({}))), "mel_slaney"),
    ] {
        let (far, most) = compare(&ops, name);
        assert!(far < 2e-5 * most, "{name}: {far} of {most}");
    }
    for (ops, name) in [
        (with("log_mel", slaney(json!({"log": "db", "range": 80}))), "log_mel_db"),
        (with("mfcc", json!({"n_mels": 40, "n_mfcc": 13})), "mfcc_htk"),
        (with("mfcc", slaney(json!({"n_mfcc": 13}))), "mfcc_slaney"),
    ] {
        let (far, _) = compare(&ops, name);
        assert!(far < 2e-3, "{name}: {far}");
    }
}

#[test]
fn a_crop_of_a_part_is_the_crop_of_the_whole() {
    for name in ["voice.flac", "stereo.flac", "voice.ogg", "stereo.ogg", "voice.mp3", "voice.opus", "signal"]
    {
        let payload = if name == "signal" { signal() } else { file(name) };
        for before in [json!([]), json!(["mono"]), json!(["mono", {"op": "resample", "rate": 11_025}])] {
            let ops = |more: Json| {
                let ops = before.as_array().unwrap().iter().chain(more.as_array().unwrap());
                Json::Array(ops.cloned().collect())
            };
            let (shape, whole) = make(&ops(json!([])), &payload, 0).unwrap();
            let mut starts = Vec::new();
            for sample in 0..6 {
                let (cut, made) =
                    make(&ops(json!([{"op": "random_crop", "samples": 500}])), &payload, sample).unwrap();
                assert_eq!(cut, [shape[0], 500]);
                let start = whole.windows(500).position(|window| *window == made[..500]);
                let start = start.unwrap_or_else(|| panic!("{name} after {before}: no such part"));
                for channel in 0..shape[0] {
                    let from = channel * shape[1] + start;
                    assert_eq!(whole[from..from + 500], made[channel * 500..][..500], "{name}");
                }
                starts.push(start);
            }
            starts.dedup();
            assert!(starts.len() > 3, "{name}: {starts:?}");
        }
    }
}

#[test]
fn short_audio_is_followed_by_silence_and_none_at_all_is_silence() {
    let (shape, made) =
        make(&json!([{"op": "random_crop", "seconds": 0.5}, "stereo"]), &signal(), 0).unwrap();
    assert_eq!(shape, [2, 4000]);
    assert_eq!(made[..1600], floats(&file("signal.f32")));
    assert!(made[1600..4000].iter().all(|value| *value == 0.0));
    let ops =
        json!(["mono", {"op": "resample", "rate": 16_000}, {"op": "center_crop", "samples": 400}, "log_mel"]);
    let (shape, made) = make(&ops, &wav(8000, 1, &[]), 0).unwrap();
    assert_eq!(shape, [1, 128, 3]);
    assert!(made.iter().all(|value| (value - 1e-10f32.ln()).abs() < 1e-4));
    let (shape, _) = make(&json!(["mono", "spectrogram"]), &wav(8000, 1, &[]), 0).unwrap();
    assert_eq!(shape, [1, 201, 0]);
    // One sample has no mirror image but itself.
    let (_, made) = make(&json!([{"op": "spectrogram"}]), &wav(8000, 1, &1f32.to_le_bytes()), 0).unwrap();
    assert!(made.iter().all(|value| value.is_finite()));
}

#[test]
fn random_ops_draw_by_sample_and_epoch_alone() {
    let ops = json!(["mono", {"op": "resample", "rate": 8000}, {"op": "speed", "factors": [0.9, 1.0, 1.1]},
        {"op": "random_crop", "samples": 1000}, {"op": "gain", "db": [-6, 6]},
        {"op": "noise", "snr": [5, 20], "p": 0.7}, {"op": "log_mel", "n_mels": 30},
        {"op": "spec_augment", "n_time_masks": 1, "time_mask_param": 3, "n_freq_masks": 1, "freq_mask_param": 9}]);
    let drawn: Vec<_> = (0..8).map(|sample| make(&ops, &signal(), sample).unwrap()).collect();
    for (sample, made) in drawn.iter().enumerate() {
        assert_eq!(make(&ops, &signal(), sample as u64).unwrap(), *made);
        assert!(drawn[..sample].iter().all(|other| other != made));
    }
}

#[test]
fn a_gain_is_what_its_decibels_say() {
    let (_, made) = make(&json!([{"op": "gain", "db": [-20, -20]}]), &signal(), 0).unwrap();
    let expected = floats(&file("signal.f32"));
    assert!(made.iter().zip(expected).all(|(made, value)| (made * 10.0 - value).abs() < 1e-6));
}

#[test]
fn lengths_are_kept_beside_what_is_padded() {
    let program = program(&json!(["mono", {"op": "resample", "rate": 8000}, {"op": "log_mel", "n_mels": 20},
        {"op": "pad_batch", "mask": true}]));
    let batch = BatchBuilder::new(program.outputs(), 2, &BufferPool::new(0));
    let samples = file("signal.f32");
    for (row, payload) in [wav(8000, 1, &samples), wav(8000, 1, &samples[..3200])].into_iter().enumerate() {
        let mut writer = batch.claim(row).unwrap();
        let context = SampleContext { seed: 5, epoch: 1, sample_id: SampleId(row as u64) };
        let input = [Input::Payload(payload)];
        program.prepare(&context, &input, &mut writer.slots(), &mut program.scratch()).unwrap();
        writer.commit();
    }
    let columns = batch.finish(&[true, true]).unwrap();
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["wav", "wav_length", "wav_mask"]);
    let Column::Tensor { spec, .. } = &columns[0].1 else { panic!("{columns:?}") };
    assert_eq!(spec.shape, [1, 20, 9]);
    let Column::Tensor { data, .. } = &columns[1].1 else { panic!("{columns:?}") };
    assert_eq!(data.as_slice(), [9i64.to_ne_bytes(), 5i64.to_ne_bytes()].concat());
    let Column::Tensor { data, .. } = &columns[2].1 else { panic!("{columns:?}") };
    assert_eq!(data.as_slice(), [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0]);
}

#[test]
fn what_grows_too_large_is_refused() {
    for ops in [
        json!([{"op": "resample", "rate": 768_000}]),
        json!([{"op": "resample", "rate": 768_000}, {"op": "random_crop", "samples": 90_000}]),
        json!([{"op": "spectrogram", "hop_length": 1}]),
    ] {
        let recipe =
            json!([{"field": "wav", "decode": {"kind": "audio", "max_samples": 50_000}, "ops": ops}]);
        let program = Program::compile(&Recipe::from_value(recipe).unwrap()).unwrap();
        let mut value = None;
        let context = SampleContext { seed: 0, epoch: 0, sample_id: SampleId(0) };
        let input = [Input::Payload(signal())];
        let error = program.prepare(&context, &input, &mut [Slot::Value(&mut value)], &mut program.scratch());
        assert_eq!(error.unwrap_err().kind(), forebay_core::ErrorKind::Exhausted, "{ops}");
    }
}

/// Recordings for tests, under a name each.
struct Given(Vec<(String, Bytes)>);

impl crate::Assets for Given {
    fn tokenizer(&self, op: &forebay_core::recipe::tokens::Tokenize) -> Result<Bytes> {
        Err(Error::not_found(op.file.clone()))
    }

    fn noise(&self, _: &forebay_core::recipe::MixNoise) -> Result<Vec<(String, Bytes)>> {
        Ok(self.0.clone())
    }
}

/// A WAV file of one channel.
fn mono(rate: u32, values: impl Iterator<Item = f32>) -> Bytes {
    wav(rate, 1, &values.flat_map(f32::to_le_bytes).collect::<Vec<_>>())
}

/// What `mix_noise` makes of a payload, beside it as it is.
fn mixed(payload: &Bytes, op: &Json, noise: Vec<(String, Bytes)>, sample: u64) -> Result<Vec<f32>> {
    let program = program(&json!([op]));
    program.equip(&Given(noise))?;
    let batch = BatchBuilder::new(program.outputs(), 1, &BufferPool::new(0));
    let mut writer = batch.claim(0).unwrap();
    let context = SampleContext { seed: 5, epoch: 1, sample_id: SampleId(sample) };
    let input = [Input::Payload(payload.clone())];
    program.prepare(&context, &input, &mut writer.slots(), &mut program.scratch())?;
    writer.commit();
    match batch.finish(&[true])?.swap_remove(0).1 {
        Column::Tensor { data, .. } => Ok(floats(data.as_slice())),
        other => panic!("{other:?}"),
    }
}

fn mix(snr: [f64; 2], p: f64) -> Json {
    json!({"op": "mix_noise", "version": "1", "data": {}, "snr": snr, "p": p})
}

fn decibels(signal: &[f32], made: &[f32]) -> f64 {
    let power =
        |values: &mut dyn Iterator<Item = f32>| values.map(|it| f64::from(it) * f64::from(it)).sum::<f64>();
    let noise = power(&mut signal.iter().zip(made).map(|(a, b)| b - a));
    10.0 * (power(&mut signal.iter().copied()) / noise).log10()
}

proptest::proptest! {
    #[test]
    fn noise_is_as_far_below_the_signal_as_was_drawn(
        snr in -20.0f64..40.0, rate in proptest::sample::select(vec![4000u32, 8000, 11_025]),
        length in 40usize..6000, sample in 0u64..1000,
    ) {
        let signal: Vec<f32> = (0..2000).map(|at| (at as f32 * 0.07).sin() * 0.5).collect();
        let noise = mono(rate, (0..length).map(|at| ((at * at) as f32 * 0.013).cos()));
        let payload = mono(8000, signal.iter().copied());
        let made = mixed(&payload, &mix([snr, snr], 1.0), vec![("a".into(), noise)], sample).unwrap();
        let found = decibels(&signal, &made);
        // What floats of this size can tell apart.
        proptest::prop_assert!((found - snr).abs() < 0.02, "{found} where {snr} was asked for");
    }
}

#[test]
fn recordings_places_and_ratios_differ_between_samples_and_are_the_same_again() {
    let signal: Vec<f32> = (0..1000).map(|at| (at as f32 * 0.05).sin()).collect();
    let payload = mono(8000, signal.iter().copied());
    // The first is a ramp, the second alternates: what was mixed in tells which, and where.
    let ramp = mono(8000, (0..5000).map(|at| at as f32 / 5000.0));
    let sign = mono(8000, (0..300).map(|at| if at % 2 == 0 { 1.0 } else { -1.0 }));
    let noise = vec![("ramp".to_owned(), ramp), ("sign".to_owned(), sign)];
    let (mut ramps, mut ratios, mut places) = (0, Vec::new(), std::collections::BTreeSet::new());
    for sample in 0..200 {
        let made = mixed(&payload, &mix([5.0, 20.0], 1.0), noise.clone(), sample).unwrap();
        assert_eq!(made, mixed(&payload, &mix([5.0, 20.0], 1.0), noise.clone(), sample).unwrap());
        let found = decibels(&signal, &made);
        assert!((4.99..20.01).contains(&found), "{found}");
        ratios.push(found);
        let (first, last) = (made[0] - signal[0], made[999] - signal[999]);
        if first * last > 0.0 && last - first > 1e-4 {
            ramps += 1;
            // A part of a ramp from its place on: first / last = place / (place + 999).
            places.insert((999.0 * first / (last - first)).round() as i64);
        }
    }
    assert!((60..140).contains(&ramps), "{ramps} of 200");
    assert!(places.len() > 40 && places.iter().all(|place| (-5..=4005).contains(place)), "{places:?}");
    let mean = ratios.iter().sum::<f64>() / 200.0;
    assert!((11.5..13.5).contains(&mean), "{mean}");
    let plain = mixed(&payload, &mix([5.0, 20.0], 0.0), noise.clone(), 3).unwrap();
    assert_eq!(plain, signal);
    let spared =
        (0..200).filter(|at| mixed(&payload, &mix([5.0, 5.0], 0.5), noise.clone(), *at).unwrap() == signal);
    assert!((70..130).contains(&spared.count()));
}

#[test]
fn silence_stays_silent_and_what_is_no_recording_is_named_before_the_first_sample() {
    let silence = mono(8000, std::iter::repeat_n(0.0, 500));
    let tone = mono(8000, (0..500).map(|at| (at as f32 * 0.05).sin()));
    let op = mix([10.0, 10.0], 1.0);
    let noise = |payload: &Bytes| vec![("n/1".to_owned(), payload.clone())];
    assert_eq!(mixed(&silence, &op, noise(&tone), 0).unwrap(), vec![0.0; 500]);
    assert_eq!(mixed(&tone, &op, noise(&silence), 0).unwrap(), floats(&tone[44..]));
    for bad in [Bytes::new(), Bytes::from_static(b"RIFF\0\0\0\0WAVE"), mono(8000, std::iter::empty())] {
        let error = mixed(&tone, &op, noise(&bad), 0).unwrap_err();
        assert!(error.message().contains("n/1"), "{error}");
    }
    assert!(mixed(&tone, &op, Vec::new(), 0).is_err());
}
