//! Requests to a bucket: addressed, signed, sent, and refusals put into words.
//!
//! Credentials are those of `object_store`; the connection and the signatures are this crate's own.

use super::listing::{element, unescape};
use super::options::Place;
use super::sign::{self, Signer};
use crate::fault;
use crate::http::{HttpAnswer, HttpRequest, Limits, Method, ProcessClient, Received, uri};
use bytes::{Bytes, BytesMut};
use forebay_core::{Error, ErrorKind, Result};
use std::time::Duration;
use url::Url;

/// Bytes of an answer that is taken whatever was expected: a few hundred of XML follow most writes.
const SHORT_BYTES: u64 = 64 << 10;

/// Characters of a server's own words that messages repeat.
const REASON_CHARACTERS: usize = 200;

/// A bucket and a way to it.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) root: String,
    pub(super) place: Place,
    pub(super) client: ProcessClient,
    pub(super) signer: Signer,
}

/// One request.
#[derive(Debug, Default)]
pub(super) struct Ask<'a> {
    /// Key of the object; empty for the bucket itself.
    pub(super) key: &'a str,
    /// What follows the `?`, encoded.
    pub(super) query: String,
    /// Value of the `Range` header.
    pub(super) range: Option<String>,
    /// Etag of the version that is wanted.
    pub(super) condition: Option<String>,
    /// A header of Amazon's own, which has to be signed.
    pub(super) amz: Option<(&'static str, String)>,
    pub(super) body: Bytes,
    /// Most bytes of the answer, where it is longer than a few lines.
    pub(super) expect: u64,
}

impl Wire {
    pub(super) fn url(&self, key: &str) -> String {
        if key.is_empty() { self.root.clone() } else { format!("{}/{key}", self.root) }
    }

    /// Sends a request and takes whatever answer comes. `doing` names it in errors.
    pub(super) async fn send(&self, doing: &str, method: Method, ask: Ask<'_>) -> Result<HttpAnswer> {
        let expect = ask.expect.max(SHORT_BYTES);
        let limits = Limits { part: expect, whole: expect };
        let key = ask.key;
        let Received { status, headers, body, cut } =
            self.receive(doing, method, ask, limits, BytesMut::new()).await?;
        match cut {
            Some(error) => Err(fault::located(error, doing, &self.url(key), None)),
            None => Ok(HttpAnswer { status, headers, body: body.freeze() }),
        }
    }

    /// As [`Self::send`], but a body that is cut is handed on, behind what `into` held.
    pub(super) async fn receive(
        &self,
        doing: &str,
        method: Method,
        ask: Ask<'_>,
        limits: Limits,
        into: BytesMut,
    ) -> Result<Received> {
        let name = self.url(ask.key);
        let received = async {
            let url = self.address(&ask)?;
            let mut headers = self.sign(method, &url, &ask.body, ask.amz.into_iter().collect()).await?;
            headers.extend(ask.range.map(|range| ("range", range)));
            headers.extend(ask.condition.map(|etag| ("if-match", etag)));
            let request = HttpRequest { method, url: &url, headers: &headers, body: ask.body, expect: 0 };
            self.client.get()?.receive(&request, limits, into).await
        };
        received.await.map_err(|error| fault::located(error, doing, &name, None))
    }

    /// As [`Self::send`], and every answer that is no success is an error.
    pub(super) async fn ask(&self, doing: &str, method: Method, ask: Ask<'_>) -> Result<HttpAnswer> {
        let key = ask.key;
        let answer = self.send(doing, method, ask).await?;
        if (200..300).contains(&answer.status) { Ok(answer) } else { Err(self.refusal(doing, key, &answer)) }
    }

    fn address(&self, ask: &Ask<'_>) -> Result<Url> {
        let mut address = self.place.bucket_url.clone();
        if !ask.key.is_empty() {
            address.push('/');
            address.push_str(&uri::encode_path(ask.key));
        }
        if !ask.query.is_empty() {
            address.push('?');
            address.push_str(&ask.query);
        }
        uri::parse(&address)
    }

    /// `amz` and the headers that say who asks. Nobody does for anonymous stores.
    async fn sign(
        &self,
        method: Method,
        url: &Url,
        body: &Bytes,
        amz: sign::Headers,
    ) -> Result<sign::Headers> {
        let Some(provider) = &self.place.credentials else { return Ok(amz) };
        let credential = provider.get_credential().await.map_err(|error| {
            Error::new(ErrorKind::Denied, "no credentials were found")
                .with_source(error)
                .with_hint(CREDENTIALS)
        })?;
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_plain(&credential.key_id) || !credential.token.as_deref().is_none_or(is_plain) {
            let why = "the access key id or the session token has characters that no header can carry";
            return Err(Error::invalid_config(why));
        }
        self.signer.sign(&credential, method.name(), url, body, amz)
    }

    /// What a refusal means and what can be done about it.
    pub(super) fn refusal(&self, doing: &str, key: &str, answer: &HttpAnswer) -> Error {
        let name = self.url(key);
        let text = String::from_utf8_lossy(&answer.body);
        let code = element(&text, "Code").unwrap_or_default();
        let said = element(&text, "Message").and_then(|message| unescape(message).ok()).unwrap_or_default();
        let status = answer.status;
        let mut reason = format!("status {status}");
        for words in [code, said.as_str()].into_iter().filter(|words| !words.is_empty()) {
            reason.push_str(", ");
            reason.extend(words.chars().filter(|c| !c.is_control()).take(REASON_CHARACTERS));
        }
        let endpoint = &self.place.endpoint;
        let region = answer.headers.get("x-amz-bucket-region").filter(|region| **region != self.place.region);
        let build = |kind| Error::new(kind, format!("{doing} `{name}`: refused by `{endpoint}` ({reason})"));
        let pause = answer.headers.get("retry-after").and_then(|pause| pause.trim().parse().ok());
        let error = match status {
            404 if code == "NoSuchBucket" => {
                Error::not_found(format!("{doing} `{name}`: no such bucket at `{endpoint}`"))
            }
            404 | 410 => return fault::missing(doing, &name),
            300..=400 if region.is_some() => {
                let region = region.unwrap_or_default();
                build(ErrorKind::InvalidConfig)
                    .with_hint(format!("the bucket is in another region: `region={region}`"))
            }
            401 | 403 => build(ErrorKind::Denied).with_hint(CREDENTIALS),
            400 if code == "ExpiredToken" || code == "InvalidToken" => {
                build(ErrorKind::Denied).with_hint(CREDENTIALS)
            }
            412 => build(ErrorKind::Stale).with_hint("the object was changed; scan the dataset again"),
            429 | 503 | 509 => {
                build(ErrorKind::Unavailable).with_throttle(Duration::from_secs(pause.unwrap_or(0)))
            }
            _ if code == "SlowDown" => build(ErrorKind::Unavailable).with_throttle(Duration::ZERO),
            // Also 400 for a body that came too slowly, and 409 for one of two writers at once.
            408 | 409 | 425 | 500.. => build(ErrorKind::Unavailable),
            400 if code == "RequestTimeout" || code == "IncompleteBody" => build(ErrorKind::Unavailable),
            _ => build(ErrorKind::InvalidConfig),
        };
        error.with_facts(fault::facts(&name, None))
    }
}

const CREDENTIALS: &str = "check `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, or the storage options \
`access_key_id` and `secret_access_key`, and that they may read there; public buckets take `anonymous=true`";
