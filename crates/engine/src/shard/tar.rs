//! From header to header through a tar: which members there are and where their payloads lie.
//!
//! [`Walker`] is a pure machine: it says which bytes it wants next and is given them, so the same code serves a
//! slice ([`walk`], which fuzzing drives) and any store ([`walk_object`]). Payloads are stepped over, not read.
//!
//! Nothing is ever extracted to disk, so a name with `..`, a leading `/` or odd characters is a key like any other.

use super::header::{BLOCK, EntryKind, Header, PaxRecords, name_text, text};
use super::window::{HeadWindow, HeaderReads};
use forebay_core::{Error, ErrorKind, Facts, Result};
use forebay_store::Store;
use std::ops::Range;

/// A file inside a tar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its path as stored.
    pub name: String,
    /// Where its header begins (the header proper, after any extension headers).
    pub header: u64,
    /// Where its payload begins.
    pub offset: u64,
    /// Payload bytes.
    pub length: u64,
}

/// How much a shard may ask of us before it is refused.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest member name in bytes.
    pub name_bytes: u64,
    /// Largest payload of an extension header (pax records) in bytes.
    pub extension_bytes: u64,
    /// Most entries of one shard, of whatever type.
    pub members: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { name_bytes: 64 << 10, extension_bytes: 1 << 20, members: 16 << 20 }
    }
}

/// How an archive ended. Both ways are readable; `verify` mentions what is unusual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkEnd {
    /// Zero blocks marked the end. Otherwise the object ended exactly where the next header would have begun.
    pub marked: bool,
    /// Offset of bytes after the end mark that are not zero: another archive glued on, which no reader will see.
    pub trailing: Option<u64>,
}

/// The machine. Ask [`Walker::wants`], read those bytes, [`Walker::give`] them, until nothing is wanted.
#[derive(Debug)]
pub struct Walker {
    size: u64,
    limits: Limits,
    position: u64,
    entries: u64,
    expecting: Expecting,
    /// Records of global pax headers, for every later member.
    global: PaxRecords,
    /// Records of extension headers, for the next member only.
    pending: PaxRecords,
    /// Whether an extension header waits for its member.
    extended: bool,
    end: WalkEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expecting {
    Header,
    Extension { kind: EntryKind, length: u64 },
    SecondEndBlock,
    Nothing,
}

impl Walker {
    /// A walker over a tar of `size` bytes.
    pub fn new(size: u64, limits: Limits) -> Self {
        Self {
            size,
            limits,
            position: 0,
            entries: 0,
            expecting: Expecting::Header,
            global: PaxRecords::default(),
            pending: PaxRecords::default(),
            extended: false,
            end: WalkEnd::default(),
        }
    }

    /// The bytes needed next, always inside the object; `None` at the end.
    pub fn wants(&mut self) -> Result<Option<Range<u64>>> {
        let left = self.size - self.position;
        match self.expecting {
            Expecting::Nothing => Ok(None),
            Expecting::SecondEndBlock if left < BLOCK as u64 => Ok(None),
            Expecting::Extension { length, .. } => Ok(Some(self.position..self.position + length)),
            Expecting::Header if left == 0 && self.entries > 0 && !self.extended => {
                // Some writers leave the end blocks out. An archive cut exactly between two members looks the
                // same, which is why `verify` mentions it.
                self.expecting = Expecting::Nothing;
                Ok(None)
            }
            Expecting::Header if left == 0 && self.entries == 0 => {
                Err(self.fault(None, "the object is empty"))
            }
            Expecting::Header if left < BLOCK as u64 => {
                Err(self.fault(None, &format!("truncated, {left} of {BLOCK} header bytes are there")))
            }
            Expecting::Header | Expecting::SecondEndBlock => {
                Ok(Some(self.position..self.position + BLOCK as u64))
            }
        }
    }

    /// Takes exactly the bytes that were wanted and returns the member they complete, if they complete one.
    pub fn give(&mut self, bytes: &[u8]) -> Result<Option<Member>> {
        match self.expecting {
            Expecting::Nothing => Ok(None),
            Expecting::SecondEndBlock => {
                if bytes.iter().any(|byte| *byte != 0) {
                    self.end.trailing = Some(self.position);
                }
                self.expecting = Expecting::Nothing;
                Ok(None)
            }
            Expecting::Extension { kind, length } => {
                self.take_extension(kind, bytes)?;
                self.position = self.padded(self.position, length, None)?;
                self.expecting = Expecting::Header;
                Ok(None)
            }
            Expecting::Header => {
                let block =
                    bytes.try_into().map_err(|_| Error::internal("tar walker was given a wrong length"))?;
                match Header::parse(block).map_err(|why| self.fault(None, &why))? {
                    Some(header) => self.take_header(header),
                    None if self.extended => {
                        Err(self.fault(None, "an extension header has no member after it"))
                    }
                    None => {
                        self.position += BLOCK as u64;
                        self.end.marked = true;
                        self.expecting = Expecting::SecondEndBlock;
                        Ok(None)
                    }
                }
            }
        }
    }

    /// How the archive ended, once nothing is wanted any more.
    pub fn end(&self) -> WalkEnd {
        self.end
    }

    fn take_header(&mut self, header: Header) -> Result<Option<Member>> {
        self.entries += 1;
        if self.entries > self.limits.members {
            let why = format!("more than {} entries, the most one shard may have", self.limits.members);
            return Err(self.error(ErrorKind::Exhausted, None, &why));
        }
        match header.kind {
            kind @ (EntryKind::LongName | EntryKind::LongLink | EntryKind::Pax | EntryKind::GlobalPax) => {
                let limit = match kind {
                    EntryKind::Pax | EntryKind::GlobalPax => self.limits.extension_bytes,
                    // GNU stores the name with a NUL after it.
                    _ => self.limits.name_bytes + 1,
                };
                if header.size > limit {
                    let why = format!("extension header of {} bytes, at most {limit} are taken", header.size);
                    return Err(self.fault(None, &why));
                }
                let start = self.position + BLOCK as u64;
                self.padded(start, header.size, None)?;
                self.position = start;
                self.extended |= kind != EntryKind::GlobalPax;
                self.expecting = Expecting::Extension { kind, length: header.size };
                Ok(None)
            }
            _ => self.take_entry(header),
        }
    }

    fn take_entry(&mut self, header: Header) -> Result<Option<Member>> {
        let own = std::mem::take(&mut self.pending);
        self.extended = false;
        let path = own.path.unwrap_or_else(|| self.global.path.clone().flatten());
        let name = name_text(&path.unwrap_or(header.name));
        let sparse = own.sparse || self.global.sparse || header.kind == EntryKind::Sparse;
        if sparse || header.kind == EntryKind::Continued {
            let what = if sparse { "a sparse file" } else { "continued from another archive" };
            let hint = "write the shard again without `--sparse` and without volumes";
            return Err(self.error(ErrorKind::Unsupported, Some(&name), what).with_hint(hint));
        }
        let start = self.position + BLOCK as u64;
        if header.kind == EntryKind::Bare {
            self.position = start;
            return Ok(None);
        }
        let size = own.size.unwrap_or_else(|| self.global.size.flatten());
        let length = size.unwrap_or(header.size);
        let next = self.padded(start, length, Some(&name))?;
        let at = std::mem::replace(&mut self.position, next);
        if header.kind != EntryKind::Regular {
            return Ok(None);
        }
        Ok(Some(Member { name, header: at, offset: start, length }))
    }

    fn take_extension(&mut self, kind: EntryKind, bytes: &[u8]) -> Result<()> {
        match kind {
            EntryKind::LongName => self.pending.path = Some(Some(text(bytes).to_vec())),
            EntryKind::Pax | EntryKind::GlobalPax => {
                let records = PaxRecords::parse(bytes).map_err(|why| self.fault(None, &why))?;
                let target = if kind == EntryKind::Pax { &mut self.pending } else { &mut self.global };
                target.path = records.path.or(target.path.take());
                target.size = records.size.or(target.size);
                target.sparse |= records.sparse;
            }
            _ => {}
        }
        let name = self.pending.path.iter().chain(&self.global.path).flatten();
        match name.map(|name| name.len() as u64).find(|length| *length > self.limits.name_bytes) {
            Some(length) => {
                let why = format!("name of {length} bytes, at most {} are taken", self.limits.name_bytes);
                Err(self.fault(None, &why))
            }
            None => Ok(()),
        }
    }

    /// Where a payload's padding ends, if all of it is inside the object.
    fn padded(&self, start: u64, length: u64, name: Option<&str>) -> Result<u64> {
        let end = length.checked_next_multiple_of(BLOCK as u64).and_then(|padded| start.checked_add(padded));
        match end {
            Some(end) if end <= self.size => Ok(end),
            _ => {
                let there = self.size.saturating_sub(start).min(length);
                let why = if there == length {
                    "truncated inside the padding after its payload".to_string()
                } else {
                    format!("truncated, {there} of {length} payload bytes are there")
                };
                Err(self.fault(name, &why))
            }
        }
    }

    fn fault(&self, name: Option<&str>, why: &str) -> Error {
        self.error(ErrorKind::Corrupt, name, why)
    }

    fn error(&self, kind: ErrorKind, name: Option<&str>, why: &str) -> Error {
        let offset = self.position;
        let message = match name {
            Some(name) => format!("tar member `{name}` at byte {offset}: {why}"),
            None => format!("tar header at byte {offset}: {why}"),
        };
        let facts = Facts { offset: Some(offset), key: name.map(str::to_string), ..Facts::default() };
        Error::new(kind, message).with_facts(facts)
    }
}

/// Every member of a tar held in memory.
pub fn walk(bytes: &[u8]) -> Result<Vec<Member>> {
    let mut walker = Walker::new(bytes.len() as u64, Limits::default());
    let mut members = Vec::new();
    while let Some(range) = walker.wants()? {
        members.extend(walker.give(&bytes[range.start as usize..range.end as usize])?);
    }
    Ok(members)
}

/// Walks the tar `key` of `size` bytes and gives every member to `visit`, in order.
pub async fn walk_object(
    store: &dyn Store,
    key: &str,
    walker: &mut Walker,
    reads: HeaderReads,
    mut visit: impl FnMut(Member) -> Result<()>,
) -> Result<WalkEnd> {
    let in_shard = |error: Error| {
        let url = store.url(key);
        let facts = Facts { object: Some(url.clone()), ..Facts::default() };
        error.while_doing(format_args!("read shard `{url}`")).with_facts(facts)
    };
    let mut window = HeadWindow::new(reads);
    while let Some(range) = walker.wants().map_err(in_shard)? {
        let bytes = window.bytes(store, key, range, walker.size).await?;
        if let Some(member) = walker.give(&bytes).map_err(in_shard)? {
            visit(member).map_err(in_shard)?;
        }
    }
    Ok(walker.end())
}

#[cfg(test)]
mod tests;
