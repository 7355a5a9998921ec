//! A progress bar on standard error: only on a terminal, and only for work that takes more than a second.

use crate::report::Report;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Work shorter than this shows no bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// Counts up to a total. Dropping it clears the line.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    template: String,
    unit: String,
    begun: Instant,
    may_draw: bool,
    drawn: AtomicBool,
    /// Whether it counts what is found instead of filling up.
    counting: AtomicBool,
}

impl Progress {
    /// A bar for `total` of `unit`; the total may be set later.
    pub(crate) fn new(report: &Report, what: &'static str, unit: &str, total: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        let template =
            format!("{{prefix}} {{wide_bar:.cyan/dim}} {{human_pos}} of {{human_len}} {unit}, {{eta}} left");
        bar.set_style(style(&template));
        bar.set_prefix(what);
        Self {
            bar,
            template,
            unit: unit.to_owned(),
            begun: Instant::now(),
            may_draw: report.may_draw(),
            drawn: AtomicBool::new(false),
            counting: AtomicBool::new(false),
        }
    }

    /// Says how far the work has come.
    pub(crate) fn set(&self, done: u64, total: u64) {
        if self.counting.swap(false, Ordering::Relaxed) {
            self.bar.set_style(style(&self.template));
        }
        self.draw();
        self.bar.set_length(total);
        self.bar.set_position(done);
    }

    /// Says how many were found so far, while nobody knows how many there are.
    pub(crate) fn found(&self, count: u64) {
        if !self.counting.swap(true, Ordering::Relaxed) {
            self.bar.set_style(style(&format!("listing {{spinner}} {{human_pos}} {} found", self.unit)));
        }
        self.draw();
        self.bar.set_position(count);
    }

    fn draw(&self) {
        if self.may_draw && self.begun.elapsed() > PATIENCE && !self.drawn.swap(true, Ordering::Relaxed) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        }
    }

    /// Runs `say` while the bar is out of its way.
    pub(crate) fn suspend(&self, say: impl FnOnce()) {
        self.bar.suspend(say);
    }
}

/// Templates are fixed, so a fault in one would be seen at once; the plain style does no harm.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
