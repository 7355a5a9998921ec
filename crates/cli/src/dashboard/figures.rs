//! Sums and differences of figures, by name and label.

use forebay_core::metrics::Figure;
use std::collections::BTreeMap;

/// Figures by who shows them.
pub(super) type Sources = [(String, Vec<Figure>)];

/// Figures of everybody at one moment, with those of before.
pub(super) struct Figures<'a> {
    now: Vec<(&'a str, &'a Figure)>,
    before: BTreeMap<String, f64>,
    /// Seconds between the two; none without a moment before.
    passed: Option<f64>,
}

impl<'a> Figures<'a> {
    /// Of these sources, with what the same ones said `passed` seconds ago.
    pub(super) fn new(now: &'a Sources, before: Option<(&Sources, f64)>) -> Self {
        fn all(sources: &Sources) -> impl Iterator<Item = (&str, &Figure)> {
            sources.iter().flat_map(|(source, figures)| figures.iter().map(move |one| (source.as_str(), one)))
        }
        let earlier = all(before.map(|(sources, _)| sources).unwrap_or_default());
        Self {
            now: all(now).collect(),
            before: earlier.map(|(source, figure)| (key(source, figure), figure.value)).collect(),
            passed: before.map(|(_, passed)| passed).filter(|passed| *passed > 0.0),
        }
    }

    fn named(&self, name: &str, labels: &[(&str, &str)]) -> impl Iterator<Item = &(&'a str, &'a Figure)> {
        self.now.iter().filter(move |(_, figure)| {
            figure.name == name && labels.iter().all(|(key, value)| figure.label(key) == Some(value))
        })
    }

    /// The values of a label, in order.
    pub(super) fn values(&self, name: &str, label: &str) -> Vec<String> {
        let values = self.named(name, &[]).filter_map(|(_, figure)| figure.label(label));
        let mut values: Vec<String> = values.map(str::to_owned).collect();
        values.sort_by_key(|value| (value.parse::<u64>().unwrap_or(u64::MAX), value.clone()));
        values.dedup();
        values
    }

    /// How many there are of a name.
    pub(super) fn count(&self, name: &str) -> usize {
        self.named(name, &[]).count()
    }

    /// The first of a name.
    pub(super) fn first(&self, name: &str) -> Option<&'a Figure> {
        self.named(name, &[]).next().map(|(_, figure)| *figure)
    }

    /// What all of a name add up to now.
    pub(super) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.named(name, labels).map(|(_, figure)| figure.value).sum()
    }

    /// By how much they have grown since before; without a before, all of it.
    pub(super) fn grown(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let grown = self.named(name, labels).map(|(source, figure)| {
            // A process that started again counts from nothing.
            let earlier =
                self.before.get(&key(source, figure)).copied().filter(|earlier| *earlier <= figure.value);
            figure.value - earlier.unwrap_or(0.0)
        });
        grown.sum()
    }

    /// Growth in a second; 0 without a before.
    pub(super) fn rate(&self, name: &str) -> f64 {
        self.passed.map_or(0.0, |passed| self.grown(name, &[]) / passed)
    }

    /// Seconds since before.
    pub(super) fn passed(&self) -> Option<f64> {
        self.passed
    }
}

fn key(source: &str, figure: &Figure) -> String {
    format!("{source} {} {:?}", figure.name, figure.labels)
}
