//! Writing an object: in one request, or, when it is large, in parts that become one object at the end.

use super::listing::{element, unescape};
use super::wire::{Ask, Wire};
use crate::fault;
use crate::http::checksum::{Checksums, crc32c_text};
use crate::http::{Method, uri};
use bytes::Bytes;
use forebay_core::{Error, Result};
use futures::stream::{self, StreamExt, TryStreamExt};
use std::fmt::Write;

/// Larger objects are written in parts.
const WHOLE_BYTES: usize = 64 << 20;
/// Bytes of a part, unless there would be too many: S3 takes 10,000.
const PART_BYTES: usize = 16 << 20;
const MOST_PARTS: usize = 9_000;
/// Parts under way together.
const PARTS_IN_FLIGHT: usize = 4;

/// Puts the object in place; nobody sees a part of it.
pub(super) async fn put(wire: &Wire, key: &str, bytes: Bytes) -> Result<()> {
    if bytes.len() <= WHOLE_BYTES {
        // The server compares it with what arrives, and keeps it for those who read.
        let guarded = wire.client.get()?.checksums() != Checksums::Off;
        let amz = guarded.then(|| ("x-amz-checksum-crc32c", crc32c_text(&bytes)));
        wire.ask("write", Method::Put, Ask { key, body: bytes, amz, ..Ask::default() }).await?;
        return Ok(());
    }
    let begin = Ask { key, query: "uploads=".to_owned(), ..Ask::default() };
    let answer = wire.ask("write", Method::Post, begin).await?;
    let text = String::from_utf8_lossy(&answer.body);
    let Some(id) = element(&text, "UploadId").and_then(|id| unescape(id).ok()).filter(|id| !id.is_empty())
    else {
        return Err(unclear(wire, key, "the server gave the upload no name"));
    };
    let id = uri::encode_value(&id);
    let written = put_parts(wire, key, &id, &bytes).await;
    if written.is_err() {
        // Parts of an upload that never ends are stored, and paid for. That this may fail too changes nothing.
        let end = Ask { key, query: format!("uploadId={id}"), ..Ask::default() };
        let _ = wire.ask("give up writing", Method::Delete, end).await;
    }
    written
}

async fn put_parts(wire: &Wire, key: &str, id: &str, bytes: &Bytes) -> Result<()> {
    let step = PART_BYTES.max(bytes.len().div_ceil(MOST_PARTS));
    let mut writes = Vec::new();
    for (number, start) in (1..).zip((0..bytes.len()).step_by(step)) {
        let body = bytes.slice(start..bytes.len().min(start + step));
        writes.push(async move {
            let ask =
                Ask { key, query: format!("partNumber={number}&uploadId={id}"), body, ..Ask::default() };
            let answer = wire.ask("write a part of", Method::Put, ask).await?;
            let etag = answer.headers.get("etag").filter(|etag| !etag.contains(['<', '&']));
            Ok((number, etag.ok_or_else(|| unclear(wire, key, "a part got no etag"))?.to_owned()))
        });
    }
    let parts: Vec<(usize, String)> = stream::iter(writes).buffered(PARTS_IN_FLIGHT).try_collect().await?;
    let mut body = String::from("<CompleteMultipartUpload>");
    for (number, etag) in parts {
        let _ = write!(body, "<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>");
    }
    body.push_str("</CompleteMultipartUpload>");
    let ask = Ask { key, query: format!("uploadId={id}"), body: Bytes::from(body), ..Ask::default() };
    let answer = wire.ask("write", Method::Post, ask).await?;
    // The status comes before the work is done, so a failure may follow a success.
    if String::from_utf8_lossy(&answer.body).contains("<CompleteMultipartUploadResult") {
        return Ok(());
    }
    Err(unclear(wire, key, "its parts were written, but the server did not put them together"))
}

fn unclear(wire: &Wire, key: &str, why: &str) -> Error {
    let url = wire.url(key);
    Error::unavailable(format!("write `{url}`: {why}")).with_facts(fault::facts(&url, None))
}
