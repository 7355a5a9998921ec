//! AVI files: where the frames of the first video stream lie.
//!
//! Only Motion JPEG is taken apart here; its frames are JPEGs that any image decoder reads. The lists of the file are
//! walked from its beginning, so an index that is absent or wrong does no harm; nothing is copied. Parts beyond the first
//! gigabyte (OpenDML, `AVIX`) follow each other as they lie.

use forebay_core::{Error, Facts, Result};
use std::ops::Range;

/// How an AVI file begins, but for its length.
pub fn has_signature(payload: &[u8]) -> bool {
    payload.starts_with(b"RIFF") && payload.get(8..12) == Some(b"AVI ")
}

/// The first video stream of a file.
#[derive(Debug, Default)]
pub struct Avi {
    /// Stored frames, in order. A frame that was dropped while recording is the one before it.
    pub frames: Vec<Range<usize>>,
    /// Rows of a frame, as the header says; 0 where it does not.
    pub height: u32,
}

/// Finds the frames of a file.
pub fn open(payload: &[u8]) -> Result<Avi> {
    let mut walk = Walk::default();
    for segment in chunks(payload, 0..payload.len()) {
        let segment = segment?;
        let kind = payload.get(segment.body.start..segment.body.start + 4);
        match (&segment.id, kind) {
            (b"RIFF", Some(b"AVI " | b"AVIX")) => walk.segment(payload, inside(&segment.body))?,
            // What recorders leave behind the file's end is none of it.
            _ => break,
        }
    }
    match (walk.video, walk.avi.frames.is_empty()) {
        (None, _) => Err(Error::corrupt("read AVI: it has no video stream")),
        (Some(_), true) => Err(Error::corrupt("read AVI: it has no frame")),
        (Some(_), false) => Ok(walk.avi),
    }
}

/// A chunk of a RIFF file.
struct Chunk {
    id: [u8; 4],
    body: Range<usize>,
}

#[derive(Default)]
struct Walk {
    streams: usize,
    /// Number of the first video stream.
    video: Option<usize>,
    avi: Avi,
}

impl Walk {
    fn segment(&mut self, payload: &[u8], body: Range<usize>) -> Result<()> {
        for chunk in chunks(payload, body) {
            let chunk = chunk?;
            match list_kind(payload, &chunk) {
                Some(b"hdrl") => self.headers(payload, inside(&chunk.body))?,
                Some(b"movi") => self.movie(payload, inside(&chunk.body), true)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn headers(&mut self, payload: &[u8], body: Range<usize>) -> Result<()> {
        for chunk in chunks(payload, body) {
            let chunk = chunk?;
            if list_kind(payload, &chunk) == Some(b"strl") {
                self.stream(payload, inside(&chunk.body))?;
                self.streams += 1;
            }
        }
        Ok(())
    }

    fn stream(&mut self, payload: &[u8], body: Range<usize>) -> Result<()> {
        let (mut is_video, mut codec, mut height) = (false, None, 0);
        for chunk in chunks(payload, body) {
            let Chunk { id, body } = chunk?;
            match &id {
                b"strh" => is_video = payload[body].starts_with(b"vids"),
                // A bitmap's header: its height, which is negative when it begins at the top, and its compression.
                b"strf" => {
                    let rows = payload[body.clone()].get(8..12).and_then(|bytes| bytes.first_chunk());
                    height = rows.map_or(0, |bytes| i32::from_le_bytes(*bytes).unsigned_abs());
                    codec = payload[body].get(16..20);
                }
                _ => {}
            }
        }
        if !is_video || self.video.is_some() {
            return Ok(());
        }
        match codec.map(<[u8]>::to_ascii_uppercase).as_deref() {
            Some(b"MJPG" | b"JPEG") => (self.video, self.avi.height) = (Some(self.streams), height),
            Some(other) => {
                let name = other.escape_ascii();
                return Err(unsupported(&format!("the codec `{name}` in AVI")));
            }
            None => return Err(Error::corrupt("read AVI: the video stream has no format")),
        }
        Ok(())
    }

    /// Frames in a list of chunks; records in it (`rec `) are lists of the same, and have no further ones.
    fn movie(&mut self, payload: &[u8], body: Range<usize>, records: bool) -> Result<()> {
        for chunk in chunks(payload, body) {
            let chunk = chunk?;
            if records && list_kind(payload, &chunk) == Some(b"rec ") {
                self.movie(payload, inside(&chunk.body), false)?;
                continue;
            }
            let [tens, ones, b'd', b'c' | b'b'] = chunk.id else { continue };
            let digit = |byte: u8| char::from(byte).to_digit(10).map(|digit| digit as usize);
            let (Some(tens), Some(ones)) = (digit(tens), digit(ones)) else { continue };
            if self.video != Some(tens * 10 + ones) {
                continue;
            }
            if chunk.body.is_empty() {
                self.avi.frames.extend(self.avi.frames.last().cloned());
            } else {
                self.avi.frames.push(chunk.body);
            }
        }
        Ok(())
    }
}

/// The chunks that lie one behind the other in a part of the file. What is too short to be one ends them.
fn chunks(payload: &[u8], part: Range<usize>) -> impl Iterator<Item = Result<Chunk>> {
    let mut at = part.start;
    std::iter::from_fn(move || {
        let head = payload.get(at..at + 8).filter(|_| at + 8 <= part.end)?;
        let id = [head[0], head[1], head[2], head[3]];
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let body = at + 8..at + 8 + length;
        if body.end > part.end {
            let (name, start) = (id.escape_ascii(), at);
            at = part.end;
            let left = part.end - body.start;
            let message =
                format!("read AVI: the chunk `{name}` at byte {start} says {length} bytes, {left} are left");
            let facts = Facts { offset: Some(start as u64), ..Facts::default() };
            return Some(Err(Error::corrupt(message).with_facts(facts)));
        }
        at = body.end + length % 2;
        Some(Ok(Chunk { id, body }))
    })
}

/// What a list holds, when the chunk is one.
fn list_kind<'a>(payload: &'a [u8], chunk: &Chunk) -> Option<&'a [u8; 4]> {
    if chunk.id != *b"LIST" {
        return None;
    }
    payload[chunk.body.clone()].first_chunk()
}

/// The part of a list behind its kind.
fn inside(body: &Range<usize>) -> Range<usize> {
    (body.start + 4).min(body.end)..body.end
}

/// Why a video that is no Motion JPEG is refused, and the way out.
pub fn unsupported(what: &str) -> Error {
    Error::unsupported(format!(
        "decode video: {what} is not supported, only Motion JPEG in AVI and frames as images are"
    ))
    .with_hint(
        "convert it once: `ffmpeg -i in.mp4 -c:v mjpeg -q:v 3 -an out.avi`, or into one image for each frame",
    )
}

#[cfg(test)]
mod tests;
