//! Ogg Opus: what ffmpeg makes of it, pages and packets in every legal form, and damage that is refused.

use super::made::{Ogg, laces, packets};
use super::*;
use ::opus::packet::{get_nb_channels, get_nb_samples};
use forebay_core::ErrorKind;
use proptest::prelude::*;
use std::path::Path;

/// Of long files each sample with such a number is kept; `make.py` says the same.
const STEP: usize = 31;
/// Samples that `make.py` gave to the encoder.
const SAMPLES: usize = 12_004;
/// Samples before the first, where the encoder was not told to be quick.
const SKIP: u64 = 312;

/// Files, their channels, the modes of their packets (SILK to 11, CELT from 16, hybrid between) and samples of each.
const FILES: [(&str, usize, Range<u8>, usize); 9] = [
    ("silk.opus", 1, 0..12, 960),
    ("silk_60ms.opus", 1, 0..12, 2880),
    ("silk_stereo_40ms.opus", 2, 0..12, 1920),
    ("hybrid.opus", 1, 12..16, 960),
    ("hybrid_stereo_10ms.opus", 2, 12..16, 480),
    ("celt_stereo.opus", 2, 16..32, 960),
    ("celt_5ms_cbr.opus", 1, 16..32, 240),
    ("celt_2.5ms.opus", 1, 16..32, 120),
    ("packets_of_120ms.opus", 1, 0..16, 5760),
];

fn file(name: &str) -> Bytes {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/audio");
    std::fs::read(folder.join(name)).unwrap().into()
}

fn decode(payload: &Bytes) -> Result<Waveform> {
    Audio::open(payload)?.decode(1 << 20)
}

/// A file of these packets, with `each` on a page, whose places begin at `begins`.
fn written(packets: &[Vec<u8>], each: usize, begins: u64) -> Bytes {
    let mut writer = Ogg::default();
    writer.packets(2, 0, &packets[..1]);
    writer.packets(0, 0, &packets[1..2]);
    if begins > 0 {
        writer.sequence += 1000;
    }
    let mut granule = begins;
    for page in packets[2..].chunks(each) {
        granule += page.iter().map(|packet| get_nb_samples(packet, 48_000).unwrap_or(0) as u64).sum::<u64>();
        writer.packets(0, granule, page);
    }
    writer.made.into()
}

#[test]
fn opus_is_what_ffmpeg_makes_of_it_in_every_mode() {
    let others = [("gain.opus", 1, 0..12, 960)];
    for (name, channels, modes, frames) in FILES.into_iter().chain(others) {
        let payload = file(name);
        let packets = packets(&payload).split_off(2);
        for packet in &packets {
            assert!(modes.contains(&(packet[0] >> 3)), "{name} has a packet of mode {}", packet[0] >> 3);
            assert_eq!(get_nb_samples(packet, 48_000).unwrap(), frames, "{name}");
        }
        // Where there is little to tell them apart, packets of stereo have one.
        let most = packets.iter().map(|packet| get_nb_channels(packet).unwrap() as usize).max();
        assert_eq!(most, Some(channels), "{name}");
        let header = *Audio::open(&payload).unwrap().header();
        assert_eq!(header, Header { rate: 48_000, channels, samples: Some(SAMPLES as u64) }, "{name}");
        let made = decode(&payload).unwrap();
        assert_eq!((made.samples(), made.channels.len()), (SAMPLES, channels), "{name}");

        let stored = file(&format!("{name}.i16"));
        let expected = stored.as_chunks::<2>().0.iter().map(|bytes| f32::from(i16::from_le_bytes(*bytes)));
        let expected: Vec<f32> = expected.map(|value| value / 32_768.0).collect();
        assert_eq!(expected.len(), SAMPLES.div_ceil(STEP) * channels, "{name}");
        for (number, channel) in made.channels.iter().enumerate() {
            let others = expected.iter().skip(number).step_by(channels);
            let apart = channel.iter().step_by(STEP).zip(others).map(|(a, b)| (a - b).abs());
            let far = apart.fold(0.0, f32::max);
            assert!(far <= 2e-4, "{name}: {far}");
            assert!(channel.iter().any(|value| value.abs() > 0.2), "{name} is silent");
        }
    }
}

#[test]
fn opus_is_decoded_in_integers_to_the_same_values_on_any_machine() {
    let mut sum = 0u64;
    for (name, ..) in FILES {
        for value in decode(&file(name)).unwrap().channels.concat() {
            let integer = value * 32_768.0;
            assert_eq!(integer, integer.round(), "{name}");
            sum = sum.wrapping_mul(31).wrapping_add(integer as i64 as u64);
        }
    }
    // Another libopus may have another.
    assert_eq!(sum, 2_299_179_730_961_622_451);
}

#[test]
fn a_part_of_opus_is_that_of_the_whole() {
    for (name, ..) in FILES {
        let payload = file(name);
        let whole = decode(&payload).unwrap();
        for step in 0..24 {
            let start = SAMPLES * step / 24;
            let part = start..(start + 1700).min(SAMPLES);
            let audio = Audio::open(&payload).unwrap();
            let made = audio.decode_part(part.start as u64..part.end as u64, 1 << 20).unwrap();
            for (found, whole) in made.channels.iter().zip(&whole.channels) {
                assert_eq!(found[..], whole[part.clone()], "{name} from {start}");
            }
        }
    }
}

#[test]
fn opus_is_decoded_no_further_than_the_part_and_damage_has_a_place() {
    let mut packets = packets(&file("silk.opus"));
    // Two frames of equal length in an odd number of bytes: only who decodes it notices.
    packets[2 + 8] = vec![9 << 3 | 1, 1, 2, 3];
    let payload = written(&packets, 3, 0);
    let open = || Audio::open(&payload).unwrap();
    let before = 8 * 960 - SKIP;
    assert_eq!(open().decode_part(0..before, 1 << 20).unwrap().samples() as u64, before);
    let error = open().decode_part(before..before + 1, 1 << 20).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("packet 8, which begins after 0.15"), "{error}");
    assert!(error.message().ends_with("corrupted stream"), "{error}");
    let long = open().decode(before).unwrap_err();
    assert_eq!(long.kind(), ErrorKind::Exhausted);
}

#[test]
fn the_form_of_pages_and_packets_does_not_matter() {
    let payload = file("celt_2.5ms.opus");
    let whole = decode(&payload).unwrap();
    let same = |other: &[Vec<f32>]| {
        assert_eq!(other[0][..SAMPLES], whole.channels[0]);
        // Nobody said where the end is.
        assert_eq!(other[0].len(), 102 * 120 - 120);
    };
    let mut packets = packets(&payload);
    assert_eq!(packets.len(), 2 + 102);
    same(&decode(&written(&packets, 7, 0)).unwrap().channels);
    // Cut out of a longer stream.
    same(&decode(&written(&packets, 7, 99_999)).unwrap().channels);
    // Tags of more than a page.
    packets[1].resize(70_000, 1);
    let mut writer = Ogg::default();
    writer.packets(2, 0, &packets[..1]);
    writer.page(0, u64::MAX, &[255; 255], &packets[1][..255 * 255]);
    let rest = &packets[1][255 * 255..];
    writer.page(1, 0, &laces(rest.len()), rest);
    for (number, page) in packets[2..].chunks(7).enumerate() {
        writer.packets(0, (number as u64 * 7 + page.len() as u64) * 120, page);
    }
    same(&decode(&writer.made.into()).unwrap().channels);

    packets[1].truncate(8);
    // Forty-eight frames in a packet, each with its length before them.
    let merged = packets[2..].chunks(48).map(|frames| {
        let lens = frames[..frames.len() - 1].iter().map(|frame| frame.len() as u8 - 1);
        let mut packet = vec![frames[0][0] | 3, 0x80 | frames.len() as u8];
        packet.extend(lens);
        packet.extend(frames.iter().flat_map(|frame| &frame[1..]));
        packet
    });
    let merged: Vec<_> = packets[..2].iter().cloned().chain(merged).collect();
    same(&decode(&written(&merged, 1, 0)).unwrap().channels);
    // A segment on a page, so that these packets go on from page to page.
    let mut writer = Ogg::default();
    writer.packets(2, 0, &merged[..1]);
    writer.packets(0, 0, &merged[1..2]);
    for packet in &merged[2..] {
        for (segment, len) in packet.chunks(255).zip(laces(packet.len())) {
            let goes_on = segment.as_ptr() != packet.as_ptr();
            writer.page(goes_on.into(), u64::MAX, &[len], segment);
        }
    }
    assert!(merged[2].len() > 3 * 255);
    same(&decode(&writer.made.into()).unwrap().channels);
}

#[test]
fn packets_without_a_frame_of_bytes_last_as_long_as_others() {
    let mut packets = packets(&file("hybrid.opus"));
    for packet in &mut packets[6..9] {
        packet.truncate(1);
    }
    let made = decode(&written(&packets, 50, 0)).unwrap();
    assert_eq!(made.samples() as u64, 13 * 960 - SKIP);
}

#[test]
fn opus_cut_anywhere_is_an_error_or_its_first_part() {
    for (name, each) in [("celt_stereo.opus", 2), ("silk.opus", 1)] {
        let payload = written(&packets(&file(name)), each, 0);
        let whole = decode(&payload).unwrap();
        let mut lengths = 0;
        for cut in 0..payload.len() {
            if let Ok(made) = decode(&payload.slice(..cut)) {
                assert!(made.samples() < whole.samples());
                for (found, whole) in made.channels.iter().zip(&whole.channels) {
                    assert_eq!(found[..], whole[..found.len()], "{name} cut at {cut}");
                }
                lengths += 1;
            }
        }
        assert!(lengths > payload.len() / 2, "{name} is lost when it is cut");
    }
}

#[test]
fn no_byte_of_opus_changes_unseen() {
    for payload in [file("silk.opus"), written(&packets(&file("celt_5ms_cbr.opus")), 9, 0)] {
        let whole = decode(&payload).unwrap();
        for at in 0..payload.len() {
            let mut damaged = payload.to_vec();
            damaged[at] ^= 1 << (at % 8);
            if let Ok(made) = decode(&damaged.into()) {
                // A page that seems to be longer than the file is one that was cut off.
                assert!(made.samples() < whole.samples(), "byte {at}");
                assert_eq!(made.channels[0][..], whole.channels[0][..made.samples()], "byte {at}");
            }
        }
    }
}

#[test]
fn opus_that_is_not_decoded_says_so() {
    let packets = packets(&file("silk.opus"));
    let head = |at: usize, value: u8| {
        let mut packets = packets.clone();
        packets[0][at] = value;
        written(&packets, 3, 0)
    };
    let packet = |packet: &[u8]| {
        let mut packets = packets.clone();
        packets[5] = packet.to_vec();
        written(&packets, 3, 0)
    };
    let whole = written(&packets, 3, 0);
    let without = |page: usize| {
        let starts: Vec<_> = whole.windows(4).enumerate().filter(|(_, four)| four == b"OggS").collect();
        Bytes::from([&whole[..starts[page].0], &whole[starts[page + 1].0..]].concat())
    };
    let mut six = packets.clone();
    six[0].truncate(8);
    six[0].extend([1, 6, 0, 0, 0, 0, 0, 0, 0, 0, 1, 4, 2, 0, 4, 1, 2, 3, 5]);
    let long: Vec<u8> = [vec![9 << 3], vec![1; 61_440]].concat();
    for (payload, kind, words) in [
        (written(&six, 3, 0), ErrorKind::Unsupported, "6 channels of mapping family 1"),
        (head(8, 0x10), ErrorKind::Unsupported, "version 16"),
        (head(9, 0), ErrorKind::Corrupt, "no channels"),
        (head(9, 3), ErrorKind::Corrupt, "3 channels"),
        (head(18, 255), ErrorKind::Unsupported, "mapping family 255"),
        (packet(&[]), ErrorKind::Corrupt, "packet 3, which begins after 0.05"),
        (packet(&[9 << 3 | 3]), ErrorKind::Corrupt, "packet 3"),
        (packet(&[9 << 3 | 3, 0]), ErrorKind::Corrupt, "no frame"),
        (packet(&[9 << 3 | 3, 7]), ErrorKind::Corrupt, "packet 3"),
        (packet(&[9 << 3 | 3, 0x80 | 6, 200, 200]), ErrorKind::Corrupt, "packet 3"),
        (packet(&long), ErrorKind::Corrupt, "61441 bytes"),
        (without(1), ErrorKind::Corrupt, "number 2, after number 0"),
        (without(3), ErrorKind::Corrupt, "number 4, after number 2"),
        ([file("silk.opus"), file("silk.opus")].concat().into(), ErrorKind::Unsupported, "second stream"),
        ([whole.clone(), whole.clone()].concat().into(), ErrorKind::Unsupported, "second stream"),
        ([whole.clone(), b"TAG".to_vec().into()].concat().into(), ErrorKind::Corrupt, "no page begins"),
    ] {
        let error = decode(&payload).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(words), "{error}");
    }
    // What lies behind the end does not matter.
    let tagged = [file("silk.opus"), b"TAG".to_vec().into()].concat();
    assert_eq!(decode(&tagged.into()).unwrap().samples(), SAMPLES);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn packets_of_anything_are_an_error_or_as_long_as_they_say(
        name in prop::sample::select(FILES.map(|(name, ..)| name).to_vec()),
        hits in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..9),
        each in 1usize..9,
    ) {
        let mut packets = packets(&file(name));
        for (packet, at, value) in hits {
            let packet = packet.index(packets.len());
            let packet = &mut packets[packet];
            // Half of the time where lengths and modes are.
            let room = if value % 2 == 0 { packet.len().min(3) } else { packet.len() };
            packet[at.index(room)] = value;
        }
        let payload = written(&packets, each, 0);
        if let Ok(audio) = Audio::open(&payload) {
            let header = *audio.header();
            if let Ok(made) = audio.decode(1 << 20) {
                prop_assert_eq!(Some(made.samples() as u64), header.samples);
            }
        }
    }
}
