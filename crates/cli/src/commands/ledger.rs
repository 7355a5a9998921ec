//! `forebay ledger`: was every sample received once, and who received this one.

use super::{Context, Done, count, counted};
use crate::args::{Data, LedgerCheckArgs, LedgerCommand, LedgerWhereArgs};
use forebay_core::ledger::{
    EpochState, EpochVerdict, Fault, FaultKind, Seen, Sighting, Stream, StreamVerdict, streams,
};
use forebay_core::{Error, Result, SampleId};
use forebay_engine::ledger::{self, LedgerFile};
use forebay_engine::source::Dataset;
use serde_json::{Value, json};
use std::path::Path;

/// Exit code when something is missing or double: the same as for an error about corrupt data.
const FAULTY: i32 = 3;

pub(super) fn run(command: &LedgerCommand, context: &Context) -> Result<Done> {
    match command {
        LedgerCommand::Check(args) => check(args, context),
        LedgerCommand::Where(args) => find(args, context),
    }
}

fn check(args: &LedgerCheckArgs, context: &Context) -> Result<Done> {
    let (folder, data) = args.resolve()?;
    let (files, streams) = read(&folder, context)?;
    let dataset = open(data, context)?;
    let report = &context.report;
    let mut verdicts = Vec::new();
    for stream in chosen(&streams, dataset.as_ref())? {
        context.interrupt.check()?;
        let sampler = ledger::sampler(stream, dataset.as_ref().map(Dataset::manifest))?;
        let verdict = stream.check(sampler.as_ref(), args.limit as usize)?;
        say(&verdict, context);
        verdicts.push(verdict);
    }
    let odd = |verdict: &StreamVerdict| {
        verdict.epochs.iter().map(|epoch| epoch.skipped + epoch.filtered + epoch.substituted).sum::<u64>()
    };
    let strict = |verdict: &StreamVerdict| !args.strict || odd(verdict) == 0;
    let exact = verdicts.iter().all(|verdict| verdict.exact && strict(verdict));
    let epochs = || verdicts.iter().flat_map(|verdict| &verdict.epochs);
    let finished = epochs().filter(|epoch| epoch.state == EpochState::Exact).count() as u64;
    let faulty = epochs().filter(|epoch| epoch.state == EpochState::Faulty).count() as u64;
    report.line(match (exact, faulty) {
        (true, _) => format!("exact: {} finished, each position once", counted(finished, "epoch")),
        (false, 0) => {
            "not exact: samples were left out or replaced, which `--strict` does not allow".to_owned()
        }
        (false, faulty) => format!("not exact: {} with faults", counted(faulty, "epoch")),
    });
    let object = json!({ "exact": exact, "files": files, "streams": verdicts });
    Ok(Done { object: Some(object), code: if exact { 0 } else { FAULTY } })
}

fn find(args: &LedgerWhereArgs, context: &Context) -> Result<Done> {
    let (_, streams) = read(&args.folder, context)?;
    let dataset = open(args.resolve()?, context)?;
    let sample = sample(&args.sample, dataset.as_ref())?;
    let report = &context.report;
    let key = dataset.as_ref().map(|dataset| dataset.manifest().key(sample));
    let named = key.as_ref().map_or_else(String::new, |key| format!("  {key}"));
    report.fact("sample", format_args!("{sample}{named}"));
    let mut sightings = Vec::new();
    for stream in chosen(&streams, dataset.as_ref())? {
        let Some(sampler) = ledger::sampler(stream, dataset.as_ref().map(Dataset::manifest))? else {
            return Err(Error::invalid_config(format!(
                "find sample {sample} in `{}`: its order depends on the dataset",
                args.folder.display()
            ))
            .with_hint("name the dataset too: `forebay ledger where ID DIR DATASET`"));
        };
        for sighting in stream.find(&sampler, sample)? {
            report.line(line(&sighting));
            sightings.push(json!({ "dataset": stream.dataset(), "order": stream.order(), "at": sighting }));
        }
    }
    if sightings.is_empty() {
        report.line("no batch of this ledger has it");
    }
    Ok(Done::with(json!({ "sample_id": sample, "key": key, "seen": sightings })))
}

/// The files of a ledger, for `--json`, and what is in them. What could not be read is said.
fn read(folder: &Path, context: &Context) -> Result<(Vec<Value>, Vec<Stream>)> {
    let files = ledger::read(folder)?;
    let object = |file: &LedgerFile| {
        json!({
            "name": file.name,
            "bytes": file.bytes,
            "whole_bytes": file.parsed.whole_bytes,
            "damage": file.parsed.damage,
        })
    };
    let objects = files.iter().map(object).collect();
    for file in &files {
        if let Some(damage) = &file.parsed.damage {
            let (name, at) = (&file.name, file.parsed.whole_bytes);
            context
                .report
                .warning(format_args!("`{name}`: {damage} at byte {at}; nothing behind it was read"));
        }
    }
    Ok((objects, streams(files.into_iter().flat_map(|file| file.parsed.sections))))
}

fn open(data: Option<Data>, context: &Context) -> Result<Option<Dataset>> {
    data.map(|data| context.open(&data)).transpose()
}

/// The streams that are of the dataset, when one is named; a folder may hold those of several loaders.
fn chosen<'a>(streams: &'a [Stream], dataset: Option<&Dataset>) -> Result<Vec<&'a Stream>> {
    let Some(dataset) = dataset else { return Ok(streams.iter().collect()) };
    let version = dataset.manifest().version();
    let chosen: Vec<&Stream> = streams.iter().filter(|stream| stream.dataset() == version).collect();
    if chosen.is_empty() && !streams.is_empty() {
        let known: Vec<&str> = streams.iter().map(Stream::dataset).collect();
        let (url, known) = (dataset.url(), known.join(", "));
        return Err(Error::stale(format!("check ledger: it holds nothing of `{url}`, version {version}"))
            .with_hint(format!("it is of version {known}: name the dataset as it was then")));
    }
    Ok(chosen)
}

/// A sample by id or key.
fn sample(text: &str, dataset: Option<&Dataset>) -> Result<SampleId> {
    let by_key = dataset.and_then(|dataset| dataset.manifest().find_key(text));
    let by_id = || text.parse().ok().map(SampleId);
    let known = |id: &SampleId| dataset.is_none_or(|dataset| id.0 < dataset.manifest().len());
    by_key.or_else(by_id).filter(known).ok_or_else(|| match dataset {
        Some(dataset) => Error::not_found(format!("find sample `{text}`: `{}` has none", dataset.url())),
        None => Error::invalid_config(format!("find sample `{text}`: it is no id"))
            .with_hint("name the dataset too, to find a sample by its key"),
    })
}

fn say(verdict: &StreamVerdict, context: &Context) {
    let report = &context.report;
    let by = if verdict.by_id { "by sample id" } else { "by position: name the dataset to compare ids" };
    let samples = counted(verdict.samples, "sample");
    report.fact("dataset", format_args!("version {}, {samples}, {by}", verdict.dataset));
    for run in &verdict.runs {
        let missing = if run.ranks < run.world_size { format!(", of {}", run.ranks) } else { String::new() };
        report.fact(
            if run.run == 1 { "runs" } else { "" },
            format_args!(
                "{}: {}{missing}, batches of {}, from step {} in epoch {}, {} batches received",
                run.run,
                counted(run.world_size, "rank"),
                run.batch_size,
                run.first_step,
                run.epoch,
                count(run.batches),
            ),
        );
    }
    for (number, epoch) in verdict.epochs.iter().enumerate() {
        report.fact(
            if number == 0 { "epochs" } else { "" },
            format_args!("{}: {}", epoch.epoch, epoch_line(epoch)),
        );
    }
    for epoch in &verdict.epochs {
        for fault in &epoch.faults {
            report.finding(false, fault_line(epoch.epoch, fault));
        }
    }
}

fn epoch_line(epoch: &EpochVerdict) -> String {
    let state = match epoch.state {
        EpochState::Exact => "exact",
        EpochState::Open => "open, nothing twice",
        EpochState::Faulty => "not exact",
        EpochState::Superseded => "superseded",
    };
    let facts = [
        (epoch.gaps, "missing"),
        (epoch.doubles, "double"),
        (epoch.altered, "altered batches"),
        (epoch.superseded, "superseded"),
        (epoch.left_out, "left out"),
        (epoch.padding, "padding"),
        (epoch.skipped, "skipped"),
        (epoch.filtered, "filtered"),
        (epoch.substituted, "substituted"),
    ];
    let facts = facts.iter().filter(|(number, _)| *number > 0);
    let mut line = format!("{state}, {} of {} received", count(epoch.received), count(epoch.positions));
    for (number, what) in facts {
        line.extend([", ", &count(*number), " ", what]);
    }
    line
}

fn fault_line(epoch: u64, fault: &Fault) -> String {
    let what = match fault.sample_id {
        Some(sample) => format!("sample {sample} at position {}", fault.position),
        None => format!("position {}", fault.position),
    };
    let seen: Vec<String> = fault.seen.iter().map(at).collect();
    let seen = if seen.is_empty() { "nobody".to_owned() } else { seen.join(" and ") };
    match fault.kind {
        FaultKind::Gap => format!("epoch {epoch}, {what}: not received; due at {seen}"),
        FaultKind::Double => format!("epoch {epoch}, {what}: received at {seen}"),
        FaultKind::Altered => format!("epoch {epoch}, batch at {seen}: its rows were not those planned"),
    }
}

fn at(seen: &Seen) -> String {
    format!("step {} of rank {} in run {}", seen.step, seen.rank, seen.run)
}

fn line(sighting: &Sighting) -> String {
    let Sighting { epoch, step, rank, world_size, run, .. } = sighting;
    let mut line = format!("epoch {epoch}, step {step}, rank {rank} of {world_size}, run {run}");
    if let Some(other) = sighting.instead_of {
        line.extend([", in place of sample ", &other.to_string()]);
    }
    if let Some(absent) = sighting.absent {
        line.extend([", but it was ", absent]);
    }
    if sighting.padding {
        line.push_str(", as padding");
    }
    if !sighting.counts {
        line.push_str(", superseded by a later run");
    }
    line
}
