//! `index.json`: what MosaicML's streaming library and LitData write beside their shards.
//!
//! It says which shards there are and in which order, how many samples and bytes each has, for MDS their hashes and for
//! LitData what samples are made of. Lengths and counts are compared when a shard is indexed, hashes by `verify`, which
//! reads every byte anyway.

use crate::source::options::SourceKind;
use forebay_core::{Error, Result};
use forebay_ops::record::{Column, MAX_FIELDS, WHOLE};
use forebay_store::{ByteRange, ObjectMeta, Store};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use xxhash_rust::xxh3::Xxh3;
use xxhash_rust::xxh64::Xxh64;

/// The largest file that is read.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Bytes that are hashed at a time.
const PIECE_BYTES: u64 = 8 << 20;

/// How deep a sample may be nested.
const MAX_DEPTH: usize = 32;

/// What an `index.json` tells; nothing when there is none.
#[derive(Debug, Default)]
pub(in crate::source) struct Described {
    /// The file itself.
    pub(in crate::source) file: Option<ObjectMeta>,
    /// Columns of every shard, where shards do not tell.
    pub(super) columns: Vec<Column>,
    shards: Vec<Shard>,
    /// Places in `shards`.
    by_key: HashMap<String, usize>,
}

/// What it tells of one shard.
#[derive(Debug)]
struct Shard {
    /// Keys that it may have, the first that is there counts.
    keys: Vec<String>,
    samples: u64,
    /// Bytes once it is expanded.
    bytes: u64,
    hashes: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct MdsIndex {
    version: u64,
    shards: Vec<MdsShard>,
}

#[derive(Deserialize)]
struct MdsShard {
    format: String,
    samples: u64,
    raw_data: Option<MdsFile>,
    zip_data: Option<MdsFile>,
}

#[derive(Deserialize)]
struct MdsFile {
    basename: String,
    bytes: u64,
    #[serde(default)]
    hashes: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct LitdataIndex {
    chunks: Vec<LitdataChunk>,
    config: LitdataConfig,
}

#[derive(Deserialize)]
struct LitdataChunk {
    filename: String,
    chunk_size: u64,
    chunk_bytes: u64,
}

#[derive(Deserialize)]
struct LitdataConfig {
    data_format: Option<Vec<String>>,
    data_spec: Option<String>,
    compression_level: Option<String>,
    encryption: Option<Value>,
    item_loader: Option<String>,
}

impl Described {
    /// Reads `file`, which describes shards of `kind`.
    pub(in crate::source) async fn read(
        store: &dyn Store,
        file: ObjectMeta,
        kind: SourceKind,
    ) -> Result<Self> {
        let url = store.url(&file.key);
        let doing = |error: Error| error.while_doing(format_args!("read `{url}`"));
        if file.size > MAX_FILE_BYTES {
            let why = format!("it has {} bytes, at most {MAX_FILE_BYTES} are read", file.size);
            return Err(doing(Error::exhausted(why)));
        }
        let text = store.read(&file.key, ByteRange::from(0..file.size)).await?;
        let folder = file.key.rfind('/').map_or("", |slash| &file.key[..=slash]);
        let (shards, columns) = match kind {
            SourceKind::Mds => (mds(&text, folder).map_err(doing)?, Vec::new()),
            _ => litdata(&text, folder).map_err(doing)?,
        };
        let places = shards.iter().enumerate();
        let by_key =
            places.flat_map(|(at, shard)| shard.keys.iter().map(move |key| (key.clone(), at))).collect();
        Ok(Self { file: Some(file), columns, shards, by_key })
    }

    /// Those of `found` that are described, in that order.
    pub(in crate::source) fn pick(
        &self,
        store: &dyn Store,
        found: Vec<ObjectMeta>,
    ) -> Result<Vec<ObjectMeta>> {
        let mut found: HashMap<String, ObjectMeta> =
            found.into_iter().map(|meta| (meta.key.clone(), meta)).collect();
        let mut picked = Vec::with_capacity(self.shards.len());
        for shard in &self.shards {
            let Some(meta) = shard.keys.iter().find_map(|key| found.remove(key)) else {
                let file = self.file.as_ref().map(|file| store.url(&file.key)).unwrap_or_default();
                let names: Vec<String> = shard.keys.iter().map(|key| format!("`{key}`")).collect();
                let message = format!("open what `{file}` describes: {} is not there", names.join(" or "));
                return Err(Error::not_found(message).with_hint("copy all of the dataset's files"));
            };
            picked.push(meta);
        }
        Ok(picked)
    }

    /// Whether an expanded object has as many bytes as is told.
    pub(super) fn check_size(&self, object: &ObjectMeta) -> Result<()> {
        match self.shard(&object.key) {
            Some(shard) if shard.bytes != object.size => {
                let why = format!("it has {} bytes, its index says {}", object.size, shard.bytes);
                Err(Error::corrupt(why).with_hint("it is cut off, or of another version than its index"))
            }
            _ => Ok(()),
        }
    }

    /// Whether an object has as many samples as is told.
    pub(super) fn check_count(&self, object: &ObjectMeta, samples: u64) -> Result<()> {
        match self.shard(&object.key) {
            Some(shard) if shard.samples != samples => {
                Err(Error::corrupt(format!("it has {samples} samples, its index says {}", shard.samples)))
            }
            _ => Ok(()),
        }
    }

    /// Compares the hashes of an expanded object with those that are told, as far as they are known here: `xxh64`,
    /// `xxh3_64` and `xxh128`.
    pub(in crate::source) async fn check_hashes(&self, store: &dyn Store, object: &ObjectMeta) -> Result<()> {
        let Some(shard) = self.shard(&object.key) else { return Ok(()) };
        let known = ["xxh64", "xxh3_64", "xxh128", "xxh3_128"];
        if !shard.hashes.keys().any(|name| known.contains(&name.as_str())) {
            return Ok(());
        }
        let (mut old, mut new, mut at) = (Xxh64::new(0), Xxh3::new(), 0);
        while at < object.size {
            let end = object.size.min(at + PIECE_BYTES);
            let piece = store.read(&object.key, ByteRange::from(at..end)).await?;
            old.update(&piece);
            new.update(&piece);
            at = end;
        }
        for (name, told) in &shard.hashes {
            let found = match name.as_str() {
                "xxh64" => format!("{:016x}", old.digest()),
                "xxh3_64" => format!("{:016x}", new.digest()),
                "xxh128" | "xxh3_128" => format!("{:032x}", new.digest128()),
                _ => continue,
            };
            if found != told.to_ascii_lowercase() {
                return Err(Error::corrupt(format!("its {name} is {found}, its index says {told}")));
            }
        }
        Ok(())
    }

    fn shard(&self, key: &str) -> Option<&Shard> {
        self.shards.get(*self.by_key.get(key)?)
    }
}

fn parse<T: for<'a> Deserialize<'a>>(text: &[u8], whose: &str) -> Result<T> {
    serde_json::from_slice(text)
        .map_err(|cause| Error::corrupt(format!("it is no index of {whose}")).with_source(cause))
}

fn mds(text: &[u8], folder: &str) -> Result<Vec<Shard>> {
    let index: MdsIndex = parse(text, "MDS shards")?;
    if index.version != 2 {
        return Err(Error::unsupported(format!("it has version {}, version 2 is read", index.version)));
    }
    let shard = |shard: MdsShard| {
        if shard.format != "mds" {
            let why = format!("its shards are `{}`, `mds` are read", shard.format);
            return Err(
                Error::unsupported(why).with_hint("CSV and JSON shards hold lines: open those as JSONL")
            );
        }
        let (raw, zip) = (shard.raw_data, shard.zip_data);
        let raw = raw.ok_or_else(|| Error::corrupt("a shard has no `raw_data`"))?;
        let names = [Some(&raw), zip.as_ref()].into_iter().flatten();
        let keys = names.map(|file| format!("{folder}{}", file.basename)).collect();
        Ok(Shard { keys, samples: shard.samples, bytes: raw.bytes, hashes: raw.hashes })
    };
    index.shards.into_iter().map(shard).collect()
}

fn litdata(text: &[u8], folder: &str) -> Result<(Vec<Shard>, Vec<Column>)> {
    let LitdataIndex { chunks, config } = parse(text, "LitData chunks")?;
    if config.encryption.is_some_and(|how| !how.is_null()) {
        return Err(Error::unsupported("its chunks are encrypted"));
    }
    if let Some(loader) = config.item_loader.filter(|loader| loader != "PyTreeLoader") {
        return Err(Error::unsupported(format!(
            "its chunks are for `{loader}`, those of `PyTreeLoader` are read"
        )));
    }
    if let Some(level) = config.compression_level.filter(|level| level != "chunk") {
        return Err(Error::unsupported(format!("its chunks are compressed by `{level}`")).with_hint(
            "write them without compression, or with `compression=\"zstd\"` and `compression_level=\"chunk\"`",
        ));
    }
    let formats = config.data_format.ok_or_else(|| Error::corrupt("it has no `data_format`"))?;
    if formats.len() > MAX_FIELDS {
        return Err(Error::exhausted(format!("its samples have more than {MAX_FIELDS} fields")));
    }
    let mut names = Vec::new();
    if let Some(spec) = &config.data_spec {
        let (_, tree): (u64, Value) = parse(spec.as_bytes(), "LitData chunks")?;
        leaves(&tree, String::new(), 0, &mut names)?;
    }
    if names.len() != formats.len() {
        names = (0..formats.len()).map(|number| number.to_string()).collect();
    }
    let columns = names.into_iter().zip(formats);
    let columns = columns.map(|(name, encoding)| Column { name, encoding, bytes: None }).collect();
    let shard = |chunk: LitdataChunk| Shard {
        keys: vec![format!("{folder}{}", chunk.filename)],
        samples: chunk.chunk_size,
        bytes: chunk.chunk_bytes,
        hashes: BTreeMap::new(),
    };
    Ok((chunks.into_iter().map(shard).collect(), columns))
}

/// Names of the leaves of a sample: keys of dicts and numbers in lists, joined by dots. A sample that is one leaf has
/// the name of a whole record.
fn leaves(tree: &Value, name: String, depth: usize, names: &mut Vec<String>) -> Result<()> {
    let children = tree.get("children_spec").and_then(Value::as_array);
    if depth > MAX_DEPTH || names.len() > MAX_FIELDS {
        return Err(Error::exhausted("its samples have too many fields, or are nested too deep"));
    }
    if tree.get("type").is_none_or(Value::is_null) {
        names.push(if name.is_empty() { WHOLE.to_owned() } else { name });
        return Ok(());
    }
    // A dict's keys are the context, which is JSON in a string; that of others says something else.
    let context =
        tree.get("context").and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok());
    let keys: Vec<Value> = match context {
        Some(Value::Array(keys)) => keys,
        _ => Vec::new(),
    };
    for (number, child) in children.into_iter().flatten().enumerate() {
        let own = match keys.get(number) {
            Some(Value::String(key)) => key.clone(),
            _ => number.to_string(),
        };
        let inner = if name.is_empty() { own } else { format!("{name}.{own}") };
        leaves(child, inner, depth + 1, names)?;
    }
    Ok(())
}
