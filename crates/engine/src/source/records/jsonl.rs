//! JSONL: a line is a record. The file is read once, in pieces, to find where lines begin.

use super::{Indexed, LOOKED_INTO, LOOKED_INTO_BYTES, Samples, fault};
use forebay_core::{Error, Result};
use forebay_ops::record::{Format, MAX_FIELDS, RecordSpec, json_line};
use forebay_store::{ByteRange, ObjectMeta, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Bytes that are read at a time.
const PIECE_BYTES: u64 = 8 << 20;

/// The longest line that is taken.
const MAX_LINE_BYTES: u64 = 1 << 30;

pub(super) async fn index(store: &dyn Store, object: ObjectMeta) -> Result<Indexed> {
    let mut lines = Lines::default();
    let (mut names, mut looked) = (BTreeSet::new(), 0);
    let mut at = 0;
    while at < object.size {
        let end = object.size.min(at + PIECE_BYTES);
        let piece = store.read(&object.key, ByteRange::from(at..end)).await?;
        let known = lines.found.len();
        lines.take(at, &piece);
        if at - lines.begin.min(at) > MAX_LINE_BYTES {
            let why = format!("a line has more than {MAX_LINE_BYTES} bytes");
            return Err(fault(store, &object.key, lines.begin, Error::exhausted(why)));
        }
        for line in lines.found[known..].iter().filter(|line| line.start >= at).take(LOOKED_INTO - looked) {
            let line = &piece[(line.start - at) as usize..(line.end - at) as usize];
            // A line that is no object is found when it is read, under the policy of whoever reads it.
            names.extend(json_line::names(line).unwrap_or_default());
            looked += 1;
        }
        at = end;
    }
    lines.finish(object.size);
    // Neither short files nor long lines leave the names unknown.
    for line in lines.found.iter().take(usize::from(looked == 0)) {
        if line.end - line.start <= LOOKED_INTO_BYTES {
            let line = store.read(&object.key, ByteRange::from(line.clone())).await?;
            names.extend(json_line::names(&line).unwrap_or_default());
        }
    }
    if names.len() > MAX_FIELDS {
        let why = format!("its lines have more than {MAX_FIELDS} members by different names");
        return Err(fault(store, &object.key, 0, Error::exhausted(why)));
    }
    let spec = RecordSpec::new(Format::JsonLine, names.into_iter().collect());
    let samples = Samples::Numbered(json_line::FIELD.to_owned(), lines.found);
    Ok(Indexed { object, samples, specs: BTreeMap::from([(json_line::FIELD.to_owned(), spec)]) })
}

/// Finds lines in pieces of a file. Lines of white space alone are none.
#[derive(Debug, Default)]
struct Lines {
    found: Vec<Range<u64>>,
    /// Where the open line begins, and whether it has anything but white space.
    begin: u64,
    filled: bool,
}

impl Lines {
    fn take(&mut self, at: u64, piece: &[u8]) {
        let mut rest = piece;
        let mut here = at;
        if at == 0 && rest.starts_with("\u{feff}".as_bytes()) {
            (rest, here, self.begin) = (&rest[3..], 3, 3);
        }
        while let Some(length) = rest.iter().position(|byte| *byte == b'\n') {
            self.filled |= !rest[..length].trim_ascii().is_empty();
            here += length as u64;
            self.end_line(here);
            here += 1;
            self.begin = here;
            rest = &rest[length + 1..];
        }
        self.filled |= !rest.trim_ascii().is_empty();
    }

    fn finish(&mut self, size: u64) {
        self.end_line(size);
    }

    fn end_line(&mut self, end: u64) {
        if std::mem::take(&mut self.filled) {
            self.found.push(self.begin..end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lines_are_those_of_the_text_however_it_is_cut(text in "[a \r\n]{0,60}", cuts in proptest::collection::vec(0usize..60, 0..6)) {
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < text.len()).collect();
            cuts.push(text.len());
            cuts.sort_unstable();
            let (mut lines, mut at) = (Lines::default(), 0);
            for cut in cuts {
                lines.take(at as u64, &text.as_bytes()[at..cut]);
                at = cut;
            }
            lines.finish(text.len() as u64);
            let found: Vec<&str> = lines.found.iter().map(|line| text[line.start as usize..line.end as usize].trim()).collect();
            let wanted: Vec<&str> = text.split('\n').map(str::trim).filter(|line| !line.is_empty()).collect();
            prop_assert_eq!(found, wanted);
        }
    }
}
