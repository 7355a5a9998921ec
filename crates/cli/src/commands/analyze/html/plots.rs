//! Rows with bars, and curves: the parts of a report that are drawn.
//!
//! Bars are boxes of the page, so that words beside them keep their size on a phone; curves are SVG. A figure stands in a
//! `data` element with all of its digits.

use super::super::number;
use forebay_core::Result;
use forebay_core::stall::{Epoch, Rate};
use std::fmt::Write;

/// Points of a curve.
const POINTS: u32 = 40;
/// A curve's whole width and height, and its field's edges: left, top, right, bottom.
const SIZE: (f64, f64) = (360.0, 210.0);
const FIELD: (f64, f64, f64, f64) = (48.0, 14.0, 346.0, 180.0);

/// The parts of an epoch: their class, their words, and how long each takes.
fn parts(epoch: &Epoch) -> [(&'static str, &'static str, f64); 3] {
    [
        ("step", "step", epoch.step_seconds),
        ("prep", "prep stall", epoch.prep_stall_seconds),
        ("fetch", "fetch stall", epoch.fetch_stall_seconds),
    ]
}

/// A figure with all of its digits for programs, and as people read it.
pub(super) fn figure(key: &str, value: f64) -> String {
    format!("<data class=\"{key}\" value=\"{value}\">{}</data>", number(value))
}

/// A rate as a bar of what the highest one is, with its interval; what has no limit has no bar.
pub(super) fn rate_row(name: &str, class: &str, rate: Option<&Rate>, highest: f64) -> String {
    let Some(rate) = rate else {
        return format!(
            "<div class=\"row\"><b>{name}</b><span class=\"track open\">without limit</span></div>"
        );
    };
    let percent = |value: f64| 100.0 * (value / highest).clamp(0.0, 1.0);
    let (mut doubt, mut words) = (String::new(), String::new());
    if rate.low.is_finite() && rate.high.is_finite() && rate.high > rate.low {
        let (low, high) = (percent(rate.low), percent(rate.high));
        let _ =
            write!(doubt, "<span class=\"doubt\" style=\"left:{low:.2}%;width:{:.2}%\"></span>", high - low);
        let _ = write!(words, " ± {}", number((rate.high - rate.low) / 2.0));
    }
    format!(
        "<div class=\"row\"><b>{name}</b><div class=\"track\"><i class=\"{class}\" style=\"width:{:.2}%\"></i>{doubt}</div>\
         <span class=\"value\">{}{words} <small>samples/s</small></span></div>",
        percent(rate.per_second),
        figure(&format!("rate-{name}"), rate.per_second),
    )
}

/// What the colors of an epoch mean.
pub(super) fn legend() -> String {
    let keys = [("step", "step"), ("prep", "prep stall"), ("fetch", "fetch stall")];
    let items = keys.map(|(class, words)| format!("<li><span class=\"key {class}\"></span>{words}</li>"));
    format!("<ul class=\"legend\">{}</ul>", items.concat())
}

/// An epoch as one bar of its parts. `key` names its figures.
pub(super) fn epoch_row(name: &str, key: &str, epoch: &Epoch) -> String {
    let (mut bars, mut words) = (String::new(), Vec::new());
    for (class, part, seconds) in parts(epoch) {
        let percent = if epoch.seconds > 0.0 { 100.0 * seconds / epoch.seconds } else { 0.0 };
        let _ = write!(bars, "<i class=\"{class}\" style=\"width:{percent:.2}%\"></i>");
        words.push(format!(
            "{part} <data class=\"{key}-{class}\" value=\"{seconds}\">{}</data> ({percent:.0} %)",
            // A loop without a step works for some time that nobody could measure.
            if percent < 0.01 { "0 s".to_owned() } else { super::super::super::seconds(seconds) }
        ));
    }
    format!(
        "<div class=\"row\"><b>{name}</b><div class=\"track\">{bars}</div><span class=\"value\">{}: {} <small>samples/s</small></span>\
         <p class=\"soft\">{}</p></div>",
        super::super::super::seconds(epoch.seconds),
        figure(&format!("{key}-rate"), epoch.rate),
        words.join(", "),
    )
}

/// What a curve shows: words for those who do not see it, the unit of what varies, where we are, and how far it goes.
pub(super) struct Curve<'a> {
    pub(super) words: &'a str,
    pub(super) unit: &'a str,
    pub(super) now: f64,
    pub(super) most: f64,
}

impl Curve<'_> {
    /// Samples a second from 0 to the most, with a dot where we are.
    pub(super) fn drawn(&self, at: impl Fn(f64) -> Result<f64>) -> Result<String> {
        let most = self.most;
        let steps: Vec<f64> = (0..=POINTS).map(|point| most * f64::from(point) / f64::from(POINTS)).collect();
        let rates = steps.iter().map(|step| at(*step)).collect::<Result<Vec<f64>>>()?;
        let top = round_up(rates.iter().copied().fold(0.0, f64::max));
        let (left, upper, right, lower) = FIELD;
        let place =
            |x: f64, y: f64| (left + (right - left) * x / most, lower - (lower - upper) * (y / top).min(1.0));
        let mut drawn = String::new();
        for share in [0.0, 0.5, 1.0] {
            let (x, y) = (left + (right - left) * share, lower - (lower - upper) * share);
            let anchor = if share < 1.0 { "middle" } else { "end" };
            let _ = write!(
                drawn,
                "<path class=\"axis\" d=\"M{left} {y:.1}H{right}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}{}</text>",
                left - 8.0,
                y + 4.0,
                short(top * share),
                lower + 20.0,
                short(most * share),
                self.unit,
            );
        }
        let mut line = String::new();
        for (step, rate) in steps.iter().zip(&rates) {
            let (x, y) = place(*step, *rate);
            let _ = write!(line, "{}{x:.1} {y:.1}", if line.is_empty() { "M" } else { "L" });
        }
        let now = self.now.clamp(0.0, most);
        let (x, y) = place(now, at(now)?);
        // Beside the dot, on the side that has room; below it where the curve is at the top.
        let (beside, anchor) = if x > f64::midpoint(left, right) { (-10.0, "end") } else { (10.0, "start") };
        let _ = write!(
            drawn,
            "<path class=\"curve\" d=\"{line}\"/><circle class=\"now\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\"/>\
             <text class=\"here\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">now</text>",
            x + beside,
            (y + 20.0).min(lower - 6.0),
        );
        let ((width, height), words) = (SIZE, self.words);
        Ok(format!("<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{words}\">{drawn}</svg>"))
    }
}

/// The next number above that is round, and whose half is.
fn round_up(value: f64) -> f64 {
    if !(value.is_finite() && value > 0.0) {
        return 1.0;
    }
    let step = 10f64.powf(value.log10().floor());
    let tops = [1.0, 1.2, 1.6, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0].map(|factor| factor * step);
    tops.into_iter().find(|top| *top >= value).unwrap_or(10.0 * step)
}

/// A number beside an axis: few digits, and a letter for thousands.
fn short(value: f64) -> String {
    let (value, letter) = match value {
        value if value >= 1e9 => (value / 1e9, "G"),
        value if value >= 1e6 => (value / 1e6, "M"),
        value if value >= 1e4 => (value / 1e3, "k"),
        value => (value, ""),
    };
    let digits = usize::from(value < 10.0 && value.fract() > 1e-9);
    format!("{value:.digits$}{letter}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        for (value, top) in [(0.0, 1.0), (0.35, 0.4), (1.0, 1.0), (99.0, 100.0), (250.0, 300.0), (7e6, 8e6)] {
            let found = round_up(value);
            assert!((found / top - 1.0).abs() < 1e-9, "{value}: {found}");
        }
        for (value, text) in [(0.0, "0"), (2.5, "2.5"), (400.0, "400"), (8e6, "8M"), (25_000.0, "25k")] {
            assert_eq!(short(value), text);
        }
    }
}
