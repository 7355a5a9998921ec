//! The manifest: which samples a dataset has and where each field of each sample lies.
//!
//! One immutable run of bytes, memory-mapped or in memory, read in place: opening costs a header check and one
//! checksum pass, never a copy per sample. Columns have a fixed width chosen per column, keys are front-coded.
//! The byte layout is drawn in `docs/design/manifest.md`. Building happens in [`ManifestBuilder`]; finding samples
//! in folders and shards is the engine's business (`engine::source`).
//!
//! Bytes from outside never cause a panic: a checksum catches accidents when the manifest is opened, and every read
//! after that is bounds-checked, so that a writer who lies gets missing values and empty keys, nothing worse.

mod builder;
mod column;
mod format;
mod keys;

pub use builder::{ManifestBuilder, Value};

use crate::{Result, SampleId};
use column::{Column, to_signed};
use format::{Counts, Frame, Kind, MAX_META_BYTES, corrupt};
use keys::KeyTable;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// Where one field of one sample lies. `offset + length` never overflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// Number of the object in the manifest.
    pub object: u32,
    /// First byte inside the object.
    pub offset: u64,
    /// Bytes of the payload.
    pub length: u64,
}

/// What one column of the manifest holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// A payload in an object.
    Payload,
    /// An integer known to the manifest, such as a label.
    Int,
}

/// Name and kind of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldInfo {
    /// The name that recipes use.
    pub name: String,
    /// What the column holds.
    pub kind: FieldKind,
}

/// One stored object: a shard, a file, a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo<'a> {
    /// Key in the store.
    pub key: Cow<'a, str>,
    /// Bytes of the object when the manifest was built.
    pub size: u64,
    /// Modification time in nanoseconds or hash of the entity tag; 0 when unknown. The engine compares it, together
    /// with `size`, to notice that the object changed.
    pub stamp: u64,
}

/// An opened manifest. Clones share the bytes.
///
/// Sample ids, fields and objects outside the manifest are answered like missing ones: `None`, an empty key, zero.
#[derive(Clone)]
pub struct Manifest {
    inner: Arc<Inner>,
}

struct Inner {
    bytes: Box<dyn AsRef<[u8]> + Send + Sync>,
    counts: Counts,
    version: String,
    fields: Vec<FieldInfo>,
    columns: Vec<FieldColumns>,
    object_keys: KeyTable,
    object_sizes: Column,
    object_stamps: Column,
    object_first_samples: Column,
    /// `None` when sample `i` has the key of object `i`, as in trees of one file per sample.
    sample_keys: Option<KeyTable>,
    meta: serde_json::Value,
}

enum FieldColumns {
    Payload {
        offsets: Column,
        lengths: Column,
        /// Objects of payloads that lie elsewhere than in the sample's main object.
        objects: Option<Column>,
    },
    Int(Column),
}

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

    /// Number of samples.
    pub fn len(&self) -> u64 {
        self.inner.counts.samples
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The dataset's version: 128 bits in hex over objects with their sizes and stamps, keys, fields, locations and
    /// integers. The meta text does not enter it.
    pub fn version(&self) -> &str {
        &self.inner.version
    }

    /// The fields, in the order of their indexes.
    pub fn fields(&self) -> &[FieldInfo] {
        &self.inner.fields
    }

    /// Index of the field with this name.
    pub fn field_index(&self, name: &str) -> Option<usize> {
        self.inner.fields.iter().position(|field| field.name == name)
    }

    /// Where the payload lies; `None` when the sample has no such field or the field holds integers.
    pub fn location(&self, sample: SampleId, field: usize) -> Option<Location> {
        let FieldColumns::Payload { offsets, lengths, objects } = self.inner.columns.get(field)? else {
            return None;
        };
        let bytes = self.as_bytes();
        let length = lengths.get(bytes, sample.0)?;
        let offset = offsets.get(bytes, sample.0)?;
        offset.checked_add(length)?;
        let object = match objects.as_ref().and_then(|column| column.get(bytes, sample.0)) {
            Some(object) => u32::try_from(object).ok().filter(|object| *object < self.object_count())?,
            None => self.object_of(sample),
        };
        Some(Location { object, offset, length })
    }

    /// The integer; `None` when the sample has no such field or the field holds payloads.
    pub fn int(&self, sample: SampleId, field: usize) -> Option<i64> {
        match self.inner.columns.get(field)? {
            FieldColumns::Int(column) => column.get(self.as_bytes(), sample.0).map(to_signed),
            FieldColumns::Payload { .. } => None,
        }
    }

    /// The sample's key. Costs at most sixteen steps of decoding and one allocation.
    pub fn key(&self, sample: SampleId) -> String {
        self.sample_keys().get(self.as_bytes(), sample.0).into_owned()
    }

    /// The first sample with this key. Walks over all keys: for people and tests, not for the path of the data.
    pub fn find_key(&self, key: &str) -> Option<SampleId> {
        self.sample_keys().position(self.as_bytes(), key).map(SampleId)
    }

    /// Number of objects.
    pub fn object_count(&self) -> u32 {
        self.inner.counts.objects
    }

    /// Key, size and stamp of an object.
    pub fn object(&self, object: u32) -> ObjectInfo<'_> {
        let (inner, bytes, index) = (&*self.inner, self.as_bytes(), u64::from(object));
        ObjectInfo {
            key: inner.object_keys.get(bytes, index),
            size: inner.object_sizes.get(bytes, index).unwrap_or(0),
            stamp: inner.object_stamps.get(bytes, index).unwrap_or(0),
        }
    }

    /// The sample's main object, found by bisection.
    pub fn object_of(&self, sample: SampleId) -> u32 {
        let count = self.object_count();
        // One file per sample is so common that its answer is tried first.
        let guess = u32::try_from(sample.0).unwrap_or(u32::MAX);
        if guess < count && self.samples_of(guess).contains(&sample.0) {
            return guess;
        }
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.first_sample(middle) <= sample.0 {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.saturating_sub(1)
    }

    /// Samples whose main object this is: a run of sample ids, empty for an object without samples.
    pub fn samples_of(&self, object: u32) -> Range<u64> {
        let start = self.first_sample(object);
        start..object.checked_add(1).map_or(self.len(), |next| self.first_sample(next)).max(start)
    }

    /// Bytes of all payload fields of one sample, for budgets.
    pub fn sample_bytes(&self, sample: SampleId) -> u64 {
        let bytes = self.as_bytes();
        let lengths = self.inner.columns.iter().filter_map(|columns| match columns {
            FieldColumns::Payload { lengths, .. } => lengths.get(bytes, sample.0),
            FieldColumns::Int(_) => None,
        });
        lengths.fold(0, u64::saturating_add)
    }

    /// Bytes of all payloads of all samples, as counted when the manifest was built.
    pub fn total_bytes(&self) -> u64 {
        self.inner.counts.total_bytes
    }

    /// The largest [`Self::sample_bytes`], as counted when the manifest was built.
    pub fn largest_sample_bytes(&self) -> u64 {
        self.inner.counts.largest_sample_bytes
    }

    /// Facts for people and for the source: its kind (`tar`, `tree`, `table`, `synthetic`), spec, class names and
    /// how the manifest was built.
    pub fn meta(&self) -> &serde_json::Value {
        &self.inner.meta
    }

    /// The whole file.
    pub fn as_bytes(&self) -> &[u8] {
        (*self.inner.bytes).as_ref()
    }

    fn sample_keys(&self) -> &KeyTable {
        self.inner.sample_keys.as_ref().unwrap_or(&self.inner.object_keys)
    }

    /// First sample of an object; the number of samples when there is no such object.
    fn first_sample(&self, object: u32) -> u64 {
        self.inner.object_first_samples.get(self.as_bytes(), u64::from(object)).unwrap_or(self.len())
    }
}

impl std::fmt::Debug for Manifest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manifest")
            .field("version", &self.version())
            .field("samples", &self.len())
            .field("objects", &self.object_count())
            .field("fields", &self.fields())
            .finish_non_exhaustive()
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
        return Err(corrupt(format!("the meta text has {} bytes, at most {MAX_META_BYTES} can be", text.len())));
    }
    serde_json::from_slice(text).map_err(|error| corrupt("the meta text is not JSON").with_source(error))
}

#[cfg(test)]
mod tests;
