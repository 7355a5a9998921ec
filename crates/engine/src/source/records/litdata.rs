//! LitData chunks: a table of offsets, then items. What the items are made of stands in `index.json` alone.

use super::described::Described;
use super::{Indexed, Samples, fault, offsets};
use forebay_core::{Error, Result};
use forebay_ops::record::{Format, RecordSpec, litdata};
use forebay_store::{ByteRange, ObjectMeta, Store};
use std::collections::BTreeMap;

/// What a chunk begins with whose items are compressed together.
const FRAMED: &[u8] = b"LDFZ01\0\0";

pub(super) async fn index(store: &dyn Store, object: ObjectMeta, described: &Described) -> Result<Indexed> {
    let wrong = |error: Error| fault(store, &object.key, 0, error);
    described.check_size(&object).map_err(wrong)?;
    if object.size >= 8 && store.read(&object.key, ByteRange::from(0..8)).await? == FRAMED {
        return Err(wrong(Error::unsupported("its items are compressed many at a time").with_hint(
            "write the chunks without compression, or with `compression=\"zstd\"` and `compression_level=\"chunk\"`",
        )));
    }
    let places = offsets::read(store, &object).await?;
    described.check_count(&object, places.len() as u64).map_err(wrong)?;
    if !places.is_empty() && places.iter().all(|place| place.start == place.end) {
        return Err(wrong(Error::unsupported("its rows lie in an Arrow table behind the chunk").with_hint(
            "rows of text and numbers alone are stored so; write them as JSONL, or read them by `datasets`",
        )));
    }
    let spec = RecordSpec::of_columns(Format::Litdata, described.columns.clone());
    let samples = Samples::Numbered(litdata::FIELD.to_owned(), places);
    Ok(Indexed { object, samples, specs: BTreeMap::from([(litdata::FIELD.to_owned(), spec)]) })
}
