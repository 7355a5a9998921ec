//! `forebay analyze`: measures a pipeline's rates and says what holds it back, what would help, and what would be if.

mod html;

use super::{Context, Done, size};
use crate::args::AnalyzePlan;
use forebay_core::stall::{Analysis, Bottleneck, Change, Epoch, FetchLimit, IDLE_RATE, Rate, Rates, analyze};
use forebay_core::{Error, Result};
use forebay_engine::{Measured, measure};
use serde_json::json;

/// Beyond these nobody has so much: a loop without a step could use any number.
const MOST_CORES: f64 = 1e6;
const MOST_BYTES: f64 = 1e15;

pub(super) fn run(plan: &AnalyzePlan, context: &Context) -> Result<Done> {
    let dataset = context.open(&plan.data)?;
    let config = plan.loader.config(&dataset)?;
    let mut go_on = || context.interrupt.check();
    let measured = measure(&dataset, &plan.recipe, &config, plan.seconds, &mut go_on)?;
    let batch = measured.facts.batch_size as f64;
    let ingest = Rate::exact(plan.step.map_or(IDLE_RATE, |step| batch / step));
    let rates = Rates { ingest, prep: measured.prep, fetch: measured.fetch };
    let facts = forebay_core::stall::RunFacts { cache_bytes: plan.cache_bytes as f64, ..measured.facts };
    let analysis = analyze(rates, facts, plan.what_if.as_deref())?;
    say(context, &analysis, &measured);
    if let Some(path) = &plan.html {
        let page = html::page(dataset.url(), &analysis)?;
        std::fs::write(path, page)
            .map_err(|error| Error::io(format!("write report `{}`", path.display()), error))?;
        context.report.note(format_args!("report in {}", path.display()));
    }
    let mut object = serde_json::to_value(&analysis).unwrap_or_default();
    object["url"] = json!(dataset.url());
    object["cold"] = json!(measured.cold);
    object["step_seconds"] = json!(plan.step);
    Ok(Done::with(object))
}

fn say(context: &Context, analysis: &Analysis, measured: &Measured) {
    let report = &context.report;
    let Rates { ingest, prep, fetch } = &analysis.rates;
    match ingest.per_second {
        IDLE_RATE => report.fact("ingest rate", "without limit: no step was named (`--step`)"),
        rate => report.fact("ingest rate", format_args!("{} samples/s", number(rate))),
    }
    let threads = analysis.facts.threads;
    report.fact("prep rate", format_args!("{} with {threads} threads", with_interval(prep)));
    match fetch {
        Some(fetch) => {
            let bytes = size((fetch.per_second * analysis.facts.sample_bytes) as u64);
            let warm = if measured.cold {
                ""
            } else {
                "; the store cannot be read cold: it may be slower than that"
            };
            report.fact("fetch rate", format_args!("{}, {bytes}/s{warm}", with_interval(fetch)));
        }
        None => report.fact("fetch rate", "without limit: the recipe reads no payload"),
    }
    let prediction = &analysis.prediction;
    report.line("");
    report.fact("bottleneck", bottleneck(&prediction.later));
    epoch(context, "first epoch", &prediction.first);
    if analysis.facts.cache_bytes > 0.0 {
        epoch(context, "later epochs", &prediction.later);
    }
    match analysis.cache_needed_bytes {
        Some(bytes) if bytes > 0.0 => {
            let share = 100.0 * bytes / (analysis.facts.samples as f64 * analysis.facts.sample_bytes);
            let text = format!(
                "{} ({share:.0} % of an epoch) make fetching no longer the bottleneck",
                size(bytes as u64)
            );
            report.fact("cache", text);
        }
        Some(_) => {}
        None => report.fact("cache", "no size makes fetching disappear"),
    }
    if !analysis.remedies.is_empty() {
        report.line("");
        report.line("what would help, one at a time:");
    }
    for remedy in &analysis.remedies {
        let gain = 100.0 * remedy.gain;
        report.line(format_args!("  +{gain:>5.0} %  {}", change(&remedy.change)));
    }
    if let Some(what_if) = &analysis.what_if {
        report.line("");
        report.line(format_args!("with {}:", what_if.change));
        report.fact("bottleneck", bottleneck(&what_if.prediction.later));
        epoch(context, "first epoch", &what_if.prediction.first);
        epoch(context, "later epochs", &what_if.prediction.later);
    }
}

fn epoch(context: &Context, name: &str, epoch: &Epoch) {
    let share = |seconds: f64| 100.0 * seconds / epoch.seconds;
    context.report.fact(
        name,
        format_args!(
            "{} samples/s, {}: step {:.0} %, prep stall {:.0} %, fetch stall {:.0} %",
            number(epoch.rate),
            super::seconds(epoch.seconds),
            share(epoch.step_seconds),
            share(epoch.prep_stall_seconds),
            share(epoch.fetch_stall_seconds),
        ),
    );
}

fn bottleneck(epoch: &Epoch) -> &'static str {
    match (epoch.bottleneck, epoch.fetch_limit) {
        (Bottleneck::Ingest, _) => "the training step: nothing stalls",
        (Bottleneck::Prep, _) => "preparing",
        (Bottleneck::Fetch, FetchLimit::Window) => "fetching: too few requests in flight",
        (Bottleneck::Fetch, FetchLimit::StoreRequests) => "fetching: requests that the store answers",
        (Bottleneck::Fetch, FetchLimit::CacheReads) => "fetching: reads of the cache",
        (Bottleneck::Fetch, _) => "fetching: what store and link give",
    }
}

fn change(change: &Change) -> String {
    match *change {
        Change::WindowRequests(requests) => format!("{requests:.0} requests in flight (`inflight`)"),
        Change::RequestBytes(bytes) => {
            format!("requests of {}: pack samples into shards (`forebay pack`)", size(bytes as u64))
        }
        Change::Peers(_) => "nodes that keep for each other (`peers`)".to_owned(),
        Change::CacheBytes(bytes) => format!("a cache of {} (`cache`)", size(bytes as u64)),
        // Without a step no number is enough.
        Change::Cores(cores) if cores >= MOST_CORES => {
            "more cores that prepare, here or as workers of a service (`num_workers`, `via`)".to_owned()
        }
        Change::Cores(cores) => {
            format!("{cores:.0} cores that prepare, here or as workers of a service (`num_workers`, `via`)")
        }
        Change::StoreBytesPerSecond(rate) if rate >= MOST_BYTES => "a faster store".to_owned(),
        Change::StoreBytesPerSecond(rate) => format!("a store that gives {}/s", size(rate as u64)),
        Change::LinkBytesPerSecond(rate) => format!("a link of {}/s", size(rate as u64)),
    }
}

fn with_interval(rate: &Rate) -> String {
    let half = (rate.high - rate.low) / 2.0;
    let doubt = if half.is_finite() { format!(" ± {}", number(half)) } else { String::new() };
    format!("{}{doubt} samples/s", number(rate.per_second))
}

fn number(value: f64) -> String {
    if value >= 100.0 { super::count(value.round() as u64) } else { format!("{value:.1}") }
}
