//! One tar header of 512 bytes, and the extension records that pax headers carry: pure parsing of hostile bytes.
//!
//! Understood: v7, ustar, pax, GNU (long names, base-256 numbers) and star's shortened prefix. Where headers lie and
//! which extension belongs to which member is the business of [`super::tar`].
//!
//! A fault is a plain text here; the walker, which knows shard, offset and member, makes the error of it.

/// Headers and payloads are padded to this many bytes.
pub const BLOCK: usize = 512;

/// What follows a header and what the walker does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A file: its payload follows.
    Regular,
    /// Link, directory, device or pipe: whatever its size field says, nothing follows.
    Bare,
    /// A type we do not know: skipped together with its payload, as every reader does.
    Other,
    /// GNU `L`: the payload is the name of the next entry.
    LongName,
    /// GNU `K`: the payload is the link target of the next entry, which we have no use for.
    LongLink,
    /// pax `x`: records for the next entry.
    Pax,
    /// pax `g`: records for all entries from here on.
    GlobalPax,
    /// GNU `S`: a file with holes; its payload is not the file's bytes.
    Sparse,
    /// GNU `M`: the rest of a file that began in another archive.
    Continued,
}

/// One parsed header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The path as stored, prefix included.
    pub name: Vec<u8>,
    /// Size of the payload in bytes. Not yet compared with the shard's size.
    pub size: u64,
    /// What follows.
    pub kind: EntryKind,
}

/// The records of a pax header that change what a member is or where the next one begins.
///
/// The outer `Option` says whether the record was there; an empty record (`Some(None)`) takes an earlier one back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PaxRecords {
    /// `path`.
    pub path: Option<Option<Vec<u8>>>,
    /// `size`.
    pub size: Option<Option<u64>>,
    /// A `GNU.sparse.*` record was seen.
    pub sparse: bool,
}

impl Header {
    /// Parses one block. `Ok(None)` is a block of zeros, which ends an archive.
    pub fn parse(block: &[u8; BLOCK]) -> Result<Option<Self>, String> {
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        check_sum(block)?;
        let kind = match block[156] {
            b'0' | b'7' => EntryKind::Regular,
            // v7 had no directory type: a trailing slash said so.
            0 => {
                if text(&block[..100]).ends_with(b"/") {
                    EntryKind::Bare
                } else {
                    EntryKind::Regular
                }
            }
            b'1'..=b'6' => EntryKind::Bare,
            b'L' => EntryKind::LongName,
            b'K' => EntryKind::LongLink,
            b'x' | b'X' => EntryKind::Pax,
            b'g' => EntryKind::GlobalPax,
            b'S' => EntryKind::Sparse,
            b'M' => EntryKind::Continued,
            _ => EntryKind::Other,
        };
        let size = number(&block[124..136]).map_err(|why| format!("size field {why}"))?;
        Ok(Some(Self { name: full_name(block), size, kind }))
    }
}

impl PaxRecords {
    /// Parses the payload of a pax header: lines of `length key=value\n`.
    pub fn parse(mut bytes: &[u8]) -> Result<Self, String> {
        let mut records = Self::default();
        while !bytes.is_empty() {
            let space =
                bytes.iter().take(20).position(|byte| *byte == b' ').ok_or("pax record has no length")?;
            let length = decimal(&bytes[..space]).ok_or("pax record has no length")?;
            let length = usize::try_from(length).ok().filter(|length| *length <= bytes.len());
            let length = length.ok_or("pax record is longer than its header")?;
            // The shortest record is `4 =\n`-like: length, space, at least `=`, newline.
            if length < space + 3 || bytes[length - 1] != b'\n' {
                return Err("pax record does not end with a new line".into());
            }
            let record = &bytes[space + 1..length - 1];
            let equals = record.iter().position(|byte| *byte == b'=').ok_or("pax record has no `=`")?;
            records.take(&record[..equals], &record[equals + 1..])?;
            bytes = &bytes[length..];
        }
        Ok(records)
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        match key {
            b"path" => self.path = Some((!value.is_empty()).then(|| value.to_vec())),
            b"size" if value.is_empty() => self.size = Some(None),
            b"size" => self.size = Some(Some(decimal(value).ok_or("pax size is not a number")?)),
            key if key.starts_with(b"GNU.sparse.") => self.sparse = true,
            _ => {}
        }
        Ok(())
    }
}

/// A name as text. Bytes that are not UTF-8 are written as `\xNN`, so that two different names stay different.
pub fn name_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            use std::fmt::Write;
            // Writing to a string cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// The bytes before the first NUL.
pub fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    &field[..end]
}

fn full_name(block: &[u8; BLOCK]) -> Vec<u8> {
    let name = text(&block[..100]);
    // GNU's own magic (`ustar  `) and v7 use the prefix area for other things; star ends it early to store times.
    let prefix = match (&block[257..263], &block[508..512]) {
        (b"ustar\0", b"tar\0") => text(&block[345..476]),
        (b"ustar\0", _) => text(&block[345..500]),
        _ => &[],
    };
    if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() }
}

/// Octal digits, or base 256 when the first bit is set.
fn number(field: &[u8]) -> Result<u64, String> {
    let (first, rest) = field.split_first().ok_or("is empty")?;
    if first & 0x80 != 0 {
        // 0xff marks a negative number, which no size is.
        if *first != 0x80 {
            return Err("is not a size below 2^63".into());
        }
        return rest
            .iter()
            .try_fold(0u64, |value, byte| (value < 1 << 55).then(|| value << 8 | u64::from(*byte)))
            .ok_or_else(|| "is not a size below 2^63".into());
    }
    let digits = text(field).trim_ascii();
    digits
        .iter()
        .try_fold(0u64, |value, digit| match digit {
            b'0'..=b'7' => value.checked_mul(8).map(|value| value + u64::from(digit - b'0')),
            _ => None,
        })
        .ok_or_else(|| format!("`{}` is not octal", digits.escape_ascii()))
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, digit| match digit {
        b'0'..=b'9' => value.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

/// The sum counts its own field as spaces. Old writers added signed bytes, so both sums are good.
fn check_sum(block: &[u8; BLOCK]) -> Result<(), String> {
    let stated = number(&block[148..156]).map_err(|why| format!("checksum field {why}"))?;
    let (mut unsigned, mut signed) = (0i64, 0i64);
    for (at, byte) in block.iter().enumerate() {
        let byte = if (148..156).contains(&at) { b' ' } else { *byte };
        unsigned += i64::from(byte);
        signed += i64::from(byte as i8);
    }
    if i64::try_from(stated).is_ok_and(|stated| stated == unsigned || stated == signed) {
        return Ok(());
    }
    Err(format!("checksum is {unsigned}, the header says {stated}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_octal_or_base_256_and_never_negative() {
        assert_eq!(number(b"00000000017\0"), Ok(15));
        assert_eq!(number(b"     17 \0\0\0\0"), Ok(15));
        assert_eq!(number(b"\0\0\0\0\0\0\0\0\0\0\0\0"), Ok(0));
        assert_eq!(number(b"\x80\0\0\0\0\0\0\x02\0\0\0\0"), Ok(1 << 33));
        assert!(number(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff").is_err());
        assert!(number(b"\x80\0\0\x01\0\0\0\0\0\0\0\0").is_err());
        assert!(number(b"\x80\0\0\0\xff\0\0\0\0\0\0\0").is_err());
        assert!(number(b"0000000001x\0").is_err());
    }

    #[test]
    fn pax_records_are_read_by_their_length_so_values_may_hold_anything() {
        let records = PaxRecords::parse(b"17 path=a b=c\nd.x\n11 size=123\n20 comment=some text\n");
        assert!(records.is_err(), "the last length is wrong on purpose");
        let records = PaxRecords::parse(b"18 path=a b=c\nd.x\n12 size=123\n").unwrap();
        assert_eq!(records.path, Some(Some(b"a b=c\nd.x".to_vec())));
        assert_eq!(records.size, Some(Some(123)));
        assert_eq!(PaxRecords::parse(b"8 path=\n").unwrap().path, Some(None));
        assert!(PaxRecords::parse(b"24 GNU.sparse.major=1.0\n").unwrap().sparse);
        for bad in
            ["5 a=b\n", "99999999999999999999999 a=b\n", "6 ab\n\n", "x", "3 \n", "0 \n", "14 size=12345a\n"]
        {
            assert!(PaxRecords::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn names_that_are_not_utf8_stay_different() {
        assert_eq!(name_text("é.jpg".as_bytes()), "é.jpg");
        assert_ne!(name_text(b"\xff.jpg"), name_text(b"\xfe.jpg"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parsers_panic(
            block in proptest::collection::vec(any::<u8>(), BLOCK), records in proptest::collection::vec(any::<u8>(), 0..200)
        ) {
            let block: &[u8; BLOCK] = block.as_slice().try_into().unwrap();
            let _ = Header::parse(block);
            let _ = PaxRecords::parse(&records);
            let _ = full_name(block);
        }
    }
}
