//! Building a manifest: objects and samples are added in order, then everything is written at once.
//!
//! The same calls give the same bytes. Values are kept as plain integers until the end, because widths and bases are
//! known only then: about 32 bytes a sample for two payload fields.

use super::column::{ColumnBuilder, RESERVED, from_signed};
use super::format::{Counts, Kind, MAX_FIELDS, MAX_META_BYTES, Writer};
use super::keys::KeyTableBuilder;
use super::{FieldInfo, FieldKind};
use crate::{Error, Result, SampleId};

/// One value of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A payload in an object.
    Payload {
        /// The object that holds it; `None` is the one added last.
        object: Option<u32>,
        /// First byte inside the object.
        offset: u64,
        /// Bytes of the payload.
        length: u64,
    },
    /// An integer, such as a label. `i64::MIN` cannot be stored.
    Int(i64),
}

/// Collects objects and samples and writes the manifest.
pub struct ManifestBuilder {
    fields: Vec<FieldInfo>,
    columns: Vec<Columns>,
    meta: serde_json::Value,
    object_keys: KeyTableBuilder,
    object_sizes: ColumnBuilder,
    object_stamps: ColumnBuilder,
    object_first_samples: ColumnBuilder,
    sample_keys: KeyTableBuilder,
    /// So far sample `i` has the key of object `i`.
    keys_mirror_objects: bool,
    counts: Counts,
}

enum Columns {
    Payload { offsets: ColumnBuilder, lengths: ColumnBuilder, objects: ColumnBuilder },
    Int(ColumnBuilder),
}

impl ManifestBuilder {
    /// A builder with the fields known so far; [`Self::field`] adds others as they are found. `meta` is kept as it
    /// is and does not enter the version.
    pub fn new(fields: Vec<FieldInfo>, meta: serde_json::Value) -> Self {
        Self {
            columns: fields.iter().map(|field| Columns::new(field.kind)).collect(),
            fields,
            meta,
            object_keys: KeyTableBuilder::new(),
            object_sizes: ColumnBuilder::required(),
            object_stamps: ColumnBuilder::required(),
            object_first_samples: ColumnBuilder::required(),
            sample_keys: KeyTableBuilder::new(),
            keys_mirror_objects: true,
            counts: Counts::default(),
        }
    }

    /// Index of the field with this name, which is added when it is new; samples added before do not have it.
    pub fn field(&mut self, name: &str, kind: FieldKind) -> Result<usize> {
        if let Some(index) = self.fields.iter().position(|field| field.name == name) {
            let known = self.fields[index].kind;
            if known != kind {
                return Err(Error::invalid_config(format!(
                    "add field `{name}` to a manifest: it is {} for some samples and {} for others",
                    word(known),
                    word(kind)
                )));
            }
            return Ok(index);
        }
        if self.fields.len() >= MAX_FIELDS {
            return Err(Error::exhausted(format!(
                "add field `{name}` to a manifest: it has {MAX_FIELDS} fields already"
            ))
            .with_hint("check how keys are split into sample key and field: a manifest has few fields and many samples"));
        }
        self.fields.push(FieldInfo { name: name.to_owned(), kind });
        self.columns.push(Columns::new(kind));
        Ok(self.fields.len() - 1)
    }

    /// Adds an object; samples added from now on belong to it. `stamp` is the modification time in nanoseconds or a
    /// hash of the entity tag, 0 when unknown.
    pub fn add_object(&mut self, key: &str, size: u64, stamp: u64) -> Result<u32> {
        let object = self.counts.objects;
        if object == u32::MAX {
            return Err(Error::exhausted(format!(
                "add object `{key}` to a manifest: it has {object} already"
            )));
        }
        self.object_keys.push(key)?;
        self.object_sizes.push(size);
        self.object_stamps.push(stamp);
        self.object_first_samples.push(self.counts.samples);
        self.counts.objects += 1;
        Ok(object)
    }

    /// Adds a sample to the object added last. Each value names its field by index; fields that are not named are
    /// missing from the sample. On an error the sample is not added.
    pub fn add_sample(&mut self, key: &str, values: &[(usize, Value)]) -> Result<SampleId> {
        let (main_object, bytes) = self.check_sample(key, values)?;
        self.sample_keys.push(key)?;
        let sample = self.counts.samples;
        self.keys_mirror_objects &=
            sample == u64::from(main_object) && self.object_keys.last() == key.as_bytes();
        for (field, value) in values {
            self.columns[*field].set(sample, *value, main_object);
        }
        self.counts.samples += 1;
        self.counts.total_bytes = self.counts.total_bytes.saturating_add(bytes);
        self.counts.largest_sample_bytes = self.counts.largest_sample_bytes.max(bytes);
        Ok(SampleId(sample))
    }

    /// Samples added so far.
    pub fn len(&self) -> u64 {
        self.counts.samples
    }

    /// Whether no sample was added yet.
    pub fn is_empty(&self) -> bool {
        self.counts.samples == 0
    }

    /// Writes the whole manifest, ready for [`super::Manifest::open`].
    pub fn finish(mut self) -> Result<Vec<u8>> {
        self.counts.fields = self.fields.len() as u32;
        let (samples, objects) = (self.counts.samples, u64::from(self.counts.objects));
        let mut writer = Writer::default();
        writer.bytes(Kind::Fields, write_fields(&self.fields)?);
        self.object_keys.finish(&mut writer, (Kind::ObjectKeyRestarts, Kind::ObjectKeyText));
        writer.column(Kind::ObjectSizes, 0, self.object_sizes, objects);
        writer.column(Kind::ObjectStamps, 0, self.object_stamps, objects);
        writer.column(Kind::ObjectFirstSamples, 0, self.object_first_samples, objects);
        if !self.keys_mirror_objects || samples != objects {
            self.sample_keys.finish(&mut writer, (Kind::SampleKeyRestarts, Kind::SampleKeyText));
        }
        for (field, columns) in self.columns.into_iter().enumerate() {
            match columns {
                Columns::Int(ints) => writer.column(Kind::Ints, field, ints, samples),
                Columns::Payload { offsets, lengths, objects } => {
                    writer.column(Kind::PayloadOffsets, field, offsets, samples);
                    writer.column(Kind::PayloadLengths, field, lengths, samples);
                    if !objects.is_empty() {
                        writer.column(Kind::PayloadObjects, field, objects, samples);
                    }
                }
            }
        }
        let meta = self.meta.to_string().into_bytes();
        if meta.len() > MAX_META_BYTES {
            return Err(Error::exhausted(format!(
                "write manifest: the meta text has {} bytes, at most {MAX_META_BYTES} can be",
                meta.len()
            )));
        }
        writer.bytes(Kind::Meta, meta);
        Ok(writer.finish(&self.counts))
    }

    /// Checks all values before anything is changed; returns the main object and the sum of the payload bytes.
    fn check_sample(&self, key: &str, values: &[(usize, Value)]) -> Result<(u32, u64)> {
        let fault = |why: String| Error::internal(format!("add sample `{key}` to a manifest: {why}"));
        let Some(main_object) = self.counts.objects.checked_sub(1) else {
            return Err(fault("no object was added before it".into()));
        };
        let mut bytes = 0u64;
        for (at, (field, value)) in values.iter().enumerate() {
            if values[..at].iter().any(|(other, _)| other == field) {
                return Err(fault(format!("field {field} is given twice")));
            }
            match (self.columns.get(*field), value) {
                (Some(Columns::Payload { .. }), Value::Payload { object, offset, length }) => {
                    if object.is_some_and(|object| object >= self.counts.objects) {
                        return Err(fault(format!("object {} was not added", object.unwrap_or_default())));
                    }
                    if offset.checked_add(*length).is_none_or(|end| end == RESERVED) {
                        return Err(fault(format!("{length} bytes at {offset} end beyond any object")));
                    }
                    bytes = bytes.saturating_add(*length);
                }
                (Some(Columns::Int(_)), Value::Int(int)) if from_signed(*int) != RESERVED => {}
                (Some(Columns::Int(_)), Value::Int(int)) => {
                    return Err(Error::unsupported(format!(
                        "add sample `{key}` to a manifest: {int} stands for a missing integer"
                    )));
                }
                (Some(_), _) => return Err(fault(format!("field {field} is of the other kind"))),
                (None, _) => return Err(fault(format!("field {field} was not added"))),
            }
        }
        Ok((main_object, bytes))
    }
}

impl Columns {
    fn new(kind: FieldKind) -> Self {
        match kind {
            FieldKind::Int => Self::Int(ColumnBuilder::nullable()),
            FieldKind::Payload => Self::Payload {
                offsets: ColumnBuilder::nullable(),
                lengths: ColumnBuilder::nullable(),
                objects: ColumnBuilder::nullable(),
            },
        }
    }

    fn set(&mut self, sample: u64, value: Value, main_object: u32) {
        match (self, value) {
            (Self::Int(ints), Value::Int(int)) => ints.set(sample, from_signed(int)),
            (Self::Payload { offsets, lengths, objects }, Value::Payload { object, offset, length }) => {
                offsets.set(sample, offset);
                lengths.set(sample, length);
                // Only payloads that lie elsewhere are noted, so most manifests have no object column at all.
                if let Some(object) = object.filter(|object| *object != main_object) {
                    objects.set(sample, u64::from(object));
                }
            }
            _ => debug_assert!(false, "kinds were checked before"),
        }
    }
}

fn write_fields(fields: &[FieldInfo]) -> Result<Vec<u8>> {
    if fields.len() > MAX_FIELDS {
        return Err(Error::exhausted(format!(
            "write manifest: it has {} fields, at most {MAX_FIELDS} can be",
            fields.len()
        )));
    }
    let mut bytes = Vec::new();
    for (at, field) in fields.iter().enumerate() {
        if fields[..at].iter().any(|other| other.name == field.name) {
            return Err(Error::invalid_config(format!(
                "write manifest: field `{}` is there twice",
                field.name
            )));
        }
        let length = u16::try_from(field.name.len()).map_err(|_| {
            Error::unsupported(format!("write manifest: a field name has {} bytes", field.name.len()))
        })?;
        bytes.push(u8::from(field.kind == FieldKind::Int));
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(field.name.as_bytes());
    }
    Ok(bytes)
}

fn word(kind: FieldKind) -> &'static str {
    match kind {
        FieldKind::Payload => "a payload",
        FieldKind::Int => "an integer",
    }
}
