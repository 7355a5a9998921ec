//! What the page is given, from texts and views as they come.

use super::*;
use forebay_core::metrics::read;
use std::fmt::Write;

fn look(text: &str) -> Look {
    Look { figures: vec![("a".into(), read(text))], ..Look::default() }
}

/// Figures of ranks after so many steps; rank 2 waits twice as long for payloads as others take for all.
fn ranks(steps: u64) -> Look {
    let mut text = String::new();
    for rank in 0..4 {
        let fetch = if rank == 2 { 0.2 } else { 0.01 };
        for (part, seconds) in [("step", 0.08), ("fetch_stall", fetch), ("prep_stall", 0.01)] {
            let sum = seconds * steps as f64;
            writeln!(text, "forebay_engine_part_seconds_sum{{rank=\"{rank}\",part=\"{part}\"}} {sum}")
                .unwrap();
        }
        writeln!(text, "forebay_engine_batches_total{{rank=\"{rank}\"}} {steps}").unwrap();
        writeln!(text, "forebay_engine_samples_total{{rank=\"{rank}\"}} {}", 32 * steps).unwrap();
        writeln!(text, "forebay_engine_open_batches{{rank=\"{rank}\"}} 8").unwrap();
        writeln!(text, "forebay_engine_ready_batches{{rank=\"{rank}\"}} 2").unwrap();
    }
    look(&text)
}

#[test]
fn loaders_show_shares_that_add_up_rates_since_the_last_look_and_the_late_rank() {
    let (before, now) = (ranks(100), ranks(120));
    let shown = state(7, Some((&before, 2.0)), &now);
    assert_eq!(shown.samples_per_second, 4.0 * 32.0 * 20.0 / 2.0);
    let bands = shown.bands.unwrap();
    assert!((bands.shares().iter().sum::<f64>() - 1.0).abs() < 1e-9, "{bands:?}");
    assert!((bands.fetch_stall - 0.23 / 0.59).abs() < 1e-6, "{bands:?}");
    let job = &shown.jobs[0];
    assert_eq!((job.ranks.len(), job.ranks_in_all), (4, 4));
    let late = job.straggler.as_ref().unwrap();
    assert_eq!((late.rank, late.stage.as_str()), (2, "fetch"));
    assert!(job.ranks[2].waits > 0.7 && job.ranks[0].waits < 0.3);
    let deliver = shown.stages.iter().find(|stage| stage.name == "deliver").unwrap();
    assert_eq!((deliver.rate.as_str(), deliver.fill), ("40.0 batches/s", Some(0.25)));
}

#[test]
fn nothing_and_nonsense_show_nothing_and_do_not_panic() {
    let shown = state(1, None, &Look::default());
    assert_eq!(shown, State { at_ms: 1, ..State::default() });
    let odd = look(
        "forebay_engine_part_seconds_sum{rank=\"x\",part=\"step\"} -5\nforebay_engine_batches_total{rank=\"x\"} +Inf\n\
         forebay_engine_open_batches 1e308\nforebay_engine_threads -1\nforebay_engine_requests_total 1\n\
         forebay_engine_cache_limit_bytes{tier=\"disk\"} 10\nforebay_engine_cache_bytes{tier=\"disk\"} 1e300\n",
    );
    let shown = state(2, Some((&odd, 0.0)), &odd);
    assert!(serde_json::to_string(&shown).is_ok());
    assert_eq!(shown.bands, None);
    // A process that began again counts from nothing, not backwards.
    let shown = state(3, Some((&ranks(100), 1.0)), &ranks(10));
    assert!(shown.samples_per_second >= 0.0 && shown.bands.is_some());
}

#[test]
fn tiers_show_what_they_hold_and_give() {
    let text = |hits: u64| {
        format!(
            "forebay_engine_cache_limit_bytes{{tier=\"memory\"}} 100\nforebay_engine_cache_bytes{{tier=\"memory\"}} 40\n\
             forebay_engine_cache_hits_total{{tier=\"memory\"}} {hits}\nforebay_engine_cache_misses_total {}\n",
            hits / 3
        )
    };
    let shown = state(1, Some((&look(&text(30)), 1.0)), &look(&text(60)));
    assert_eq!(shown.tiers, [Tier { tier: "memory", bytes: 40.0, limit_bytes: 100.0, hits: 0.75 }]);
}
