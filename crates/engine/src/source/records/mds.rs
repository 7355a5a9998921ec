//! MDS shards: a table of offsets, a description of the columns, samples. The shard alone is enough; an `index.json`
//! beside it says in which order shards come, how long they are, and their hashes.

use super::described::Described;
use super::{Indexed, Samples, fault, offsets};
use forebay_core::{Error, Result};
use forebay_ops::record::{Column, Format, MAX_FIELDS, RecordSpec, mds};
use forebay_store::{ByteRange, ObjectMeta, Store};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The longest description of columns that is read.
const MAX_COLUMNS_BYTES: u64 = 16 << 20;

/// What a shard says about its samples.
#[derive(Deserialize)]
struct Columns {
    #[serde(rename = "column_names")]
    names: Vec<String>,
    #[serde(rename = "column_encodings")]
    encodings: Vec<String>,
    #[serde(rename = "column_sizes")]
    sizes: Vec<Option<u32>>,
}

pub(super) async fn index(store: &dyn Store, object: ObjectMeta, described: &Described) -> Result<Indexed> {
    let wrong = |offset: u64, error: Error| fault(store, &object.key, offset, error);
    described.check_size(&object).map_err(|error| wrong(0, error))?;
    let places = offsets::read(store, &object).await?;
    described.check_count(&object, places.len() as u64).map_err(|error| wrong(0, error))?;
    let begin = 8 + places.len() as u64 * 4;
    // A shard without samples has its description up to the end.
    let end = places.first().map_or(object.size, |place| place.start);
    if end - begin > MAX_COLUMNS_BYTES {
        let why = format!("its columns take {} bytes, at most {MAX_COLUMNS_BYTES} are read", end - begin);
        return Err(wrong(begin, Error::exhausted(why)));
    }
    if let Some(last) = places.last().filter(|last| last.end != object.size) {
        let why = format!("its samples end at byte {} and it has {}", last.end, object.size);
        return Err(wrong(last.end, Error::corrupt(why)));
    }
    let text = store.read(&object.key, ByteRange::from(begin..end)).await?;
    let columns = columns(&text).map_err(|error| wrong(begin, error))?;
    let spec = RecordSpec::of_columns(Format::Mds, columns);
    let samples = Samples::Numbered(mds::FIELD.to_owned(), places);
    Ok(Indexed { object, samples, specs: BTreeMap::from([(mds::FIELD.to_owned(), spec)]) })
}

fn columns(text: &[u8]) -> Result<Vec<Column>> {
    let told: Columns = serde_json::from_slice(text)
        .map_err(|cause| Error::corrupt("its columns are not described in JSON").with_source(cause))?;
    let count = told.names.len();
    if count != told.encodings.len() || count != told.sizes.len() {
        return Err(Error::corrupt("its columns have fewer or more encodings or sizes than names"));
    }
    if count > MAX_FIELDS {
        return Err(Error::exhausted(format!("it has more than {MAX_FIELDS} columns")));
    }
    let parts = told.names.into_iter().zip(told.encodings).zip(told.sizes);
    let column = |((name, encoding), bytes): ((String, String), Option<u32>)| Column {
        name,
        encoding,
        bytes: bytes.filter(|bytes| *bytes > 0),
    };
    Ok(parts.map(column).collect())
}

/// Compressions that the format knows and that are not read.
pub(super) fn refuse_compression(store: &dyn Store, key: &str) -> Result<()> {
    let ending = key.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    if !matches!(ending.as_str(), "br" | "bz2" | "snappy") {
        return Ok(());
    }
    let error = Error::unsupported(format!("it is compressed by `{ending}`"));
    Err(fault(
        store,
        key,
        0,
        error.with_hint("write the shards with `compression=\"zstd\"`, `\"gz\"` or none"),
    ))
}
