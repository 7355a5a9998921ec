//! Which version of an object an answer is of.

use super::head::Headers;
use xxhash_rust::xxh3::xxh3_64;

/// What tells one version of an object from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(super) text: String,
    /// Whether the server can be asked for the rest of exactly this version.
    pub(super) can_ask: bool,
}

impl Tag {
    pub(crate) fn of(headers: &Headers) -> Option<Self> {
        if let Some(checksum) = headers.get("ais-checksum-value") {
            return Some(Self::checked(checksum, headers.get("ais-version").unwrap_or_default()));
        }
        let etag = headers.get("etag").filter(|etag| !etag.is_empty());
        let (text, can_ask) = match etag {
            Some(etag) => (etag, !etag.starts_with("W/")),
            None => (headers.get("last-modified")?, true),
        };
        Some(Self { text: text.to_owned(), can_ask })
    }

    /// Of an object whose checksum and version the server tells.
    pub(crate) fn checked(checksum: &str, version: &str) -> Self {
        Self { text: format!("{checksum}/{version}"), can_ask: false }
    }

    /// As a number that is never 0, which means that there is no tag.
    pub(crate) fn stamp(tag: Option<&Self>) -> u64 {
        tag.map_or(0, |tag| xxh3_64(tag.text.as_bytes()).max(1))
    }
}
