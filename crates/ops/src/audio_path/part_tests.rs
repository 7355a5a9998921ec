//! Of a long file no more is decoded than a crop needs.

use super::tests::{file, make};
use crate::decode::audio::made::{DECODED, FLAC_BLOCK, Ogg, flac, packets};
use bytes::Bytes;
use forebay_core::ErrorKind;
use serde_json::json;

/// Samples that each crop here takes out of the middle.
const CROP: u64 = 2000;

/// Packets that are decoded for all of a file, and for a crop.
fn decoded(name: &str, payload: &Bytes) -> (u64, u64) {
    let crop = json!(["mono", {"op": "center_crop", "samples": CROP}]);
    let [whole, part] = [json!(["mono"]), crop].map(|ops| {
        let before = DECODED.get();
        let (_, made) = make(&ops, payload, 0).unwrap_or_else(|error| panic!("{name}: {error}"));
        (made, DECODED.get() - before)
    });
    let start = (whole.0.len() - CROP as usize) / 2;
    assert_eq!(part.0, whole.0[start..][..CROP as usize], "{name}");
    assert!(part.0.iter().any(|value| value.abs() > 0.1), "{name} is silent");
    (whole.1, part.1)
}

#[test]
fn of_a_long_flac_file_only_the_part_is_decoded() {
    let sine = (0..300 * FLAC_BLOCK).map(|at| ((at as f64 * 0.01).sin() * 9000.0) as i16);
    let (whole, part) = decoded("flac", &flac(&sine.collect::<Vec<_>>()));
    assert_eq!(whole, 300);
    assert!(part <= 1 + CROP.div_ceil(FLAC_BLOCK as u64), "{part} frames");
}

#[test]
fn of_a_long_vorbis_file_only_the_part_is_decoded() {
    // More bytes than what is searched from end to end.
    let packets = packets(&file("voice.ogg"));
    let (headers, audio) = packets.split_at(3);
    // Both sizes of blocks are the same, and each packet brings half of one.
    assert_eq!(headers[0][28], 0x99);
    let samples = 512 / 2;
    let mut made = Ogg::default();
    made.packets(2, 0, &headers[..1]);
    made.packets(0, 0, &headers[1..]);
    let mut count = 0;
    for page in 0..100 {
        count += audio.len() as u64;
        // The first packet brings nothing.
        made.packets(if page == 99 { 4 } else { 0 }, (count - 1) * samples, audio);
    }
    let (whole, part) = decoded("vorbis", &made.made.into());
    assert_eq!(whole, count);
    // Some lead in.
    assert!(part <= 4 + CROP.div_ceil(samples), "{part} packets");
}

#[test]
fn of_a_long_opus_file_nothing_behind_the_part_is_decoded() {
    let packets = packets(&file("celt_5ms_cbr.opus"));
    let samples = (packets.len() as u64 - 2) * 240;
    let opus = |sound: u64| {
        let mut made = Ogg::default();
        made.packets(2, 0, &packets[..1]);
        made.packets(0, 0, &packets[1..2]);
        for page in 0..100 {
            let mut packets = packets[2..].to_vec();
            if page >= sound {
                // Two frames of equal length in an odd number of bytes: only who decodes them notices.
                packets[0] = vec![packets[0][0] & 0xFC | 1, 0];
                packets.remove(1);
            }
            made.packets(0, (page + 1) * samples, &packets);
        }
        Bytes::from(made.made)
    };
    let (sound, broken) = (opus(100), opus(52));
    assert_eq!(make(&json!(["mono"]), &broken, 0).unwrap_err().kind(), ErrorKind::Corrupt);
    for ops in [json!([]), json!(["mono", {"op": "resample", "rate": 11_025}])] {
        let mut ops = ops.clone();
        ops.as_array_mut().unwrap().push(json!({"op": "center_crop", "samples": CROP}));
        let (shape, made) = make(&ops, &broken, 0).unwrap();
        assert_eq!(shape, [1, CROP as usize]);
        assert_eq!(made, make(&ops, &sound, 0).unwrap().1);
    }
}
