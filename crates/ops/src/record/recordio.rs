//! A record of an MXNet RecordIO file: frames of a magic number, a length and bytes, and in them an image with a label.
//!
//! ```text
//! u32 magic   u32 (3 bits: whole, first, middle, last) length   bytes   zeros to a multiple of 4
//! bytes: u32 n   f32 label   u64 id   u64 id2   n times f32 more labels   the image
//! ```
//!
//! The magic number never stands inside a frame's bytes at a multiple of 4: there the writer cuts, and the reader puts it
//! back.

use super::WHOLE;
use super::value::Taken;
use bytes::{Bytes, BytesMut};
use forebay_core::tensor::Dtype;
use forebay_core::{Error, Result};

/// The name of a manifest's field that holds such records.
pub const FIELD: &str = "@recordio";

/// What such a record offers.
pub const NAMES: [&str; 4] = ["id", "image", "label", WHOLE];

/// Bytes of a frame before its own.
pub const HEAD_BYTES: usize = 8;

/// What every frame begins with.
const MAGIC: u32 = 0xced7_230a;

/// Bytes of the image's header.
const IMAGE_HEAD_BYTES: usize = 24;

/// What a frame's head tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Whether the record ends with it.
    pub is_last: bool,
    /// Whether the record begins with it.
    pub is_first: bool,
    /// Its bytes, without head and padding.
    pub length: u64,
}

impl Frame {
    /// Reads a head.
    pub fn parse(head: &[u8; HEAD_BYTES]) -> Result<Self> {
        let [a, b, c, d, rest @ ..] = *head;
        if u32::from_le_bytes([a, b, c, d]) != MAGIC {
            return Err(Error::corrupt("no frame begins here"));
        }
        let told = u32::from_le_bytes(rest);
        let (is_first, is_last) = match told >> 29 {
            0 => (true, true),
            1 => (true, false),
            2 => (false, false),
            3 => (false, true),
            other => return Err(Error::corrupt(format!("its frame is of kind {other}"))),
        };
        Ok(Self { is_last, is_first, length: u64::from(told & 0x1fff_ffff) })
    }

    /// Bytes that it takes in the file.
    pub fn whole(&self) -> u64 {
        HEAD_BYTES as u64 + self.length.next_multiple_of(4)
    }
}

pub(super) fn take(record: &Bytes, names: &[&str]) -> Result<Vec<Taken>> {
    let payload = payload(record)?;
    let image = |name: &&str| match *name {
        WHOLE => Ok(Taken::Bytes(payload.clone())),
        _ => part(&payload, name),
    };
    names.iter().map(image).collect()
}

/// All bytes of a record.
pub fn payload(record: &Bytes) -> Result<Bytes> {
    let (mut at, mut parts, mut done) = (0, Vec::new(), false);
    while !done {
        let head = record[at..].first_chunk().ok_or_else(cut_off)?;
        let frame = Frame::parse(head)?;
        if frame.is_first != (at == 0) {
            return Err(Error::corrupt("its frames do not follow each other"));
        }
        let begin = at + HEAD_BYTES;
        let end = begin + frame.length as usize;
        if record.len() < end {
            return Err(cut_off());
        }
        parts.push(begin..end);
        // The last record of a file may lack its padding.
        at = (at + frame.whole() as usize).min(record.len());
        done = frame.is_last;
    }
    if at != record.len() {
        return Err(Error::corrupt("bytes follow its last frame"));
    }
    if let [only] = parts.as_slice() {
        return Ok(record.slice(only.clone()));
    }
    let mut joined = BytesMut::with_capacity(record.len());
    for (number, part) in parts.into_iter().enumerate() {
        if number > 0 {
            joined.extend_from_slice(&MAGIC.to_le_bytes());
        }
        joined.extend_from_slice(&record[part]);
    }
    Ok(joined.freeze())
}

fn part(payload: &Bytes, name: &str) -> Result<Taken> {
    let head = payload.get(..IMAGE_HEAD_BYTES).ok_or_else(|| {
        Error::corrupt(format!("{} bytes hold no image with a label", payload.len()))
            .with_hint("take the field `record` as bytes: the file may hold something else")
    })?;
    let word = |at: usize| [head[at], head[at + 1], head[at + 2], head[at + 3]];
    let more = u32::from_le_bytes(word(0)) as usize;
    let labels = more.checked_mul(4).and_then(|bytes| bytes.checked_add(IMAGE_HEAD_BYTES));
    let begin = labels.filter(|begin| *begin <= payload.len()).ok_or_else(cut_off)?;
    Ok(match name {
        "image" => Taken::Bytes(payload.slice(begin..)),
        "id" => Taken::Int(i64::from_le_bytes(head[8..16].try_into().unwrap_or_default())),
        // One label stands in the header, several behind it.
        "label" if more > 0 => {
            let data = payload.slice(IMAGE_HEAD_BYTES..begin);
            Taken::Tensor { dtype: Dtype::F32, shape: vec![more], data }
        }
        "label" => Taken::Float(f32::from_le_bytes(word(4)).into()),
        _ => Taken::Missing,
    })
}

fn cut_off() -> Error {
    Error::corrupt("it is cut off")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Frames as MXNet's writer makes them: cut where the magic number stands at a multiple of 4.
    fn framed(payload: &[u8]) -> Vec<u8> {
        let words = (0..payload.len() / 4).map(|word| word * 4);
        let cuts: Vec<usize> = words.filter(|at| payload[*at..at + 4] == MAGIC.to_le_bytes()).collect();
        let mut begin = 0;
        let mut parts = Vec::new();
        for cut in cuts {
            parts.push(&payload[begin..cut]);
            begin = cut + 4;
        }
        parts.push(&payload[begin..]);
        let mut record = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            let kind = match (number, number + 1 == parts.len()) {
                (0, true) => 0u32,
                (0, false) => 1,
                (_, false) => 2,
                (_, true) => 3,
            };
            record.extend(MAGIC.to_le_bytes());
            record.extend((kind << 29 | part.len() as u32).to_le_bytes());
            record.extend_from_slice(part);
            record.resize(record.len().next_multiple_of(4), 0);
        }
        record
    }

    proptest! {
        #[test]
        fn records_read_back_also_when_they_hold_the_magic_number(
            words in proptest::collection::vec(prop_oneof![Just(MAGIC), any::<u32>()], 0..12),
            tail in proptest::collection::vec(any::<u8>(), 0..4),
        ) {
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            bytes.extend(tail);
            let record: Bytes = framed(&bytes).into();
            prop_assert_eq!(&payload(&record).unwrap()[..], &bytes[..]);
            let names = ["id", "image", "label"];
            let _ = take(&record, &names);
        }

        #[test]
        fn any_bytes_are_fields_or_an_error(mut bytes in proptest::collection::vec(any::<u8>(), 0..64), kind in 0u32..4) {
            let told = kind << 29 | bytes.len() as u32;
            let mut record = MAGIC.to_le_bytes().to_vec();
            record.extend(told.to_le_bytes());
            record.append(&mut bytes);
            let _ = take(&record.into(), &NAMES);
        }
    }

    #[test]
    fn one_label_and_several_are_taken() {
        let mut payload = vec![0; 4];
        payload.extend(3f32.to_le_bytes());
        payload.extend(9u64.to_le_bytes());
        payload.extend([0; 8]);
        payload.extend(b"jpeg");
        let record: Bytes = framed(&payload).into();
        let taken = take(&record, &["label", "id", "image"]).unwrap();
        assert_eq!(taken, [Taken::Float(3.0), Taken::Int(9), Taken::Bytes(Bytes::from_static(b"jpeg"))]);
        payload[0] = 1;
        let record: Bytes = framed(&payload).into();
        let taken = take(&record, &["label", "image"]).unwrap();
        let data = Bytes::from_static(b"jpeg");
        assert_eq!(
            taken,
            [Taken::Tensor { dtype: Dtype::F32, shape: vec![1], data }, Taken::Bytes(Bytes::new())]
        );
    }
}
