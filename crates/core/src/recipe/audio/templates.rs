//! A sound audio op of each name with all of its parameters, for the parser.

use serde_json::{Value, json};

pub(in crate::recipe) fn templates() -> [Value; 15] {
    let mut spectrogram = json!({"op": "spectrogram", "n_fft": 400, "win_length": 400, "hop_length": 200,
        "window": "hann", "power": 2, "center": true, "pad_mode": "reflect"});
    let with = |base: &Value, more: Value| {
        let mut made = base.clone();
        if let (Some(made), Value::Object(more)) = (made.as_object_mut(), more) {
            made.extend(more);
        }
        made
    };
    let mel = with(
        &spectrogram,
        json!({"op": "mel", "n_mels": 128, "f_min": 0.0, "f_max": 1.0, "mel_scale": "htk", "norm": "none"}),
    );
    let log_mel = with(&mel, json!({"op": "log_mel", "log": "ln", "floor": 1e-10, "range": 80.0}));
    let mfcc = with(&mel, json!({"op": "mfcc", "n_mfcc": 40}));
    [
        json!({"op": "mono"}),
        json!({"op": "stereo"}),
        json!({"op": "resample", "rate": 16_000, "quality": "fast"}),
        json!({"op": "random_crop", "samples": 1, "seconds": 1.0}),
        json!({"op": "center_crop", "samples": 1, "seconds": 1.0}),
        json!({"op": "pad", "samples": 1, "seconds": 1.0}),
        json!({"op": "gain", "db": [0.0, 0.0]}),
        json!({"op": "speed", "factors": [1.0]}),
        json!({"op": "noise", "snr": [10.0, 20.0], "p": 0.5}),
        json!({"op": "mix_noise", "version": "0", "snr": [5.0, 20.0], "p": 0.5, "field": "wav", "max_bytes": 1,
            "data": {"spec": ["noise.tar"]}}),
        spectrogram.take(),
        mel,
        log_mel,
        mfcc,
        json!({"op": "spec_augment", "n_time_masks": 1, "time_mask_param": 1, "n_freq_masks": 1,
            "freq_mask_param": 1, "p": 1.0, "fill": "mean"}),
    ]
}
