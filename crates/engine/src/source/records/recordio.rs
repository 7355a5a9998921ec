//! RecordIO files: from frame to frame, payloads stepped over. The `.idx` file beside them is not needed.

use super::{Indexed, Samples, fault};
use crate::shard::HeadWindow;
use crate::source::shards::header_reads;
use forebay_core::{Error, Result};
use forebay_ops::record::recordio::{self, Frame, HEAD_BYTES};
use forebay_ops::record::{Format, RecordSpec};
use forebay_store::{ObjectMeta, Store};
use std::collections::BTreeMap;

pub(super) async fn index(store: &dyn Store, object: ObjectMeta) -> Result<Indexed> {
    let mut places = Vec::new();
    let mut window = HeadWindow::new(header_reads(store));
    let (mut at, mut begin) = (0, None);
    while at < object.size {
        let wrong = |why: String| fault(store, &object.key, at, Error::corrupt(why));
        let left = object.size - at;
        if left < HEAD_BYTES as u64 {
            return Err(wrong(format!(
                "truncated, {left} of {HEAD_BYTES} bytes of a frame's head are there"
            )));
        }
        let head = window.bytes(store, &object.key, at..at + HEAD_BYTES as u64, object.size).await?;
        let head = head.first_chunk().ok_or_else(|| Error::internal("a store gave too few bytes"))?;
        let frame = Frame::parse(head).map_err(|error| fault(store, &object.key, at, error))?;
        if left - HEAD_BYTES as u64 <= frame.length.saturating_sub(1) {
            let there = left - HEAD_BYTES as u64;
            return Err(wrong(format!("truncated, {there} of {} bytes of a frame are there", frame.length)));
        }
        if frame.is_first != begin.is_none() {
            return Err(wrong("frames of records are out of order".into()));
        }
        // The last frame may lack its padding.
        let end = object.size.min(at + frame.whole());
        let from = *begin.get_or_insert(at);
        if frame.is_last {
            places.push(from..end);
            begin = None;
        }
        at = end;
    }
    if let Some(begin) = begin {
        return Err(fault(
            store,
            &object.key,
            begin,
            Error::corrupt("truncated, the last record has no end"),
        ));
    }
    let fields = recordio::NAMES.map(String::from).to_vec();
    let spec = RecordSpec::new(Format::Recordio, fields);
    let samples = Samples::Numbered(recordio::FIELD.to_owned(), places);
    Ok(Indexed { object, samples, specs: BTreeMap::from([(recordio::FIELD.to_owned(), spec)]) })
}
