//! `forebay verify`: looks at everything and names each fault with its place.

use super::{Context, Done, counted, size};
use crate::args::VerifyArgs;
use forebay_core::recipe::{ImageMode, Orientation, default_max_pixels};
use forebay_core::{Result, size::format_seconds};
use forebay_engine::source::verify::{Check, Finding, VerifyOptions, verify};
use forebay_ops::decode::image::Decoder;
use forebay_ops::decode::{json, label, npy, text};
use forebay_ops::{Image, Rect};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Exit code when faults were found: the same as for an error about corrupt data.
const FAULTY: i32 = 3;

pub(super) fn run(args: &VerifyArgs, context: &Context) -> Result<Done> {
    let begun = Instant::now();
    let data = args.data.resolve()?;
    let report = &context.report;
    let said = AtomicU64::new(0);
    let found = |finding: &Finding| {
        if said.fetch_add(1, Ordering::Relaxed) < args.limit {
            report.finding(finding.kind.is_warning(), line(finding));
        }
    };
    let options = VerifyOptions { check: (!args.no_decode).then(|| Arc::new(check) as Check) };
    let watched = context.watched(&data.options, "verifying");
    let result = context.wait(verify(&data.spec, &watched, &options, &found))??;
    drop(watched);

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
    let mut place = finding.object.clone();
    if let Some(member) = &finding.member {
        place.push_str(&format!(", member `{member}`"));
    }
    if let Some(offset) = finding.offset {
        place.push_str(&format!(", byte {offset}"));
    }
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

thread_local! {
    /// Decoder and pixels of a checking thread, made when it meets its first image.
    static DECODER: RefCell<Option<(Decoder, Image)>> = const { RefCell::new(None) };
}

/// Decodes a payload by what its field's name says it is. A field that nothing is known about is sound.
fn check(field: &str, payload: &[u8]) -> Result<()> {
    match field.rsplit('.').next().unwrap_or(field) {
        "jpg" | "jpeg" | "png" | "webp" => check_image(payload),
        "npy" => npy::parse(payload).map(drop),
        "json" => json::decode(payload).map(drop),
        "cls" => label::decode(payload).map(drop),
        "txt" | "text" => text::decode(payload).map(drop),
        _ => Ok(()),
    }
}

fn check_image(payload: &[u8]) -> Result<()> {
    DECODER.with_borrow_mut(|slot| {
        let (decoder, pixels) = match slot {
            Some(made) => made,
            none => none.insert((Decoder::new()?, Image::default())),
        };
        let info = decoder.info(payload, Orientation::Ignore, default_max_pixels())?;
        let whole = Rect::of_size(info.width, info.height);
        decoder.decode(payload, &info, ImageMode::Rgb, whole, pixels).map(drop)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_tried_by_the_last_part_of_their_field() {
        for (field, sound, broken) in [
            ("cls", &b"7"[..], &b"seven"[..]),
            ("meta.json", b"{}", b"{"),
            ("txt", b"word", b"\xff"),
            ("npy", b"\x93NUMPY\x01\x00\x46\x00{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }            \n\x00", b"npy"),
        ] {
            assert!(check(field, sound).is_ok(), "{field}: {:?}", check(field, sound));
            assert!(check(field, broken).is_err(), "{field}");
        }
        assert!(check("seg.jpg", b"not an image").is_err());
        assert!(check("bin", b"anything").is_ok());
    }
}
