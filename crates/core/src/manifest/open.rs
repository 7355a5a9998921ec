//! Opening a manifest: the frame is parsed, then each section is taken in its place and checked against the counts.

use super::column::Column;
use super::format::{Frame, Kind, MAX_META_BYTES, corrupt};
use super::keys::KeyTable;
use super::{FieldColumns, FieldInfo, FieldKind, Inner, Manifest};
use crate::Result;
use std::sync::Arc;

impl Manifest {
    /// Opens a manifest from bytes, usually a memory map: checks magic, format version, checksum and the bounds of
    /// every section. Allocates per field, never per sample.
    pub fn open(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Self> {
        let view = bytes.as_ref();
        let mut frame = Frame::parse(view)?;
        let counts = frame.counts.clone();
        let objects = u64::from(counts.objects);
        let fields = parse_fields(view, &mut frame)?;
        let object_keys =
            KeyTable::take(&mut frame, view, (Kind::ObjectKeyRestarts, Kind::ObjectKeyText), objects)?;
        let object_sizes = Column::new(frame.take(Kind::ObjectSizes, 0)?, objects)?;
        let object_stamps = Column::new(frame.take(Kind::ObjectStamps, 0)?, objects)?;
        let object_first_samples = Column::new(frame.take(Kind::ObjectFirstSamples, 0)?, objects)?;
        let covers_all = counts.samples == 0 || object_first_samples.get(view, 0) == Some(0);
        if !covers_all || !object_first_samples.is_ascending(view, counts.samples) {
            return Err(corrupt("the objects do not divide the samples among them"));
        }
        let sample_keys = if objects == counts.samples && !frame.next_is(Kind::SampleKeyRestarts, 0) {
            None
        } else {
            let kinds = (Kind::SampleKeyRestarts, Kind::SampleKeyText);
            Some(KeyTable::take(&mut frame, view, kinds, counts.samples)?)
        };
        let columns = fields
            .iter()
            .enumerate()
            .map(|(field, info)| FieldColumns::take(&mut frame, info.kind, field, counts.samples))
            .collect::<Result<_>>()?;
        let meta = parse_meta(view, &mut frame)?;
        let version = format!("{:032x}", frame.version);
        frame.end()?;
        let inner = Inner {
            bytes: Box::new(bytes),
            counts,
            version,
            fields,
            columns,
            object_keys,
            object_sizes,
            object_stamps,
            object_first_samples,
            sample_keys,
            meta,
        };
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl FieldColumns {
    fn take(frame: &mut Frame, kind: FieldKind, field: usize, samples: u64) -> Result<Self> {
        match kind {
            FieldKind::Int => Ok(Self::Int(Column::new(frame.take(Kind::Ints, field)?, samples)?)),
            FieldKind::Payload => {
                let offsets = Column::new(frame.take(Kind::PayloadOffsets, field)?, samples)?;
                let lengths = Column::new(frame.take(Kind::PayloadLengths, field)?, samples)?;
                let objects = frame.take_if(Kind::PayloadObjects, field);
                let objects = objects.map(|section| Column::new(section, samples)).transpose()?;
                Ok(Self::Payload { offsets, lengths, objects })
            }
        }
    }
}

/// Reads the field list: for each a kind byte, a two-byte length and the name.
fn parse_fields(bytes: &[u8], frame: &mut Frame) -> Result<Vec<FieldInfo>> {
    let mut text = bytes.get(frame.take(Kind::Fields, 0)?.range).unwrap_or_default();
    let mut fields = Vec::with_capacity(frame.counts.fields as usize);
    for index in 0..frame.counts.fields {
        let parsed = parse_field(&mut text);
        fields.push(parsed.ok_or_else(|| corrupt(format!("field {index} cannot be read")))?);
    }
    if text.is_empty() { Ok(fields) } else { Err(corrupt("bytes follow the last field")) }
}

fn parse_field(text: &mut &[u8]) -> Option<FieldInfo> {
    let (&[kind, low, high], rest) = text.split_first_chunk()?;
    let (name, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([low, high])))?;
    *text = rest;
    let kind = match kind {
        0 => FieldKind::Payload,
        1 => FieldKind::Int,
        _ => return None,
    };
    Some(FieldInfo { name: std::str::from_utf8(name).ok()?.to_owned(), kind })
}

fn parse_meta(bytes: &[u8], frame: &mut Frame) -> Result<serde_json::Value> {
    let text = bytes.get(frame.take(Kind::Meta, 0)?.range).unwrap_or_default();
    if text.len() > MAX_META_BYTES {
        return Err(corrupt(format!(
            "the meta text has {} bytes, at most {MAX_META_BYTES} can be",
            text.len()
        )));
    }
    serde_json::from_slice(text).map_err(|error| corrupt("the meta text is not JSON").with_source(error))
}
