//! The gate before the store: how many requests may be under way is decided by core's [`Window`]; here somebody waits.
//!
//! A [`Pass`] is the right to have one request under way. Giving it back says how the request went, which is all that
//! the window learns about the link. Stores on this machine have a fixed window; remote ones adapt. Its clock is
//! tokio's, as that of tries and stores is, so that tests can pause all of them together.

use crate::sync::{Mutex, MutexGuard};
use forebay_core::window::{End, Hedge, LinkEstimate, Ticket, Window, WindowLimits};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Second requests, as a share of first ones.
const HEDGE_SHARE: f64 = 0.04;

/// Who may send a request, and when a second one is worth it.
#[derive(Debug)]
pub(crate) struct Gate {
    state: Mutex<State>,
    /// Some request ended, so another may start.
    changed: Notify,
    began: Instant,
}

#[derive(Debug)]
struct State {
    window: Window,
    /// Second tries that wait.
    again: usize,
    /// `None` where second requests bring nothing.
    hedge: Option<Hedge>,
}

/// Which try of a request asks for a pass. Those that were tried before go first: their samples have waited longest, and
/// behind all first tries the window would see nothing but failures when each request fails once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    First,
    Again,
}

/// The right to have one request under way. Dropped without a word it counts as failed.
#[derive(Debug)]
pub(crate) struct Pass {
    gate: Arc<Gate>,
    ticket: Option<Ticket>,
    bytes: u64,
    turn: Turn,
    since: Instant,
}

/// A second try that waits, so that first tries let it go before them.
struct Waits<'a>(&'a Gate);

/// What the gate knows, for the report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GateView {
    pub(crate) window_bytes: u64,
    pub(crate) window_requests: usize,
    pub(crate) link: LinkEstimate,
    /// How long the store was away, in all.
    pub(crate) away_seconds: f64,
}

impl Gate {
    pub(crate) fn new(limits: WindowLimits, hedge: bool) -> Self {
        let state =
            State { window: Window::new(limits), again: 0, hedge: hedge.then(|| Hedge::new(HEDGE_SHARE)) };
        Self { state: Mutex::new(state), changed: Notify::new(), began: Instant::now() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a request that brings `bytes` may start.
    pub(crate) async fn enter(self: &Arc<Self>, bytes: u64, turn: Turn) -> Pass {
        let mut waits = None;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on no change is missed.
            changed.as_mut().enable();
            let pause = {
                let mut state = self.lock();
                let now = self.began.elapsed();
                let goes_first = turn == Turn::Again || state.again == 0;
                if goes_first && let Some(ticket) = state.window.try_start(now, bytes) {
                    if let Some(hedge) = &mut state.hedge {
                        hedge.started();
                    }
                    return Pass {
                        gate: Arc::clone(self),
                        ticket: Some(ticket),
                        bytes,
                        turn,
                        since: Instant::now(),
                    };
                }
                if turn == Turn::Again && waits.is_none() {
                    state.again += 1;
                    waits = Some(Waits(self));
                }
                state.window.retry_at().map(|at| at.saturating_sub(now))
            };
            match pause {
                // A timer may fire a little early: asking again costs nothing.
                Some(pause) => {
                    let pause = pause.max(Duration::from_millis(1));
                    let _ = tokio::time::timeout(pause, changed).await;
                }
                None => changed.await,
            }
        }
    }

    /// How long to wait for a request of this size before a second one is sent; `None` when none is to be sent.
    pub(crate) fn hedge_delay(&self, bytes: u64) -> Option<Duration> {
        self.lock().hedge.as_ref().and_then(|hedge| hedge.delay(bytes))
    }

    /// Whether the allowance has room for a second request; takes it if so.
    pub(crate) fn spend_hedge(&self) -> bool {
        self.lock().hedge.as_mut().is_some_and(Hedge::spend)
    }

    /// How large one range request should be now.
    pub(crate) fn request_bytes(&self) -> u64 {
        self.lock().window.request_bytes()
    }

    pub(crate) fn view(&self) -> GateView {
        let state = self.lock();
        GateView {
            window_bytes: state.window.bytes(),
            window_requests: state.window.requests(),
            link: state.window.estimate(),
            away_seconds: state.window.away_seconds(self.began.elapsed()).1,
        }
    }

    /// How long nobody has been there, when nobody is.
    pub(crate) fn away(&self) -> Option<Duration> {
        let seconds = self.lock().window.away_seconds(self.began.elapsed()).0?;
        Duration::try_from_secs_f64(seconds).ok()
    }
}

impl Pass {
    /// How the window is told that the request failed.
    pub(crate) fn failed(&self) -> End {
        End::Failed { again: self.turn == Turn::Again }
    }

    /// The request ended so.
    pub(crate) fn finish(mut self, end: End) {
        self.leave(end);
    }

    fn leave(&mut self, end: End) {
        let Some(ticket) = self.ticket.take() else { return };
        let mut state = self.gate.lock();
        state.window.finish(self.gate.began.elapsed(), ticket, end);
        if let (End::Done { .. }, Some(hedge)) = (end, &mut state.hedge) {
            hedge.observe(self.bytes, self.since.elapsed());
        }
        drop(state);
        self.gate.changed.notify_waiters();
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.leave(self.failed());
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.again -= 1;
        let last = state.again == 0;
        drop(state);
        if last {
            self.0.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn gate(requests: usize) -> Arc<Gate> {
        let fixed_requests = Some(requests);
        Arc::new(Gate::new(
            WindowLimits { max_bytes: u64::MAX, max_requests: requests, fixed_requests },
            false,
        ))
    }

    #[tokio::test]
    async fn a_request_waits_until_another_ends_however_it_ends() {
        let gate = gate(2);
        let (first, second) = (gate.enter(10, Turn::First).await, gate.enter(10, Turn::First).await);
        let mut third = Box::pin(gate.enter(10, Turn::First));
        assert!(third.as_mut().now_or_never().is_none());
        first.finish(End::Done { bytes: 10 });
        let third = third.await;
        let mut fourth = Box::pin(gate.enter(10, Turn::First));
        assert!(fourth.as_mut().now_or_never().is_none());
        drop(second);
        drop(fourth.await);
        third.finish(End::Done { bytes: 10 });
        assert!(gate.enter(1, Turn::First).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_second_try_goes_before_first_ones_that_waited_longer() {
        let gate = gate(1);
        let only = gate.enter(10, Turn::First).await;
        let mut first = Box::pin(gate.enter(10, Turn::First));
        assert!(first.as_mut().now_or_never().is_none());
        let mut given_up = Box::pin(gate.enter(10, Turn::Again));
        let mut again = Box::pin(gate.enter(10, Turn::Again));
        assert!(given_up.as_mut().now_or_never().is_none());
        assert!(again.as_mut().now_or_never().is_none());
        only.finish(End::Done { bytes: 10 });
        assert!(first.as_mut().now_or_never().is_none(), "although there is room");
        again.await.finish(End::Done { bytes: 10 });
        assert!(first.as_mut().now_or_never().is_none(), "another second try waits");
        drop(given_up);
        assert!(first.now_or_never().is_some(), "one that gave up holds nobody back");
    }
}
