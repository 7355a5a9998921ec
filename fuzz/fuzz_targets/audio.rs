//! Audio files: never more samples than the limit, and what is decoded has the form that the header promised.
#![no_main]

use bytes::Bytes;
use forebay_ops::decode::audio::Audio;
use libfuzzer_sys::fuzz_target;

/// Small enough for many runs a second.
const MAX_SAMPLES: u64 = 1 << 16;

fuzz_target!(|payload: &[u8]| {
    let payload = Bytes::copy_from_slice(payload);
    let Ok(audio) = Audio::open(&payload) else { return };
    let header = *audio.header();
    if let Ok(wave) = audio.decode(MAX_SAMPLES) {
        assert_eq!((wave.rate, wave.channels.len()), (header.rate, header.channels));
        assert!((wave.samples() * wave.channels.len()) as u64 <= MAX_SAMPLES);
        assert!(wave.channels.iter().all(|channel| channel.len() == wave.samples()));
        assert!(header.samples.is_none_or(|samples| samples == wave.samples() as u64));
    }
    if let (Some(samples), Ok(audio)) = (header.samples, Audio::open(&payload)) {
        let part = samples / 3..(samples / 3).saturating_add(500).min(samples);
        if let Ok(wave) = audio.decode_part(part.clone(), MAX_SAMPLES) {
            assert_eq!(wave.samples() as u64, part.end - part.start);
        }
    }
});
