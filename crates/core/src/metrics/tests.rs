//! The list keeps its own rules, and the text is what a reader of the format expects.

use super::*;
use std::collections::BTreeSet;

#[test]
fn names_are_of_a_room_with_the_unit_last_and_only_counters_end_in_total() {
    let units =
        ["seconds", "bytes", "batches", "requests", "threads", "workers", "connections", "jobs", "feeds"];
    let units = [&units[..], &["second", "draining", "consumers", "ranks"]].concat();
    let mut seen = BTreeSet::new();
    for metric in METRICS {
        let Metric { name, kind, labels, help } = metric;
        assert!(seen.insert(name), "`{name}` is there twice");
        let rest = name.strip_prefix("forebay_engine_").or(name.strip_prefix("forebay_net_"));
        let rest = rest.unwrap_or_else(|| panic!("`{name}` is of no room"));
        assert!(rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
        if *kind != Kind::Counter {
            assert!(units.iter().any(|unit| name.ends_with(unit)), "`{name}` has no unit");
        }
        assert!(
            !help.is_empty() && !help.contains(['\n', '\\', '|']) && !help.ends_with('.'),
            "{name}: {help}"
        );
        assert!(labels.iter().all(|label| !["le", "rank", "feed"].contains(label)), "{name}");
    }
}

#[test]
fn figures_of_several_sources_are_grouped_by_name_and_labels_are_escaped() {
    let mut text = Exposition::default();
    for feed in ["a", "b\\\"\n"] {
        text.number("forebay_net_feed_jobs", &[("feed", feed)], 2.0);
        text.number("forebay_engine_batches_total", &[("feed", feed)], 12_345_678_901.0);
    }
    assert_eq!(
        text.finish(),
        "# HELP forebay_engine_batches_total Batches handed over\n\
         # TYPE forebay_engine_batches_total counter\n\
         forebay_engine_batches_total{feed=\"a\"} 12345678901\n\
         forebay_engine_batches_total{feed=\"b\\\\\\\"\\n\"} 12345678901\n\
         # HELP forebay_net_feed_jobs Jobs that read a feed here\n\
         # TYPE forebay_net_feed_jobs gauge\n\
         forebay_net_feed_jobs{feed=\"a\"} 2\n\
         forebay_net_feed_jobs{feed=\"b\\\\\\\"\\n\"} 2\n"
    );
}

#[test]
fn buckets_grow_and_the_last_one_has_all() {
    let mut times = Histogram::default();
    for nanos in [5_000, 1_500_000, 3_000_000_000, 500_000_000_000] {
        times.add(nanos);
    }
    let mut text = Exposition::default();
    text.times("forebay_engine_request_seconds", &[], &times);
    let text = text.finish();
    let counts: Vec<u64> = text
        .lines()
        .filter(|line| line.contains("_bucket"))
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(counts.len(), BOUNDS.len() + 1);
    assert!(counts.is_sorted());
    assert_eq!(
        (counts[0], counts[6], counts[7], counts[BOUNDS.len() - 1], counts[BOUNDS.len()]),
        (1, 1, 2, 3, 4)
    );
    assert!(text.contains("forebay_engine_request_seconds_count 4\n"), "{text}");
    assert!(text.contains("le=\"0.00001\"") && text.contains("le=\"+Inf\""), "{text}");
}

#[test]
#[should_panic(expected = "not in the list")]
fn a_name_that_is_not_listed_cannot_be_shown() {
    Exposition::default().number("forebay_engine_secret_total", &[], 1.0);
}

#[test]
fn the_reference_page_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");
    if std::env::var_os("FOREBAY_RENEW").is_some() {
        std::fs::write(path, reference()).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(kept, reference(), "renew it with `FOREBAY_RENEW=1 cargo test -p forebay-core metrics`");
}
