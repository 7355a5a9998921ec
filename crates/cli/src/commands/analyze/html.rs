//! `forebay analyze --html`: the same as one file with plots that needs nothing else, not even a script.
//!
//! Curves ask the model of `forebay_core::stall` point by point; texts are escaped.

mod plots;

use super::{bottleneck, change, number, size};
use forebay_core::Result;
use forebay_core::stall::{Analysis, IDLE_RATE, Rate, analyze};
use plots::{Curve, epoch_row, figure, legend, rate_row};
use std::fmt::Write;

const STYLE: &str = include_str!("html/report.css");

/// The page. `name` is what was analyzed.
pub(super) fn page(name: &str, analysis: &Analysis) -> Result<String> {
    let mut page = String::new();
    let name = escape(name);
    let _ = write!(
        page,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\"><link rel=\"icon\" href=\"data:,\"><title>Forebay: {name}</title>\
         <style>{STYLE}</style></head><body><header><h1>Where the time goes</h1><p>{name}</p></header><main>",
    );
    verdict(&mut page, analysis);
    section(&mut page, "wide", "What each part gives alone, with 95&nbsp;% intervals", &rates(analysis));
    section(&mut page, "wide", "Where an epoch's time goes", &epochs(analysis));
    curves(&mut page, analysis)?;
    remedies(&mut page, analysis);
    if let Some(what_if) = &analysis.what_if {
        let later = &what_if.prediction.later;
        let row = legend() + &epoch_row("later epochs", "what-if", later);
        let note = format!("<p class=\"soft\">Bottleneck then: {}</p>", bottleneck(later));
        section(&mut page, "wide", &format!("With {}", escape(&what_if.change)), &(row + &note));
    }
    page.push_str("</main></body></html>\n");
    Ok(page)
}

fn section(page: &mut String, class: &str, title: &str, body: &str) {
    let _ = write!(page, "<section class=\"{class}\"><h2>{title}</h2>{body}</section>");
}

/// What holds the run back, and how fast it goes.
fn verdict(page: &mut String, analysis: &Analysis) {
    let (facts, later) = (&analysis.facts, &analysis.prediction.later);
    let _ = write!(
        page,
        "<section class=\"wide\"><p class=\"name\">bottleneck</p><p class=\"big\" id=\"bottleneck\">{}</p>\
         <p class=\"soft\">{} samples/s; {} samples an epoch, batches of {}, {} preparing threads{}</p></section>",
        escape(bottleneck(later)),
        figure("later-rate", later.rate),
        super::super::count(facts.samples),
        facts.batch_size,
        facts.threads,
        if facts.cache_bytes > 0.0 {
            format!(", a cache of {}", size(facts.cache_bytes as u64))
        } else {
            String::new()
        },
    );
}

/// Three bars with their intervals.
fn rates(analysis: &Analysis) -> String {
    let ingest = Some(&analysis.rates.ingest).filter(|rate| rate.per_second < IDLE_RATE);
    let rates = [
        ("ingest", "step", ingest),
        ("prep", "prep", Some(&analysis.rates.prep)),
        ("fetch", "fetch", analysis.rates.fetch.as_ref()),
    ];
    let top =
        |rate: &Rate| if rate.high.is_finite() { rate.high.max(rate.per_second) } else { rate.per_second };
    let highest = rates.iter().filter_map(|(_, _, rate)| rate.map(top)).fold(1e-9, f64::max);
    rates.map(|(name, class, rate)| rate_row(name, class, rate, highest)).concat()
}

/// The first epoch and later ones; without a cache they are alike.
fn epochs(analysis: &Analysis) -> String {
    let prediction = &analysis.prediction;
    if analysis.facts.cache_bytes > 0.0 {
        legend()
            + &epoch_row("first epoch", "first", &prediction.first)
            + &epoch_row("later epochs", "later", &prediction.later)
    } else {
        legend() + &epoch_row("each epoch", "later", &prediction.later)
    }
}

/// Speed by cache and by cores.
fn curves(page: &mut String, analysis: &Analysis) -> Result<()> {
    let facts = &analysis.facts;
    if analysis.rates.fetch.is_some() && facts.sample_bytes > 0.0 {
        let words = "Samples/s by cached share of the epoch";
        let now = 100.0 * analysis.prediction.later.hit_fraction;
        let drawn = Curve { words, unit: " %", now, most: 100.0 }
            .drawn(|percent| rate_with(analysis, &format!("cache={percent}%")))?;
        let note = match analysis.cache_needed_bytes {
            Some(bytes) if bytes > 0.0 => format!(
                "From {} on ({:.0} %) fetching is no longer the bottleneck.",
                size(bytes as u64),
                100.0 * bytes / (facts.samples as f64 * facts.sample_bytes)
            ),
            Some(_) => "Fetching is not the bottleneck: a cache brings nothing.".to_owned(),
            None => "No size makes fetching disappear.".to_owned(),
        };
        section(page, "plot", words, &format!("{drawn}<p class=\"soft\">{note}</p>"));
    }
    let threads = facts.threads.max(1) as f64;
    let words = "Samples/s by preparing cores";
    let drawn = Curve { words, unit: "", now: threads, most: 4.0 * threads }
        .drawn(|cores| rate_with(analysis, &format!("cores={}", cores.max(0.01))))?;
    let note = format!("One core prepares {} samples/s.", number(analysis.rates.prep.per_second / threads));
    section(page, "plot", words, &format!("{drawn}<p class=\"soft\">{note}</p>"));
    Ok(())
}

/// Single changes, the best first.
fn remedies(page: &mut String, analysis: &Analysis) {
    let mut rows = String::new();
    for remedy in &analysis.remedies {
        let _ = write!(
            rows,
            "<tr><td><data class=\"gain\" value=\"{}\">+{} %</data></td><td>{}</td></tr>",
            remedy.gain,
            super::super::count((100.0 * remedy.gain).round() as u64),
            code(&escape(&change(&remedy.change)))
        );
    }
    if !rows.is_empty() {
        section(page, "wide", "What would help, one at a time", &format!("<table>{rows}</table>"));
    }
}

/// Later epochs with something changed.
fn rate_with(analysis: &Analysis, change: &str) -> Result<f64> {
    let changed = analyze(analysis.rates, analysis.facts, Some(change))?;
    Ok(changed.what_if.map_or(0.0, |what_if| what_if.prediction.later.rate))
}

/// Names between backticks as code.
fn code(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts
        .map(|(at, part)| if at % 2 == 1 { format!("<code>{part}</code>") } else { part.to_owned() })
        .collect()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::stall::{Rates, RunFacts};

    fn analysis(fetch: Option<f64>) -> Analysis {
        let exact = Rate::exact;
        let rates = Rates { ingest: exact(200.0), prep: exact(100.0), fetch: fetch.map(exact) };
        let facts = RunFacts {
            samples: 1000,
            sample_bytes: if fetch.is_some() { 4096.0 } else { 0.0 },
            batch_size: 8,
            threads: 4,
            ..RunFacts::default()
        };
        analyze(rates, facts, Some("step=x2")).unwrap()
    }

    #[test]
    fn a_page_needs_nothing_else_and_shows_names_as_text() {
        for fetch in [Some(50.0), None] {
            let page = page("<script>alert(1)</script>&", &analysis(fetch)).unwrap();
            assert!(page.contains("&lt;script&gt;") && !page.contains("<script"), "{page}");
            for outside in ["http:", "https:", "src=", "url(", "@import"] {
                assert!(!page.contains(outside), "{outside}");
            }
            assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
            assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
            assert_eq!(page.matches("<svg").count(), if fetch.is_some() { 2 } else { 1 });
            assert!(page.contains("<data class=\"rate-prep\" value=\"100\">100</data>"), "{page}");
        }
    }

    #[test]
    fn curves_follow_the_model() {
        let analysis = analysis(Some(50.0));
        // With everything in the cache preparing is left, with nothing fetching is.
        assert!((rate_with(&analysis, "cache=0%").unwrap() - 50.0).abs() < 1e-6);
        assert!((rate_with(&analysis, "cache=100%").unwrap() - 100.0).abs() < 1e-6);
    }
}
