//! Figures as an export request of OTLP in its JSON form, made from the text in which they are shown.
//!
//! Names, labels and numbers stay what they are for Prometheus; only the envelope is another. Everything is cumulative, so
//! a request that was lost costs nothing: the next one says it all again.

use super::read::read_all;
use super::{BOUNDS, Figure, Kind, METRICS, Metric};
use serde_json::{Value, json};

/// Sums since the start, in OTLP's words.
const CUMULATIVE: u8 = 2;

/// From when to when figures were counted, in nanoseconds of Unix time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Between {
    /// When counting began.
    pub start: u64,
    /// Now.
    pub now: u64,
}

/// The request that holds every figure of `text`; `resource` says who tells them.
pub fn otlp(text: &str, between: Between, resource: &[(String, String)]) -> Value {
    let figures = read_all(text);
    let metrics: Vec<Value> =
        METRICS.iter().filter_map(|metric| exported(metric, &figures, between)).collect();
    json!({"resourceMetrics": [{
        "resource": {"attributes": attributes(resource)},
        "scopeMetrics": [{"scope": {"name": "forebay"}, "metrics": metrics}],
    }]})
}

fn exported(metric: &Metric, figures: &[Figure], between: Between) -> Option<Value> {
    let Metric { name, kind, help, .. } = metric;
    let of = |ending: &str| {
        let full = format!("{name}{ending}");
        figures.iter().filter(move |figure| figure.name == full)
    };
    let mut exported = json!({"name": name, "description": help, "unit": unit(name)});
    let points: Vec<Value> = match kind {
        Kind::Histogram => of("_count").map(|count| times(count, &of, between)).collect(),
        Kind::Counter | Kind::Gauge => of("")
            .filter(|figure| figure.value.is_finite())
            .map(|figure| {
                let mut point = point(&figure.labels, between);
                point["asDouble"] = json!(figure.value);
                point
            })
            .collect(),
    };
    if points.is_empty() {
        return None;
    }
    let (key, value) = match kind {
        Kind::Counter => {
            ("sum", json!({"aggregationTemporality": CUMULATIVE, "isMonotonic": true, "dataPoints": points}))
        }
        Kind::Gauge => ("gauge", json!({"dataPoints": points})),
        Kind::Histogram => ("histogram", json!({"aggregationTemporality": CUMULATIVE, "dataPoints": points})),
    };
    exported[key] = value;
    Some(exported)
}

/// One histogram: its buckets stand alone here, where the text adds them up.
fn times<'a, I: Iterator<Item = &'a Figure>>(
    count: &Figure,
    of: &impl Fn(&str) -> I,
    between: Between,
) -> Value {
    let is_same =
        |labels: &[(String, String)]| labels.iter().filter(|(key, _)| key != "le").eq(count.labels.iter());
    let mut buckets = Vec::with_capacity(BOUNDS.len() + 1);
    let mut before = 0.0;
    for bucket in of("_bucket").filter(|bucket| is_same(&bucket.labels)) {
        buckets.push(((bucket.value - before).max(0.0) as u64).to_string());
        before = bucket.value;
    }
    let sum = of("_sum").find(|sum| sum.labels == count.labels).map_or(0.0, |sum| sum.value);
    let mut point = point(&count.labels, between);
    point["count"] = json!((count.value as u64).to_string());
    point["sum"] = json!(sum);
    point["bucketCounts"] = json!(buckets);
    point["explicitBounds"] = json!(BOUNDS);
    point
}

fn point(labels: &[(String, String)], between: Between) -> Value {
    // Numbers of 64 bits are strings in this form.
    json!({
        "attributes": attributes(labels),
        "startTimeUnixNano": between.start.to_string(),
        "timeUnixNano": between.now.to_string(),
    })
}

fn attributes(labels: &[(String, String)]) -> Value {
    labels.iter().map(|(key, value)| json!({"key": key, "value": {"stringValue": value}})).collect()
}

/// The unit that a name ends with, as UCUM writes it.
fn unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    match () {
        () if name.ends_with("_bytes_per_second") => "By/s",
        () if name.ends_with("_bytes") => "By",
        () if name.ends_with("_seconds") => "s",
        () => "1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Exposition;
    use crate::stall::Histogram;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_figure_is_in_the_request_once_and_buckets_add_up(
            bytes in 0u64..1 << 50,
            window in 0u64..1 << 40,
            times in prop::collection::vec(0u64..200_000_000_000, 0..50),
            rank in "[a-z\"\\\\]{0,8}",
        ) {
            let mut shown = Exposition::default();
            let labels = [("rank", rank.as_str())];
            shown.number("forebay_engine_payload_bytes_total", &labels, bytes as f64);
            shown.number("forebay_engine_window_bytes", &labels, window as f64);
            let mut histogram = Histogram::default();
            for nanos in &times {
                histogram.add(*nanos);
            }
            for part in ["step", "queue"] {
                let labels = [("part", part), ("rank", rank.as_str())];
                shown.times("forebay_engine_part_seconds", &labels, &histogram);
            }
            let resource = [("service.name".to_owned(), "job".to_owned())];
            let request = otlp(&shown.finish(), Between { start: 5, now: 9 }, &resource);
            let scope = &request["resourceMetrics"][0]["scopeMetrics"][0];
            let metrics = scope["metrics"].as_array().unwrap();
            prop_assert_eq!(metrics.len(), 3);
            let named = |name: &str| metrics.iter().find(|metric| metric["name"] == name).unwrap();
            let sum = named("forebay_engine_payload_bytes_total");
            prop_assert_eq!(&sum["sum"]["dataPoints"][0]["asDouble"], &json!(bytes as f64));
            prop_assert_eq!(&sum["unit"], "By");
            prop_assert_eq!(&sum["sum"]["isMonotonic"], true);
            let point = &named("forebay_engine_window_bytes")["gauge"]["dataPoints"][0];
            prop_assert_eq!(&point["attributes"][0]["value"]["stringValue"], rank.as_str());
            prop_assert_eq!(&point["timeUnixNano"], "9");
            let parts = &named("forebay_engine_part_seconds")["histogram"]["dataPoints"];
            prop_assert_eq!(parts.as_array().unwrap().len(), 2);
            for part in parts.as_array().unwrap() {
                let counts = part["bucketCounts"].as_array().unwrap();
                prop_assert_eq!(counts.len(), BOUNDS.len() + 1);
                let all: u64 = counts.iter().map(|count| count.as_str().unwrap().parse::<u64>().unwrap()).sum();
                prop_assert_eq!(all, times.len() as u64);
                let count = times.len().to_string();
                prop_assert_eq!(&part["count"], count.as_str());
            }
        }
    }
}
