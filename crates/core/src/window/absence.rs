//! Whether anybody is at the other end: a store that restarts is waited for, by one request at a time.
//!
//! While nobody is there, every request would only be refused, thousands in a second, and all of them would stand at the
//! door of a server that is just starting. So one asks for all, after pauses that grow to two seconds; the first answer of
//! any kind ends the absence, and the window is what it was before.
//!
//! One part of a cluster that is down is not an absence: as long as others answer, requests are only made again.

use super::Ticket;

/// So many requests in a row must find nobody, with no answer to any other since they started.
const IN_A_ROW: u32 = 4;
/// Seconds until the first request that asks whether anybody is back, and the most until any later one.
const PAUSES: (f64, f64) = (0.1, 2.0);

/// What is known of the other side's being there.
#[derive(Clone, Debug, Default)]
pub(super) struct Absence {
    /// When a request was last answered, and how many found nobody since.
    answered_at: f64,
    in_a_row: u32,
    /// Since when nobody is there.
    since: Option<f64>,
    /// The request that asks for all, if one is under way.
    asking: Option<u64>,
    next: f64,
    pause: f64,
    /// Seconds of all absences that are over.
    past: f64,
}

impl Absence {
    /// Whether nobody is there.
    pub(super) fn is_on(&self) -> bool {
        self.since.is_some()
    }

    /// Whether the one request that asks for all may start.
    pub(super) fn may_ask(&self, now: f64) -> bool {
        self.asking.is_none() && now >= self.next
    }

    /// When it may, unless that depends on the end of another.
    pub(super) fn asks_at(&self) -> Option<f64> {
        (self.is_on() && self.asking.is_none()).then_some(self.next)
    }

    /// The request of this number asks for all.
    pub(super) fn ask(&mut self, number: u64) {
        self.asking = Some(number);
    }

    /// A request found nobody.
    pub(super) fn missed(&mut self, now: f64, ticket: &Ticket) {
        if self.asking == Some(ticket.number) {
            self.asking = None;
            self.pause = (2.0 * self.pause).min(PAUSES.1);
            self.next = now + self.pause;
        } else if self.since.is_none() && ticket.started >= self.answered_at {
            self.in_a_row += 1;
            if self.in_a_row >= IN_A_ROW {
                self.since = Some(now);
                self.pause = PAUSES.0;
                self.next = now + self.pause;
            }
        }
    }

    /// A request was answered, or ended in another way when `answered` is false; true when that ends the absence.
    pub(super) fn met(&mut self, now: f64, ticket: &Ticket, answered: bool) -> bool {
        if self.asking == Some(ticket.number) {
            self.asking = None;
        } else if !answered {
            // Cut off while the other side went away: old news.
            return false;
        }
        (self.answered_at, self.in_a_row) = (now, 0);
        let Some(since) = self.since.take() else { return false };
        self.past += now - since;
        true
    }

    /// Seconds in which nobody was there: of this absence, and of all.
    pub(super) fn seconds(&self, now: f64) -> (Option<f64>, f64) {
        let current = self.since.map(|since| (now - since).max(0.0));
        (current, self.past + current.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{End, Window, WindowLimits};
    use proptest::prelude::*;
    use std::time::Duration;

    fn window() -> Window {
        Window::new(WindowLimits { max_bytes: u64::MAX, max_requests: 4096, fixed_requests: Some(64) })
    }

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// A store that is away from one moment to another: how often it was asked meanwhile, and when the first request after
    /// its return was let through.
    fn asked_while_away(window: &mut Window, from: u64, until: u64) -> (u32, u64) {
        let (mut asked, mut now) = (0, from);
        loop {
            match window.try_start(at(now), 1000) {
                Some(ticket) if now < until => {
                    asked += 1;
                    window.finish(at(now), ticket, End::Away);
                }
                Some(ticket) => {
                    window.finish(at(now), ticket, End::Done { bytes: 1000 });
                    return (asked, now);
                }
                None => now += 1,
            }
        }
    }

    proptest! {
        #[test]
        fn a_store_that_is_away_is_asked_by_one_at_a_time_and_found_within_two_seconds_of_its_return(
            seconds in 1u64..600,
        ) {
            let mut window = window();
            let (asked, found) = asked_while_away(&mut window, 1000, 1000 + seconds * 1000);
            prop_assert!(asked <= 4 + 6 + seconds as u32, "{asked} in {seconds} s");
            prop_assert!(found <= 1000 + seconds * 1000 + 2000, "found at {found} ms");
            // And then everybody may, at once.
            let flying: Vec<_> = std::iter::from_fn(|| window.try_start(at(found), 1000)).collect();
            prop_assert_eq!(flying.len(), 64);
            let (now, total) = window.away_seconds(at(found));
            prop_assert!(now.is_none() && (total - seconds as f64).abs() <= 2.0, "{total}");
        }
    }

    #[test]
    fn a_part_that_is_down_does_not_stop_the_others() {
        let mut window = window();
        for round in 0..100 {
            let tickets: Vec<_> = (0..8).map(|_| window.try_start(at(round * 10), 1000).unwrap()).collect();
            for (number, ticket) in tickets.into_iter().enumerate() {
                // Half of all find nobody, and the others answer a moment later.
                let end = if number % 2 == 0 { End::Away } else { End::Done { bytes: 1000 } };
                window.finish(at(round * 10 + 1 + number as u64), ticket, end);
            }
        }
        assert_eq!(window.away_seconds(at(1000)), (None, 0.0));
    }

    #[test]
    fn one_that_asks_for_all_and_is_given_up_leaves_its_place_to_another() {
        let mut window = window();
        for _ in 0..4 {
            let ticket = window.try_start(at(0), 1).unwrap();
            window.finish(at(0), ticket, End::Away);
        }
        assert!(window.try_start(at(50), 1).is_none(), "nobody is there");
        assert_eq!(window.retry_at().map(|at| at.as_millis()), Some(100));
        let asking = window.try_start(at(101), 1).unwrap();
        assert!(window.try_start(at(5000), 1).is_none(), "one at a time");
        assert_eq!(window.retry_at(), None, "only its end lets another start");
        window.finish(at(5000), asking, End::Failed { again: true });
        assert!(window.try_start(at(5000), 1).is_some());
    }
}
