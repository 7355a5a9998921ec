//! `forebay cache`: looking after a cache on disk.

use super::{Context, Done, cache_show, cache_warm, counted, seconds, size};
use crate::args::{CacheClearArgs, CacheCommand, CacheVerifyArgs};
use crate::progress::Progress;
use forebay_core::{Error, Result};
use forebay_engine::cache::disk::{DiskTier, Stored};
use futures::stream::{self, StreamExt};
use serde_json::{Value, json};
use std::time::Instant;

/// Exit code when damage was found: the same as for an error about corrupt data.
const DAMAGED: i32 = 3;
/// Payloads that are read at once.
const READS: usize = 16;

pub(super) fn run(command: &CacheCommand, context: &Context) -> Result<Done> {
    match command {
        CacheCommand::Show(args) => cache_show::run(args, context),
        CacheCommand::Verify(args) => verify(args, context),
        CacheCommand::Warm(args) => cache_warm::run(args, context),
        CacheCommand::Clear(args) => clear(args, context),
    }
}

fn verify(args: &CacheVerifyArgs, context: &Context) -> Result<Done> {
    let begun = Instant::now();
    let tier = if args.repair { DiskTier::mend(&args.dir)? } else { DiskTier::look(&args.dir)? };
    let stored = tier.stored();
    let (payloads, bytes) = (stored.len() as u64, stored.iter().map(|one| one.length).sum::<u64>());
    let report = &context.report;
    let bar = Progress::new(report, "verifying", "payloads", payloads);
    let mut damaged: Vec<Stored> = Vec::new();
    let mut done = 0;
    context.wait(async {
        let reads = stream::iter(stored).map(|one| {
            let tier = &tier;
            async move {
                // Beside a writer a payload may be forgotten between listing and reading: that is no damage.
                let sound = tier.check(one.id).await != Some(false);
                (one, sound)
            }
        });
        let mut reads = reads.buffered(READS);
        while let Some((one, sound)) = reads.next().await {
            done += 1;
            bar.set(done, payloads);
            if !sound {
                damaged.push(one);
            }
            context.interrupt.check()?;
        }
        Ok::<(), Error>(())
    })??;
    drop(bar);
    for one in damaged.iter().take(usize::try_from(args.limit).unwrap_or(usize::MAX)) {
        report.finding(
            false,
            format_args!("damaged ({}, byte {}): payload {}", path(args, one), one.offset, one.id),
        );
    }
    let sound_index = tier.detail().sound_index;
    if !sound_index {
        report.finding(true, "the index is missing or damaged; headers of the segments said what is there");
    }
    let unsaid = (damaged.len() as u64).saturating_sub(args.limit);
    if unsaid > 0 {
        report.line(format_args!("and {} more; `--limit` shows them", counted(unsaid, "finding")));
    }
    let repaired = args.repair && tier.flush();
    let sound = damaged.is_empty();
    report.line(format_args!(
        "{}: {}, {}, {} damaged{}, in {}",
        if sound { "sound" } else { "faulty" },
        counted(payloads, "payload"),
        size(bytes),
        super::count(damaged.len() as u64),
        if repaired && !sound { " and taken out" } else { "" },
        seconds(begun.elapsed().as_secs_f64()),
    ));
    let findings: Vec<Value> =
        damaged.iter().take(usize::try_from(args.limit).unwrap_or(usize::MAX)).map(object).collect();
    let object = json!({
        "sound": sound,
        "payloads": payloads,
        "bytes": bytes,
        "damaged": damaged.len(),
        "sound_index": sound_index,
        "repaired": repaired && !sound,
        "findings": findings,
        "seconds": begun.elapsed().as_secs_f64(),
    });
    Ok(Done { object: Some(object), code: if sound { 0 } else { DAMAGED } })
}

fn clear(args: &CacheClearArgs, context: &Context) -> Result<Done> {
    if !args.yes {
        let view = DiskTier::look(&args.dir)?.detail();
        let holds = format!("it holds {}, {}", counted(view.tier.payloads, "payload"), size(view.tier.bytes));
        return Err(Error::invalid_config(format!("clear the cache `{}`: {holds}", args.dir.display()))
            .with_hint("add `--yes` to remove them"));
    }
    let cleared = DiskTier::clear(&args.dir)?;
    context.report.line(format_args!("removed {}, {}", counted(cleared.files, "file"), size(cleared.bytes)));
    if cleared.left > 0 {
        context.report.note(format_args!("{} left: not the cache's", counted(cleared.left, "other file")));
    }
    Ok(Done::with(json!({ "files": cleared.files, "bytes": cleared.bytes, "left": cleared.left })))
}

fn path(args: &CacheVerifyArgs, one: &Stored) -> String {
    args.dir.join(&one.file).display().to_string()
}

fn object(one: &Stored) -> Value {
    json!({ "kind": "damaged", "payload": one.id.to_string(), "object": one.file, "offset": one.offset, "length": one.length })
}
