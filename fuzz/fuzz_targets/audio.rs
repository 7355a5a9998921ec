//! Audio files: never more samples than the limit, and what is decoded has the form that the header promised.
#![no_main]

use bytes::Bytes;
use forebay_ops::decode::audio::Audio;
use libfuzzer_sys::fuzz_target;

/// Small enough for many runs a second.
const MAX_SAMPLES: u64 = 1 << 16;

fuzz_target!(|payload: &[u8]| {
    let mut payload = payload.to_vec();
    seal(&mut payload);
    let payload = Bytes::from(payload);
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

/// Gives pages of Ogg the checksums that they should have: no fuzzer guesses them.
fn seal(payload: &mut [u8]) {
    let mut at = 0;
    while let Some(head) = payload.get(at..at + 27)
        && head.starts_with(b"OggS")
    {
        let table = at + 27;
        let body = table + usize::from(head[26]);
        let Some(laces) = payload.get(table..body) else { return };
        let end = body + laces.iter().map(|len| usize::from(*len)).sum::<usize>();
        let Some(page) = payload.get_mut(at..end) else { return };
        page[22..26].fill(0);
        let mut rest = 0u32;
        for byte in &*page {
            rest ^= u32::from(*byte) << 24;
            for _ in 0..8 {
                rest = rest << 1 ^ if rest >> 31 == 1 { 0x04C1_1DB7 } else { 0 };
            }
        }
        page[22..26].copy_from_slice(&rest.to_le_bytes());
        at = end;
    }
}
