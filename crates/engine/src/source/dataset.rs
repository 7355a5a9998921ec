//! [`Dataset`]: a manifest together with the store that its locations point into.

use super::options::SourceKind;
use super::origin::DataSpec;
use crate::inputs::field_names;
use bytes::Bytes;
use forebay_core::manifest::{FieldKind, Location, Manifest};
use forebay_core::plan::mix::MixPart;
use forebay_core::{Error, Facts, Result, SampleId};
use forebay_store::{ByteRange, Store};
use std::ops::Range;
use std::sync::Arc;

/// A field of a sample, read whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldValue {
    /// The payload as stored, still encoded.
    Payload(Bytes),
    /// An integer that the manifest holds.
    Int(i64),
    /// The payload of a record of TFRecord with all that it holds. [`Dataset::read_for_tfrecord`] alone gives it.
    Record(Bytes),
}

/// A versioned set of samples that can be read. Clones share everything.
#[derive(Clone, Debug)]
pub struct Dataset {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    manifest: Manifest,
    store: Arc<dyn Store>,
    url: String,
    kind: SourceKind,
    class_names: Option<Vec<String>>,
    notes: Vec<String>,
    mix: Option<Vec<MixPart>>,
    /// How many parts of the mix each of the datasets has that it was made of.
    mixed: Vec<usize>,
    origin: Option<DataSpec>,
}

impl Dataset {
    /// A dataset from a manifest and the store it was built over. `url` names it in messages.
    pub fn new(manifest: Manifest, store: Arc<dyn Store>, url: impl Into<String>) -> Result<Self> {
        Self::with_notes(manifest, store, url.into(), Vec::new())
    }

    pub(super) fn with_notes(
        manifest: Manifest,
        store: Arc<dyn Store>,
        url: String,
        notes: Vec<String>,
    ) -> Result<Self> {
        let inner = Inner::new(manifest, store, url, notes)?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The dataset that several make up together.
    pub(super) fn of_parts(
        manifest: Manifest,
        store: Arc<dyn Store>,
        url: String,
        notes: Vec<String>,
        (parts, mixed): (Vec<MixPart>, Vec<usize>),
    ) -> Result<Self> {
        let inner = Inner { mix: Some(parts), mixed, ..Inner::new(manifest, store, url, notes)? };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The same dataset, with how it was opened.
    pub(super) fn with_origin(mut self, origin: DataSpec) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.origin = Some(origin);
        }
        self
    }

    /// The same dataset, with something more that the user may want to know.
    pub(super) fn with_note(mut self, note: String) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.notes.push(note);
        }
        self
    }

    /// How another process can open it; `None` when it was not opened from a spec.
    pub fn origin(&self) -> Option<&DataSpec> {
        self.inner.origin.as_ref()
    }

    /// Which samples there are and where each lies.
    pub fn manifest(&self) -> &Manifest {
        &self.inner.manifest
    }

    /// The store that the manifest's objects are keys of.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// The dataset's name in messages: the spec as given.
    pub fn url(&self) -> &str {
        &self.inner.url
    }

    /// Names of the classes in the order of their numbers, when the source has names.
    pub fn class_names(&self) -> Option<&[String]> {
        self.inner.class_names.as_deref()
    }

    /// How it is stored.
    pub fn kind(&self) -> SourceKind {
        self.inner.kind
    }

    /// The runs of samples and the weights of a mix, for `LoaderConfig::mix`; `None` when this is one dataset.
    pub fn mix(&self) -> Option<&[MixPart]> {
        self.inner.mix.as_deref()
    }

    /// A weight for each part of the mix. Weights of the datasets that it was made of are shared out among the parts of each
    /// by their own weights; others are given back as they are.
    pub fn mix_weights(&self, weights: &[f64]) -> Vec<f64> {
        let Some(parts) = self.mix().filter(|parts| parts.len() != weights.len()) else {
            return weights.to_vec();
        };
        if weights.len() != self.inner.mixed.len() {
            return weights.to_vec();
        }
        let mut rest = parts;
        let shared = self.inner.mixed.iter().zip(weights).flat_map(|(count, weight)| {
            let (own, others) = rest.split_at(*count);
            rest = others;
            let total: f64 = own.iter().map(|part| part.weight).sum();
            own.iter().map(move |part| weight * (part.weight / total))
        });
        shared.collect()
    }

    /// What happened while opening that the user may want to know, for example that the manifest was stale.
    pub fn notes(&self) -> &[String] {
        &self.inner.notes
    }

    /// A part of one payload. The range counts from the payload's first byte and may not leave it.
    pub async fn read_field(&self, sample: SampleId, field: usize, range: ByteRange) -> Result<Bytes> {
        let manifest = self.manifest();
        let Some(info) = manifest.fields().get(field) else {
            let have = manifest.fields().len();
            return Err(Error::invalid_config(format!(
                "read field {field} of sample {sample}: there are {have}"
            )));
        };
        let Some(location) = manifest.location(sample, field) else {
            return Err(self.missing(sample, field));
        };
        let object = manifest.object(location.object);
        let facts = Facts {
            sample_id: Some(sample),
            key: Some(manifest.key(sample)),
            object: Some(self.store().url(&object.key)),
            offset: Some(location.offset),
            field: Some(info.name.clone()),
            ..Facts::default()
        };
        let doing = |error: Error| {
            let what = format!("read field `{}` of sample `{}`", info.name, manifest.key(sample));
            error.while_doing(what).with_facts(facts.clone())
        };
        let wanted = inside(location, range).map_err(doing)?;
        let whole = self.store().is_remote();
        let wanted = if whole { ByteRange::within(wanted, object.size) } else { wanted.into() };
        self.store().read(&object.key, wanted).await.map_err(doing)
    }

    /// Names of the fields that recipes may use, and whether each is an integer kept in the manifest. Fields inside
    /// of records stand by their own names.
    pub fn fields(&self) -> Result<Vec<(String, bool)>> {
        field_names(self.manifest())
    }

    fn missing(&self, sample: SampleId, field: usize) -> Error {
        let manifest = self.manifest();
        let info = &manifest.fields()[field];
        if sample.0 >= manifest.len() {
            let message =
                format!("read sample {sample} of `{}`: it has {} samples", self.url(), manifest.len());
            return Error::not_found(message);
        }
        let why = match info.kind {
            FieldKind::Int => "it is a number in the manifest and has no bytes",
            FieldKind::Payload => "this sample has no such field",
        };
        let (key, name) = (manifest.key(sample), &info.name);
        let facts = Facts {
            sample_id: Some(sample),
            key: Some(key.clone()),
            field: Some(name.clone()),
            ..Facts::default()
        };
        Error::not_found(format!("read field `{name}` of sample `{key}`: {why}")).with_facts(facts)
    }
}

impl Inner {
    fn new(manifest: Manifest, store: Arc<dyn Store>, url: String, notes: Vec<String>) -> Result<Self> {
        let kind = manifest.meta().get("kind").and_then(|kind| kind.as_str());
        let kind = kind.and_then(SourceKind::from_name).ok_or_else(|| {
            Error::corrupt(format!(
                "open dataset `{url}`: its manifest does not say how the dataset is stored"
            ))
        })?;
        let class_names = manifest.meta().get("class_names").and_then(|names| {
            names.as_array()?.iter().map(|name| name.as_str().map(str::to_string)).collect()
        });
        Ok(Self {
            manifest,
            store,
            url,
            kind,
            class_names,
            notes,
            mix: None,
            mixed: Vec::new(),
            origin: None,
        })
    }
}

/// The range of the object that a range of the payload means.
fn inside(location: Location, range: ByteRange) -> Result<Range<u64>> {
    let range = range.resolve(location.length)?;
    Ok(location.offset + range.start..location.offset + range.end)
}
