//! TFRecord files: from head to head, each checked, payloads stepped over.

use super::{Indexed, LOOKED_INTO, LOOKED_INTO_BYTES, Samples, fault};
use crate::shard::HeadWindow;
use crate::source::shards::header_reads;
use forebay_core::{Error, Result};
use forebay_ops::record::tfrecord::{self, HEAD_BYTES, TAIL_BYTES};
use forebay_ops::record::{Format, MAX_FIELDS, RecordSpec, WHOLE};
use forebay_store::{ByteRange, ObjectMeta, Store};
use std::collections::{BTreeMap, BTreeSet};

pub(super) async fn index(store: &dyn Store, object: ObjectMeta) -> Result<Indexed> {
    let (mut places, mut names) = (Vec::new(), BTreeSet::new());
    let mut window = HeadWindow::new(header_reads(store));
    let mut at = 0;
    while at < object.size {
        let wrong = |error| fault(store, &object.key, at, error);
        let left = object.size - at;
        if left < HEAD_BYTES as u64 {
            let why = format!("truncated, {left} of {HEAD_BYTES} bytes of a record's head are there");
            return Err(wrong(Error::corrupt(why)));
        }
        let head = window.bytes(store, &object.key, at..at + HEAD_BYTES as u64, object.size).await?;
        let head = head.first_chunk().ok_or_else(|| Error::internal("a store gave too few bytes"))?;
        let length = tfrecord::payload_length(head).map_err(|error| {
            wrong(error.with_hint("a damaged head hides what follows; a file that was never TFRecord, or is compressed by zlib, looks the same"))
        })?;
        let whole = length.checked_add((HEAD_BYTES + TAIL_BYTES) as u64).filter(|whole| *whole <= left);
        let Some(whole) = whole else {
            let there = left - HEAD_BYTES as u64;
            return Err(wrong(Error::corrupt(format!(
                "truncated, {there} of {length} payload bytes are there"
            ))));
        };
        if places.len() < LOOKED_INTO && whole <= LOOKED_INTO_BYTES {
            let record = store.read(&object.key, ByteRange::from(at..at + whole)).await?;
            // A record that is damaged is found when it is read, under the policy of whoever reads it.
            names.extend(tfrecord::names(&record).unwrap_or_default());
        }
        places.push(at..at + whole);
        at += whole;
    }
    if names.len() > MAX_FIELDS {
        let why = format!("its records have more than {MAX_FIELDS} features by different names");
        return Err(fault(store, &object.key, 0, Error::exhausted(why)));
    }
    names.insert(WHOLE.to_owned());
    let spec = RecordSpec::new(Format::Tfrecord, names.into_iter().collect());
    let samples = Samples::Numbered(tfrecord::FIELD.to_owned(), places);
    Ok(Indexed { object, samples, specs: BTreeMap::from([(tfrecord::FIELD.to_owned(), spec)]) })
}
