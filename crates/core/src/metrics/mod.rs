//! Metrics: one list of names with kinds, labels and meanings, and the text in which they are shown.
//!
//! Names are `forebay_<room>_<noun>_<unit>`, with `_total` behind what only grows. Whoever shows figures writes them into
//! an [`Exposition`], which takes no name that is not in [`METRICS`]; `docs/reference/metrics.md` is made from the same list.
//! The text is Prometheus's (version 0.0.4); [`read`] reads it back, [`otlp`] makes a request of OTLP of it. No socket here.

mod list;
mod otlp;
mod read;
#[cfg(test)]
mod tests;

pub use list::METRICS;
pub use otlp::{Between, otlp};
pub use read::{Figure, MAX_FIGURES, read};

use crate::stall::Histogram;
use std::fmt::Write;

/// Upper bounds of histograms, in seconds: three for each factor of ten.
pub const BOUNDS: [f64; 22] = [
    1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
    10.0, 20.0, 50.0, 100.0,
];

/// What is done with a number over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows while the process lives.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Times, counted by size.
    Histogram,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One name.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The name.
    pub name: &'static str,
    /// What is done with it.
    pub kind: Kind,
    /// Labels beside those that say who shows it.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

/// A text in the making: figures of one or several sources, grouped by name as the format wants it.
#[derive(Debug)]
pub struct Exposition {
    /// The lines of every metric, in the order of [`METRICS`].
    lines: Vec<String>,
}

impl Default for Exposition {
    fn default() -> Self {
        Self { lines: vec![String::new(); METRICS.len()] }
    }
}

impl Exposition {
    /// A number of a counter or a gauge.
    ///
    /// # Panics
    /// When the name is not in the list: the list is what users rely on.
    pub fn number(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let at = position(name);
        let shown = labels_text(labels, None);
        // Writing to a string does not fail.
        let _ = writeln!(self.lines[at], "{name}{shown} {value}");
    }

    /// Times.
    ///
    /// # Panics
    /// As [`Self::number`].
    pub fn times(&mut self, name: &str, labels: &[(&str, &str)], times: &Histogram) {
        let lines = &mut self.lines[position(name)];
        for bound in BOUNDS {
            let shown = labels_text(labels, Some(&bound.to_string()));
            let _ = writeln!(lines, "{name}_bucket{shown} {}", times.count_up_to(bound));
        }
        let (all, shown) = (labels_text(labels, Some("+Inf")), labels_text(labels, None));
        let _ = writeln!(lines, "{name}_bucket{all} {}", times.count());
        let _ = writeln!(lines, "{name}_sum{shown} {}", times.sum_seconds());
        let _ = writeln!(lines, "{name}_count{shown} {}", times.count());
    }

    /// The whole text; names without a figure are left out.
    pub fn finish(self) -> String {
        let mut text = String::new();
        for (metric, lines) in METRICS.iter().zip(self.lines).filter(|(_, lines)| !lines.is_empty()) {
            let Metric { name, kind, help, .. } = metric;
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {}\n{lines}", kind.word());
        }
        text
    }
}

fn position(name: &str) -> usize {
    let found = METRICS.iter().position(|metric| metric.name == name);
    found.unwrap_or_else(|| panic!("`{name}` is not in the list of metrics"))
}

fn labels_text(labels: &[(&str, &str)], bound: Option<&str>) -> String {
    let bound = bound.map(|bound| ("le", bound));
    let mut text = String::new();
    for (name, value) in labels.iter().copied().chain(bound) {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(text, "{}{name}=\"{value}\"", if text.is_empty() { "{" } else { "," });
    }
    if !text.is_empty() {
        text.push('}');
    }
    text
}

/// The reference page.
pub fn reference() -> String {
    let mut page = String::from(
        "# Metrics\n\nMade from the list in `crates/core/src/metrics`; do not edit. How to have them shown: \
         [find a stall](../guide/find-a-stall.md#while-it-runs).\n\nA loader labels all of its figures with `rank`; a worker and the process of a \
         host label those of a feed with `feed`. Times are seconds, sizes bytes. Histograms have bounds from 10 us to 100 s, \
         three for each factor of ten; an observation is counted to the width of a class, which is 12.5 %.\n\n\
         | Name | Kind | Labels | Says |\n| --- | --- | --- | --- |\n",
    );
    for metric in METRICS {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let Metric { name, kind, help, .. } = metric;
        let _ = writeln!(page, "| `{name}` | {} | {} | {help} |", kind.word(), labels.join(", "));
    }
    page
}
