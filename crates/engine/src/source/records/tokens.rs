//! Files of tokens: bare integers, with the index that Megatron-LM writes beside its `.bin`, or alone.
//!
//! A sample is a run of tokens that was chosen when the dataset was opened: a document, or a window of fixed length.
//! Where each lies is in the manifest, so order, cursor and cache know windows as any other samples. Payloads are not
//! read. How the index is understood is in `forebay_ops::record::tokens`, how runs are cut in `cut`.

mod cut;

use super::{Indexed, Samples, fault};
use crate::source::inventory::Inventory;
use crate::source::locate::shard_name;
use crate::source::options::SourceKind;
use cut::Cutter;
pub use cut::{TokenDocuments, TokenOptions, TokenTail};
use forebay_core::tensor::Dtype;
use forebay_core::{Error, ErrorKind, Result};
use forebay_ops::record::tokens::{self, Documents, HEAD_BYTES, Head};
use forebay_ops::record::{Format, RecordSpec};
use forebay_store::{ByteRange, ObjectMeta, Store};
use futures::{StreamExt, TryStreamExt, stream};
use std::collections::BTreeMap;
use std::ops::Range;

/// Sequences, or entries of documents, that are read at a time.
const PIECE: u64 = 1 << 20;

/// The index that belongs to a file of tokens.
fn index_key(key: &str) -> Option<String> {
    key.strip_suffix(".bin").map(|stem| format!("{stem}.idx"))
}

/// Objects of tokens, each followed by its index where it has one: both belong to the dataset. Others as they are.
pub(in crate::source) async fn with_indexes(
    store: &dyn Store,
    objects: Vec<ObjectMeta>,
    kind: SourceKind,
    parallel: usize,
) -> Result<Vec<ObjectMeta>> {
    if kind != SourceKind::Tokens {
        return Ok(objects);
    }
    let pair = |object: ObjectMeta| async move {
        let index = match index_key(&object.key) {
            Some(key) => match store.head(&key).await {
                Ok(index) => Some(index),
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            },
            None => None,
        };
        Ok([Some(object), index])
    };
    let named = objects.into_iter().filter(|object| !is_index(&object.key));
    let pairs: Vec<_> = stream::iter(named).map(pair).buffered(parallel.max(1)).try_collect().await?;
    Ok(pairs.into_iter().flatten().flatten().collect())
}

/// Keys of objects tell lower case from upper case.
fn is_index(key: &str) -> bool {
    key.strip_suffix("idx").is_some_and(|stem| stem.ends_with('.'))
}

pub(super) async fn index(store: &dyn Store, object: ObjectMeta, inventory: &Inventory) -> Result<Indexed> {
    let (options, key) = (inventory.tokens.unwrap_or_default(), object.key.clone());
    if is_index(&key) {
        let samples = Samples::Numbered(tokens::FIELD.to_owned(), Vec::new());
        return Ok(Indexed { object, samples, specs: BTreeMap::new() });
    }
    let beside =
        index_key(&key).and_then(|wanted| inventory.objects.iter().find(|other| other.key == wanted));
    let (dtype, documents) = match beside {
        Some(index) => {
            let (dtype, documents) =
                read(store, index, object.size).await.map_err(|error| fault(store, &index.key, 0, error))?;
            if options.dtype.is_some_and(|asked| asked != dtype) {
                let (asked, found) = (options.dtype.map_or("", Dtype::name), dtype.name());
                let why = format!("its index says that tokens are {found}, `dtype` says {asked}");
                return Err(fault(store, &key, 0, Error::invalid_config(why).with_hint("leave `dtype` out")));
            }
            (dtype, Some(documents))
        }
        None => (bare(&key, &options).map_err(|error| fault(store, &key, 0, error))?, None),
    };
    let places =
        cut(&options, dtype, object.size, documents).map_err(|error| fault(store, &key, 0, error))?;
    let spec = RecordSpec::of_columns(Format::Tokens, vec![tokens::column(dtype)]);
    let samples = Samples::Numbered(tokens::FIELD.to_owned(), places);
    Ok(Indexed { object, samples, specs: BTreeMap::from([(tokens::FIELD.to_owned(), spec)]) })
}

/// The element type of a file without an index.
fn bare(key: &str, options: &TokenOptions) -> Result<Dtype> {
    let named = match key.rsplit('.').next() {
        Some("u16") => Some(Dtype::U16),
        Some("u32") => Some(Dtype::U32),
        _ => None,
    };
    let dtype = options.dtype.or(named).ok_or_else(|| {
        let looks = shard_name(key) == Some(SourceKind::Tokens);
        let why = if looks { "it has no index beside it" } else { "its name does not tell" };
        Error::invalid_config(format!("what type its tokens are is not known: {why}"))
            .with_hint("give `tokens={\"dtype\": \"u16\", \"window\": 2048}`, or put its `.idx` beside it")
    })?;
    tokens::dtype_of(dtype.name())
}

/// The samples of one file, in bytes.
fn cut(
    options: &TokenOptions,
    dtype: Dtype,
    bytes: u64,
    documents: Option<Vec<Range<u64>>>,
) -> Result<Vec<Range<u64>>> {
    let size = dtype.size() as u64;
    if !bytes.is_multiple_of(size) {
        let why = format!("its {bytes} bytes are no whole tokens of {}", dtype.name());
        return Err(Error::corrupt(why).with_hint("it is cut off, or `dtype` is another"));
    }
    let mut cutter = Cutter::new(options, documents.is_some())?;
    match documents.filter(|_| cutter.keeps_documents()) {
        Some(documents) => documents.into_iter().try_for_each(|document| cutter.cut(document))?,
        None => cutter.cut(0..bytes / size)?,
    }
    let mut places = cutter.finish();
    for place in &mut places {
        *place = place.start * size..place.end * size;
    }
    Ok(places)
}

/// What an index says of a `.bin` with so many bytes.
async fn read(store: &dyn Store, index: &ObjectMeta, bytes: u64) -> Result<(Dtype, Vec<Range<u64>>)> {
    if index.size < HEAD_BYTES as u64 {
        return Err(Error::corrupt(format!(
            "truncated, it has {} of {HEAD_BYTES} bytes of a head",
            index.size
        )));
    }
    let part = |range: Range<u64>| store.read(&index.key, ByteRange::from(range));
    let head = part(0..HEAD_BYTES as u64).await?;
    let head = head.first_chunk().ok_or_else(|| Error::internal("a store gave too few bytes"))?;
    let head = Head::parse(head, index.size)?;
    let mut documents = Documents::new(head, bytes)?;
    let mut at = 0;
    while at < head.entries {
        let end = head.entries.min(at + PIECE);
        documents.take_entries(&part(head.documents(at..end)).await?)?;
        at = end;
    }
    let mut at = 0;
    while at < head.sequences {
        let end = head.sequences.min(at + PIECE);
        let (lengths, places) = (part(head.lengths(at..end)).await?, part(head.places(at..end)).await?);
        documents.take_sequences(&lengths, &places)?;
        at = end;
    }
    Ok((head.dtype, documents.finish()?))
}
