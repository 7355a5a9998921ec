//! Rows of a table: every payload is read and tried. What a table cannot have (cut shards, keys twice) is not looked for.

use super::payloads::Waiting;
use super::{FindingKind, Run, VerifyOptions, VerifyReport};
use crate::source::options::OpenOptions;
use crate::source::rows::open_rows;
use crate::source::{Progress, locate};
use forebay_core::manifest::FieldKind;
use forebay_core::{Result, SampleId};
use std::collections::HashMap;
use std::sync::Arc;

/// Rows that are tried together.
const ROWS_TOGETHER: u64 = 4096;

/// The report of a table, when `spec` names one.
pub(super) async fn verify(
    spec: &[String],
    options: &OpenOptions,
    verify: &VerifyOptions,
    found: &(dyn Fn(&super::Finding) + Send + Sync),
) -> Result<Option<VerifyReport>> {
    let parts = locate::expand(spec, options)?;
    let Some(remote) =
        locate::locate_remote(&parts)?.filter(|remote| remote.root.starts_with("cassandra://"))
    else {
        return Ok(None);
    };
    let dataset = open_rows(&remote.root, &options.storage_options, options).await?;
    let manifest = dataset.manifest();
    let store = Arc::clone(dataset.store());
    let mut run = Run { store, verify, found, report: VerifyReport::default(), seen: HashMap::new() };
    let mut waiting = Vec::new();
    for sample in 0..manifest.len() {
        run.report.objects += 1;
        run.report.samples += 1;
        for (number, field) in manifest.fields().iter().enumerate() {
            let location = (field.kind == FieldKind::Payload)
                .then(|| manifest.location(SampleId(sample), number))
                .flatten();
            let Some(location) = location else { continue };
            run.report.bytes += location.length;
            let key = manifest.object(location.object).key.into_owned();
            let object = run.store.url(&key);
            if location.length == 0 {
                let why = format!("field `{}` is empty", field.name);
                run.add(FindingKind::EmptyPayload, &object, None, Some(location.offset), why);
                continue;
            }
            let range = location.offset..location.offset + location.length;
            waiting.push(Waiting {
                object,
                key,
                member: None,
                field: field.name.clone(),
                range,
                whole: true,
            });
        }
        if (sample + 1).is_multiple_of(ROWS_TOGETHER) || sample + 1 == manifest.len() {
            run.try_all(std::mem::take(&mut waiting), options.parallel).await?;
            options.report(Progress {
                is_listing: false,
                objects_done: sample + 1,
                objects_total: manifest.len(),
                samples: run.report.samples,
                bytes: run.report.bytes,
            });
        }
    }
    Ok(Some(run.report))
}
