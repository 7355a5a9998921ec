//! Audio files: what other decoders make of them, parts that are those of the whole, and damage that is refused.

use super::*;
use forebay_core::ErrorKind;
use forebay_core::recipe::default_max_samples;
use proptest::prelude::*;
use std::path::Path;

fn file(name: &str) -> Bytes {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/audio");
    std::fs::read(folder.join(name)).unwrap().into()
}

fn decode(payload: &Bytes) -> Result<Waveform> {
    Audio::open(payload)?.decode(default_max_samples())
}

/// A WAV file with these bytes as its data.
fn wav(tag: u16, channels: u16, bits: u16, data: &[u8]) -> Bytes {
    let frame = channels * (bits / 8);
    let mut format = [tag.to_le_bytes(), channels.to_le_bytes()].concat();
    format.extend(8000u32.to_le_bytes());
    format.extend((8000 * u32::from(frame)).to_le_bytes());
    format.extend([frame.to_le_bytes(), bits.to_le_bytes()].concat());
    let mut made = b"RIFF\0\0\0\0WAVELIST\x03\0\0\0abc\0fmt ".to_vec();
    made.extend((format.len() as u32).to_le_bytes());
    made.extend(format);
    made.extend(b"data");
    made.extend((data.len() as u32).to_le_bytes());
    made.extend(data);
    made.into()
}

#[test]
fn wav_samples_are_those_that_were_written() {
    let values = [0.0f32, 0.5, -0.5, -1.0];
    let bytes =
        |encode: &dyn Fn(f32) -> Vec<u8>| values.iter().flat_map(|value| encode(*value)).collect::<Vec<_>>();
    let integer = |value: f32, bits: u32| (f64::from(value) * 2f64.powi(bits as i32 - 1)) as i64;
    for (tag, bits, data) in [
        (1, 8, bytes(&|value| vec![(integer(value, 8) + 128) as u8])),
        (1, 16, bytes(&|value| integer(value, 16).to_le_bytes()[..2].to_vec())),
        (1, 24, bytes(&|value| integer(value, 24).to_le_bytes()[..3].to_vec())),
        (1, 32, bytes(&|value| integer(value, 32).to_le_bytes()[..4].to_vec())),
        (3, 32, bytes(&|value| value.to_le_bytes().to_vec())),
        (3, 64, bytes(&|value| f64::from(value).to_le_bytes().to_vec())),
    ] {
        let mono = decode(&wav(tag, 1, bits, &data)).unwrap();
        assert_eq!((mono.rate, &mono.channels), (8000, &vec![values.to_vec()]), "{bits} bits");
        let stereo = decode(&wav(tag, 2, bits, &data)).unwrap();
        assert_eq!(stereo.channels, [vec![0.0, -0.5], vec![0.5, -1.0]], "{bits} bits");
        let part = Audio::open(&wav(tag, 1, bits, &data)).unwrap().decode_part(1..3, 10).unwrap();
        assert_eq!(part.channels, [vec![0.5, -0.5]]);
    }
    // Cut off where the writer died, or while a frame was written.
    let cut = wav(1, 1, 16, &[0; 64]);
    assert_eq!(decode(&cut.slice(..cut.len() - 31)).unwrap().samples(), 16);
}

#[test]
fn compressed_files_are_what_ffmpeg_makes_of_them() {
    // Of some each thirty-first sample is kept.
    for (name, channels, rate, step, tolerance) in [
        ("stereo.flac", 2, 8000, 1, 2e-5),
        ("voice.mp3", 1, 8000, 1, 2e-4),
        ("joint.mp3", 2, 44_100, 31, 2e-4),
        ("vbr.mp3", 1, 44_100, 31, 2e-4),
        ("voice.ogg", 1, 8000, 1, 2e-4),
        ("stereo.ogg", 2, 8000, 31, 2e-4),
    ] {
        let made = decode(&file(name)).unwrap();
        let stored = file(&format!("{name}.i16"));
        let expected: Vec<f32> = stored
            .as_chunks::<2>()
            .0
            .iter()
            .map(|bytes| f32::from(i16::from_le_bytes(*bytes)) / 32_767.0)
            .collect();
        assert_eq!((made.rate, made.channels.len()), (rate, channels), "{name}");
        // ffmpeg 5.1 leaves the end on this one.
        let extra = if name == "stereo.ogg" { 64 } else { 0 };
        assert_eq!((made.samples() + extra).div_ceil(step) * channels, expected.len(), "{name}");
        for (number, channel) in made.channels.iter().enumerate() {
            let others = expected.iter().skip(number).step_by(channels);
            let far =
                channel.iter().step_by(step).zip(others).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(far <= tolerance, "{name}: {far}");
        }
    }
}

#[test]
fn the_mp3_files_are_of_the_kinds_that_they_are_named_for() {
    // Thousands of bits a second, by their number.
    const RATES: [usize; 15] = [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320];
    let frames = |payload: Bytes, len: &dyn Fn(&[u8]) -> usize| {
        let (mut at, mut heads) = (tags_of(&payload), Vec::new());
        while let Some(head) = payload.get(at..at + 4) {
            assert_eq!((head[0], head[1] & 0xFE), (0xFF, 0xFA), "MPEG-1, layer 3");
            heads.push([head[2], head[3]]);
            at += len(head);
        }
        heads
    };
    let len =
        |head: &[u8]| 144_000 * RATES[usize::from(head[2] >> 4)] / 44_100 + usize::from(head[2] >> 1 & 1);
    let joint = frames(file("joint.mp3"), &len);
    // The first frame says how many follow.
    assert!(joint[1..].iter().all(|head| head[1] >> 6 == 1), "joint stereo");
    assert!(joint.iter().any(|head| head[1] >> 5 & 1 == 1), "as sum and difference");
    let mut rates: Vec<u8> = frames(file("vbr.mp3"), &len).iter().map(|head| head[0] >> 4).collect();
    rates.sort_unstable();
    rates.dedup();
    assert!(rates.len() >= 3, "{rates:?}");
}

/// Bytes of the ID3v2 tag before the audio.
fn tags_of(payload: &[u8]) -> usize {
    if payload.starts_with(b"ID3") { 10 + usize::from(payload[8]) * 128 + usize::from(payload[9]) } else { 0 }
}

#[test]
fn a_part_is_that_of_the_whole_bit_for_bit() {
    for name in ["voice.flac", "stereo.flac", "voice.ogg", "stereo.ogg"] {
        let payload = file(name);
        let whole = decode(&payload).unwrap();
        let samples = whole.samples() as u64;
        assert_eq!(Audio::open(&payload).unwrap().header().samples, Some(samples), "{name}");
        for step in 0..24 {
            let start = samples * step / 24;
            let part = start..(start + 700).min(samples);
            let made = Audio::open(&payload).unwrap().decode_part(part.clone(), 1 << 20).unwrap();
            for (found, whole) in made.channels.iter().zip(&whole.channels) {
                assert_eq!(found[..], whole[part.start as usize..part.end as usize], "{name} from {start}");
            }
        }
    }
    assert_eq!(Audio::open(&file("voice.mp3")).unwrap().header().samples, None);
}

#[test]
fn what_is_not_decoded_says_so() {
    let refused = |payload: &[u8]| decode(&Bytes::copy_from_slice(payload)).unwrap_err();
    let speex = refused(&[b"OggS\0\x02", &[0; 20][..], b"\x01\x08Speex   "].concat());
    assert_eq!(speex.kind(), ErrorKind::Unsupported);
    assert!(speex.message().contains("Speex"), "{speex}");
    for (payload, kind) in [
        (&b""[..], ErrorKind::Corrupt),
        (b"RIFF", ErrorKind::Corrupt),
        (b"RIFF\0\0\0\0AVI LIST", ErrorKind::Corrupt),
        (b"RF64\0\0\0\0WAVE", ErrorKind::Unsupported),
        (b"FORM\0\0\0\0AIFF", ErrorKind::Unsupported),
        (b"\0\0\0\x20ftypM4A ", ErrorKind::Unsupported),
        (b"ID3\x04\0\0\x7f\x7f\x7f\x7f", ErrorKind::Corrupt),
        (b"OggS", ErrorKind::Unsupported),
        (b"no audio at all", ErrorKind::Corrupt),
        (b"fLaC\0\0\0\x22", ErrorKind::Corrupt),
        (&wav(2, 1, 16, &[0; 4]), ErrorKind::Unsupported),
        (&wav(1, 1, 12, &[0; 4]), ErrorKind::Unsupported),
        (&wav(1, 0, 16, &[0; 4]), ErrorKind::Corrupt),
        (&wav(1, 65, 8, &[0; 65]), ErrorKind::Corrupt),
    ] {
        assert_eq!(refused(payload).kind(), kind, "{:?}", payload.escape_ascii().to_string());
    }
    let long = Audio::open(&file("voice.mp3")).unwrap().decode(100).unwrap_err();
    assert_eq!(long.kind(), ErrorKind::Exhausted);
    let long = Audio::open(&file("voice.flac")).unwrap().decode(100).unwrap_err();
    assert_eq!(long.kind(), ErrorKind::Exhausted);
    let tagged = [b"ID3\x04\0\0\0\0\0\x03abc", file("voice.mp3").as_ref()].concat();
    assert_eq!(decode(&tagged.into()).unwrap(), decode(&file("voice.mp3")).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn damage_is_an_error_or_other_samples_and_never_a_panic(
        name in prop::sample::select(vec![
            "voice.flac", "stereo.flac", "voice.mp3", "joint.mp3", "vbr.mp3", "voice.ogg", "stereo.ogg", "voice.opus",
        ]),
        hits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
        is_near in any::<bool>(),
    ) {
        let mut payload = file(name).to_vec();
        for (at, value) in hits {
            // Half of the time where headers are.
            let room = if is_near { payload.len().min(120) } else { payload.len() };
            payload[at.index(room)] = value;
        }
        if cuts {
            payload.truncate(cut.index(payload.len()));
        }
        let payload = Bytes::from(payload);
        let _ = Audio::open(&payload).and_then(|audio| audio.decode(1 << 20));
        if let Ok(audio) = Audio::open(&payload) && let Some(samples) = audio.header().samples {
            let _ = audio.decode_part(samples / 2..(samples / 2).saturating_add(100), 1 << 20);
        }
    }
}
