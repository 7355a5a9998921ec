//! Datasets that need no storage: every byte is computed from the seed and its place when it is read.
//!
//! Used to measure the plane without a disk, and in tests. The bytes of a range do not depend on how they are asked
//! for, and nothing is held in memory but the manifest.

use super::dataset::Dataset;
use super::options::OpenOptions;
use super::origin::DataSpec;
use bytes::Bytes;
use forebay_core::manifest::{FieldInfo, FieldKind, Manifest, ManifestBuilder, Value};
use forebay_core::rng::{fold, mix64};
use forebay_core::{Error, Result};
use forebay_store::{ByteRange, ObjectMeta, Store};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use std::ops::Range;
use std::sync::Arc;

/// What the payloads are.
#[derive(Clone, Debug)]
pub enum SyntheticPayload {
    /// Noise of so many bytes for each sample.
    Noise {
        /// Bytes of each payload.
        bytes: u64,
    },
    /// Each sample is one of these, drawn by the seed: for example a few encoded images.
    Templates(Vec<Bytes>),
}

/// Describes a synthetic dataset.
#[derive(Clone, Debug)]
pub struct SyntheticSpec {
    /// Number of samples.
    pub samples: u64,
    /// Name of the payload's field.
    pub field: String,
    /// What the payloads are.
    pub payload: SyntheticPayload,
    /// Labels in the field `cls` are below this.
    pub classes: u64,
    /// Noise is spread over so many objects, so that shard-wise shuffling has something to work on.
    pub shards: u32,
    /// Decides every byte and every label.
    pub seed: u64,
}

impl Default for SyntheticSpec {
    fn default() -> Self {
        Self {
            samples: 1000,
            field: "bin".into(),
            payload: SyntheticPayload::Noise { bytes: 4096 },
            classes: 10,
            shards: 1,
            seed: 0,
        }
    }
}

impl SyntheticSpec {
    /// Reads `synthetic://?samples=1000&bytes=4096&classes=10&shards=4&seed=0`; every part may be left out. `None`
    /// when the URL is of another scheme.
    pub fn from_url(url: &str) -> Result<Option<Self>> {
        let Some(rest) = url.strip_prefix("synthetic://") else { return Ok(None) };
        let mut spec = Self::default();
        let words = rest.trim_start_matches('?').split('&').filter(|word| !word.is_empty());
        for word in words {
            let bad = || {
                Error::invalid_config(format!("open dataset `{url}`: `{word}` is not understood"))
                    .with_hint("known are samples, bytes, classes, shards and seed, each `name=number`")
            };
            let (name, value) = word.split_once('=').ok_or_else(bad)?;
            let value: u64 = value.parse().map_err(|_| bad())?;
            match name {
                "samples" => spec.samples = value,
                "bytes" => spec.payload = SyntheticPayload::Noise { bytes: value },
                "classes" => spec.classes = value,
                "shards" => spec.shards = u32::try_from(value).map_err(|_| bad())?,
                "seed" => spec.seed = value,
                _ => return Err(bad()),
            }
        }
        Ok(Some(spec))
    }

    /// The URL that [`Self::from_url`] reads; `None` for what a URL cannot say.
    fn to_url(&self) -> Option<String> {
        let SyntheticPayload::Noise { bytes } = self.payload else { return None };
        (self.field == "bin").then(|| {
            let Self { samples, classes, shards, seed, .. } = self;
            format!(
                "synthetic://?samples={samples}&bytes={bytes}&classes={classes}&shards={shards}&seed={seed}"
            )
        })
    }
}

/// Makes the dataset. Cost: the manifest, a few bytes a sample.
#[expect(clippy::needless_pass_by_value, reason = "a description is made for one dataset and given away")]
pub fn synthetic(spec: SyntheticSpec) -> Result<Dataset> {
    let refuse = |why: &str| Err(Error::invalid_config(format!("make synthetic dataset: {why}")));
    if spec.samples == 0 || spec.classes == 0 || spec.shards == 0 {
        return refuse("samples, classes and shards must be at least 1");
    }
    if spec.field == "cls" || matches!(&spec.payload, SyntheticPayload::Templates(list) if list.is_empty()) {
        return refuse("the payload needs a field other than `cls`, and at least one template");
    }
    let url = format!("synthetic://?samples={}&seed={}", spec.samples, spec.seed);
    let meta = serde_json::json!({ "kind": "synthetic", "spec": url });
    let field = |name: &str, kind| FieldInfo { name: name.into(), kind };
    let fields = vec![field(&spec.field, FieldKind::Payload), field("cls", FieldKind::Int)];
    let mut builder = ManifestBuilder::new(fields, meta);
    let objects = add_samples(&mut builder, &spec)?;
    let manifest = Manifest::open(builder.finish()?)?;
    let store = SyntheticStore { seed: spec.seed, objects };
    let dataset = Dataset::new(manifest, Arc::new(store), url)?;
    Ok(match spec.to_url() {
        Some(url) => dataset.with_origin(DataSpec::new(&[url], &OpenOptions::default())),
        None => dataset,
    })
}

/// Adds all samples and returns the objects they lie in.
fn add_samples(builder: &mut ManifestBuilder, spec: &SyntheticSpec) -> Result<Vec<(String, Content)>> {
    let label = |sample: u64| Value::Int((fold(&[spec.seed, 1, sample]) % spec.classes) as i64);
    let mut objects = Vec::new();
    match &spec.payload {
        SyntheticPayload::Noise { bytes } => {
            for shard in 0..u64::from(spec.shards) {
                let from = |shard: u64| {
                    (u128::from(spec.samples) * u128::from(shard) / u128::from(spec.shards)) as u64
                };
                let samples = from(shard)..from(shard + 1);
                let size = (samples.end - samples.start).checked_mul(*bytes).filter(|size| *size < 1 << 62);
                let size = size.ok_or_else(|| {
                    Error::invalid_config("make synthetic dataset: a shard passes 2^62 bytes")
                })?;
                let key = format!("noise-{shard:06}");
                builder.add_object(&key, size, spec.seed)?;
                for (at, sample) in samples.enumerate() {
                    let payload = Value::Payload { object: None, offset: at as u64 * bytes, length: *bytes };
                    builder.add_sample(&format!("{sample:09}"), &[(0, payload), (1, label(sample))])?;
                }
                objects.push((key, Content::Noise { size }));
            }
        }
        SyntheticPayload::Templates(templates) => {
            for (at, template) in templates.iter().enumerate() {
                let key = format!("template-{at:06}");
                builder.add_object(&key, template.len() as u64, spec.seed)?;
                objects.push((key, Content::Template(template.clone())));
            }
            // Samples belong to the object added last, wherever their payloads lie.
            builder.add_object("samples", 0, spec.seed)?;
            objects.push(("samples".into(), Content::Template(Bytes::new())));
            for sample in 0..spec.samples {
                let chosen = (fold(&[spec.seed, 2, sample]) % templates.len() as u64) as usize;
                let length = templates[chosen].len() as u64;
                let payload = Value::Payload { object: Some(chosen as u32), offset: 0, length };
                builder.add_sample(&format!("{sample:09}"), &[(0, payload), (1, label(sample))])?;
            }
        }
    }
    Ok(objects)
}

/// A store whose objects exist only while they are read.
#[derive(Debug)]
struct SyntheticStore {
    seed: u64,
    objects: Vec<(String, Content)>,
}

#[derive(Debug)]
enum Content {
    Noise { size: u64 },
    Template(Bytes),
}

impl SyntheticStore {
    fn find(&self, key: &str) -> Result<(u64, &Content)> {
        let found = self.objects.iter().enumerate().find(|(_, (name, _))| name == key);
        let found = found.map(|(at, (_, content))| (at as u64, content));
        found.ok_or_else(|| Error::not_found(format!("read `{}`: no such object", self.url(key))))
    }

    fn meta(&self, key: &str, content: &Content) -> ObjectMeta {
        let size = match content {
            Content::Noise { size } => *size,
            Content::Template(bytes) => bytes.len() as u64,
        };
        ObjectMeta { key: key.into(), size, stamp: self.seed }
    }

    fn bytes(&self, key: &str, range: ByteRange) -> Result<Bytes> {
        let (number, content) = self.find(key)?;
        let size = self.meta(key, content).size;
        let range =
            range.resolve(size).map_err(|e| e.while_doing(format_args!("read `{}`", self.url(key))))?;
        Ok(match content {
            Content::Noise { .. } => noise(fold(&[self.seed, 3, number]), range),
            Content::Template(bytes) => bytes.slice(range.start as usize..range.end as usize),
        })
    }
}

/// Eight bytes for each number of a counter, so that any range can be made alone.
fn noise(key: u64, range: Range<u64>) -> Bytes {
    let words = range.start / 8..range.end.div_ceil(8);
    let mut bytes = Vec::with_capacity((words.end - words.start) as usize * 8);
    for word in words.clone() {
        bytes.extend_from_slice(&mix64(key.wrapping_add(word)).to_le_bytes());
    }
    let start = (range.start - words.start * 8) as usize;
    Bytes::from(bytes).slice(start..start + (range.end - range.start) as usize)
}

impl Store for SyntheticStore {
    fn url(&self, key: &str) -> String {
        format!("synthetic://{key}")
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        async move { self.find(key).map(|(_, content)| self.meta(key, content)) }.boxed()
    }

    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        async move { self.bytes(key, range) }.boxed()
    }

    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        async move { parts.iter().map(|part| self.bytes(key, part.clone().into())).collect() }.boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        let wanted = self.objects.iter().filter(move |(key, _)| key.starts_with(prefix));
        let mut metas: Vec<ObjectMeta> = wanted.map(|(key, content)| self.meta(key, content)).collect();
        metas.sort_by(|a, b| a.key.cmp(&b.key));
        futures::stream::iter(metas.into_iter().map(Ok)).boxed()
    }

    fn write<'a>(&'a self, key: &'a str, _bytes: Bytes) -> BoxFuture<'a, Result<()>> {
        let url = self.url(key);
        async move { Err(Error::unsupported(format!("write `{url}`: synthetic datasets are only read"))) }
            .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn urls_describe_datasets_and_strange_words_are_named() {
        let spec = SyntheticSpec::from_url("synthetic://?samples=12&bytes=7&classes=3&shards=5&seed=9")
            .unwrap()
            .unwrap();
        assert_eq!((spec.samples, spec.classes, spec.shards, spec.seed), (12, 3, 5, 9));
        assert!(SyntheticSpec::from_url("/data/train").unwrap().is_none());
        assert!(SyntheticSpec::from_url("synthetic://?bites=7").unwrap_err().to_string().contains("bites=7"));
    }

    proptest! {
        #[test]
        fn any_range_of_noise_is_the_same_bytes(start in 0u64..500, length in 0u64..500, key: u64) {
            let all = noise(key, 0..1000);
            prop_assert_eq!(&noise(key, start..start + length)[..], &all[start as usize..(start + length) as usize]);
        }
    }
}
