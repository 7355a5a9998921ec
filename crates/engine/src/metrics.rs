//! A loader's figures by the names of `forebay_core::metrics`.

use crate::meter::Meter;
use crate::stats::Stats;
use forebay_core::metrics::Exposition;

/// Who shows figures: labels that all of them get.
pub(crate) type Labels<'a> = [(&'a str, &'a str)];

impl Stats {
    /// What a loop was handed over.
    pub fn expose_delivery(&self, labels: &Labels<'_>, out: &mut Exposition) {
        for (name, value) in [
            ("forebay_engine_batches_total", self.batches as f64),
            ("forebay_engine_samples_total", self.samples as f64),
            ("forebay_engine_padding_total", self.padding as f64),
            ("forebay_engine_skipped_samples_total", self.skipped as f64),
            ("forebay_engine_substituted_samples_total", self.substituted as f64),
            ("forebay_engine_filtered_samples_total", self.filtered as f64),
            ("forebay_engine_ready_batches", self.ready_batches as f64),
            ("forebay_engine_wall_seconds_total", self.wall_seconds),
            ("forebay_engine_others_seconds_total", self.others_seconds),
            ("forebay_net_workers", self.workers as f64),
            ("forebay_net_received_bytes_total", self.wire_bytes as f64),
            ("forebay_net_asked_again_total", self.asked_again as f64),
            ("forebay_net_skipped_batches_total", self.skipped_batches as f64),
        ] {
            out.number(name, labels, value);
        }
        if let Some(late) = &self.straggler {
            let rank = late.rank.to_string();
            let of = [("late_rank", rank.as_str()), ("stage", late.stage.name())];
            out.number("forebay_engine_late_ranks", &[labels, &of].concat(), 1.0);
        }
    }

    /// What was fetched, kept and prepared in this process.
    pub fn expose_making(&self, labels: &Labels<'_>, out: &mut Exposition) {
        for (name, value) in [
            ("forebay_engine_open_batches", self.open_batches as f64),
            ("forebay_engine_requests_total", self.requests as f64),
            ("forebay_engine_retries_total", self.retries as f64),
            ("forebay_engine_hedges_total", self.hedges as f64),
            ("forebay_engine_throttled_total", self.throttled as f64),
            ("forebay_engine_payloads_total", self.payloads as f64),
            ("forebay_engine_payload_bytes_total", self.payload_bytes as f64),
            ("forebay_engine_window_requests", self.window_requests as f64),
            ("forebay_engine_link_bytes_per_second", self.link_bytes_per_second),
            ("forebay_engine_link_delay_seconds", self.link_delay_seconds),
            ("forebay_engine_store_away_seconds_total", self.store_away_seconds),
            ("forebay_engine_budget_wait_seconds_total", self.budget_wait_seconds),
            ("forebay_engine_cache_misses_total", self.cache_misses as f64),
            ("forebay_engine_cache_hit_bytes_total", self.cache_hit_bytes as f64),
            ("forebay_engine_cache_miss_bytes_total", self.cache_miss_bytes as f64),
            ("forebay_engine_cache_damaged_total", self.cache_damaged as f64),
            ("forebay_engine_prep_seconds_total", self.prep_seconds),
            ("forebay_engine_prep_starved_seconds_total", self.prep_starved_seconds),
            ("forebay_engine_prep_blocked_seconds_total", self.prep_blocked_seconds),
            ("forebay_engine_threads", self.threads as f64),
        ] {
            out.number(name, labels, value);
        }
        // Stores on this machine have no limit in bytes.
        if self.window_bytes < u64::MAX {
            out.number("forebay_engine_window_bytes", labels, self.window_bytes as f64);
        }
        for (name, tier, value) in [
            ("forebay_engine_cache_hits_total", "memory", self.cache_memory_hits),
            ("forebay_engine_cache_hits_total", "disk", self.cache_disk_hits),
            ("forebay_engine_cache_hits_total", "peer", self.cache_peer_hits),
            ("forebay_engine_cache_bytes", "memory", self.cache_memory_bytes),
            ("forebay_engine_cache_bytes", "disk", self.cache_disk_bytes),
            ("forebay_engine_cache_limit_bytes", "memory", self.cache_memory_limit_bytes),
            ("forebay_engine_cache_limit_bytes", "disk", self.cache_disk_limit_bytes),
        ] {
            out.number(name, &[labels, &[("tier", tier)]].concat(), value as f64);
        }
    }
}

impl Meter {
    /// How long every part of a step, the user's phases and requests took.
    pub(crate) fn expose_times(&self, labels: &Labels<'_>, out: &mut Exposition) {
        let (ledger, _, _) = self.ledger();
        let times = ledger.times();
        for (part, times) in [
            ("step", &times.step),
            ("fetch_stall", &times.fetch_stall),
            ("prep_stall", &times.prep_stall),
            ("queue", &times.queue),
            ("transfer", &times.transfer),
        ] {
            out.times("forebay_engine_part_seconds", &[labels, &[("part", part)]].concat(), times);
        }
        for phase in ledger.phases() {
            let labels = [labels, &[("phase", phase.name.as_str())]].concat();
            out.times("forebay_engine_phase_seconds", &labels, &phase.times);
        }
        out.times("forebay_engine_request_seconds", labels, &self.request_nanos.histogram());
    }
}
