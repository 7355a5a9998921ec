//! Saying that a store is away: once when it is noticed, then now and then, whatever the number of requests that wait.

use forebay_core::Error;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// From one warning to the next.
const SPACED: Duration = Duration::from_secs(30);

/// When it was last said that a store is away.
#[derive(Debug, Default)]
pub struct AwayNotice(Mutex<Option<Instant>>);

impl AwayNotice {
    /// Logs that nobody has been there for so long, unless that was said a short while ago. Says whether it did.
    pub fn tell(&self, error: &Error, away: Duration) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if told.is_some_and(|told| now.duration_since(told) < SPACED) {
            return false;
        }
        *told = Some(now);
        tracing::warn!(
            error = error.chain(),
            seconds = away.as_secs(),
            "the store is away and is asked again"
        );
        true
    }
}
