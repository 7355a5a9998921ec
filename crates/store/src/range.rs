//! Which bytes of an object are wanted, and the checks that every store applies before it reads.

use forebay_core::{Error, Result};
use std::ops::Range;

/// A part of an object, possibly open at one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// All of it.
    Full,
    /// All of an object that is known to have so many bytes. One of another size has changed: the error is `stale`.
    Whole(u64),
    /// `start..end`.
    Bounded {
        /// First byte.
        start: u64,
        /// One past the last byte.
        end: u64,
    },
    /// From an offset to the end.
    From(u64),
    /// The last bytes.
    Last(u64),
}

impl From<Range<u64>> for ByteRange {
    fn from(range: Range<u64>) -> Self {
        Self::Bounded { start: range.start, end: range.end }
    }
}

impl ByteRange {
    /// A range of an object that is known to have `size` bytes: all of it is asked for as such, because then stores can
    /// compare checksums and see that the object changed.
    pub fn within(range: Range<u64>, size: u64) -> Self {
        if range == (0..size) { Self::Whole(size) } else { range.into() }
    }

    /// The offsets meant in an object of `size` bytes, or an error that names both.
    pub fn resolve(self, size: u64) -> Result<Range<u64>> {
        let range = match self {
            Self::Full => 0..size,
            Self::Whole(expected) if expected == size => 0..size,
            Self::Whole(expected) => return Err(changed(expected, size)),
            Self::Bounded { start, end } => start..end,
            Self::From(start) => start..size.max(start),
            Self::Last(length) => {
                let start =
                    size.checked_sub(length).ok_or_else(|| outside(&format!("last {length} bytes"), size))?;
                start..size
            }
        };
        if range.start > range.end {
            return Err(Error::invalid_config(format!(
                "range {}..{} ends before it starts",
                range.start, range.end
            )));
        }
        if range.end > size || range.start > size {
            return Err(outside(&format!("bytes {}..{}", range.start, range.end), size));
        }
        Ok(range)
    }
}

fn changed(expected: u64, size: u64) -> Error {
    Error::stale(format!("the object has {size} bytes, and had {expected} when it was looked at"))
        .with_hint("the object was changed; scan the dataset again")
}

/// Checks the contract of [`crate::Store::read_parts`]: parts ascend, do not overlap and lie within the object.
pub fn check_parts(parts: &[Range<u64>], size: u64) -> Result<()> {
    let mut end = 0;
    for part in parts {
        ByteRange::from(part.clone()).resolve(size)?;
        if part.start < end {
            let why =
                format!("part {}..{} starts before the end of its neighbour, {end}", part.start, part.end);
            return Err(Error::invalid_config(why));
        }
        end = part.end;
    }
    Ok(())
}

fn outside(what: &str, size: u64) -> Error {
    Error::invalid_config(format!("{what} lie outside an object of {size} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::ErrorKind;

    #[test]
    fn parts_must_ascend_without_overlap_inside_the_object() {
        assert!(check_parts(&[], 0).is_ok());
        assert!(check_parts(&[0..2, 2..2, 2..5, 9..10], 10).is_ok());
        for bad in [[0..2, 3..11], [2..4, 3..5], [4..6, 0..2], [0..0, 11..11]] {
            assert!(check_parts(&bad, 10).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn open_ranges_end_with_the_object_and_none_reaches_beyond_it() {
        assert_eq!(ByteRange::Full.resolve(10).unwrap(), 0..10);
        assert_eq!(ByteRange::From(4).resolve(10).unwrap(), 4..10);
        assert_eq!(ByteRange::From(10).resolve(10).unwrap(), 10..10);
        assert_eq!(ByteRange::Last(3).resolve(10).unwrap(), 7..10);
        for beyond in [ByteRange::From(11), ByteRange::Last(11), (5..11).into(), (11..11).into()] {
            assert!(beyond.resolve(10).is_err(), "{beyond:?}");
        }
        assert_eq!(ByteRange::Whole(10).resolve(10).unwrap(), 0..10);
        for other in [9, 11] {
            assert_eq!(ByteRange::Whole(10).resolve(other).unwrap_err().kind(), ErrorKind::Stale);
        }
        assert!(ByteRange::Bounded { start: 5, end: 4 }.resolve(10).is_err());
    }
}
