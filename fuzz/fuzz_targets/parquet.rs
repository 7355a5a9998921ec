//! Parquet: a footer, and pages of a column. The first bytes say which column and compression the others are read as.
#![no_main]

use bytes::Bytes;
use forebay_ops::record::parquet::{self, Leaf, Meaning, Stored};
use forebay_ops::record::{Column, Format, RecordSpec};
use libfuzzer_sys::fuzz_target;

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

const MEANINGS: [Meaning; 7] = [
    Meaning::Int,
    Meaning::Unsigned,
    Meaning::Wide,
    Meaning::Float,
    Meaning::Decimal(2),
    Meaning::Text,
    Meaning::Bytes,
];

fuzz_target!(|bytes: &[u8]| {
    let _ = parquet::parse(bytes, 1 << 20);
    let _ = parquet::length(bytes, 1 << 20);
    let [kind, lists, codec, pages @ ..] = bytes else { return };
    let kind = usize::from(*kind);
    let leaf = Leaf {
        name: "a".into(),
        stored: STORED[kind % STORED.len()],
        meaning: MEANINGS[kind / STORED.len() % MEANINGS.len()],
        defined: 5,
        lists: [2, 4][..usize::from(lists % 3)].to_vec(),
    };
    if let Ok(rows) = parquet::run(&leaf, codec % 8, None, pages) {
        let encoding = leaf.encoding().unwrap_or_default();
        let column = Column { name: "a".into(), encoding, bytes: None };
        let spec = RecordSpec::of_columns(Format::Parquet, vec![column]);
        for place in rows.places.iter().flatten() {
            let value = &rows.data[place.start as usize..place.end as usize];
            let _ = spec.check(&Bytes::copy_from_slice(value));
        }
    }
});
