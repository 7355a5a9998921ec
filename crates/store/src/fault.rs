//! How this crate words its errors: every one names the object and, where it is known, the offset.

use forebay_core::{Error, ErrorKind, Facts};

/// Puts what was being done and to what before an error, and the object into its facts.
pub(crate) fn located(error: Error, doing: &str, url: &str, offset: Option<u64>) -> Error {
    error.while_doing(format!("{doing} `{url}`")).with_facts(facts(url, offset))
}

/// The object is not there.
pub(crate) fn missing(doing: &str, url: &str) -> Error {
    Error::not_found(format!("{doing} `{url}`: no such object")).with_facts(facts(url, None))
}

/// The object ended before the bytes that it had when its size was learnt.
pub(crate) fn shortened(url: &str, offset: u64, wanted: u64) -> Error {
    let why = format!("the object ends there, {wanted} bytes before the end it had when its size was learnt");
    Error::stale(format!("read `{url}` at offset {offset}: {why}"))
        .with_hint("the object was changed while it was in use; scan the dataset again")
        .with_facts(facts(url, Some(offset)))
}

/// An operating system error, with kinds that [`Error::io`] has to leave open.
pub(crate) fn system(doing: &str, url: &str, offset: Option<u64>, source: std::io::Error) -> Error {
    let message = match offset {
        Some(offset) => format!("{doing} `{url}` at offset {offset}"),
        None => format!("{doing} `{url}`"),
    };
    let error = match source.raw_os_error() {
        Some(libc::ELOOP | libc::ENAMETOOLONG) => {
            Error::new(ErrorKind::InvalidConfig, message).with_source(source)
        }
        Some(libc::EMFILE | libc::ENFILE) => Error::exhausted(message)
            .with_source(source)
            .with_hint("raise the limit of open files (`ulimit -n`) or lower the store's `open_files`"),
        _ => Error::io(message, source),
    };
    error.with_facts(facts(url, offset))
}

pub(crate) fn facts(url: &str, offset: Option<u64>) -> Facts {
    Facts { object: Some(url.to_owned()), offset, ..Facts::default() }
}
