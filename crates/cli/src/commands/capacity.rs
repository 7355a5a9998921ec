//! `forebay plan`: drives, links, machines and their price for a dataset and its accelerators; and how a run on them
//! would go. The arithmetic is core's: `capacity` and `stall`.

use super::{Context, Done, count, counted, seconds, size};
use crate::args::CapacityJob;
use forebay_core::Result;
use forebay_core::capacity::{self, Access, Choice, Demand, Verdict};
use forebay_core::stall::{self, Bottleneck, Change, FetchLimit, Prediction, Remedy, Setup};
use serde::Serialize;
use serde_json::json;

/// Remedies that people are told of; `--json` has all.
const REMEDIES_TOLD: usize = 3;

pub(super) fn run(job: &CapacityJob, context: &Context) -> Result<Done> {
    let demand = &job.demand;
    let choices: Vec<Choice> =
        job.drives.iter().map(|drive| capacity::choose(demand, drive, &job.server)).collect();
    let links = capacity::links(demand, &job.catalog);
    let have = job.have.as_ref().map(|(drive, count)| capacity::judge(demand, drive, &job.server, *count));
    let store = job
        .store_bytes_per_second
        .or(have.as_ref().map(|have| have.bytes_per_second))
        .unwrap_or(demand.wanted_bytes_per_second());
    let runs = job.runs.iter().map(|setup| simulate(setup, store, demand)).collect::<Result<Vec<_>>>()?;
    let mut warnings = Vec::new();
    if let (Some(have), Some((drive, _))) = (&have, &job.have) {
        let better = capacity::choose(demand, drive, &job.server);
        warnings.extend(doubts(demand, have, &better));
    }
    for choice in choices.iter().filter(|choice| choice.verdict == Verdict::NoHeadroom) {
        let (number, drive, rate) = (choice.count, &choice.drive, speed(choice.bytes_per_second));
        warnings.push(format!("{number} x `{drive}` give {rate}, what is asked and no more: 0 % headroom"));
    }

    let report = &context.report;
    report.fact("asked", asked(demand));
    report.fact("dataset", dataset(demand));
    report.line("");
    report.line(row(["drive", "drives", "machines", "rate", "headroom", "price", "limited by"]));
    for choice in &choices {
        report.line(drives_row(choice));
    }
    report.line("");
    report.line(row(["link", "links", "", "", "headroom", "price", ""]));
    for link in &links {
        let (links, price) = (count(link.count), count(link.price.round() as u64));
        report.line(row([&link.link, &links, "", "", &percent(link.headroom), &price, ""]));
    }
    if let Some(have) = &have {
        report.line("");
        report.line(row(["have", "drives", "machines", "rate", "headroom", "price", "limited by"]));
        report.line(drives_row(have));
    }
    for run in &runs {
        report.line("");
        tell(run, context);
    }
    for warning in &warnings {
        report.warning(warning);
    }
    Ok(Done::with(json!({
        "demand": {
            "asked": demand,
            "bytes_per_second": demand.bytes_per_second(),
            "wanted_bytes_per_second": demand.wanted_bytes_per_second(),
            "sample_bytes": demand.sample_bytes(),
            "epoch_seconds": demand.epoch_seconds(),
        },
        "drives": choices,
        "links": links,
        "have": have,
        "simulated": runs,
        "warnings": warnings,
    })))
}

/// A run as `--json` shows it.
#[derive(Serialize)]
struct Run {
    nodes: u64,
    cache_bytes: f64,
    round_trip_seconds: f64,
    store_bytes_per_second: f64,
    #[serde(flatten)]
    prediction: Prediction,
    seconds: f64,
    /// Bytes on each node from which fetching is no longer the bottleneck.
    cache_needed_bytes: Option<f64>,
    remedies: Vec<Remedy>,
}

fn simulate(setup: &Setup, store_bytes_per_second: f64, demand: &Demand) -> Result<Run> {
    let setup = Setup { store_bytes_per_second, ..*setup };
    let prediction = stall::predict(&setup)?;
    Ok(Run {
        nodes: setup.nodes,
        cache_bytes: setup.cache_bytes,
        round_trip_seconds: setup.round_trip_seconds,
        store_bytes_per_second,
        seconds: prediction.seconds(demand.epochs),
        cache_needed_bytes: stall::cache_needed(&setup),
        remedies: stall::remedies(&setup)?,
        prediction,
    })
}

/// What is wrong with drives that somebody has in mind.
fn doubts(demand: &Demand, have: &Choice, better: &Choice) -> Vec<String> {
    let mut doubts = Vec::new();
    let drives = format!("{} x `{}`", have.count, have.drive);
    let rate = speed(have.bytes_per_second);
    let wanted = speed(demand.bytes_per_second());
    let cure = format!("{} give {} headroom", better.count, percent(better.headroom));
    let fed = have.bytes_per_second / demand.accelerator_bytes_per_second as f64;
    match have.verdict {
        Verdict::TooSmall => doubts.push(format!(
            "{drives} hold {} of {}; {} do",
            size(have.capacity_bytes as u64),
            size(demand.dataset_bytes),
            better.count
        )),
        Verdict::TooSlow => doubts.push(format!(
            "{drives} give {rate} of {wanted}: enough for {fed:.1} of {} accelerators; {cure}",
            demand.accelerators
        )),
        Verdict::NoHeadroom => doubts.push(format!(
            "{drives} give {rate} where {wanted} are asked: {} headroom, so accelerators wait whenever a drive is \
             late; {cure}",
            percent(have.headroom)
        )),
        Verdict::Enough => {}
    }
    if demand.access == Access::Shards && have.random_bytes_per_second < demand.bytes_per_second() {
        let fed = have.random_bytes_per_second / demand.accelerator_bytes_per_second as f64;
        doubts.push(format!(
            "with one file for each sample, {drives} give {}: enough for {fed:.1} of {} accelerators",
            speed(have.random_bytes_per_second),
            demand.accelerators
        ));
    }
    doubts
}

fn asked(demand: &Demand) -> String {
    format!(
        "{} for {} at {} each; {} with {} headroom",
        speed(demand.bytes_per_second()),
        counted(demand.accelerators, "accelerator"),
        speed(demand.accelerator_bytes_per_second as f64),
        speed(demand.wanted_bytes_per_second()),
        percent(demand.headroom)
    )
}

fn dataset(demand: &Demand) -> String {
    let epoch = seconds(demand.epoch_seconds());
    let bytes = size(demand.dataset_bytes);
    let samples = counted(demand.samples, "sample");
    format!(
        "{bytes} in {samples} of {}; {epoch} an epoch when nothing waits",
        size(demand.sample_bytes() as u64)
    )
}

fn drives_row(choice: &Choice) -> String {
    let limit = word(&choice.limit);
    let machines = count(choice.servers.count);
    let price = count(choice.price.round() as u64);
    let drives = count(choice.count);
    let (rate, headroom) = (speed(choice.bytes_per_second), percent(choice.headroom));
    row([&choice.drive, &drives, &machines, &rate, &headroom, &price, &limit])
}

fn row(cells: [&str; 7]) -> String {
    let [name, number, machines, rate, headroom, price, limit] = cells;
    let line = format!("{name:<14} {number:>8} {machines:>9} {rate:>12} {headroom:>9} {price:>12}  {limit}");
    line.trim_end().to_owned()
}

fn tell(run: &Run, context: &Context) {
    let report = &context.report;
    let later = &run.prediction.later;
    report.fact(
        "run",
        format_args!(
            "{}, {} of cache each, {} round trip, {} from the store",
            counted(run.nodes, "node"),
            size(run.cache_bytes as u64),
            seconds(run.round_trip_seconds),
            speed(run.store_bytes_per_second)
        ),
    );
    let first = &run.prediction.first;
    let (one, other) = (seconds(first.seconds), seconds(later.seconds));
    report.fact("epochs", format_args!("the first {one}, then {other}; together {}", seconds(run.seconds)));
    let shares = [later.stall_fraction(), later.fetch_stall_seconds / later.seconds];
    let [stall, fetch] = shares.map(percent);
    let prep = percent(later.prep_stall_seconds / later.seconds);
    report.fact("stall", format_args!("{stall} of the time: {fetch} fetch, {prep} prep"));
    let limit = match (later.bottleneck, later.fetch_limit) {
        (Bottleneck::Ingest, _) => "the accelerators, as it should be".to_owned(),
        (Bottleneck::Prep, _) => "prep".to_owned(),
        (Bottleneck::Fetch, limit) => format!("fetching: {}", limited(limit)),
    };
    report.fact("limited by", limit);
    match run.cache_needed_bytes {
        Some(0.0) => {}
        Some(bytes) => {
            report.fact("cache", format_args!("{} on each node hide fetching", size(bytes as u64)));
        }
        None => report.fact("cache", "no size of cache hides fetching"),
    }
    for remedy in run.remedies.iter().take(REMEDIES_TOLD) {
        report.fact("remedy", format_args!("{}: {} faster", change(remedy.change), percent(remedy.gain)));
    }
}

fn limited(limit: FetchLimit) -> &'static str {
    match limit {
        FetchLimit::StoreBandwidth => "bytes a second of the store",
        FetchLimit::StoreRequests => "requests a second of the store",
        FetchLimit::Window => "requests in flight over the round trip",
        FetchLimit::NodeLink => "the link of each node",
        FetchLimit::CacheReads => "reads of the cache",
        FetchLimit::Nothing => "nothing",
    }
}

fn change(change: Change) -> String {
    match change {
        Change::WindowRequests(requests) => format!("{requests} requests in flight on each node"),
        Change::RequestBytes(bytes) => format!("requests of {}", size(bytes as u64)),
        Change::Peers(_) => "nodes that keep for each other".to_owned(),
        Change::CacheBytes(bytes) => format!("{} of cache on each node", size(bytes as u64)),
        Change::Cores(cores) => format!("{cores} cores on each node"),
        Change::StoreBytesPerSecond(rate) => format!("{} from the store", speed(rate)),
        Change::LinkBytesPerSecond(rate) => format!("{} into each node", speed(rate)),
    }
}

/// A word as `--json` spells it.
fn word(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn speed(bytes_per_second: f64) -> String {
    format!("{}/s", size(bytes_per_second as u64))
}

fn percent(share: f64) -> String {
    // What floats leave of a zero has no sign.
    let percent = (share * 100.0).round() + 0.0;
    if percent.abs() < 1e6 { format!("{percent} %") } else { format!("{percent:.1e} %") }
}
