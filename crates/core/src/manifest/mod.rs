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
mod open;

pub use builder::{ManifestBuilder, Value};

use crate::SampleId;
use column::{Column, to_signed};
use format::Counts;
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

#[cfg(test)]
mod tests;
