//! Records: heads and checksums of every one, whether its fields can be taken, and whether those can be decoded.

use super::payloads::Waiting;
use super::{Check, FindingKind, Run};
use crate::source::inventory::Inventory;
use crate::source::records;
use bytes::Bytes;
use forebay_core::{Error, ErrorKind, Result};
use forebay_ops::Input;
use forebay_ops::record::Format;
use forebay_store::ObjectMeta;
use std::sync::Arc;

impl Run<'_> {
    pub(super) async fn records(
        &mut self,
        inventory: &Inventory,
        object: &ObjectMeta,
        parallel: usize,
    ) -> Result<()> {
        let url = self.store.url(&object.key);
        let indexed = match records::index(self.store.as_ref(), inventory, object).await {
            Ok(indexed) => indexed,
            Err(error) => {
                let offset = error.facts().offset;
                self.add(FindingKind::BadShard, &url, None, offset, error.report());
                return Ok(());
            }
        };
        self.report.samples += indexed.count();
        let mut waiting = Vec::new();
        for (field, range) in indexed.records() {
            self.report.bytes += range.end - range.start;
            waiting.push(Waiting {
                object: url.clone(),
                key: object.key.clone(),
                member: None,
                field: field.to_owned(),
                range,
                whole: false,
            });
        }
        let Some(decodes) = self.verify.check.clone() else { return Ok(()) };
        if let Err(error) = inventory.described.check_hashes(self.store.as_ref(), &indexed.object).await {
            self.add(FindingKind::BadShard, &url, None, Some(0), error.report());
        }
        let specs = indexed.specs;
        let check: Check = Arc::new(move |field, record| {
            let spec = specs.get(field).ok_or_else(|| Error::internal("try a record of an unknown field"))?;
            let taken = match spec.take_every(&Bytes::copy_from_slice(record)) {
                // A sound record may hold more than fields can say; whoever takes it apart is told.
                Err(error) if spec.format == Format::Tfrecord && error.kind() != ErrorKind::Corrupt => {
                    return Ok(());
                }
                taken => taken?,
            };
            for (name, taken) in taken {
                if let Input::Payload(payload) = taken.plain()? {
                    decodes(&name, &payload)?;
                }
            }
            Ok(())
        });
        self.try_with(waiting, parallel, check).await
    }
}
