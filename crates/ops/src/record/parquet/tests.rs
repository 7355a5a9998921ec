//! Hostile bytes. Files that others wrote are read in the engine's tests, which know where bytes come from.

use super::*;
use proptest::prelude::*;

const STORED: [Stored; 8] = [
    Stored::Boolean,
    Stored::Int32,
    Stored::Int64,
    Stored::Int96,
    Stored::Float,
    Stored::Double,
    Stored::Bytes,
    Stored::Fixed(3),
];

/// A page of the first kind without compression.
fn page(values: u8, encoding: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u8) << 1;
    let mut page =
        vec![0x15, 0, 0x15, length, 0x15, length, 0x2c, 0x15, values << 1, 0x15, encoding << 1, 0, 0];
    page.extend_from_slice(body);
    page
}

fn leaf(stored: Stored, meaning: Meaning, defined: u8, lists: &[u8]) -> Leaf {
    Leaf { name: "a".into(), stored, meaning, defined, lists: lists.to_vec() }
}

#[test]
fn a_page_reads_value_by_value_and_nulls_have_no_place() {
    let body = [&[2, 0, 0, 0, 3, 0b101][..], &[1, 0, 0, 0, b'x', 2, 0, 0, 0, b'y', b'z']].concat();
    let rows = run(&leaf(Stored::Bytes, Meaning::Text, 1, &[]), 0, None, &page(3, 0, &body)).unwrap();
    assert_eq!(rows.data, b"xyz");
    assert_eq!(rows.places, [Some(0..1), None, Some(1..3)]);
    let rows = run(&leaf(Stored::Int32, Meaning::Unsigned, 0, &[]), 0, None, &page(1, 0, &[255; 4])).unwrap();
    assert_eq!(rows.ints, [Some(i64::from(u32::MAX))]);
}

#[test]
fn a_list_goes_on_in_the_next_page() {
    // Levels of lists, then of values, then the values: [1, 2] and, after the cut, 3 and a list of 4.
    let levels = |level: u8, values: &[u8]| [&[2, 0, 0, 0, 3, level, 2, 0, 0, 0, 4, 1][..], values].concat();
    let first = page(2, 0, &levels(0b10, &[1, 0, 0, 0, 2, 0, 0, 0]));
    let second = page(2, 0, &levels(0b01, &[3, 0, 0, 0, 4, 0, 0, 0]));
    let leaf = leaf(Stored::Int32, Meaning::Int, 1, &[1]);
    let rows = run(&leaf, 0, None, &[first, second].concat()).unwrap();
    assert_eq!(rows.places, [Some(0..13), Some(13..18)]);
    assert_eq!(rows.data, [0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 4, 0, 0, 0]);
}

#[test]
fn what_is_not_read_is_refused_by_name() {
    for (codec, name) in [(3, "LZO"), (4, "Brotli"), (9, "9")] {
        let error = run(&leaf(Stored::Bytes, Meaning::Bytes, 0, &[]), codec, None, &[]).unwrap_err();
        assert_eq!(error.kind(), forebay_core::ErrorKind::Unsupported);
        assert!(error.to_string().contains(name), "{error}");
    }
    assert!(length(b"\x01\0\0\0PARE", 100).unwrap_err().to_string().contains("encrypted"));
    assert!(length(b"\xff\xff\xff\xffPAR1", u64::MAX).is_err());
    assert!(length(b"\x64\0\0\0PAR1", 100).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_a_footer_rows_or_an_error(
        bytes in proptest::collection::vec(any::<u8>(), 0..120), kind in 0usize..8, codec in 0u8..8, lists in 0usize..3,
        encoding in 0u8..10, values in 0u8..60,
    ) {
        let _ = parse(&bytes, 1000);
        for meaning in [Meaning::Int, Meaning::Float, Meaning::Text, Meaning::Decimal(3)] {
            let leaf = leaf(STORED[kind], meaning, 4, &[2, 3][..lists]);
            let _ = run(&leaf, codec, None, &bytes);
            // Behind a sound head, what is inside is read too.
            let body = &bytes[..bytes.len().min(63)];
            let _ = run(&leaf, 0, Some(&dictionary(body)), &page(values, encoding, body));
        }
        for encoding in ["f32", "u64", "list:i64", "list:json", "list:x", ""] {
            let column = Column { name: "a".into(), encoding: encoding.into(), bytes: None };
            let _ = take(&Bytes::from(bytes.clone()), &[column], &["a"]);
        }
    }
}

/// A dictionary's page of as many values as there are bytes for small ones.
fn dictionary(body: &[u8]) -> Vec<u8> {
    let (length, count) = ((body.len() as u8) << 1, (body.len() as u8 / 12) << 1);
    let mut page = vec![0x15, 4, 0x15, length, 0x15, length, 0x4c, 0x15, count, 0x15, 0, 0, 0];
    page.extend_from_slice(body);
    page
}
