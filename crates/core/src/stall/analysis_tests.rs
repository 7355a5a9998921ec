//! Analyses of runs whose rates are known.

use super::*;

fn facts() -> RunFacts {
    RunFacts { samples: 10_000, sample_bytes: 1000.0, batch_size: 20, threads: 4, ..RunFacts::default() }
}

fn rates(ingest: f64, prep: f64, fetch: f64) -> Rates {
    Rates { ingest: Rate::exact(ingest), prep: Rate::exact(prep), fetch: Some(Rate::exact(fetch)) }
}

#[test]
fn p068_three_rates_give_the_shares_of_their_stalls() {
    let analysis = analyze(rates(200.0, 100.0, 50.0), facts(), None).unwrap();
    let later = analysis.prediction.later;
    let share = |seconds: f64| seconds / later.seconds;
    assert_eq!((later.bottleneck, later.rate), (Bottleneck::Fetch, 50.0));
    assert!((share(later.step_seconds) - 0.25).abs() < 1e-9);
    assert!((share(later.prep_stall_seconds) - 0.25).abs() < 1e-9);
    assert!((share(later.fetch_stall_seconds) - 0.5).abs() < 1e-9);
    // Half of the dataset resident makes the store as fast as preparing.
    assert_eq!(analysis.cache_needed_bytes, Some(5_000_000.0));
    assert_eq!(analysis.remedies[0].change, Change::CacheBytes(5_000_000.0));
}

#[test]
fn p069_changes_are_worked_out_by_the_model() {
    for (change, rate) in [
        ("cache=50%", 100.0),
        ("cache=25%", 50.0 / 0.75),
        ("cache=2.5MB", 50.0 / 0.75),
        ("bandwidth=x2", 100.0),
        ("bandwidth=80KB", 80.0),
        ("cores=8", 50.0),
        ("cores=x2, bandwidth=x8", 200.0),
        ("bandwidth=x8,cores=x8,step=x2", 100.0),
        ("bandwidth=x8,cores=x8,step=0.05", 400.0),
        ("rtt=0.1", 50.0),
    ] {
        let analysis = analyze(rates(200.0, 100.0, 50.0), facts(), Some(change)).unwrap();
        let then = analysis.what_if.unwrap().prediction.later.rate;
        assert!((then / rate - 1.0).abs() < 1e-6, "{change}: {then} for {rate}");
    }
    for change in ["cache", "cache=150%", "cores=none", "step=0", "colour=red", "rtt=x-1", "bandwidth=fast"] {
        let error = analyze(rates(200.0, 100.0, 50.0), facts(), Some(change)).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::InvalidConfig, "{change}");
    }
}

#[test]
fn a_window_that_explains_the_rate_is_the_limit() {
    // Four requests of one sample each, a tenth of a second away: 40 samples a second.
    let far = RunFacts { window_requests: 4.0, round_trip_seconds: 0.1, request_bytes: 1000.0, ..facts() };
    let analysis = analyze(rates(200.0, 400.0, 40.0), far, Some("rtt=0.05")).unwrap();
    assert_eq!(analysis.fetch_limit(), FetchLimit::Window);
    assert!((analysis.prediction.first.rate - 40.0).abs() < 1e-6);
    assert!(
        matches!(analysis.remedies[0].change, Change::WindowRequests(requests) if requests >= 20.0),
        "{analysis:?}"
    );
    assert!((analysis.what_if.unwrap().prediction.first.rate - 80.0).abs() < 1e-6);
    // With a window that allows a hundred times as much it is the bandwidth.
    let wide = RunFacts { window_requests: 400.0, ..far };
    assert_eq!(
        analyze(rates(200.0, 400.0, 40.0), wide, None).unwrap().fetch_limit(),
        FetchLimit::StoreBandwidth
    );
}

#[test]
fn a_recipe_without_payloads_waits_for_nothing_to_be_fetched() {
    let none = Rates { fetch: None, ..rates(200.0, 100.0, 1.0) };
    let analysis = analyze(none, RunFacts { sample_bytes: 0.0, ..facts() }, None).unwrap();
    assert_eq!(analysis.prediction.first.bottleneck, Bottleneck::Prep);
    assert_eq!(analysis.prediction.first.fetch_stall_seconds, 0.0);
}
