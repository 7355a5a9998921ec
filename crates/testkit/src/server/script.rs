//! What shall go wrong: one [`Act`] for each request.

use std::time::Duration;

/// A request, as the script sees it.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Requests before this one.
    pub number: u64,
    /// Number of its connection, from 0.
    pub connection: u64,
    /// `GET`, `HEAD`, `PUT` or `DELETE`.
    pub method: &'a str,
    /// The object's key, without a bucket. Of a listing, its prefix.
    pub key: &'a str,
    /// Whether it asks for a list of keys.
    pub listing: bool,
    /// How often this key was asked for, this time included.
    pub attempt: u64,
    /// First and last byte asked for; whole objects have none.
    pub range: Option<(u64, u64)>,
}

/// What a request meets. The default is a quick and right answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Act {
    /// Time before the first byte of the answer.
    pub delay: Duration,
    /// Bytes a second of the body; 0 for as fast as it goes.
    pub bytes_per_second: u64,
    /// What goes wrong.
    pub fault: Option<Fault>,
}

/// What goes wrong with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Another status and no object; `retry_after` in seconds.
    Status {
        /// Such as 503.
        code: u16,
        /// Says when to come again.
        retry_after: Option<u64>,
    },
    /// No answer, ever; the connection stays open.
    Hang,
    /// The connection closes before the answer.
    Close,
    /// The connection closes after so many bytes of the body; the head states the whole length.
    Truncate(u64),
    /// The bits of this byte of the body are inverted.
    Corrupt(u64),
}

impl Act {
    /// A quick answer that goes wrong.
    pub fn fault(fault: Fault) -> Self {
        Self { fault: Some(fault), ..Self::default() }
    }

    /// A refusal with this status.
    pub fn status(code: u16) -> Self {
        Self::fault(Fault::Status { code, retry_after: None })
    }

    /// A refusal for too many requests.
    pub fn throttle(retry_after: u64) -> Self {
        Self::fault(Fault::Status { code: 503, retry_after: Some(retry_after) })
    }

    /// A right answer after a delay.
    pub fn after(delay: Duration) -> Self {
        Self { delay, ..Self::default() }
    }
}
