//! AVI files made here, whole, odd and hostile.

use super::*;
use forebay_core::ErrorKind;
use proptest::prelude::*;

fn chunk(id: &[u8], body: &[u8]) -> Vec<u8> {
    let mut made = id.to_vec();
    made.extend((body.len() as u32).to_le_bytes());
    made.extend(body);
    made.resize(made.len().next_multiple_of(2), 0);
    made
}

fn list(id: &[u8], kind: &[u8], parts: &[Vec<u8>]) -> Vec<u8> {
    chunk(id, &[kind.to_vec(), parts.concat()].concat())
}

fn stream(kind: &[u8], codec: &[u8], height: i32) -> Vec<u8> {
    let mut format = vec![0; 40];
    format[8..12].copy_from_slice(&height.to_le_bytes());
    format[16..20].copy_from_slice(codec);
    list(b"LIST", b"strl", &[chunk(b"strh", &[kind.to_vec(), vec![0; 52]].concat()), chunk(b"strf", &format)])
}

/// A file of these streams and chunks of its `movi` list.
fn file(streams: &[Vec<u8>], movie: &[Vec<u8>]) -> Vec<u8> {
    let header = [vec![chunk(b"avih", &[0; 56])], streams.to_vec()].concat();
    list(
        b"RIFF",
        b"AVI ",
        &[list(b"LIST", b"hdrl", &header), list(b"LIST", b"movi", movie), chunk(b"idx1", &[0; 16])],
    )
}

fn frames(payload: &[u8]) -> Vec<&[u8]> {
    open(payload).unwrap().frames.into_iter().map(|frame| &payload[frame]).collect()
}

fn mjpeg() -> Vec<u8> {
    stream(b"vids", b"MJPG", 48)
}

#[test]
fn frames_of_the_first_video_stream_are_found_among_sound_indices_and_records() {
    let sound = stream(b"auds", b"\0\0\0\0", 0);
    let movie = [
        chunk(b"00wb", b"sound"),
        chunk(b"01dc", b"one"),
        chunk(b"ix01", b"an index"),
        list(b"LIST", b"rec ", &[chunk(b"01dc", b"two"), chunk(b"00wb", b"s")]),
        chunk(b"JUNK", b"junk"),
        chunk(b"02dc", b"another video"),
        chunk(b"01db", b"three"),
    ];
    let payload = file(&[sound, mjpeg(), mjpeg()], &movie);
    assert!(has_signature(&payload));
    assert_eq!(frames(&payload), [b"one".as_slice(), b"two", b"three"]);
    assert_eq!(open(&payload).unwrap().height, 48);
}

#[test]
fn a_dropped_frame_is_the_one_before_it() {
    let movie = [chunk(b"00dc", b""), chunk(b"00dc", b"a"), chunk(b"00dc", b""), chunk(b"00dc", b"b")];
    assert_eq!(frames(&file(&[mjpeg()], &movie)), [b"a".as_slice(), b"a", b"b"]);
}

#[test]
fn frames_go_on_in_further_segments_and_end_where_the_file_does() {
    let mut payload = file(&[mjpeg()], &[chunk(b"00dc", b"a")]);
    payload.extend(list(b"RIFF", b"AVIX", &[list(b"LIST", b"movi", &[chunk(b"00dc", b"b")])]));
    payload.extend(chunk(b"trsh", b"behind the end"));
    assert_eq!(frames(&payload), [b"a".as_slice(), b"b"]);
}

#[test]
fn a_picture_may_begin_at_its_top() {
    let payload = file(&[stream(b"vids", b"mjpg", -48)], &[chunk(b"00dc", b"a")]);
    assert_eq!(open(&payload).unwrap().height, 48);
}

#[test]
fn what_is_no_motion_jpeg_is_refused_with_the_way_out() {
    let error = open(&file(&[stream(b"vids", b"H264", 48)], &[chunk(b"00dc", b"a")])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("`H264`"), "{error}");
    assert!(error.hint().unwrap().contains("ffmpeg"), "{error:?}");
}

#[test]
fn a_file_without_video_frames_or_format_is_corrupt() {
    let bare = list(b"LIST", b"strl", &[chunk(b"strh", b"vids")]);
    let cases = [
        (file(&[], &[chunk(b"00dc", b"a")]), "no video stream"),
        (file(&[mjpeg()], &[]), "no frame"),
        (file(&[mjpeg()], &[chunk(b"00dc", b"")]), "no frame"),
        (file(&[bare], &[]), "no format"),
        (b"RIFF".to_vec(), "no video stream"),
        (Vec::new(), "no video stream"),
    ];
    for (payload, expected) in cases {
        let error = open(&payload).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.message().contains(expected), "{expected}: {error}");
    }
}

#[test]
fn a_length_beyond_its_list_is_named_with_its_place() {
    let mut payload = file(&[mjpeg()], &[chunk(b"00dc", b"abcd")]);
    let at = payload.windows(4).position(|four| four == b"00dc").unwrap();
    payload[at + 4..at + 8].copy_from_slice(&u32::MAX.to_le_bytes());
    let error = open(&payload).unwrap_err();
    assert_eq!(error.facts().offset, Some(at as u64));
    assert!(error.message().contains("`00dc`"), "{error}");
}

#[test]
fn a_file_that_was_cut_off_anywhere_is_an_error_and_no_panic() {
    let payload = file(&[mjpeg()], &[chunk(b"00dc", b"abcd"), chunk(b"00dc", b"efg")]);
    for length in 0..payload.len() {
        assert!(open(&payload[..length]).is_err(), "{length} of {} bytes", payload.len());
    }
}

proptest! {
    #[test]
    fn frames_of_any_bytes_lie_inside_of_them(
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let movie = [chunk(b"00dc", b"abc"), list(b"LIST", b"rec ", &[chunk(b"00dc", b"defgh")])];
        let mut payload = file(&[mjpeg()], &movie);
        for (at, byte) in flips {
            let at = at.index(payload.len());
            payload[at] = byte;
        }
        if let Ok(avi) = open(&payload) {
            prop_assert!(avi.frames.iter().all(|frame| payload.get(frame.clone()).is_some()));
            prop_assert!(avi.frames.len() <= payload.len() / 8);
        }
    }
}
