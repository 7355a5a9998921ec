//! The wire form of protocol buffers, as much of it as `tf.Example` needs: fields of one message, in order.
//!
//! Nothing is copied and nothing allocated: values are slices of the message.

use forebay_core::{Error, Result};

/// One field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    /// An integer of varying length.
    Varint(u64),
    /// Eight bytes.
    Fixed64([u8; 8]),
    /// Text, bytes, a message or packed numbers.
    Bytes(&'a [u8]),
    /// Four bytes.
    Fixed32([u8; 4]),
}

/// The fields of a message: number and value.
#[derive(Clone, Debug)]
pub struct Message<'a>(&'a [u8]);

impl<'a> Message<'a> {
    /// A message that takes all of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn field(&mut self) -> Result<(u64, Field<'a>)> {
        let tag = varint(&mut self.0)?;
        let value = match tag & 7 {
            0 => Field::Varint(varint(&mut self.0)?),
            1 => Field::Fixed64(self.array()?),
            2 => {
                let length = varint(&mut self.0)?;
                Field::Bytes(self.split(usize::try_from(length).unwrap_or(usize::MAX))?)
            }
            5 => Field::Fixed32(self.array()?),
            other => return Err(Error::corrupt(format!("a field has wire type {other}"))),
        };
        match tag >> 3 {
            0 => Err(Error::corrupt("a field has number 0")),
            number => Ok((number, value)),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let part = self.split(N)?;
        part.try_into().map_err(|_| Error::internal("split a message"))
    }

    fn split(&mut self, length: usize) -> Result<&'a [u8]> {
        let Some((part, rest)) = self.0.split_at_checked(length) else {
            let left = self.0.len();
            return Err(Error::corrupt(format!("a field of {length} bytes is cut after {left}")));
        };
        self.0 = rest;
        Ok(part)
    }
}

impl<'a> Iterator for Message<'a> {
    type Item = Result<(u64, Field<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

/// Takes an integer off the front: seven bits a byte, low ones first, at most ten bytes.
pub fn varint(bytes: &mut &[u8]) -> Result<u64> {
    let mut value = 0u64;
    for (at, byte) in bytes.iter().take(10).enumerate() {
        // The tenth byte holds the last bit; what is above is thrown away, as the reference readers do.
        value |= u64::from(byte & 0x7f).wrapping_shl(7 * at as u32);
        if byte & 0x80 == 0 {
            *bytes = &bytes[at + 1..];
            return Ok(value);
        }
    }
    Err(Error::corrupt("an integer has no end"))
}

/// Writes an integer.
pub fn put_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// Writes a field of bytes.
pub fn put_bytes(to: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    put_varint(to, number << 3 | 2);
    put_varint(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn integers_read_back(value: u64) {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            let mut left = bytes.as_slice();
            prop_assert_eq!(varint(&mut left).unwrap(), value);
            prop_assert!(left.is_empty());
        }

        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let count = Message::new(&bytes).count();
            prop_assert!(count <= bytes.len());
        }
    }
}
