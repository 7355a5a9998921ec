//! `forebay verify`: looks at everything and names each fault with its place.

use super::{Context, Done, counted, size, watched, with_nearby};
use crate::args::{Data, VerifyArgs};
use crate::progress::Progress;
use forebay_core::quarantine::QuarantineEntry;
use forebay_core::{ErrorKind, Result, SampleId, size::format_seconds};
use forebay_engine::quarantine::{self, QuarantineWriter};
use forebay_engine::source::decodable;
use forebay_engine::source::verify::{Check, Finding, VerifyOptions, verify};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Exit code when faults were found: the same as for an error about corrupt data.
const FAULTY: i32 = 3;

pub(super) fn run(args: &VerifyArgs, context: &Context) -> Result<Done> {
    let begun = Instant::now();
    let data = args.data.resolve()?;
    let report = &context.report;
    let bar = Arc::new(Progress::new(report, "verifying", "objects", 0));
    let said = AtomicU64::new(0);
    let bad = Mutex::new(Vec::new());
    let found = |finding: &Finding| {
        if args.quarantine.is_some() && !finding.kind.is_warning() {
            bad.lock().unwrap_or_else(PoisonError::into_inner).push(finding.clone());
        }
        if said.fetch_add(1, Ordering::Relaxed) < args.limit {
            bar.suspend(|| report.finding(finding.kind.is_warning(), line(finding)));
        }
    };
    let options = VerifyOptions { check: (!args.no_decode).then(|| Arc::new(decodable) as Check) };
    let result = context.wait(verify(&data.spec, &watched(&data.options, &bar), &options, &found))?;
    let result = result.map_err(|error| with_nearby(error, &data.spec))?;
    drop(bar);
    let bad = bad.into_inner().unwrap_or_else(PoisonError::into_inner);
    let quarantined = match &args.quarantine {
        Some(path) => Some(put_aside(path, &data, &bad, context)?),
        None => None,
    };

    let unsaid = said.load(Ordering::Relaxed).saturating_sub(args.limit);
    if unsaid > 0 {
        report.line(format_args!("and {} more; `--limit` shows them", counted(unsaid, "finding")));
    }
    if let (Some(path), Some(samples)) = (&args.quarantine, quarantined) {
        report.line(format_args!("{} in quarantine, in `{}`", counted(samples, "sample"), path.display()));
    }
    let failed = result.errors > 0 || (args.strict && result.warnings > 0);
    let tried = if args.no_decode {
        "headers only".to_owned()
    } else {
        format!("{} decoded", counted(result.checked, "payload"))
    };
    report.line(format_args!(
        "{}: {}, {} in {}, {tried}, {}, in {}",
        if failed { "faulty" } else { "sound" },
        counted(result.samples, "sample"),
        size(result.bytes),
        counted(result.objects, "object"),
        match (result.errors, result.warnings) {
            (0, 0) => "no findings".to_owned(),
            (errors, warnings) =>
                format!("{} and {}", counted(errors, "error"), counted(warnings, "warning")),
        },
        format_seconds(begun.elapsed().as_secs_f64()),
    ));
    let findings: Vec<Value> =
        result.findings.iter().take(usize::try_from(args.limit).unwrap_or(usize::MAX)).map(object).collect();
    let object = json!({
        "sound": !failed,
        "objects": result.objects,
        "samples": result.samples,
        "bytes": result.bytes,
        "checked": result.checked,
        "errors": result.errors,
        "warnings": result.warnings,
        "findings": findings,
        "quarantined": quarantined,
        "seconds": begun.elapsed().as_secs_f64(),
    });
    Ok(Done { object: Some(object), code: if failed { FAULTY } else { 0 } })
}

/// Adds samples whose payloads are bad to a quarantine file; how many it holds of this dataset then. Findings that are no
/// sample's, such as a cut shard, have no place there.
fn put_aside(path: &Path, data: &Data, bad: &[Finding], context: &Context) -> Result<u64> {
    let mut by_object: HashMap<&str, Vec<&Finding>> = HashMap::new();
    for finding in bad {
        by_object.entry(&finding.object).or_default().push(finding);
    }
    let dataset = context.open(data)?;
    let manifest = dataset.manifest();
    let known = quarantine::read(path, manifest.version(), manifest.len())?;
    let mut samples = known.ids().len() as u64;
    let mut writer = QuarantineWriter::new(path.to_owned(), manifest.version().to_owned(), &known);
    let (mut object, mut findings): (Option<u32>, &[&Finding]) = (None, &[]);
    let mut url = String::new();
    for sample in (0..manifest.len()).map(SampleId) {
        let number = manifest.object_of(sample);
        if object.replace(number) != Some(number) {
            url = dataset.store().url(&manifest.object(number).key);
            findings = by_object.get(url.as_str()).map_or(&[][..], Vec::as_slice);
        }
        if findings.is_empty() {
            continue;
        }
        let key = manifest.key(sample);
        let is_of = |finding: &&&Finding| match &finding.member {
            Some(member) => member.strip_prefix(&key).is_some_and(|rest| rest.starts_with('.')),
            None => true,
        };
        if let Some(finding) = findings.iter().find(is_of) {
            samples += u64::from(!known.holds(sample));
            writer.write(&QuarantineEntry {
                dataset: manifest.version().to_owned(),
                sample_id: sample.0,
                object: Some(url.clone()),
                offset: finding.offset,
                kind: ErrorKind::Corrupt.name().to_owned(),
                reason: line(finding),
                key,
            })?;
        }
    }
    Ok(samples)
}

fn line(finding: &Finding) -> String {
    let member = finding.member.as_ref().map(|member| format!("member `{member}`"));
    let offset = finding.offset.map(|offset| format!("byte {offset}"));
    let place = std::iter::once(finding.object.clone()).chain(member).chain(offset);
    let place = place.collect::<Vec<_>>().join(", ");
    // Causes and hints may span lines; a finding is one line, so that it can be searched for.
    let message = finding.message.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{} ({place}): {message}", finding.kind.name())
}

fn object(finding: &Finding) -> Value {
    json!({
        "kind": finding.kind.name(),
        "severity": if finding.kind.is_warning() { "warning" } else { "error" },
        "object": finding.object,
        "member": finding.member,
        "offset": finding.offset,
        "message": finding.message,
    })
}
