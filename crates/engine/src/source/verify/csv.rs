//! Tables: every row, and whether what it names is there and can be decoded.

use super::payloads::Waiting;
use super::{FindingKind, Run};
use crate::source::csv::{Home, LinkedStore, Links, index};
use crate::source::options::{OpenOptions, field_name};
use forebay_core::Result;
use forebay_store::{ObjectMeta, Store};
use std::sync::Arc;

impl Run<'_> {
    pub(super) async fn rows(
        &mut self,
        object: &ObjectMeta,
        stored: &Arc<dyn Store>,
        home: Home<'_>,
        options: &OpenOptions,
    ) -> Result<()> {
        let url = self.store.url(&object.key);
        let (rows, mut broken) = (Arc::clone(&self.store), Vec::new());
        let table = match index(&rows, object, Some(&mut |at, error| broken.push((at, error)))).await {
            Ok(table) => table,
            Err(error) => {
                let offset = error.facts().offset;
                self.add(FindingKind::BadShard, &url, None, offset, error.report());
                return Ok(());
            }
        };
        for (at, error) in broken {
            self.add(FindingKind::BadPayload, &url, None, Some(at), error.report());
        }
        self.report.samples += table.rows.len() as u64;
        self.report.bytes += table.rows.iter().map(|row| row.range.end - row.range.start).sum::<u64>();
        let tables = [table];
        let mut links = Links::new(&tables, home)?;
        let store = Arc::new(LinkedStore::new(stored, &links.told(&tables), home, true)?);
        links.find(&store, options).await?;
        for (row, error) in links.take_faults() {
            let at = tables[0].rows[row].range.start;
            self.add(FindingKind::Unreadable, &url, None, Some(at), error);
        }
        let mut waiting = Vec::new();
        for (key, found, row, column) in links.all() {
            let Some(found) = found else {
                let at = tables[0].rows[row].range.start;
                let why = format!("{}: no file `{}`", tables[0].place(row, column), store.url(key));
                self.add(FindingKind::Unreadable, &url, None, Some(at), why);
                continue;
            };
            self.report.bytes += found.size;
            if found.size == 0 {
                let why = format!("{}: the file is empty", tables[0].place(row, column));
                self.add(FindingKind::EmptyPayload, &store.url(key), None, Some(0), why);
                continue;
            }
            waiting.push(Waiting {
                object: store.url(key),
                key: key.to_owned(),
                member: None,
                field: field_name(key),
                range: 0..found.size,
                whole: true,
            });
        }
        let before = std::mem::replace(&mut self.store, store);
        let tried = self.try_all(waiting, options.parallel).await;
        self.store = before;
        tried
    }
}
