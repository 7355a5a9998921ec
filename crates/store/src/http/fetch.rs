//! Reading one range of one object, to its last byte or with a reason.
//!
//! The answer is checked against what was asked: where it lies, how long it is, which version it is of. A body that is
//! cut is gone on with from where it broke off, as long as each try brings bytes and the object is still the same.

use super::checksum::Told;
use super::client::{HttpClient, HttpRequest, Method, Received, Redirects};
use super::exchange::Limits;
use super::head::Headers;
use super::place::{Misplaced, Place, placed};
#[cfg(doc)]
use super::status;
use super::tag::Tag;
use crate::{ByteRange, spare};
use bytes::{Bytes, BytesMut};
use forebay_core::{Error, ErrorKind, Result};
use url::Url;

/// No body is larger, whatever was asked for.
pub(crate) const MOST_BODY_BYTES: u64 = 16 << 30;
/// An object up to this size is taken whole from a server that sends no ranges.
const MOST_WHOLE_BYTES: u64 = 64 << 20;
/// How often one read goes on after a cut.
const MOST_RESUMES: u32 = 4;

/// Whom to ask for what.
#[derive(Debug)]
pub(crate) struct Fetch<'a> {
    pub(crate) client: &'a HttpClient,
    pub(crate) url: &'a Url,
    pub(crate) headers: &'a [(&'static str, String)],
    pub(crate) redirects: Redirects,
    /// What a status that is no success means there.
    pub(crate) refusal: Refusal,
    /// Whether checksums in an answer are of what is asked for.
    pub(crate) is_object: bool,
}

/// From status, headers and body to the error: [`status::error`], or a store's own reading.
pub(crate) type Refusal = fn(u16, &Headers, &[u8]) -> Error;

/// The bytes asked for.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) bytes: Bytes,
    /// Size of the whole object, when the server told it.
    pub(crate) total: Option<u64>,
    pub(crate) tag: Option<Tag>,
}

impl Fetch<'_> {
    /// Size and tag of the object.
    pub(crate) async fn look(&self) -> Result<(u64, Option<Tag>)> {
        let head = self.ask(Method::Head, None, None, Limits { part: 0, whole: 0 }, BytesMut::new()).await?;
        match (head.status, head.headers.content_length()) {
            (200..300, Some(size)) => return Ok((size, Tag::of(&head.headers))),
            // Some servers know GET only, and a signed address may be for GET alone.
            (200..300 | 400 | 401 | 403 | 405 | 501, _) => {}
            (status, _) => return Err((self.refusal)(status, &head.headers, &head.body)),
        }
        // Of a server without ranges nothing is read: its head tells the size.
        let limits = Limits { part: 1, whole: 0 };
        let got = self.ask(Method::Get, Some("bytes=0-0".to_owned()), None, limits, BytesMut::new()).await?;
        let size = match got.status {
            206 | 416 => got.headers.content_range().and_then(|place| place.total),
            200..300 => got.headers.content_length(),
            status => return Err((self.refusal)(status, &got.headers, &got.body)),
        };
        let unknown = || Error::unsupported("the server does not say how large the object is");
        let tag = Tag::of(&got.headers).or_else(|| Tag::of(&head.headers));
        Ok((size.ok_or_else(unknown)?, tag))
    }

    /// The bytes of `range`, all of them. A whole object that differs from the checksum that came with it is asked for
    /// again, as one that was cut would be.
    pub(crate) async fn fetch(&self, range: ByteRange) -> Result<Fetched> {
        let mut reads = 1;
        loop {
            let (fetched, told) = self.fetch_once(range).await?;
            match told.filter(|told| !told.is_of(&fetched.bytes)) {
                None => return Ok(fetched),
                Some(told) => told.differs(fetched.bytes.len() as u64, &mut reads)?,
            }
        }
    }

    /// One try, and the checksum that the bytes have to have, if they are all of the object and the server told one.
    async fn fetch_once(&self, range: ByteRange) -> Result<(Fetched, Option<Told>)> {
        // The widest object that can be: what makes no sense in it makes none at all.
        let span = if let ByteRange::Whole(size) = range { 0..size } else { range.resolve(u64::MAX)? };
        if matches!(range, ByteRange::Last(0)) || span.is_empty() {
            let (size, tag) = self.look().await?;
            range.resolve(size)?;
            return Ok((Fetched { bytes: Bytes::new(), total: Some(size), tag }, None));
        }
        let (asked, limits) = match range {
            ByteRange::Full | ByteRange::From(0) => (None, Limits { part: 0, whole: MOST_BODY_BYTES }),
            ByteRange::Whole(size) => (None, Limits { part: 0, whole: size.min(MOST_BODY_BYTES) }),
            ByteRange::Bounded { start, end } => {
                let part = end - start;
                if part > MOST_BODY_BYTES {
                    return Err(self.outside(range, None).await);
                }
                (Some(format!("bytes={start}-{}", end - 1)), Limits { part, whole: MOST_WHOLE_BYTES })
            }
            ByteRange::From(start) => {
                (Some(format!("bytes={start}-")), Limits { part: MOST_BODY_BYTES, whole: MOST_WHOLE_BYTES })
            }
            ByteRange::Last(length) => {
                let part = length.min(MOST_BODY_BYTES);
                (Some(format!("bytes=-{length}")), Limits { part, whole: MOST_WHOLE_BYTES })
            }
        };
        let ranged = asked.is_some();
        let first = self.ask(Method::Get, asked, None, limits, BytesMut::new()).await?;
        encoded(&first.headers)?;
        let place = match first.status {
            200 => match first.headers.content_length() {
                Some(size) if matches!(range, ByteRange::Whole(expected) if expected != size) => {
                    return Err(self.outside(range, Some(size)).await);
                }
                Some(size) if size > limits.whole => return Err(too_large(size, ranged)),
                size => Place { range: 0..size.unwrap_or(u64::MAX), total: size },
            },
            206 => match placed(range, &first.headers) {
                Ok(place) => place,
                Err(Misplaced::Outside(total)) => return Err(self.outside(range, Some(total)).await),
                Err(Misplaced::Corrupt(why)) => return Err(Error::corrupt(why)),
            },
            416 => {
                let total = first.headers.content_range().and_then(|place| place.total);
                return Ok((self.unsatisfied(range, total).await?, None));
            }
            status => return Err((self.refusal)(status, &first.headers, &first.body)),
        };
        let (tag, whole) = (Tag::of(&first.headers), first.status == 200);
        let all = whole || place.total.is_some_and(|total| place.range == (0..total));
        let told =
            if all && self.is_object { Told::of(&first.headers, self.client.checksums()) } else { None };
        let body = self.complete(first, &place, tag.as_ref()).await?;
        let length = body.len() as u64;
        let bytes = spare::share(body);
        if whole {
            let wanted = range.resolve(length)?;
            // Of a server without ranges: what was not asked for is not checked either.
            let told = told.filter(|_| wanted == (0..length));
            let bytes = bytes.slice(wanted.start as usize..wanted.end as usize);
            return Ok((Fetched { bytes, total: Some(length), tag }, told));
        }
        let due = place.range.end - place.range.start;
        match length.cmp(&due) {
            std::cmp::Ordering::Equal => Ok((Fetched { bytes, total: place.total, tag }, told)),
            std::cmp::Ordering::Less => {
                Err(Error::unavailable(format!("the answer holds {length} of the {due} bytes it promised")))
            }
            std::cmp::Ordering::Greater => {
                Err(Error::corrupt(format!("the answer holds {length} bytes and promised {due}")))
            }
        }
    }

    /// Goes on after cuts until the body is whole.
    async fn complete(&self, first: Received, place: &Place, tag: Option<&Tag>) -> Result<BytesMut> {
        let Received { mut body, mut cut, .. } = first;
        let (mut had, mut resumes) = (0, 0);
        while let Some(error) = cut {
            let at = place.range.start + body.len() as u64;
            let progress = body.len() > had && at < place.range.end && place.range.end != u64::MAX;
            let Some(tag) = tag.filter(|_| progress && error.kind().is_transient() && resumes < MOST_RESUMES)
            else {
                return Err(error);
            };
            tracing::debug!(%error, offset = at, "read goes on after a cut");
            (had, resumes) = (body.len(), resumes + 1);
            let limits = Limits { part: place.range.end - at, whole: 0 };
            let asked = format!("bytes={at}-{}", place.range.end - 1);
            let condition = tag.can_ask.then(|| tag.text.clone());
            let next = self.ask(Method::Get, Some(asked), condition, limits, body).await?;
            let same = Tag::of(&next.headers).is_none_or(|found| found.text == tag.text);
            match next.status {
                206 if same => {}
                206 | 412 => return Err(changed(at)),
                200 if tag.can_ask => return Err(changed(at)),
                200 => return Err(error),
                status => return Err((self.refusal)(status, &next.headers, b"")),
            }
            let found = next.headers.content_range().and_then(|place| place.range);
            if found != Some(at..place.range.end) {
                return Err(Error::corrupt(format!(
                    "the rest from offset {at} was asked for, and other bytes came"
                )));
            }
            (body, cut) = (next.body, next.cut);
        }
        Ok(body)
    }

    async fn ask(
        &self,
        method: Method,
        range: Option<String>,
        condition: Option<String>,
        limits: Limits,
        into: BytesMut,
    ) -> Result<Received> {
        let mut headers: Vec<(&str, String)> = self.headers.to_vec();
        headers.push(("accept-encoding", "identity".to_owned()));
        headers.extend(range.map(|range| ("range", range)));
        headers.extend(condition.map(|tag| ("if-range", tag)));
        let request = HttpRequest { method, url: self.url, headers: &headers, body: Bytes::new(), expect: 0 };
        self.client.follow(&request, limits, into, self.redirects).await
    }

    /// After 416: the range lies outside, or is the empty one at the end.
    async fn unsatisfied(&self, range: ByteRange, total: Option<u64>) -> Result<Fetched> {
        let (size, tag) = match total {
            Some(size) => (size, None),
            None => self.look().await?,
        };
        if range.resolve(size)?.is_empty() {
            return Ok(Fetched { bytes: Bytes::new(), total: Some(size), tag });
        }
        Err(Error::corrupt(format!("the server refuses a range inside the {size} bytes of the object")))
    }

    /// The error of a range that reaches beyond the object, with its size.
    async fn outside(&self, range: ByteRange, total: Option<u64>) -> Error {
        let size = match total {
            Some(size) => size,
            None => match self.look().await {
                Ok((size, _)) => size,
                Err(error) => return error,
            },
        };
        match range.resolve(size) {
            Err(error) => error,
            Ok(_) => {
                Error::exhausted(format!("more than the {MOST_BODY_BYTES} bytes that one request may carry"))
            }
        }
    }
}

fn encoded(headers: &Headers) -> Result<()> {
    match headers.get("content-encoding").filter(|coding| !coding.eq_ignore_ascii_case("identity")) {
        None => Ok(()),
        Some(coding) => Err(Error::unsupported(format!("the server sends the object `{coding}`-encoded"))
            .with_hint("let the server send objects as they are stored")),
    }
}

fn too_large(size: u64, ranged: bool) -> Error {
    if ranged {
        let why =
            format!("the server sends no ranges, and the object's {size} bytes are too many to take whole");
        return Error::unsupported(why).with_hint(format!(
            "use a server that knows ranges, or objects up to {} MiB",
            MOST_WHOLE_BYTES >> 20
        ));
    }
    Error::exhausted(format!("{size} bytes are more than the {MOST_BODY_BYTES} that one request may carry"))
}

fn changed(at: u64) -> Error {
    Error::new(ErrorKind::Stale, format!("the object changed before its bytes from offset {at} on had come"))
        .with_hint("the object was changed while it was in use; scan the dataset again")
}
