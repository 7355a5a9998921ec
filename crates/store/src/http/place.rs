//! Whether an answer holds the bytes that were asked for.

use super::head::Headers;
use crate::ByteRange;
use std::ops::Range;

/// Where the bytes of an answer lie in the object.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) range: Range<u64>,
    pub(super) total: Option<u64>,
}

/// Why an answer is not the one asked for.
pub(super) enum Misplaced {
    /// The object is smaller than the range: so many bytes.
    Outside(u64),
    /// It is of other bytes, or does not say of which.
    Corrupt(String),
}

/// Compares `Content-Range` with what was asked for.
pub(super) fn placed(asked: ByteRange, headers: &Headers) -> Result<Place, Misplaced> {
    let found = headers.content_range();
    let Some((range, total)) = found.and_then(|place| Some((place.range?, place.total))) else {
        return Err(Misplaced::Corrupt("the answer does not say which bytes it holds".to_owned()));
    };
    if let Some(total) = total {
        match asked.resolve(total) {
            Ok(wanted) if wanted == range => return Ok(Place { range, total: Some(total) }),
            Err(_) => return Err(Misplaced::Outside(total)),
            Ok(_) => {}
        }
    } else {
        let fits = match asked {
            ByteRange::Bounded { start, end } => range == (start..end),
            ByteRange::From(start) => range.start == start,
            ByteRange::Last(length) => range.end - range.start == length,
            // Asked for without a range, so a part is no answer.
            ByteRange::Full | ByteRange::Whole(_) => false,
        };
        if fits {
            return Ok(Place { range, total });
        }
    }
    Err(Misplaced::Corrupt(format!("other bytes came than were asked for: {}..{}", range.start, range.end)))
}
