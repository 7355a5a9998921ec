//! Reading ranges: exactly the bytes asked for, of one version of the object, or an error.
//!
//! A body that is cut is gone on with from where it broke off, as long as each try brings bytes and the object is still
//! the same.

use super::wire::{Ask, Wire};
use crate::http::checksum::{Checksums, Told};
use crate::http::{Headers, Limits, Method, Received};
use crate::{ByteRange, ObjectMeta, fault, range, spans, spare};
use bytes::{Bytes, BytesMut};
use forebay_core::{Error, Result};
use futures::stream::{self, StreamExt, TryStreamExt};
use std::ops::Range;

/// No object is read whole into memory that is larger.
const MOST_OBJECT_BYTES: u64 = 16 << 30;
/// An object up to this size is taken whole from a server that sends no ranges.
const MOST_WHOLE_BYTES: u64 = 64 << 20;
/// No S3 object is larger; offsets beyond it are not sent, because servers overflow at different places.
const MOST_OFFSET: u64 = 1 << 50;
/// Requests for the parts of one object that are under way together.
const PARTS_IN_FLIGHT: usize = 8;
/// How often one read goes on after a cut.
const MOST_RESUMES: u32 = 4;

/// Bytes, and what came with them.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) bytes: Bytes,
    /// Size of the whole object.
    size: u64,
    stamp: u64,
}

impl Wire {
    pub(super) async fn head(&self, key: &str) -> Result<ObjectMeta> {
        let answer = self.ask("look at", Method::Head, Ask { key, ..Ask::default() }).await?;
        let size = answer.headers.content_length();
        let size = size.ok_or_else(|| self.broken(key, "the answer does not tell the size"))?;
        Ok(ObjectMeta {
            key: key.to_owned(),
            size,
            stamp: crate::cloud::stamp_of(answer.headers.get("etag")),
        })
    }

    /// The bytes of a range. A whole object that differs from its checksum is asked for again, as one that was cut would
    /// be.
    pub(super) async fn get(&self, key: &str, range: ByteRange) -> Result<Found> {
        let mut reads = 1;
        loop {
            let (found, told) = self.get_once(key, range).await?;
            match told.filter(|told| !told.is_of(&found.bytes)) {
                None => return Ok(found),
                Some(told) => told
                    .differs(found.size, &mut reads)
                    .map_err(|error| fault::located(error, "read", &self.url(key), None))?,
            }
        }
    }

    /// One try, and the checksum that the bytes have to have, if they are all of the object and the server told one.
    async fn get_once(&self, key: &str, range: ByteRange) -> Result<(Found, Option<Told>)> {
        let nothing = async || Ok((self.nothing(key, range).await?, None));
        let part = match range {
            ByteRange::Bounded { start, end } if start >= end || end > MOST_OFFSET => {
                return nothing().await;
            }
            ByteRange::From(start) if start > MOST_OFFSET => return nothing().await,
            ByteRange::Last(length) if length == 0 || length > MOST_OFFSET => return nothing().await,
            ByteRange::Bounded { start, end } => end - start,
            ByteRange::Last(length) => length,
            ByteRange::Full | ByteRange::Whole(_) | ByteRange::From(_) => MOST_OBJECT_BYTES,
        };
        let whole = match range {
            ByteRange::Full => MOST_OBJECT_BYTES,
            ByteRange::Whole(size) => size.min(MOST_OBJECT_BYTES),
            _ => MOST_WHOLE_BYTES,
        };
        let checksums = self.client.get()?.checksums();
        // Of ranges no checksum is told.
        let asks = matches!(range, ByteRange::Full | ByteRange::Whole(_)) && checksums != Checksums::Off;
        let amz = asks.then(|| ("x-amz-checksum-mode", "ENABLED".to_owned()));
        let limits = Limits { part: part.min(MOST_OBJECT_BYTES), whole };
        let ask = Ask { key, range: header(range), amz, ..Ask::default() };
        let first = self.receive("read", Method::Get, ask, limits, BytesMut::new()).await?;
        let located = |error| fault::located(error, "read", &self.url(key), None);
        let (given, size) = match (first.status, first.headers.content_range()) {
            (206, Some(place)) => {
                let unknown = || self.broken(key, "the answer does not tell which bytes it holds");
                (place.range.ok_or_else(unknown)?, place.total.ok_or_else(unknown)?)
            }
            (206, None) => return Err(self.broken(key, "the answer does not tell which bytes it holds")),
            // All of the object, wanted or not; its end is known from the head or when it is here.
            (200, _) => {
                let size = first
                    .headers
                    .content_length()
                    .or_else(|| first.cut.is_none().then_some(first.body.len() as u64));
                let size =
                    size.ok_or_else(|| self.broken(key, "the answer was cut and does not tell its size"))?;
                (0..size, size)
            }
            (416, _) => return nothing().await,
            (status, _) => return Err(self.refused("read", key, status, &first.headers, &first.body)),
        };
        let wanted = range.resolve(size).map_err(located)?;
        let stamp = crate::cloud::stamp_of(first.headers.get("etag"));
        let all = given == (0..size) && wanted == given;
        let told = if all { Told::of(&first.headers, checksums) } else { None };
        let bytes = spare::share(self.complete(key, first, &given).await?);
        let misplaced = wanted.start < given.start || wanted.end > given.end;
        if misplaced || given.end - given.start != bytes.len() as u64 {
            return Err(self.broken(key, "the answer holds other bytes than were asked for"));
        }
        let slice = (wanted.start - given.start) as usize..(wanted.end - given.start) as usize;
        Ok((Found { bytes: bytes.slice(slice), size, stamp }, told))
    }

    /// Several ranges by few requests.
    pub(super) async fn get_parts(&self, key: &str, parts: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let located = |error: Error| {
            fault::located(error, "read", &self.url(key), parts.first().map(|part| part.start))
        };
        range::check_parts(parts, u64::MAX).map_err(located)?;
        let Some(end) = parts.last().map(|part| part.end) else { return Ok(Vec::new()) };
        let spans = spans::plan(parts);
        if spans.is_empty() {
            // Only empty parts, and where the object ends decides whether they lie in it.
            self.get(key, (end..end).into()).await?;
            return Ok(vec![Bytes::new(); parts.len()]);
        }
        let mut reads = Vec::with_capacity(spans.len());
        for span in &spans {
            reads.push(self.get(key, span.clone().into()));
        }
        let answers: Vec<Found> = stream::iter(reads).buffered(PARTS_IN_FLIGHT).try_collect().await?;
        let Found { size, stamp, .. } = answers[0];
        range::check_parts(parts, size).map_err(located)?;
        if answers.iter().any(|answer| (answer.size, answer.stamp) != (size, stamp)) {
            return Err(self.changed(key, 0));
        }
        let bytes: Vec<Bytes> = answers.into_iter().map(|answer| answer.bytes).collect();
        spans::cut(parts, &spans, &bytes)
    }

    /// Goes on after cuts until the body is whole.
    async fn complete(&self, key: &str, first: Received, given: &Range<u64>) -> Result<BytesMut> {
        let etag = first.headers.get("etag").filter(|etag| !etag.starts_with("W/")).map(str::to_owned);
        let Received { mut body, mut cut, .. } = first;
        let (mut had, mut resumes) = (0, 0);
        while let Some(error) = cut {
            let at = given.start + body.len() as u64;
            let goes_on =
                body.len() > had && at < given.end && resumes < MOST_RESUMES && error.kind().is_transient();
            let Some(etag) = etag.clone().filter(|_| goes_on) else {
                return Err(fault::located(error, "read", &self.url(key), Some(at)));
            };
            tracing::debug!(%error, offset = at, "read goes on after a cut");
            (had, resumes) = (body.len(), resumes + 1);
            let limits = Limits { part: given.end - at, whole: 0 };
            let range = header((at..given.end).into());
            let ask = Ask { key, range, condition: Some(etag.clone()), ..Ask::default() };
            let next = self.receive("read", Method::Get, ask, limits, body).await?;
            match next.status {
                206 if next.headers.get("etag").is_none_or(|found| found == etag) => {}
                200 | 206 | 412 => return Err(self.changed(key, at)),
                status => return Err(self.refused("read", key, status, &next.headers, b"")),
            }
            if next.headers.content_range().and_then(|place| place.range) != Some(at..given.end) {
                return Err(self.broken(key, "the rest was asked for, and other bytes came"));
            }
            (body, cut) = (next.body, next.cut);
        }
        Ok(body)
    }

    /// A range that has no bytes or lies outside: which of the two, the object's size tells.
    async fn nothing(&self, key: &str, range: ByteRange) -> Result<Found> {
        let meta = self.head(key).await?;
        let wanted =
            range.resolve(meta.size).map_err(|error| fault::located(error, "read", &self.url(key), None))?;
        if !wanted.is_empty() {
            return Err(self.broken(key, "the object grew while it was read"));
        }
        Ok(Found { bytes: Bytes::new(), size: meta.size, stamp: meta.stamp })
    }

    /// An answer that makes no sense; another try may bring a better one.
    fn broken(&self, key: &str, why: &str) -> Error {
        let url = self.url(key);
        Error::unavailable(format!("read `{url}`: {why}")).with_facts(fault::facts(&url, None))
    }

    fn changed(&self, key: &str, at: u64) -> Error {
        let url = self.url(key);
        Error::stale(format!("read `{url}`: it was changed before all of its bytes had come"))
            .with_hint("the object was changed while it was in use; scan the dataset again")
            .with_facts(fault::facts(&url, Some(at)))
    }

    fn refused(&self, doing: &str, key: &str, status: u16, headers: &Headers, body: &[u8]) -> Error {
        let (headers, body) = (headers.clone(), Bytes::copy_from_slice(body));
        self.refusal(doing, key, &crate::http::HttpAnswer { status, headers, body })
    }
}

/// The header that asks for a range; `None` for all of the object and for ranges that no header can say.
fn header(range: ByteRange) -> Option<String> {
    match range {
        ByteRange::Full | ByteRange::Whole(_) => None,
        ByteRange::Bounded { start, end } => Some(format!("bytes={start}-{}", end.saturating_sub(1))),
        ByteRange::From(start) => Some(format!("bytes={start}-")),
        ByteRange::Last(length) => Some(format!("bytes=-{length}")),
    }
}
