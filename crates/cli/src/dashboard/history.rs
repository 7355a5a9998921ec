//! The last minutes, as the page draws them: where the time went and how fast it was, point by point.

use super::state::State;
use std::collections::VecDeque;

/// Points that are kept: ten minutes while somebody looks.
const POINTS: usize = 600;

/// Time in milliseconds, shares by part in the order of `state::Bands`, samples a second.
type Point = (u64, Option<[f64; 6]>, f64);

#[derive(Debug, Default)]
pub(super) struct History(VecDeque<Point>);

impl History {
    pub(super) fn add(&mut self, state: &State) {
        if self.0.len() == POINTS {
            self.0.pop_front();
        }
        self.0.push_back((
            state.at_ms,
            state.bands.map(super::state::Bands::shares),
            state.samples_per_second,
        ));
    }

    pub(super) fn text(&self) -> String {
        serde_json::to_string(&self.0).unwrap_or_else(|_| "[]".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_points_are_kept() {
        let mut history = History::default();
        for at_ms in 0..2 * POINTS as u64 {
            history.add(&State { at_ms, ..State::default() });
        }
        assert_eq!(history.0.len(), POINTS);
        assert!(history.text().starts_with(&format!("[[{POINTS},null,0.0]")), "{:.40}", history.text());
    }
}
