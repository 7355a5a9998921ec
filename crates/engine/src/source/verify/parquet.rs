//! Parquet files: every page of every column with its checksum, counts and statistics, and whether payloads can be decoded.

use super::payloads::Waiting;
use super::{FindingKind, Run};
use crate::source::parquet;
use forebay_core::Result;
use forebay_store::ObjectMeta;
use std::sync::Arc;

impl Run<'_> {
    pub(super) async fn parquet(&mut self, object: &ObjectMeta, parallel: usize) -> Result<()> {
        let url = self.store.url(&object.key);
        let file = match parquet::index(self.store.as_ref(), object.clone()).await {
            Ok(file) => file,
            Err(error) => {
                let offset = error.facts().offset;
                self.add(FindingKind::BadShard, &url, None, offset, error.report());
                return Ok(());
            }
        };
        self.report.samples += file.rows();
        let mut waiting = Vec::new();
        for payload in file.payloads() {
            self.report.bytes += payload.range.end - payload.range.start;
            waiting.push(Waiting {
                object: url.clone(),
                key: payload.key,
                member: None,
                field: payload.field,
                range: payload.range,
                whole: false,
            });
        }
        let values = file.reading_store(&self.store);
        let stored = std::mem::replace(&mut self.store, values);
        let tried = self.try_all(waiting, parallel).await;
        self.store = Arc::clone(&stored);
        tried
    }
}
