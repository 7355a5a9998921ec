//! `forebay verify`: looks at everything and names each fault with its place.

use super::{Context, Done, counted, size, watched, with_nearby};
use crate::args::VerifyArgs;
use crate::progress::Progress;
use forebay_core::{Result, size::format_seconds};
use forebay_engine::source::decodable;
use forebay_engine::source::verify::{Check, Finding, VerifyOptions, verify};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Exit code when faults were found: the same as for an error about corrupt data.
const FAULTY: i32 = 3;

pub(super) fn run(args: &VerifyArgs, context: &Context) -> Result<Done> {
    let begun = Instant::now();
    let data = args.data.resolve()?;
    let report = &context.report;
    let bar = Arc::new(Progress::new(report, "verifying", "objects", 0));
    let said = AtomicU64::new(0);
    let found = |finding: &Finding| {
        if said.fetch_add(1, Ordering::Relaxed) < args.limit {
            bar.suspend(|| report.finding(finding.kind.is_warning(), line(finding)));
        }
    };
    let options = VerifyOptions { check: (!args.no_decode).then(|| Arc::new(decodable) as Check) };
    let result = context.wait(verify(&data.spec, &watched(&data.options, &bar), &options, &found))?;
    let result = result.map_err(|error| with_nearby(error, &data.spec))?;
    drop(bar);

    let unsaid = said.load(Ordering::Relaxed).saturating_sub(args.limit);
    if unsaid > 0 {
        report.line(format_args!("and {} more; `--limit` shows them", counted(unsaid, "finding")));
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
        "seconds": begun.elapsed().as_secs_f64(),
    });
    Ok(Done { object: Some(object), code: if failed { FAULTY } else { 0 } })
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
