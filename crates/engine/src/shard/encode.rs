//! Draws tar headers: ustar, with a pax header before it only when ustar cannot say the name or the size.
//!
//! Owner, mode and time are fixed, so the same samples give the same bytes on every machine and in every year.

use super::header::BLOCK;

/// The largest size eleven octal digits can say.
const USTAR_SIZE: u64 = 0o777_7777_7777;

/// The header block or blocks of a file named `name` with `size` payload bytes.
pub fn file_header(name: &str, size: u64) -> Vec<u8> {
    let mut records = Vec::new();
    let split = ustar_name(name);
    if split.is_none() {
        records.extend(pax_record("path", name));
    }
    if size > USTAR_SIZE {
        records.extend(pax_record("size", &size.to_string()));
    }
    let mut bytes = Vec::with_capacity(BLOCK);
    if !records.is_empty() {
        bytes.extend(block("", "pax", records.len() as u64, b'x'));
        bytes.extend(&records);
        bytes.resize(padded(bytes.len() as u64) as usize, 0);
    }
    // Readers without pax see a name that is at least unique in kind; those with pax never see it.
    let (prefix, base) = split.unwrap_or(("", "long-name"));
    bytes.extend(block(prefix, base, size.min(USTAR_SIZE), b'0'));
    bytes
}

/// Bytes that a file takes in a tar, headers and padding included.
pub fn file_bytes(name: &str, size: u64) -> u64 {
    file_header(name, size).len() as u64 + padded(size)
}

/// `size` rounded up to whole blocks.
pub fn padded(size: u64) -> u64 {
    size.next_multiple_of(BLOCK as u64)
}

/// Prefix and name as ustar stores them, or `None` when they do not fit or are not ASCII.
fn ustar_name(name: &str) -> Option<(&str, &str)> {
    if !name.is_ascii() {
        return None;
    }
    if name.len() <= 100 {
        return Some(("", name));
    }
    // The cut is at a slash that leaves at most 100 bytes to its right and 155 to its left; the first such slash
    // keeps the prefix short.
    let from = name.len().checked_sub(101)?;
    let cut = from + name.as_bytes()[from..].iter().position(|byte| *byte == b'/')?;
    (cut > 0 && cut <= 155 && cut + 1 < name.len()).then(|| (&name[..cut], &name[cut + 1..]))
}

/// `length key=value\n`, where the length counts its own digits.
fn pax_record(key: &str, value: &str) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    format!("{length} {key}={value}\n").into_bytes()
}

fn block(prefix: &str, name: &str, size: u64, kind: u8) -> [u8; BLOCK] {
    let mut block = [0u8; BLOCK];
    put(&mut block, 0, name.as_bytes());
    put(&mut block, 100, b"0000444\0");
    put(&mut block, 108, b"0000000\0");
    put(&mut block, 116, b"0000000\0");
    put(&mut block, 124, format!("{size:011o}\0").as_bytes());
    put(&mut block, 136, b"00000000000\0");
    put(&mut block, 148, b"        ");
    block[156] = kind;
    put(&mut block, 257, b"ustar\x0000");
    put(&mut block, 265, b"forebay");
    put(&mut block, 297, b"forebay");
    put(&mut block, 345, prefix.as_bytes());
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    put(&mut block, 148, format!("{sum:06o}\0 ").as_bytes());
    block
}

fn put(block: &mut [u8; BLOCK], at: usize, bytes: &[u8]) {
    block[at..at + bytes.len()].copy_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::super::tar::walk;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pax_appears_only_when_ustar_cannot_say_it() {
        assert_eq!(file_header("a.jpg", 7).len(), BLOCK);
        assert_eq!(file_header(&format!("{}/{}", "d".repeat(155), "n".repeat(100)), 7).len(), BLOCK);
        assert_eq!(file_header(&"n".repeat(101), 7).len(), 3 * BLOCK);
        assert_eq!(file_header("é.jpg", 7).len(), 3 * BLOCK);
        assert_eq!(file_header("a.jpg", USTAR_SIZE).len(), BLOCK);
        assert_eq!(file_header("a.jpg", USTAR_SIZE + 1).len(), 3 * BLOCK);
    }

    proptest! {
        #[test]
        fn every_name_reads_back(name in "[a-z/é.]{1,400}", size in 0u64..2000) {
            let mut tar = file_header(&name, size);
            let offset = tar.len() as u64;
            tar.resize((offset + padded(size)) as usize, 1);
            prop_assert_eq!(tar.len() as u64, file_bytes(&name, size));
            let members = walk(&tar).unwrap();
            prop_assert_eq!(members.len(), 1);
            prop_assert_eq!(&members[0].name, &name);
            prop_assert_eq!((members[0].offset, members[0].length), (offset, size));
        }
    }
}
