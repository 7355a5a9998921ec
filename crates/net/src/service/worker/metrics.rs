//! A worker's figures by the names of `forebay_core::metrics`.

use super::{Running, Worker};
use crate::metrics::{Pages, Show};
use forebay_core::metrics::Exposition;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Running {
    /// Shows what it does, for as long as it runs.
    pub fn metrics(&self) -> Show {
        let worker = Arc::downgrade(&self.worker);
        Arc::new(move || worker.upgrade().map(|worker| text(&worker)).unwrap_or_default())
    }

    /// All that it shows over HTTP, for as long as it runs.
    pub fn pages(&self) -> Pages {
        let worker = Arc::downgrade(&self.worker);
        let ready = move || worker.upgrade().map_or(Err("stopped"), |worker| ready(&worker));
        Pages { ready: Some(Arc::new(ready)), ..self.metrics().into() }
    }
}

/// Whether jobs are sent here: its dispatcher knows of it, and it takes requests.
fn ready(worker: &Worker) -> Result<(), &'static str> {
    if worker.is_stopping() {
        Err("stopped")
    } else if worker.is_draining() {
        Err("draining")
    } else if worker.options.reports.is_some() && !worker.heard.load(Ordering::Acquire) {
        Err("the dispatcher does not answer")
    } else {
        Ok(())
    }
}

fn text(worker: &Worker) -> String {
    let mut out = Exposition::default();
    let feeds = worker.feeds.views();
    for (name, value) in [
        ("forebay_net_connections", worker.connections.count() as u64),
        ("forebay_net_sent_bytes_total", worker.bytes_sent.load(Ordering::Relaxed)),
        ("forebay_net_draining", u64::from(worker.is_draining())),
        ("forebay_net_feeds", feeds.len() as u64),
    ] {
        out.number(name, &[], value as f64);
    }
    for feed in &feeds {
        let labels = [("feed", feed.feed.as_str())];
        for (name, value) in [
            ("forebay_net_feed_jobs", feed.jobs.len() as u64),
            ("forebay_net_made_batches", feed.staging.made),
            ("forebay_net_given_batches", feed.staging.given),
            ("forebay_net_held_batches", feed.staging.staged),
            ("forebay_net_held_bytes", feed.staging.held_bytes),
        ] {
            out.number(name, &labels, value as f64);
        }
    }
    for (feed, stats) in worker.feeds.stats() {
        stats.expose_making(&[("feed", feed.as_str())], &mut out);
    }
    out.finish()
}
