//! What is asked and what is answered.

use super::head::Headers;
use bytes::Bytes;
use url::Url;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Reads the head only.
    Head,
    /// Puts an object in place.
    Put,
    /// Asks for something to be done; is never sent twice.
    Post,
    /// Changes a part of something.
    Patch,
    /// Takes an object away.
    Delete,
}

impl Method {
    /// As it is written on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Put => "PUT",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    pub(crate) fn is_head(self) -> bool {
        self == Self::Head
    }

    /// Whether a length is sent even if it is 0.
    pub(crate) fn has_body(self) -> bool {
        matches!(self, Self::Put | Self::Post | Self::Patch)
    }
}

/// One request.
#[derive(Clone, Debug)]
pub struct HttpRequest<'a> {
    /// What to do.
    pub method: Method,
    /// With whom; user and password in it are ignored.
    pub url: &'a Url,
    /// Besides host, user agent and content length, which are added. `expect: 100-continue` makes a body wait until
    /// the server wants it.
    pub headers: &'a [(&'a str, String)],
    /// Sent with the request; empty for none.
    pub body: Bytes,
    /// Most bytes of the answer's body that are taken: more is an error.
    pub expect: u64,
}

impl HttpRequest<'_> {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// What the server answered, whatever its status.
#[derive(Clone, Debug)]
pub struct HttpAnswer {
    /// The status.
    pub status: u16,
    /// All headers.
    pub headers: Headers,
    /// All of the body.
    pub body: Bytes,
}
