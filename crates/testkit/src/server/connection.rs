//! One connection: requests one after the other, each with what the script has for it.

use super::answer::{DATE, Head, Sending, listing, refusal};
use super::objects::Body;
use super::request::{self, CHECKSUM_MODE, Request};
use super::script::{Act, Fault, Seen};
use super::{BUCKET, Shared};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, PoisonError};

/// Serves until the client is done, the server stops, or a fault ends the connection.
pub(super) fn serve(shared: &Shared, stream: &TcpStream, number: u64) {
    let mut buffer = Vec::new();
    while let Ok(Some(request)) = request::read(stream, &mut buffer) {
        let answered = answer(shared, stream, number, &request, &mut buffer);
        if answered.is_err() || request.closes {
            break;
        }
    }
    // Others hold this stream too, so dropping it would not close it.
    drop(stream.shutdown(Shutdown::Both));
}

/// The key asked for, without its bucket, and whether it names a listing.
fn target(request: &Request) -> (&str, bool) {
    let path = request.path.as_str();
    if path == BUCKET || path.strip_prefix(BUCKET) == Some("/") {
        let lists = request.method == "GET" && request.word("list-type") == Some("2");
        return (request.word("prefix").unwrap_or(""), lists);
    }
    let key = path.strip_prefix(BUCKET).and_then(|rest| rest.strip_prefix('/')).unwrap_or(path);
    (key, false)
}

fn answer(
    shared: &Shared,
    mut stream: &TcpStream,
    connection: u64,
    request: &Request,
    buffer: &mut Vec<u8>,
) -> io::Result<()> {
    let (key, lists) = target(request);
    if request.expects {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let content = request::body(stream, buffer, request)?;
    let body = object(shared, key);
    let bytes = body.as_ref().map_or(0, Body::bytes);
    let range = request.range.as_deref().map_or(Ok(None), |header| request::range(header, bytes));
    let (number, attempt) = shared.count(key);
    let method = request.method.as_str();
    let seen =
        Seen { number, connection, method, key, listing: lists, attempt, range: range.unwrap_or_default() };
    let script = Arc::clone(&shared.script.read().unwrap_or_else(PoisonError::into_inner));
    let act: Act = script(&seen);
    if !shared.pause(act.delay) {
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    let sending = Sending { shared, stream, act, bodiless: method == "HEAD" };
    match act.fault {
        Some(Fault::Close) => return Err(io::ErrorKind::ConnectionAborted.into()),
        Some(Fault::Hang) => {
            // Until the client gives up or the server stops, whichever comes first.
            while stream.read(&mut [0; 256])? > 0 {}
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Some(Fault::Status { code, retry_after }) => {
            let head = Head::new(code).with("content-type", "application/xml");
            let head = match retry_after {
                Some(seconds) => head.with("retry-after", seconds),
                None => head,
            };
            let word = match code {
                403 => "AccessDenied",
                404 => "NoSuchKey",
                503 => "SlowDown",
                _ => "InternalError",
            };
            return sending.text(head, &refusal(word, key));
        }
        _ => {}
    }
    match method {
        "GET" if lists => list(&sending, request, key),
        "GET" | "HEAD" if request.path.trim_end_matches('/') == BUCKET => sending.text(Head::new(200), ""),
        "GET" | "HEAD" => match (body, range) {
            (None, _) => {
                let head = Head::new(404).with("content-type", "application/xml");
                sending.text(head, &refusal("NoSuchKey", key))
            }
            (Some(_), Err(())) => {
                let head = Head::new(416).with("content-range", format_args!("bytes */{bytes}"));
                sending.text(head, &refusal("InvalidRange", key))
            }
            (Some(body), Ok(range)) => {
                let told = shared.headers.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned();
                let asked = request.checksum.as_ref().is_some_and(|(name, _)| name == CHECKSUM_MODE);
                let told =
                    told.filter(|(name, _)| !name.starts_with("x-amz-checksum-") || asked && range.is_none());
                get(&sending, &body, range, told)
            }
        },
        "PUT" => put(&sending, request, key, content),
        "DELETE" => {
            shared.objects.write().unwrap_or_else(PoisonError::into_inner).delete(key);
            sending.text(Head::new(204), "")
        }
        _ => sending.text(Head::new(405), ""),
    }
}

fn object(shared: &Shared, key: &str) -> Option<Body> {
    shared.objects.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
}

fn get(
    sending: &Sending<'_>,
    body: &Body,
    range: Option<(u64, u64)>,
    told: Option<(String, String)>,
) -> io::Result<()> {
    let bytes = body.bytes();
    let mut head = Head::new(if range.is_some() { 206 } else { 200 })
        .with("content-type", "application/octet-stream")
        .with("accept-ranges", "bytes")
        .with("last-modified", DATE)
        .with("etag", body.tag());
    if let Some((name, value)) = told {
        head = head.with(&name, value);
    }
    match range {
        Some((first, last)) => {
            let head = head.with("content-range", format_args!("bytes {first}-{last}/{bytes}"));
            sending.object(head, body, first, last - first + 1)
        }
        None => sending.object(head, body, 0, bytes),
    }
}

fn put(sending: &Sending<'_>, request: &Request, key: &str, content: Vec<u8>) -> io::Result<()> {
    let mut objects = sending.shared.objects.write().unwrap_or_else(PoisonError::into_inner);
    if request.only_new && objects.get(key).is_some() {
        drop(objects);
        return sending.text(Head::new(412), &refusal("PreconditionFailed", key));
    }
    if let Some(checksum) = request.checksum.as_ref().filter(|(name, _)| name != CHECKSUM_MODE) {
        sending.shared.keep_header(key, checksum.clone());
    }
    objects.put(key, content.into());
    let tag = objects.get(key).map(Body::tag).unwrap_or_default();
    drop(objects);
    sending.text(Head::new(200).with("etag", tag), "")
}

fn list(sending: &Sending<'_>, request: &Request, prefix: &str) -> io::Result<()> {
    let most = request.word("max-keys").and_then(|most| most.parse().ok()).unwrap_or(1000).clamp(1, 1000);
    let after = request.word("continuation-token").map(request::unescape_token);
    let after = after.unwrap_or_else(|| request.word("start-after").unwrap_or("").to_string());
    let delimiter = request.word("delimiter").unwrap_or("");
    let objects = sending.shared.objects.read().unwrap_or_else(PoisonError::into_inner);
    let page = objects.page(prefix, &after, delimiter, most);
    let xml = listing(&page, prefix, most, request.word("encoding-type") == Some("url"));
    drop(objects);
    sending.text(Head::new(200).with("content-type", "application/xml"), &xml)
}
