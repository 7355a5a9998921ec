//! `forebay analyze --html`: the same as one file with plots that needs nothing else, not even a script.
//!
//! Plots are drawn here as SVG. Curves ask the model of `forebay_core::stall` point by point; texts are escaped.

use super::{bottleneck, change, number};
use forebay_core::Result;
use forebay_core::stall::{Analysis, Epoch, IDLE_RATE, Rate, analyze};
use std::fmt::Write;

/// Points of a curve.
const POINTS: u32 = 40;
/// Width and height of a plot's field, and room for its words.
const FIELD: (f64, f64) = (520.0, 180.0);
const MARGIN: (f64, f64) = (70.0, 40.0);

const STYLE: &str = ":root{color-scheme:light dark;--ground:#f4f6f8;--card:#fff;--ink:#16202b;--soft:#52606e;--line:#dde3e9;\
--step:#0f766e;--fetch:#d9622b;--prep:#b98a06}@media(prefers-color-scheme:dark){:root{--ground:#0e141b;--card:#161e27;\
--ink:#e8eef4;--soft:#9fb0c0;--line:#263240;--step:#1f9d90;--fetch:#ef7f49;--prep:#e6b93a}}body{margin:0;padding:1.25rem;\
background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,sans-serif}main{max-width:46rem;margin:auto}section{margin:0 0 1rem;\
padding:1rem 1.15rem;border:1px solid var(--line);border-radius:.75rem;background:var(--card);overflow-x:auto}h1{font-size:1.3rem}\
h2{margin:0 0 .5rem;font-size:1rem}svg{display:block;width:100%;min-width:24rem;height:auto}text{fill:var(--soft);font-size:12px}\
.axis{stroke:var(--line)}.step{fill:var(--step)}.fetch{fill:var(--fetch)}.prep{fill:var(--prep)}.curve{fill:none;stroke:var(--step);\
stroke-width:2.5}.now{fill:var(--fetch)}.doubt{stroke:var(--ink);stroke-width:1.5}p.soft,td.soft{color:var(--soft)}td{padding:.2rem 1rem .2rem 0}";

/// The page. `name` is what was analyzed.
pub(super) fn page(name: &str, analysis: &Analysis) -> Result<String> {
    let mut page = String::new();
    let name = escape(name);
    let _ = write!(
        page,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\"><title>Forebay: {name}</title><style>{STYLE}</style></head>\
         <body><main><h1>{name}</h1><section><h2>Bottleneck: {}</h2><p class=\"soft\">{} samples/s in the first epoch, \
         {} in later ones</p></section>",
        escape(bottleneck(&analysis.prediction.later)),
        number(analysis.prediction.first.rate),
        number(analysis.prediction.later.rate),
    );
    section(&mut page, "Rates, with 95 % intervals", &rates(analysis));
    section(&mut page, "Where an epoch's time goes", &epochs(analysis));
    if analysis.facts.sample_bytes > 0.0 {
        let now = analysis.prediction.later.hit_fraction * 100.0;
        let at = |percent: f64| rate_with(analysis, &format!("cache={percent}%"));
        section(
            &mut page,
            "Samples a second by share of the epoch in the cache",
            &curve(now, 100.0, "%", at)?,
        );
    }
    let threads = analysis.facts.threads.max(1) as f64;
    let at = |cores: f64| rate_with(analysis, &format!("cores={}", cores.max(0.01)));
    section(&mut page, "Samples a second by preparing cores", &curve(threads, 4.0 * threads, "", at)?);
    let mut rows = String::new();
    for remedy in &analysis.remedies {
        let _ = write!(
            rows,
            "<tr><td>+{:.0} %</td><td>{}</td></tr>",
            100.0 * remedy.gain,
            escape(&change(&remedy.change))
        );
    }
    if !rows.is_empty() {
        section(&mut page, "What would help, one at a time", &format!("<table>{rows}</table>"));
    }
    if let Some(what_if) = &analysis.what_if {
        let words = escape(&what_if.change);
        let bars = format!(
            "<svg viewBox=\"0 0 640 70\" role=\"img\">{}</svg>",
            epoch("later", &what_if.prediction.later, 10.0)
        );
        section(
            &mut page,
            &format!("With {words}: {} samples/s", number(what_if.prediction.later.rate)),
            &bars,
        );
    }
    page.push_str("</main></body></html>\n");
    Ok(page)
}

fn section(page: &mut String, title: &str, body: &str) {
    let _ = write!(page, "<section><h2>{title}</h2>{body}</section>");
}

/// Later epochs with something changed.
fn rate_with(analysis: &Analysis, change: &str) -> Result<f64> {
    let changed = analyze(analysis.rates, analysis.facts, Some(change))?;
    Ok(changed.what_if.map_or(0.0, |what_if| what_if.prediction.later.rate))
}

/// Three bars with their intervals; what has no limit has no bar.
fn rates(analysis: &Analysis) -> String {
    let rates = [
        ("ingest", "step", Some(analysis.rates.ingest).filter(|rate| rate.per_second < IDLE_RATE)),
        ("prep", "prep", Some(analysis.rates.prep)),
        ("fetch", "fetch", analysis.rates.fetch),
    ];
    let highest =
        |rate: &Rate| if rate.high.is_finite() { rate.high.max(rate.per_second) } else { rate.per_second };
    let most = rates.iter().filter_map(|(_, _, rate)| rate.as_ref().map(highest)).fold(1e-9, f64::max);
    let mut bars = String::new();
    for (row, (name, class, rate)) in rates.iter().enumerate() {
        let y = 10.0 + 40.0 * row as f64;
        let Some(rate) = rate else {
            let _ = write!(
                bars,
                "<text x=\"0\" y=\"{}\">{name}</text><text x=\"70\" y=\"{}\">without limit</text>",
                y + 17.0,
                y + 17.0
            );
            continue;
        };
        let x = |value: f64| 70.0 + 430.0 * (value / most).clamp(0.0, 1.0);
        let end = x(rate.per_second);
        let _ = write!(
            bars,
            "<text x=\"0\" y=\"{}\">{name}</text><rect class=\"{class}\" x=\"70\" y=\"{y}\" width=\"{:.1}\" height=\"26\" rx=\"4\"/>\
             <text x=\"510\" y=\"{}\">{} /s</text>",
            y + 17.0,
            end - 70.0,
            y + 17.0,
            number(rate.per_second)
        );
        if rate.low.is_finite() && rate.high.is_finite() && rate.high > rate.low {
            let (low, high, middle) = (x(rate.low.max(0.0)), x(rate.high), y + 13.0);
            let _ = write!(bars, "<path class=\"doubt\" d=\"M{low:.1} {middle}H{high:.1}\"/>");
        }
    }
    format!(
        "<svg viewBox=\"0 0 640 130\" role=\"img\" aria-label=\"Rates of ingest, prep and fetch\">{bars}</svg>"
    )
}

fn epochs(analysis: &Analysis) -> String {
    let prediction = &analysis.prediction;
    let bars = epoch("first", &prediction.first, 10.0) + &epoch("later", &prediction.later, 60.0);
    let legend = "<text x=\"70\" y=\"122\">from left to right: step, prep stall, fetch stall</text>";
    format!("<svg viewBox=\"0 0 640 130\" role=\"img\" aria-label=\"Parts of an epoch\">{bars}{legend}</svg>")
}

fn epoch(name: &str, epoch: &Epoch, y: f64) -> String {
    let mut bars = format!("<text x=\"0\" y=\"{}\">{name}</text>", y + 20.0);
    let mut x = 70.0;
    for (class, seconds) in [
        ("step", epoch.step_seconds),
        ("prep", epoch.prep_stall_seconds),
        ("fetch", epoch.fetch_stall_seconds),
    ] {
        let share = if epoch.seconds > 0.0 { seconds / epoch.seconds } else { 0.0 };
        let width = 430.0 * share;
        let _ = write!(
            bars,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"30\"><title>{class} {:.0} %</title></rect>",
            100.0 * share
        );
        x += width;
    }
    let _ =
        write!(bars, "<text x=\"510\" y=\"{}\">{}</text>", y + 20.0, super::super::seconds(epoch.seconds));
    bars
}

/// A curve from 0 to `most` with a dot at `now`.
fn curve(now: f64, most: f64, unit: &str, at: impl Fn(f64) -> Result<f64>) -> Result<String> {
    let steps: Vec<f64> = (0..=POINTS).map(|point| most * f64::from(point) / f64::from(POINTS)).collect();
    let rates = steps.iter().map(|step| at(*step)).collect::<Result<Vec<f64>>>()?;
    let highest = rates.iter().copied().fold(1e-9, f64::max);
    let ((wide, high), (left, top)) = (FIELD, (MARGIN.0, 10.0));
    let place = |x: f64, y: f64| (left + wide * x / most, top + high * (1.0 - y / highest));
    let mut line = String::new();
    for (step, rate) in steps.iter().zip(&rates) {
        let (x, y) = place(*step, *rate);
        let _ = write!(line, "{}{x:.1} {y:.1}", if line.is_empty() { "M" } else { "L" });
    }
    let (x, y) = place(now.clamp(0.0, most), at(now.clamp(0.0, most))?);
    let (bottom, right) = (top + high, left + wide);
    Ok(format!(
        "<svg viewBox=\"0 0 640 {}\" role=\"img\"><path class=\"axis\" fill=\"none\" d=\"M{left} {top}V{bottom}H{right}\"/>\
         <path class=\"curve\" d=\"{line}\"/><circle class=\"now\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\"><title>now</title></circle>\
         <text x=\"0\" y=\"{}\">{} /s</text><text x=\"{left}\" y=\"{}\">0{unit}</text>\
         <text x=\"{}\" y=\"{}\">{most:.0}{unit}</text></svg>",
        top + high + MARGIN.1,
        top + 12.0,
        number(highest),
        bottom + 18.0,
        right - 30.0,
        bottom + 18.0,
    ))
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
            assert_eq!(page.matches("<svg").count(), if fetch.is_some() { 5 } else { 4 });
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
