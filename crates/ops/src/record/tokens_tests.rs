//! The index of tokens: what is written is read, and what is damaged is an error.

use super::*;
use proptest::prelude::*;

/// An index of documents whose sequences have these lengths.
fn index(documents: &[Vec<u16>]) -> (Vec<u8>, u64) {
    let lengths: Vec<u64> = documents.iter().flatten().map(|length| u64::from(*length)).collect();
    let mut bytes = MAGIC.to_vec();
    bytes.extend(1u64.to_le_bytes());
    bytes.push(8);
    bytes.extend((lengths.len() as u64).to_le_bytes());
    bytes.extend((documents.len() as u64 + 1).to_le_bytes());
    for length in &lengths {
        bytes.extend((*length as i32).to_le_bytes());
    }
    let mut at = 0;
    for length in &lengths {
        bytes.extend((at * 2u64).to_le_bytes());
        at += length;
    }
    let mut sequences = 0u64;
    bytes.extend(sequences.to_le_bytes());
    for document in documents {
        sequences += document.len() as u64;
        bytes.extend(sequences.to_le_bytes());
    }
    (bytes, at * 2)
}

#[test]
fn a_head_is_read_as_it_was_written() {
    for (_, dtype) in CODES {
        let head = Head { dtype, sequences: 3, entries: 5 };
        let bytes = head.to_bytes().unwrap();
        assert_eq!(Head::parse(&bytes, head.end().unwrap()).unwrap(), head);
    }
    let (sound, _) = index(&[vec![3, 4], vec![5]]);
    let head = Head { dtype: Dtype::U16, sequences: 3, entries: 3 };
    assert_eq!(head.to_bytes().unwrap(), sound[..HEAD_BYTES]);
    assert!(Head { dtype: Dtype::F32, ..head }.to_bytes().is_err());
}

fn read(bytes: &[u8], data: u64, piece: u64) -> Result<Vec<Range<u64>>> {
    let head = bytes.first_chunk().ok_or_else(|| Error::corrupt("short"))?;
    let head = Head::parse(head, bytes.len() as u64)?;
    let mut documents = Documents::new(head, data)?;
    let part = |range: Range<u64>| &bytes[range.start as usize..range.end as usize];
    documents.take_entries(part(head.documents(0..head.entries)))?;
    let mut at = 0;
    while at < head.sequences {
        let end = head.sequences.min(at + piece);
        documents.take_sequences(part(head.lengths(at..end)), part(head.places(at..end)))?;
        at = end;
    }
    documents.finish()
}

proptest! {
    #[test]
    fn documents_are_where_they_were_written(
        documents in proptest::collection::vec(proptest::collection::vec(0u16..50, 0..4), 0..12), piece in 1u64..5,
    ) {
        let (bytes, data) = index(&documents);
        let (mut at, mut wanted) = (0, Vec::new());
        for document in &documents {
            let end = at + document.iter().map(|length| u64::from(*length)).sum::<u64>();
            wanted.extend((end > at).then_some(at..end));
            at = end;
        }
        prop_assert_eq!(read(&bytes, data, piece).unwrap(), wanted);
    }

    #[test]
    fn a_damaged_index_is_an_error_or_lies_inside_the_data(
        documents in proptest::collection::vec(proptest::collection::vec(0u16..50, 0..4), 1..6),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), cut in 0usize..20,
    ) {
        let (mut bytes, data) = index(&documents);
        for (place, value) in flips {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        bytes.truncate(bytes.len().saturating_sub(cut));
        if let Ok(found) = read(&bytes, data, 3) {
            prop_assert!(found.iter().all(|place| place.start < place.end && place.end * 2 <= data.max(place.end)));
        }
    }
}

#[test]
fn heads_that_lie_are_refused_with_the_reason() {
    let (sound, data) = index(&[vec![3, 4], vec![5]]);
    assert_eq!(read(&sound, data, 9).unwrap(), [0..7, 7..12]);
    // The modes of each sequence may follow.
    let mut modes = sound.clone();
    modes.extend([0, 1, 0]);
    assert_eq!(read(&modes, data, 9).unwrap().len(), 2);
    for (at, value, why) in [
        (0, b'X', "no index"),
        (9, 2, "version 2"),
        (17, 7, "floats"),
        (17, 77, "element type 77"),
        (25, 1, "sequences"),
        (33, 0xff, "sequences"),
    ] {
        let mut bytes = sound.clone();
        bytes[at] = value;
        let error = read(&bytes, data, 9).unwrap_err();
        assert!(error.message().contains(why), "{error}");
    }
    assert!(read(&sound, data - 2, 9).is_err());
    assert!(read(&sound, data + 2, 9).unwrap_err().message().contains("the data has 13"));
    assert!(read(&sound, data + 1, 9).is_err());
}

#[test]
fn a_record_is_its_tokens_without_a_copy() {
    let record = Bytes::from_static(&[1, 0, 2, 0]);
    let taken = take(&record, &[column(Dtype::U16)], &["tokens", "other"]).unwrap();
    assert_eq!(taken[0], Taken::Tensor { dtype: Dtype::U16, shape: vec![2], data: record.clone() });
    assert_eq!(taken[1], Taken::Missing);
    assert!(take(&record.slice(1..), &[column(Dtype::U16)], &["tokens"]).is_err());
    let floats = Column { name: NAME.into(), encoding: "f32".into(), bytes: None };
    assert!(take(&record, &[floats], &["tokens"]).is_err());
}
