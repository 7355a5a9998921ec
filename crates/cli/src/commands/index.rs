//! `forebay index`: builds a manifest and keeps it.

use super::{Context, Done, counted, kept, seconds, size};
use crate::args::IndexArgs;
use forebay_core::{Error, Result};
use forebay_store::{LocalStore, Store};
use serde_json::json;
use std::path::Path;
use std::time::Instant;

pub(super) fn run(args: &IndexArgs, context: &Context) -> Result<Done> {
    let begun = Instant::now();
    let mut data = args.data.resolve()?;
    data.options.rebuild = args.rebuild;
    let (dataset, origin) = kept::watch(&data, || context.open(&data))?;
    let manifest = dataset.manifest();
    if let Some(out) = &args.out {
        write(out, manifest.as_bytes(), context)?;
    }
    let bytes = manifest.as_bytes().len() as u64;
    let elapsed = begun.elapsed().as_secs_f64();
    let report = &context.report;
    report.fact(
        "dataset",
        format_args!(
            "{}: {} in {}",
            dataset.url(),
            counted(manifest.len(), "sample"),
            counted(manifest.object_count().into(), "object")
        ),
    );
    report.fact("version", manifest.version());
    report.fact("manifest", format_args!("{} ({})", origin.text(), size(bytes)));
    if let Some(out) = &args.out {
        report.fact("written", out.display());
    }
    report.fact("time", seconds(elapsed));
    Ok(Done::with(json!({
        "url": dataset.url(),
        "samples": manifest.len(),
        "objects": manifest.object_count(),
        "version": manifest.version(),
        "manifest": origin.object(),
        "manifest_bytes": bytes,
        "out": args.out.as_ref().map(|out| out.display().to_string()),
        "seconds": elapsed,
        "notes": dataset.notes(),
    })))
}

/// Writes a manifest whole or not at all.
fn write(out: &Path, bytes: &[u8], context: &Context) -> Result<()> {
    let doing = format!("write manifest `{}`", out.display());
    if out.extension().is_none_or(|extension| extension != "fbm") {
        return Err(Error::invalid_config(format!("{doing}: the name does not end in `.fbm`"))
            .with_hint("a file that ends in `.fbm` can be opened like a dataset"));
    }
    let path = std::path::absolute(out).map_err(|error| Error::io(doing.clone(), error))?;
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Err(Error::invalid_config(format!("{doing}: it is not a file name")));
    };
    let store = LocalStore::new(folder.to_path_buf());
    let bytes = bytes.to_vec();
    context.wait(store.write(name, bytes.into()))?.map_err(|error| error.while_doing(doing))?;
    Ok(())
}
