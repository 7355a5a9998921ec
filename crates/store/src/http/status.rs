//! What a status means for whoever asked: which kind of error, and whether to come back later.

use super::head::{Headers, number};
use forebay_core::{Error, ErrorKind};
use std::time::Duration;

/// No server makes us wait longer than this by asking.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// The kind of error that a status stands for.
pub fn kind(status: u16) -> ErrorKind {
    match status {
        404 | 410 => ErrorKind::NotFound,
        401 | 403 | 407 => ErrorKind::Denied,
        408 | 425 | 429 | 500 | 502 | 503 | 504 | 509 => ErrorKind::Unavailable,
        501 | 505 => ErrorKind::Unsupported,
        400..=499 => ErrorKind::InvalidConfig,
        500..=599 => ErrorKind::Unavailable,
        _ => ErrorKind::Corrupt,
    }
}

/// The error of an answer that is no success. What was asked of whom is for the caller to put before it.
pub fn error(status: u16, headers: &Headers, body: &[u8]) -> Error {
    let kind = kind(status);
    let why = match status {
        404 | 410 => "no such object".to_owned(),
        300..=399 => format!("the server answered {status}, which leads nowhere"),
        _ => match reason(status) {
            "" => format!("the server answered {status}"),
            reason => format!("the server answered {status} ({reason})"),
        },
    };
    let error = Error::new(kind, why);
    let slow_down = body.len() < 16 << 10 && body.windows(8).any(|text| text == b"SlowDown");
    match (kind, status) {
        (_, 429 | 503 | 509) => error.with_throttle(retry_after(headers)),
        (ErrorKind::Unavailable, _) if slow_down => error.with_throttle(retry_after(headers)),
        // Whoever stands before the server is there, and the server is not.
        (_, 502 | 504) => error.with_away(),
        (ErrorKind::Denied, _) => error.with_hint("check the credentials and what they may read"),
        _ => error,
    }
}

/// The pause in `Retry-After`, when it is given in seconds; zero when it is not.
pub fn retry_after(headers: &Headers) -> Duration {
    let seconds = headers.get("retry-after").and_then(number).unwrap_or_default();
    Duration::from_secs(seconds).min(LONGEST_PAUSE)
}

fn reason(status: u16) -> &'static str {
    match status {
        400 => "bad request",
        401 => "not authorized",
        403 => "forbidden",
        405 => "method not allowed",
        408 => "request timeout",
        409 => "conflict",
        412 => "precondition failed",
        413 => "too large",
        416 => "range not satisfiable",
        425 => "too early",
        429 => "too many requests",
        500 => "internal server error",
        501 => "not implemented",
        502 => "bad gateway",
        503 => "service unavailable",
        504 => "gateway timeout",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn a_status_says_what_can_be_done_about_it() {
        use ErrorKind::{Corrupt, Denied, InvalidConfig, NotFound, Unavailable};
        let cases = [(404, NotFound), (410, NotFound), (401, Denied), (403, Denied), (416, InvalidConfig)];
        let more = [
            (400, InvalidConfig),
            (429, Unavailable),
            (500, Unavailable),
            (599, Unavailable),
            (304, Corrupt),
        ];
        for (status, kind) in cases.into_iter().chain(more) {
            assert_eq!(error(status, &Headers::default(), b"").kind(), kind, "{status}");
        }
    }

    #[test]
    fn a_server_that_is_asked_too_much_is_left_alone_as_long_as_it_says() {
        let head = "HTTP/1.1 429 x\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n";
        let headers = super::super::head::parse(&Bytes::from_static(head.as_bytes())).unwrap().headers;
        assert_eq!(error(429, &headers, b"").throttled(), Some(Duration::from_secs(7)));
        let none = Headers::default();
        assert_eq!(error(503, &none, b"").throttled(), Some(Duration::ZERO));
        assert_eq!(error(500, &none, b"<Code>SlowDown</Code>").throttled(), Some(Duration::ZERO));
        assert_eq!(error(500, &none, b"").throttled(), None);
    }
}
