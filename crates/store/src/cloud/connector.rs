//! What `object_store` sends its requests with: this crate's own HTTP client.
//!
//! The crate asks for credentials of a machine or a role, and reads and writes what lies in Google Cloud Storage and
//! Azure. Its own way to do that is a second HTTP client with a second TLS library behind it. Here one client serves
//! everything: the same roots, the same time-outs, the same bounds on what a server may send. Answers are taken whole,
//! because every caller wants them whole. Redirects are not followed, as none of these services sends one.

use crate::http::{HttpOptions, HttpRequest, Method, ProcessClient};
use bytes::Bytes;
use forebay_core::{Error, ErrorKind};
use http_body_util::BodyExt;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest as TheirRequest,
    HttpResponse as TheirAnswer, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use std::time::Duration;
use url::Url;

/// Longest answer to a request that names no range. Listings and tokens are far below, whole objects may come near.
const MOST_ANSWER_BYTES: u64 = 64 << 30;

/// Makes the clients of one store.
#[derive(Clone, Debug, Default)]
pub struct Connector {
    /// How their connections are made; what `object_store` says about TLS is not looked at.
    pub options: HttpOptions,
}

impl HttpConnector for Connector {
    fn connect(&self, theirs: &ClientOptions) -> object_store::Result<HttpClient> {
        let mut options = self.options.clone();
        // Services that tell a machine its role are near or absent: `object_store` wants them given up on soon.
        let wanted =
            theirs.get_config_value(&ClientConfigKey::ConnectTimeout).and_then(|text| seconds(&text));
        if let Some(wanted) = wanted {
            options.connect_timeout = options.connect_timeout.min(wanted);
        }
        let plain = theirs.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|word| word == "true");
        let client = ProcessClient::new(options)
            .map_err(|error| object_store::Error::Generic { store: "HTTP", source: Box::new(error) })?;
        Ok(HttpClient::new(Service { client, plain }))
    }
}

#[derive(Debug)]
struct Service {
    client: ProcessClient,
    /// Whether requests may go out without TLS.
    plain: bool,
}

#[async_trait::async_trait]
impl HttpService for Service {
    async fn call(&self, request: TheirRequest) -> Result<TheirAnswer, HttpError> {
        let (head, body) = request.into_parts();
        let url = Url::parse(&head.uri.to_string())
            .map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        if url.scheme() != "https" && !self.plain {
            let why = format!("`{}://` shows bytes and secrets to everyone on the way", url.scheme());
            let error = Error::invalid_config(why).with_hint("say `allow_http=true` if that is meant");
            return Err(HttpError::new(HttpErrorKind::Unknown, error));
        }
        let mut headers = Vec::with_capacity(head.headers.len());
        for (name, value) in &head.headers {
            let text = value.to_str().map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
            // The client says these two by itself.
            if name != "host" && name != "content-length" {
                headers.push((name.as_str(), text.to_owned()));
            }
        }
        let body: Bytes = match body.as_bytes() {
            Some(bytes) => bytes.clone(),
            None => body.collect().await?.to_bytes(),
        };
        let expect =
            headers.iter().find(|(name, _)| *name == "range").and_then(|(_, range)| range_bytes(range));
        let request = HttpRequest {
            method: method(&head.method)?,
            url: &url,
            headers: &headers,
            body,
            expect: expect.unwrap_or(MOST_ANSWER_BYTES),
        };
        let answer = self.client.get().map_err(failure)?.send(request).await.map_err(failure)?;
        let mut theirs = http::Response::builder().status(answer.status);
        for (name, value) in answer.headers.iter() {
            theirs = theirs.header(name, value);
        }
        theirs.body(answer.body.into()).map_err(|error| HttpError::new(HttpErrorKind::Decode, error))
    }
}

fn method(theirs: &http::Method) -> Result<Method, HttpError> {
    let known = [Method::Get, Method::Head, Method::Put, Method::Post, Method::Patch, Method::Delete];
    known.into_iter().find(|method| method.name() == theirs.as_str()).ok_or_else(|| {
        let error = Error::unsupported(format!("send a request: `{theirs}` is no method of this client"));
        HttpError::new(HttpErrorKind::Unknown, error)
    })
}

/// What a failure of ours is called there.
fn failure(error: Error) -> HttpError {
    let kind = match error.kind() {
        ErrorKind::Unavailable if error.is_away() => HttpErrorKind::Connect,
        ErrorKind::Unavailable => HttpErrorKind::Interrupted,
        ErrorKind::Corrupt => HttpErrorKind::Decode,
        _ => HttpErrorKind::Unknown,
    };
    HttpError::new(kind, error)
}

/// How many bytes `bytes=FIRST-LAST` or `bytes=-LENGTH` asks for.
fn range_bytes(header: &str) -> Option<u64> {
    let (first, last) = header.strip_prefix("bytes=")?.split_once('-')?;
    let last: u64 = last.parse().ok()?;
    if first.is_empty() { Some(last) } else { last.checked_sub(first.parse().ok()?)?.checked_add(1) }
}

/// A time as `object_store` writes whole seconds. Others do not matter here.
fn seconds(text: &str) -> Option<Duration> {
    text.strip_suffix('s')?.parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_bounds_the_answer_and_what_is_no_range_does_not() {
        for (header, bytes) in [
            ("bytes=0-0", Some(1)),
            ("bytes=10-19", Some(10)),
            ("bytes=-7", Some(7)),
            ("bytes=5-", None),
            ("bytes=9-3", None),
            ("bytes=0-18446744073709551615", None),
            ("items=0-1", None),
            ("", None),
        ] {
            assert_eq!(range_bytes(header), bytes, "{header}");
        }
    }

    #[test]
    fn times_of_object_store_are_read_as_it_writes_them() {
        let options = ClientOptions::new().with_connect_timeout(Duration::from_secs(7));
        let text = options.get_config_value(&ClientConfigKey::ConnectTimeout).unwrap();
        assert_eq!(seconds(&text), Some(Duration::from_secs(7)));
    }

    #[tokio::test]
    async fn nothing_goes_out_in_the_open_unless_that_was_allowed() {
        let client = Connector::default().connect(&ClientOptions::new()).unwrap();
        let request = http::Request::get("http://127.0.0.1:9/").body(Vec::new().into()).unwrap();
        let error = client.execute(request).await.unwrap_err();
        assert!(std::error::Error::source(&error).unwrap().to_string().contains("everyone on the way"));
    }
}
