//! TFRecord: a length, its checksum, a payload, its checksum. Both checksums are compared whenever a record is read.
//!
//! ```text
//! u64 length   u32 masked crc32c of the length   payload   u32 masked crc32c of the payload     (little endian)
//! ```

use super::WHOLE;
use super::value::Taken;
use super::{example, features};
use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use forebay_core::{Error, Result};

/// The name of a manifest's field that holds such records.
pub const FIELD: &str = "@tfrecord";

/// Bytes before the payload.
pub const HEAD_BYTES: usize = 12;

/// Bytes after the payload.
pub const TAIL_BYTES: usize = 4;

/// The checksum as files hold it: rotated and shifted, so that a checksum of checksums is no trivial value.
pub fn masked_crc(bytes: &[u8]) -> u32 {
    let crc = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32;
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The payload's length that a head tells, once its checksum agrees.
pub fn payload_length(head: &[u8; HEAD_BYTES]) -> Result<u64> {
    let (length, sum) = head.split_at(8);
    compare("length", masked_crc(length), sum)?;
    Ok(u64::from_le_bytes(length.try_into().unwrap_or_default()))
}

/// The payload of a whole record, once both checksums agree.
pub fn payload(record: &Bytes) -> Result<Bytes> {
    let head = record.first_chunk().ok_or_else(|| {
        Error::corrupt(format!("{} of {HEAD_BYTES} bytes of the head are there", record.len()))
    })?;
    let (length, there) = (payload_length(head)?, record.len());
    let whole = length.checked_add((HEAD_BYTES + TAIL_BYTES) as u64);
    if whole != Some(there as u64) {
        return Err(Error::corrupt(format!("its head tells {length} bytes, the record has {there} in all")));
    }
    let end = there - TAIL_BYTES;
    compare("payload", masked_crc(&record[HEAD_BYTES..end]), &record[end..])?;
    Ok(record.slice(HEAD_BYTES..end))
}

/// Writes one record.
pub fn frame(to: &mut Vec<u8>, payload: &[u8]) {
    let length = (payload.len() as u64).to_le_bytes();
    to.extend_from_slice(&length);
    to.extend_from_slice(&masked_crc(&length).to_le_bytes());
    to.extend_from_slice(payload);
    to.extend_from_slice(&masked_crc(payload).to_le_bytes());
}

/// The names that a record offers: those of its features, if its payload is a `tf.Example`, and the payload itself.
pub fn names(record: &Bytes) -> Result<Vec<String>> {
    let payload = payload(record)?;
    let mut names = example::names(&payload).unwrap_or_default();
    if !names.iter().any(|name| name == WHOLE) {
        names.push(WHOLE.to_owned());
    }
    Ok(names)
}

pub(super) fn take(record: &Bytes, names: &[&str]) -> Result<Vec<Taken>> {
    let payload = payload(record)?;
    if names.iter().all(|name| *name == WHOLE) {
        // A payload that is no `tf.Example` is not parsed as one.
        let feature = example::take(&payload, names).unwrap_or_default();
        let mut feature = feature.into_iter();
        let whole = |_: &&str| match feature.next() {
            Some(found) if found != Taken::Missing => found,
            _ => Taken::Bytes(payload.clone()),
        };
        return Ok(names.iter().map(whole).collect());
    }
    let mut taken = example::take(&payload, names)
        .map_err(|error| error.while_doing("read its payload as a tf.Example"))?;
    for (name, taken) in names.iter().zip(&mut taken) {
        if *name == WHOLE && *taken == Taken::Missing {
            *taken = Taken::Bytes(payload.clone());
        }
    }
    Ok(taken)
}

/// Every feature that a record has. Where none is `offered` the payload is no `tf.Example`, and is given as it is.
pub(super) fn take_every(record: &Bytes, offered: &[String]) -> Result<Vec<(String, Taken)>> {
    let payload = payload(record)?;
    let opaque = offered.iter().all(|name| name == WHOLE);
    match features::take_every(&payload) {
        // A feature may be called as the whole is.
        Ok(taken) if !opaque || taken.iter().any(|(name, _)| name == WHOLE) => Ok(taken),
        Err(error) if !opaque => Err(error.while_doing("read its payload as a tf.Example")),
        _ => Ok(vec![(WHOLE.to_owned(), Taken::Bytes(payload))]),
    }
}

fn compare(what: &str, found: u32, stored: &[u8]) -> Result<()> {
    let stored = u32::from_le_bytes(stored.try_into().unwrap_or_default());
    if found == stored {
        return Ok(());
    }
    Err(Error::corrupt(format!("the checksum of its {what} is {found:08x}, the file says {stored:08x}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn framed(payload: &[u8]) -> Bytes {
        let mut record = Vec::new();
        frame(&mut record, payload);
        record.into()
    }

    /// The bytes that TensorFlow's own writer gives for the payload `abc`.
    #[test]
    fn p021_a_record_has_the_bytes_of_the_reference_writer() {
        let wanted = b"\x03\0\0\0\0\0\0\0\xb0\x99I\x0eabcnW\xf1!";
        assert_eq!(framed(b"abc").escape_ascii().to_string(), wanted.escape_ascii().to_string());
    }

    proptest! {
        #[test]
        fn p021_any_flipped_bit_of_a_record_is_found(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            at: prop::sample::Index,
            bit in 0u8..8,
        ) {
            let record = framed(&bytes);
            prop_assert_eq!(&payload(&record).unwrap()[..], &bytes[..]);
            let mut bad = record.to_vec();
            let at = at.index(bad.len());
            bad[at] ^= 1 << bit;
            let error = payload(&bad.into()).unwrap_err();
            prop_assert!(error.to_string().contains("checksum"), "{}", error);
        }

        #[test]
        fn p021_a_cut_record_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100), keep: prop::sample::Index) {
            let record = framed(&bytes);
            prop_assert!(payload(&record.slice(..keep.index(record.len()))).is_err());
        }

        #[test]
        fn any_bytes_are_fields_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let record = framed(&bytes);
            let names = names(&record).unwrap();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let _ = take(&record, &names);
            let _ = take(&record, &["x", "record"]);
        }
    }
}
