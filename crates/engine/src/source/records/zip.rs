//! Zip archives: the central directory alone is read. A record goes from a member's local header to the next one.
//!
//! Members form samples by the same rules as those of tar shards.

use super::{Indexed, Samples, fault};
use crate::shard::{Grouper, Member};
use forebay_core::{Error, Result};
use forebay_ops::record::zip_member::{ENDING, extra_field};
use forebay_ops::record::{Format, RecordSpec};
use forebay_store::{ByteRange, ObjectMeta, Store};
use std::collections::BTreeMap;

/// Bytes of the end record without its comment, and with the longest.
const END_BYTES: u64 = 22;
const LONGEST_END_BYTES: u64 = END_BYTES + 65_535;

/// Bytes of the wide end record that are looked at, and of what says where it is.
const WIDE_END_BYTES: u64 = 56;
const WIDE_PLACE_BYTES: u64 = 20;

/// Bytes of a directory entry before its name.
const ENTRY_BYTES: usize = 46;

/// The largest directory that is read: some ten million members.
const MAX_DIRECTORY_BYTES: u64 = 1 << 30;

/// A number that stands elsewhere because it is too large for its place.
const ELSEWHERE: u64 = u32::MAX as u64;

pub(super) async fn index(store: &dyn Store, object: ObjectMeta) -> Result<Indexed> {
    let (size, key) = (object.size, object.key.clone());
    let wrong = |offset: u64, error: Error| fault(store, &key, offset, error);
    let tail = size.saturating_sub(LONGEST_END_BYTES);
    let end = store.read(&key, ByteRange::from(tail..size)).await?;
    let directory = match Directory::find(&end, tail).map_err(|error| wrong(tail, error))? {
        Found::Directory(directory) => directory,
        Found::Wide(place) => {
            let inside = place.checked_add(WIDE_END_BYTES).is_some_and(|end| end <= size);
            if !inside {
                return Err(wrong(place, Error::corrupt("its wide end record lies outside of the file")));
            }
            let wide = store.read(&key, ByteRange::from(place..place + WIDE_END_BYTES)).await?;
            Directory::wide(&wide).map_err(|error| wrong(place, error))?
        }
    };
    let Directory { offset, length } = directory;
    if length > MAX_DIRECTORY_BYTES {
        let why = format!("its directory has {length} bytes, at most {MAX_DIRECTORY_BYTES} are read");
        return Err(wrong(offset, Error::exhausted(why)));
    }
    if offset.checked_add(length).is_none_or(|end| end > size) {
        return Err(wrong(offset, Error::corrupt("its directory lies outside of the file")));
    }
    let bytes = store.read(&key, ByteRange::from(offset..offset + length)).await?;
    let members = members(&bytes, offset).map_err(|error| wrong(offset, error))?;
    let (mut grouper, mut samples) = (Grouper::default(), Vec::new());
    for member in &members {
        samples.extend(grouper.add(member).map_err(|error| wrong(member.header, error))?);
    }
    samples.extend(grouper.finish());
    let mut specs = BTreeMap::new();
    for field in samples.iter_mut().flat_map(|sample| &mut sample.fields) {
        let stored = format!("{}{ENDING}", field.name);
        let name = std::mem::replace(&mut field.name, stored.clone());
        let spec = || RecordSpec::new(Format::ZipMember, vec![name]);
        specs.entry(stored).or_insert_with(spec);
    }
    Ok(Indexed { object, samples: Samples::Grouped(samples), specs })
}

/// Where the directory lies.
#[derive(Debug, PartialEq, Eq)]
struct Directory {
    offset: u64,
    length: u64,
}

/// What the end of a file tells.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Directory(Directory),
    /// The place of a wide end record, which tells it.
    Wide(u64),
}

impl Directory {
    /// Looks for the end record in the last bytes of a file, which begin at `at`.
    fn find(end: &[u8], at: u64) -> Result<Found> {
        let last = end.len().checked_sub(END_BYTES as usize);
        let is_end = |place: &usize| {
            end[*place..].starts_with(b"PK\x05\x06")
                && *place + END_BYTES as usize + usize::from(short(end, place + 20)) == end.len()
        };
        let place = last
            .and_then(|last| (0..=last).rev().find(is_end))
            .ok_or_else(|| Error::corrupt("truncated, or no zip archive: its end record is missing"))?;
        let (disk, length, offset) = (short(end, place + 4), long(end, place + 12), long(end, place + 16));
        if length == ELSEWHERE || offset == ELSEWHERE || short(end, place + 10) == u16::MAX {
            let before = place.checked_sub(WIDE_PLACE_BYTES as usize);
            if let Some(before) = before.filter(|before| end[*before..].starts_with(b"PK\x06\x07")) {
                return Ok(Found::Wide(wide(end, before + 8)));
            }
        }
        if disk != 0 {
            return Err(Error::unsupported("it is one of several volumes").with_hint("join them first"));
        }
        let before = at + place as u64;
        if length > before {
            return Err(Error::corrupt("its directory lies outside of the file"));
        }
        Ok(Found::Directory(Self { offset, length }))
    }

    fn wide(end: &[u8]) -> Result<Self> {
        if !end.starts_with(b"PK\x06\x06") || (end.len() as u64) < WIDE_END_BYTES {
            return Err(Error::corrupt("its wide end record is damaged"));
        }
        Ok(Self { length: wide(end, 40), offset: wide(end, 48) })
    }
}

/// Members in the order of the directory; each reaches to the next one in the file, or to the directory.
fn members(directory: &[u8], end: u64) -> Result<Vec<Member>> {
    let mut found = Vec::new();
    let mut rest = directory;
    while rest.starts_with(b"PK\x01\x02") {
        let cut_off = || Error::corrupt("its directory is cut off");
        if rest.len() < ENTRY_BYTES {
            return Err(cut_off());
        }
        let sizes = [28, 30, 32].map(|at| usize::from(short(rest, at)));
        let [name, extra, comment] = sizes;
        let (name_end, extra_end) = (ENTRY_BYTES + name, ENTRY_BYTES + name + extra);
        let text = rest.get(ENTRY_BYTES..name_end).ok_or_else(cut_off)?;
        let more = rest.get(name_end..extra_end).ok_or_else(cut_off)?;
        let mut header = long(rest, 42);
        if header == ELSEWHERE {
            // Sizes that are too large for their places stand before it.
            let before = [20, 24].iter().filter(|at| long(rest, **at) == ELSEWHERE).count() * 8;
            let field = extra_field(more, 1).filter(|field| field.len() >= before + 8);
            header = wide(field.ok_or_else(|| Error::corrupt("a member's place is not told"))?, before);
        }
        // Names are UTF-8 by flag and by habit; others are shown as they are.
        let name = String::from_utf8_lossy(text).into_owned();
        if header >= end {
            return Err(Error::corrupt(format!("member `{name}` lies outside of the file")));
        }
        found.push(Member { name, header, offset: header, length: 0 });
        rest = rest.get(extra_end + comment..).ok_or_else(cut_off)?;
    }
    let mut starts: Vec<u64> = found.iter().map(|member| member.header).chain([end]).collect();
    starts.sort_unstable();
    for member in &mut found {
        let next = starts.partition_point(|start| *start <= member.header);
        member.length = starts.get(next).copied().unwrap_or(end) - member.header;
    }
    found.retain(|member| !member.name.ends_with('/'));
    Ok(found)
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]))
}

fn wide(bytes: &[u8], at: usize) -> u64 {
    long(bytes, at) | long(bytes, at + 4) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_end_and_any_directory_are_members_or_an_error(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
            comment in 0u8..30,
            end: u32,
        ) {
            let _ = members(&[&b"PK\x01\x02"[..], &bytes].concat(), end.into());
            let mut tail = b"PK\x05\x06".to_vec();
            bytes.resize(16, 0);
            tail.append(&mut bytes);
            tail.extend([comment, 0]);
            tail.extend(vec![b'x'; comment.into()]);
            let _ = Directory::find(&tail, 1000);
            let _ = Directory::find(&tail[..tail.len() - 1], 1000);
            let _ = Directory::wide(&tail);
        }
    }
}
