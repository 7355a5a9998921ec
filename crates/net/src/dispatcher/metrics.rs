//! A dispatcher's figures by the names of `forebay_core::metrics`.

use forebay_core::dispatcher::View;
use forebay_core::metrics::Exposition;

/// What it knows, as text.
pub(super) fn text(view: &View) -> String {
    let mut out = Exposition::default();
    let [mut live, mut draining, mut suspected] = [0u64; 3];
    for worker in &view.workers {
        let count = match worker {
            worker if worker.suspected => &mut suspected,
            worker if worker.draining => &mut draining,
            _ => &mut live,
        };
        *count += 1;
    }
    for (state, count) in [("live", live), ("draining", draining), ("suspected", suspected)] {
        out.number("forebay_net_dispatcher_workers", &[("state", state)], count as f64);
    }
    out.number("forebay_net_dispatcher_wanted_workers", &[], view.scale.workers as f64);
    let consumers: usize = view.jobs.iter().map(|job| job.consumers.len()).sum();
    for (name, count) in [
        ("forebay_net_dispatcher_jobs", view.jobs.len()),
        ("forebay_net_dispatcher_feeds", view.feeds.len()),
        ("forebay_net_dispatcher_consumers", consumers),
    ] {
        out.number(name, &[], count as f64);
    }
    for job in &view.jobs {
        let Some(late) = &job.straggler else { continue };
        let rank = late.rank.to_string();
        let labels = [("job", job.job.as_str()), ("late_rank", &rank), ("stage", late.stage.name())];
        out.number("forebay_net_dispatcher_late_ranks", &labels, 1.0);
    }
    out.finish()
}
