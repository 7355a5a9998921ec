//! Looks at every header and every payload and names each fault with its place; never stops at the first.
//!
//! Memory: one shard's list of members and a small map entry for each sample, so that a key used twice in different
//! shards is found. Findings beyond a limit are counted, not kept.

mod csv;
mod findings;
mod members;
mod parquet;
mod payloads;
mod records;
#[cfg(feature = "cassandra")]
mod rows;

pub use findings::{Finding, FindingKind, KEPT_FINDINGS, VerifyReport};

use super::csv::Home;
use super::inventory::Inventory;
use super::open::take_inventory;
use super::options::{OpenOptions, SourceKind, field_name};
use super::shards;
use forebay_core::Result;
use forebay_store::{ObjectMeta, Store};
use payloads::Waiting;
use std::collections::HashMap;
use std::sync::Arc;

/// Decides whether a field's payload is sound: given the field's name and the bytes.
pub type Check = Arc<dyn Fn(&str, &[u8]) -> Result<()> + Send + Sync>;

/// What `verify` looks at.
#[derive(Clone, Default)]
pub struct VerifyOptions {
    /// Tries every payload, usually with [`super::decodable`]; `None` reads headers only.
    pub check: Option<Check>,
}

/// Looks at everything that `spec` names. `found` is told each finding at once.
///
/// An error is returned only when there is nothing to look at; faults of the data are findings.
pub async fn verify(
    spec: &[String],
    options: &OpenOptions,
    verify: &VerifyOptions,
    found: &(dyn Fn(&Finding) + Send + Sync),
) -> Result<VerifyReport> {
    #[cfg(feature = "cassandra")]
    if let Some(report) = rows::verify(spec, options, verify, found).await? {
        return Ok(report);
    }
    let (stored, root, inventory) = take_inventory(spec, options).await?;
    let keys = inventory.objects.iter().map(|object| object.key.as_str());
    let store =
        if inventory.kind.is_shards() { shards::reading_store(&stored, keys) } else { Arc::clone(&stored) };
    let home = Home { remote: root.as_deref(), options: &options.storage_options };
    let mut run = Run { store, verify, found, report: VerifyReport::default(), seen: HashMap::new() };
    run.objects(&inventory, &stored, home, options).await?;
    Ok(run.report)
}

struct Run<'a> {
    store: Arc<dyn Store>,
    verify: &'a VerifyOptions,
    found: &'a (dyn Fn(&Finding) + Send + Sync),
    report: VerifyReport,
    /// Hash of each key and the number of the object that had it first.
    seen: HashMap<u64, u32>,
}

impl Run<'_> {
    async fn objects(
        &mut self,
        inventory: &Inventory,
        stored: &Arc<dyn Store>,
        home: Home<'_>,
        options: &OpenOptions,
    ) -> Result<()> {
        let mut waiting = Vec::new();
        for (number, object) in inventory.objects.iter().enumerate() {
            self.report.objects += 1;
            if inventory.kind == SourceKind::Tar {
                self.shard(number as u32, object, inventory, &mut waiting).await;
                self.try_all(std::mem::take(&mut waiting), options.parallel).await?;
            } else if inventory.kind == SourceKind::Parquet {
                self.parquet(object, options.parallel).await?;
            } else if inventory.kind == SourceKind::Csv {
                self.rows(object, stored, home, options).await?;
            } else if inventory.kind.is_records() {
                self.records(inventory, object, options.parallel).await?;
            } else {
                self.file(object, &mut waiting);
                if waiting.len() >= 4096 {
                    self.try_all(std::mem::take(&mut waiting), options.parallel).await?;
                }
            }
            let report = &self.report;
            options.report(super::Progress {
                is_listing: false,
                objects_done: report.objects,
                objects_total: inventory.objects.len() as u64,
                samples: report.samples,
                bytes: report.bytes,
            });
        }
        self.try_all(waiting, options.parallel).await
    }

    fn file(&mut self, object: &ObjectMeta, waiting: &mut Vec<Waiting>) {
        let url = self.store.url(&object.key);
        self.report.samples += 1;
        self.report.bytes += object.size;
        if object.size == 0 {
            self.add(FindingKind::EmptyPayload, &url, None, Some(0), "the file is empty".into());
            return;
        }
        let (field, key) = (field_name(&object.key), object.key.clone());
        waiting.push(Waiting { object: url, key, member: None, field, range: 0..object.size, whole: true });
    }

    fn add(
        &mut self,
        kind: FindingKind,
        object: &str,
        member: Option<&str>,
        offset: Option<u64>,
        message: String,
    ) {
        let finding =
            Finding { kind, object: object.into(), member: member.map(Into::into), offset, message };
        (self.found)(&finding);
        if kind.is_warning() {
            self.report.warnings += 1;
        } else {
            self.report.errors += 1;
        }
        if self.report.findings.len() < KEPT_FINDINGS {
            self.report.findings.push(finding);
        }
    }
}
