//! A sample between its old place and its new shard, and the bytes that it is while it waits.

use crate::shard::{Cell, KEY_FEATURE, ShardWriter};
use crate::source::FieldValue;
use bytes::{Buf, Bytes};
use forebay_core::{Error, Result};
use std::io::{self, Write};

/// What [`Held::encode`] writes beside keys, names and values: for a sample, and for each of its fields.
pub(super) const SAMPLE_FRAME: u64 = 8;
pub(super) const FIELD_FRAME: u64 = 8 + 9 + 8;

/// A sample with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) position: u64,
    pub(super) key: String,
    pub(super) fields: Vec<(String, FieldValue)>,
}

impl Held {
    /// A sample under the names that shards can hold: its key is what the sample says itself, and no field has a `/`. A
    /// record of TFRecord is left as it is.
    pub(super) fn new(position: u64, mut key: String, mut fields: Vec<(String, FieldValue)>) -> Self {
        let said = fields.iter().find_map(|(name, value)| match value {
            FieldValue::Payload(own) if name == KEY_FEATURE => {
                std::str::from_utf8(own).ok().map(str::to_owned)
            }
            _ => None,
        });
        if let Some(own) = said {
            fields.retain(|(name, _)| name != KEY_FEATURE);
            key = own;
        }
        for (name, _) in &mut fields {
            *name = name.replace('/', ".");
        }
        Self { position, key, fields }
    }

    /// Adds the sample to a shard.
    pub(super) fn write(&self, writer: &mut ShardWriter) -> Result<()> {
        let cell = |value| match value {
            &FieldValue::Int(value) => Cell::Int(value),
            FieldValue::Payload(bytes) => Cell::Bytes(bytes),
            FieldValue::Record(payload) => Cell::Record(payload),
        };
        let cells: Vec<(&str, Cell<'_>)> =
            self.fields.iter().map(|(name, value)| (name.as_str(), cell(value))).collect();
        writer.add_cells(&self.key, &cells)
    }

    /// How many bytes [`Self::encode`] writes.
    pub(super) fn length(&self) -> u64 {
        let value = |value: &FieldValue| match value {
            FieldValue::Payload(bytes) | FieldValue::Record(bytes) => bytes.len() as u64,
            FieldValue::Int(_) => 8,
        };
        let fields = self.fields.iter().map(|(name, held)| FIELD_FRAME + name.len() as u64 + value(held));
        SAMPLE_FRAME + self.key.len() as u64 + fields.sum::<u64>()
    }

    /// Writes all but the position.
    pub(super) fn encode(&self, to: &mut impl Write) -> io::Result<()> {
        let mut put = |bytes: &[u8]| {
            to.write_all(&(bytes.len() as u64).to_le_bytes())?;
            to.write_all(bytes)
        };
        put(self.key.as_bytes())?;
        for (name, value) in &self.fields {
            put(name.as_bytes())?;
            match value {
                FieldValue::Payload(bytes) => {
                    put(&[0])?;
                    put(bytes)?;
                }
                FieldValue::Int(value) => {
                    put(&[1])?;
                    put(&value.to_le_bytes())?;
                }
                FieldValue::Record(payload) => {
                    put(&[2])?;
                    put(payload)?;
                }
            }
        }
        Ok(())
    }

    /// What [`Self::encode`] wrote. The bytes are our own, so that anything else in them is our fault.
    pub(super) fn decode(position: u64, mut bytes: Bytes) -> Result<Self> {
        let broken = || Error::internal("a temporary file holds something else than was written to it");
        let mut next = || {
            if bytes.is_empty() {
                return Ok(None);
            }
            let length = if bytes.len() < 8 { usize::MAX } else { bytes.get_u64_le() as usize };
            if length > bytes.len() {
                return Err(broken());
            }
            Ok(Some(bytes.split_to(length)))
        };
        let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).map_err(|_| broken());
        let key = text(next()?.ok_or_else(broken)?)?;
        let mut fields = Vec::new();
        while let Some(name) = next()? {
            let (kind, value) = (next()?.ok_or_else(broken)?, next()?.ok_or_else(broken)?);
            let value = match &kind[..] {
                [0] => FieldValue::Payload(value),
                [2] => FieldValue::Record(value),
                _ => FieldValue::Int(value[..].try_into().map(i64::from_le_bytes).map_err(|_| broken())?),
            };
            fields.push((text(name)?, value));
        }
        Ok(Self { position, key, fields })
    }
}
