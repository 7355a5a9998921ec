//! The archive that a batched answer is: entries in order, as slices of the bytes that came.
//!
//! Only what the server writes is read: plain files, with long names in pax or GNU records. Every size is checked
//! against the bytes that are there, because they come from outside.

use bytes::Bytes;

const BLOCK: usize = 512;
/// No name is longer, and no record that holds one.
const MOST_NAME_BYTES: usize = 64 << 10;

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) bytes: Bytes,
}

/// Reads entries until the archive ends, or `Err` where it makes no sense. An archive that breaks off just ends.
#[derive(Debug)]
pub(super) struct Entries {
    bytes: Bytes,
    at: usize,
}

/// Names and bytes of all entries up to the first that makes no sense.
pub(crate) fn entries(archive: Bytes) -> Vec<(String, Bytes)> {
    Entries::new(archive).map_while(Result::ok).map(|entry| (entry.name, entry.bytes)).collect()
}

impl Entries {
    pub(super) fn new(bytes: Bytes) -> Self {
        Self { bytes, at: 0 }
    }

    fn record(&mut self) -> Result<Option<(u8, String, Bytes)>, &'static str> {
        let Some(header) = self.bytes.get(self.at..self.at + BLOCK) else { return Ok(None) };
        if header.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if !checksum_holds(header) {
            return Err("the checksum of an entry's header is wrong");
        }
        let size = number(&header[124..136]).ok_or("the size of an entry is no number")?;
        let start = self.at + BLOCK;
        let end = start.checked_add(size).ok_or("an entry is larger than memory")?;
        // Cut inside an entry: what is there of it is of no use.
        if end > self.bytes.len() {
            return Ok(None);
        }
        self.at = end.next_multiple_of(BLOCK);
        let mut name = text(&header[..100])?;
        if header[257..262] == *b"ustar" && header[345] != 0 {
            name = format!("{}/{name}", text(&header[345..500])?);
        }
        Ok(Some((header[156], name, self.bytes.slice(start..end))))
    }
}

impl Iterator for Entries {
    type Item = Result<Entry, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut long_name = None;
        loop {
            let (kind, name, bytes) = match self.record() {
                Ok(record) => record?,
                Err(why) => {
                    self.at = self.bytes.len();
                    return Some(Err(why));
                }
            };
            match kind {
                b'0' | 0 => return Some(Ok(Entry { name: long_name.unwrap_or(name), bytes })),
                b'x' if bytes.len() <= MOST_NAME_BYTES => long_name = pax_path(&bytes).or(long_name),
                b'L' if bytes.len() <= MOST_NAME_BYTES => long_name = text(&bytes).ok(),
                // Directories, global records and the like say nothing here.
                _ => {}
            }
        }
    }
}

/// `path` among records of the form `LENGTH KEY=VALUE\n`.
fn pax_path(mut records: &[u8]) -> Option<String> {
    let mut path = None;
    while !records.is_empty() {
        let blank = records.iter().position(|byte| *byte == b' ')?;
        let length: usize = std::str::from_utf8(&records[..blank]).ok()?.parse().ok()?;
        let record = records.get(blank + 1..length.checked_sub(1)?)?;
        if let Some(value) = record.strip_prefix(b"path=") {
            path = Some(std::str::from_utf8(value).ok()?.to_owned());
        }
        records = records.get(length..)?;
    }
    path
}

fn text(field: &[u8]) -> Result<String, &'static str> {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8(field[..end].to_vec()).map_err(|_| "the name of an entry is no text")
}

/// Octal digits, or a big number in the GNU form.
fn number(field: &[u8]) -> Option<usize> {
    if field.first()? & 0x80 != 0 {
        let big = field[1..]
            .iter()
            .try_fold(0u64, |value, byte| Some(value.checked_mul(256)? + u64::from(*byte)))?;
        return usize::try_from(big).ok();
    }
    let digits =
        field.iter().copied().skip_while(|byte| *byte == b' ').take_while(|byte| *byte != 0 && *byte != b' ');
    digits.into_iter().try_fold(0usize, |value, digit| match digit {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(usize::from(digit - b'0')),
        _ => None,
    })
}

fn checksum_holds(header: &[u8]) -> bool {
    let blanked = |(at, byte): (usize, &u8)| if (148..156).contains(&at) { 32 } else { usize::from(*byte) };
    number(&header[148..156]) == Some(header.iter().enumerate().map(blanked).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(kind: u8, name: &str, bytes: &[u8]) -> Vec<u8> {
        let mut header = vec![0; BLOCK];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..136].copy_from_slice(format!("{:011o}\0", bytes.len()).as_bytes());
        header[148..156].fill(b' ');
        header[156] = kind;
        header[257..263].copy_from_slice(b"ustar\0");
        let sum: usize = header.iter().map(|byte| usize::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        header.extend(bytes);
        header.resize(header.len().next_multiple_of(BLOCK), 0);
        header
    }

    fn names(bytes: Vec<u8>) -> Vec<(String, usize)> {
        Entries::new(bytes.into())
            .map(|entry| entry.map(|entry| (entry.name, entry.bytes.len())).unwrap())
            .collect()
    }

    #[test]
    fn entries_come_in_order_with_long_names_and_end_where_they_are_cut() {
        let long = "n".repeat(300);
        let pax = format!("{} path={long}\n", 300 + 10);
        let mut bytes = record(b'0', "b/a", b"abc");
        bytes.extend(record(b'x', "PaxHeaders", pax.as_bytes()));
        bytes.extend(record(b'0', "short", &[7; 600]));
        bytes.extend(record(b'L', "././@LongLink", b"gnu/name\0"));
        bytes.extend(record(b'0', "gnu", b""));
        let expected = vec![("b/a".to_owned(), 3), (long, 600), ("gnu/name".to_owned(), 0)];
        let mut ended = bytes.clone();
        ended.extend([0; 1024]);
        assert_eq!(names(ended), expected);
        assert_eq!(names(bytes.clone()), expected);
        assert_eq!(names(bytes[..1024 + 1024 + 700].to_vec()), expected[..1]);
    }

    #[test]
    fn a_damaged_header_is_an_error() {
        let mut bytes = record(b'0', "a", b"abc");
        bytes[3] ^= 1;
        assert!(Entries::new(bytes.into()).any(|entry| entry.is_err()));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..1600),
            pax in "[0-9 a=\n]{0,40}",
            at in 0usize..2000,
        ) {
            let _ = pax_path(pax.as_bytes());
            let _ = Entries::new(bytes.clone().into()).count();
            let mut good = record(b'x', "a", pax.as_bytes());
            good.extend(record(b'0', "b", &bytes));
            good.truncate(at);
            let _ = Entries::new(good.into()).count();
            bytes.resize(BLOCK, 0);
            let _ = number(&bytes[124..136]);
        }
    }
}
