//! What the server says when it does not do as asked.

use crate::http::{Headers, status};
use forebay_core::{Error, ErrorKind};
use serde::Deserialize;

#[derive(Deserialize)]
struct Refused {
    #[serde(default)]
    tcode: String,
    #[serde(default)]
    message: String,
}

/// The error of an answer that is no success: the server says more in JSON, in the body or, to HEAD, in a header.
pub(super) fn refusal(status: u16, headers: &Headers, body: &[u8]) -> Error {
    let plain = status::error(status, headers, body);
    let said = headers.get("hdr-error").map_or(body, str::as_bytes);
    let Ok(refused) = serde_json::from_slice::<Refused>(said) else { return plain };
    // A name that is a directory there has no object either, and the server calls that its own failure.
    let missing = matches!(refused.tcode.as_str(), "ErrLmetaNotFound" | "ErrNotFound" | "ErrObjNotFound");
    let kind = if missing { ErrorKind::NotFound } else { plain.kind() };
    let words: String = refused.message.chars().filter(|c| !c.is_control()).take(200).collect();
    let why = if words.is_empty() { String::new() } else { format!(": {words}") };
    let mut error =
        Error::new(kind, format!("{}{why}", if missing { "no such object" } else { plain.message() }));
    if let Some(hint) = plain.hint() {
        error = error.with_hint(hint);
    }
    match plain.throttled() {
        Some(pause) => error.with_throttle(pause),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_no_object_and_the_server_is_quoted() {
        let body = br#"{"tcode":"ErrLmetaNotFound","message":"ais://b/d, err: no data","status":500}"#;
        let error = refusal(500, &Headers::default(), body);
        assert!(error.kind() == ErrorKind::NotFound && error.message().contains("no data"));
        let error = refusal(503, &Headers::default(), br#"{"message":"busy"}"#);
        assert!(error.throttled().is_some() && error.message().ends_with(": busy"));
    }
}
