//! Values as CQL writes them: rows of raw cells in, raw cells out.
//!
//! Which types the columns have is learnt from the schema at run time, so cells are turned into values here and not by
//! the driver. A cell that is read shares the memory of the answer that brought it.

use bytes::Bytes;
use scylla::cluster::metadata::{ColumnType, NativeType};
use scylla::deserialize::row::{ColumnIterator, DeserializeRow};
use scylla::deserialize::{DeserializationError, TypeCheckError};
use scylla::errors::SerializationError;
use scylla::frame::response::result::ColumnSpec;
use scylla::serialize::value::SerializeValue;
use scylla::serialize::writers::{CellWriter, WrittenCellProof};

/// The cells of one row, in the order of the statement.
#[derive(Debug)]
pub(super) struct Cells(pub(super) Vec<Option<Bytes>>);

impl<'frame, 'metadata> DeserializeRow<'frame, 'metadata> for Cells {
    fn type_check(_specs: &[ColumnSpec]) -> Result<(), TypeCheckError> {
        Ok(())
    }

    fn deserialize(row: ColumnIterator<'frame, 'metadata>) -> Result<Self, DeserializationError> {
        let cells = row.map(|column| Ok(column?.slice.map(|slice| slice.to_bytes())));
        cells.collect::<Result<_, _>>().map(Self)
    }
}

impl Cells {
    pub(super) fn bytes(&mut self, column: usize) -> Option<Bytes> {
        self.0.get_mut(column)?.take()
    }

    pub(super) fn int(&self, column: usize) -> Option<i64> {
        int(self.0.get(column)?.as_deref()?)
    }

    pub(super) fn text(&self, column: usize) -> Option<String> {
        String::from_utf8(self.0.get(column)?.as_deref()?.to_vec()).ok()
    }
}

/// An integer of 1, 2, 4 or 8 bytes.
pub(super) fn int(bytes: &[u8]) -> Option<i64> {
    Some(match *bytes {
        [a] => i64::from(a as i8),
        [a, b] => i64::from(i16::from_be_bytes([a, b])),
        [a, b, c, d] => i64::from(i32::from_be_bytes([a, b, c, d])),
        _ => i64::from_be_bytes(bytes.try_into().ok()?),
    })
}

/// A value to be bound, already as CQL writes it.
#[derive(Clone, Debug)]
pub(super) enum Bound {
    Value(Bytes),
    /// Leaves what is there; null would write a tombstone.
    Unset,
}

impl Bound {
    pub(super) fn or_unset(value: Option<Bytes>) -> Self {
        value.map_or(Self::Unset, Self::Value)
    }

    pub(super) fn text(value: Option<&str>) -> Self {
        Self::or_unset(value.map(|text| Bytes::copy_from_slice(text.as_bytes())))
    }
}

impl SerializeValue for Bound {
    fn serialize<'b>(
        &self,
        typ: &ColumnType,
        writer: CellWriter<'b>,
    ) -> Result<WrittenCellProof<'b>, SerializationError> {
        match self {
            Self::Value(bytes) => {
                // A size or a label was made as eight bytes; the column may be narrower.
                let narrow = narrowed(typ, bytes);
                writer.set_value(narrow.unwrap_or(bytes)).map_err(SerializationError::new)
            }
            Self::Unset => Ok(writer.set_unset()),
        }
    }
}

/// The low bytes of an integer for a column of integers that has fewer. Whether it fits was checked before.
fn narrowed<'a>(typ: &ColumnType, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let width = match typ {
        ColumnType::Native(NativeType::TinyInt) => 1,
        ColumnType::Native(NativeType::SmallInt) => 2,
        ColumnType::Native(NativeType::Int) => 4,
        _ => return None,
    };
    bytes.get(bytes.len().checked_sub(width)?..)
}

/// The types of ids that can be keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdType {
    Uuid,
    Text,
    Int,
    BigInt,
}

impl IdType {
    pub(super) fn from_cql(name: &str) -> Option<Self> {
        Some(match name {
            "uuid" | "timeuuid" => Self::Uuid,
            "text" | "varchar" | "ascii" => Self::Text,
            "int" => Self::Int,
            "bigint" => Self::BigInt,
            _ => return None,
        })
    }

    /// The id that a key names. One id has one key: `07` and upper-case uuids name nothing.
    pub(super) fn parse(self, key: &str) -> Option<Bytes> {
        let bytes = match self {
            Self::Uuid => Bytes::copy_from_slice(&parse_uuid(key)?),
            Self::Text => Bytes::copy_from_slice(key.as_bytes()),
            Self::Int => Bytes::copy_from_slice(&key.parse::<i32>().ok()?.to_be_bytes()),
            Self::BigInt => Bytes::copy_from_slice(&key.parse::<i64>().ok()?.to_be_bytes()),
        };
        (self.format(&bytes)? == key).then_some(bytes)
    }

    /// The key of an id; `None` when the bytes are no such id.
    pub(super) fn format(self, bytes: &[u8]) -> Option<String> {
        match self {
            Self::Uuid => Some(format_uuid(bytes.try_into().ok()?)),
            Self::Text => String::from_utf8(bytes.to_vec()).ok(),
            Self::Int | Self::BigInt => int(bytes).map(|number| number.to_string()),
        }
    }
}

/// `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` in lower case.
pub(super) fn format_uuid(bytes: [u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
    text
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|letter| *letter != '-').collect();
    if digits.len() != 32 || !digits.is_ascii() || digits.starts_with('+') {
        return None;
    }
    u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_id_has_one_key() {
        for (id, key) in [(IdType::Int, "-7"), (IdType::BigInt, "5000000000"), (IdType::Text, "a/b.jpg")] {
            assert_eq!(id.format(&id.parse(key).unwrap()).unwrap(), key);
        }
        for (id, other) in
            [(IdType::Int, "07"), (IdType::Int, "+7"), (IdType::Int, "5000000000"), (IdType::Int, "x")]
        {
            assert!(id.parse(other).is_none(), "{other}");
        }
        let uuid = "00112233-4455-6677-8899-aabbccddeeff";
        assert_eq!(IdType::Uuid.format(&IdType::Uuid.parse(uuid).unwrap()).unwrap(), uuid);
        for other in [
            &uuid.to_uppercase(),
            "00112233445566778899aabbccddeeff",
            "0",
            "+0112233-4455-6677-8899-aabbccddeeff",
        ] {
            assert!(IdType::Uuid.parse(other).is_none(), "{other}");
        }
    }

    proptest! {
        #[test]
        fn any_cell_is_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
            let _ = int(&bytes);
            for id in [IdType::Uuid, IdType::Text, IdType::Int, IdType::BigInt] {
                if let Some(key) = id.format(&bytes) {
                    prop_assert!(id == IdType::Int || id.parse(&key).is_none_or(|back| back.len() <= 20));
                }
            }
        }

        #[test]
        fn uuids_are_written_and_read_alike(bytes in any::<[u8; 16]>()) {
            prop_assert_eq!(parse_uuid(&format_uuid(bytes)), Some(bytes));
        }
    }
}
