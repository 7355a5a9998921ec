//! What is aimed at with the number of workers, what is measured, and what is wanted for which reason.

use serde::{Deserialize, Serialize};

/// What is aimed at, and how patiently. Times are milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScaleSettings {
    /// Never fewer.
    pub least_workers: u64,
    /// Never more, whatever consumers wait: the bound of what a service may cost.
    pub most_workers: u64,
    /// Share of their time that consumers may wait.
    pub waiting_share: f64,
    /// After the number of workers changed, this long nothing is concluded: new ones warm up, queues fill or drain.
    pub settle_ms: u64,
    /// Fewer must have been enough for this long.
    pub lower_after_ms: u64,
    /// A raise must bring this share of what as many more workers would bring if nothing else held them up.
    pub least_gain: f64,
    /// After this long it is tried again whether a raise helps, or fewer do; twice as long after every attempt that
    /// went wrong.
    pub retry_ms: u64,
}

impl Default for ScaleSettings {
    fn default() -> Self {
        Self {
            least_workers: 1,
            most_workers: 100,
            waiting_share: 0.05,
            settle_ms: 8000,
            lower_after_ms: 20_000,
            least_gain: 0.3,
            retry_ms: 600_000,
        }
    }
}

/// What was measured lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Workers that take spans.
    pub workers: u64,
    /// Samples a second that consumers would take if they never waited.
    pub demand: f64,
    /// Samples a second that they get.
    pub supply: f64,
    /// Share of their time that they wait.
    pub waiting: f64,
}

/// Why a number of workers is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Nobody reads, or nothing was measured yet.
    #[default]
    Idle,
    /// The number changed a moment ago.
    Settling,
    /// It is right.
    Enough,
    /// Consumers wait.
    Waiting,
    /// Fewer would do.
    Spare,
    /// Consumers wait, and more workers do not help: the store or a link gives no more.
    LinkBound,
    /// Consumers wait, and no more workers may be had.
    AtMost,
}

/// The answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Wanted {
    /// Workers that should be there.
    pub workers: u64,
    /// The reason.
    pub why: Why,
    /// What it was concluded from.
    pub seen: Seen,
    /// Samples a second that one worker gives, as far as that is known; 0 when it is not.
    pub worker_rate: f64,
}
