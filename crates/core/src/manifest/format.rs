//! The frame of a manifest: header, section table, checksum. What a section holds is decided in `mod.rs` (reading)
//! and `builder.rs` (writing); `docs/design/manifest.md` draws all of it.
//!
//! All integers are little endian. Sections follow the table in a fixed order without gaps, each padded with zeros
//! to 8 bytes, so one content has exactly one byte form and a reader accepts no other.

use super::column::{ColumnBody, ColumnBuilder};
use crate::{Error, Result};
use std::ops::Range;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// First bytes of every manifest. The high bit and the line feed catch transfers that mangle text.
pub(super) const MAGIC: [u8; 8] = *b"\xF0BMANIF\n";
/// Version of the byte form; readers refuse any other.
pub(super) const FORMAT_VERSION: u32 = 1;
/// Columns a manifest may have: more is a sign of a dataset whose keys were taken apart wrongly.
pub(super) const MAX_FIELDS: usize = 1024;
/// Bytes of the JSON section.
pub(super) const MAX_META_BYTES: usize = 16 << 20;

const CHECKSUM: Range<usize> = 16..32;
const VERSION: Range<usize> = 32..48;
const HEADER_BYTES: usize = 88;
const ENTRY_BYTES: usize = 32;

/// What a section holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Fields = 1,
    ObjectKeyRestarts = 2,
    ObjectKeyText = 3,
    ObjectSizes = 4,
    ObjectStamps = 5,
    ObjectFirstSamples = 6,
    SampleKeyRestarts = 7,
    SampleKeyText = 8,
    PayloadOffsets = 9,
    PayloadLengths = 10,
    PayloadObjects = 11,
    Ints = 12,
    Meta = 13,
}

impl Kind {
    /// Whether the section holds facts of this build rather than content; such sections do not enter the version.
    fn is_build_fact(self) -> bool {
        matches!(self, Self::Meta)
    }
}

/// The counts that stand before the section table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) samples: u64,
    pub(super) objects: u32,
    pub(super) fields: u32,
    pub(super) total_bytes: u64,
    pub(super) largest_sample_bytes: u64,
}

/// One row of the section table, with its place already checked against the file.
#[derive(Clone, Debug)]
pub(super) struct Section {
    kind: u16,
    field: u32,
    pub(super) width: u8,
    pub(super) nullable: bool,
    pub(super) base: u64,
    pub(super) range: Range<usize>,
}

/// A parsed frame: counts, version and the sections still to be taken, in file order.
pub(super) struct Frame {
    pub(super) counts: Counts,
    pub(super) version: u128,
    sections: std::vec::IntoIter<Section>,
}

/// An error about bytes that are no manifest.
pub(super) fn corrupt(why: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("open manifest: {why}")).with_hint("build the manifest again with `forebay index`")
}

impl Frame {
    /// Checks magic, format version, length, checksum and the place of every section.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self> {
        if bytes.get(..8) != Some(&MAGIC) {
            return Err(corrupt("the first bytes are not those of a manifest"));
        }
        let format = u32_at(bytes, 8)?;
        if format != FORMAT_VERSION {
            return Err(Error::unsupported(format!(
                "open manifest: format version is {format} but this release reads version {FORMAT_VERSION}"
            ))
            .with_hint("build the manifest again with `forebay index`"));
        }
        let stated = u64_at(bytes, 48)?;
        if stated != bytes.len() as u64 {
            return Err(corrupt(format!("{} bytes are there but the header states {stated}", bytes.len())));
        }
        let checksum = xxh3_128(bytes.get(CHECKSUM.end..).unwrap_or_default());
        if bytes.get(CHECKSUM) != Some(&checksum.to_le_bytes()) {
            return Err(corrupt("the checksum does not match the content"));
        }
        let counts = Counts {
            samples: u64_at(bytes, 56)?,
            objects: u32_at(bytes, 64)?,
            fields: u32_at(bytes, 68)?,
            total_bytes: u64_at(bytes, 72)?,
            largest_sample_bytes: u64_at(bytes, 80)?,
        };
        if counts.fields as usize > MAX_FIELDS {
            return Err(corrupt(format!("{} fields are stated, at most {MAX_FIELDS} can be", counts.fields)));
        }
        let mut version = [0; 16];
        version.copy_from_slice(bytes.get(VERSION).unwrap_or(&[0; 16]));
        let sections = parse_table(bytes)?.into_iter();
        Ok(Self { counts, version: u128::from_le_bytes(version), sections })
    }

    /// Whether the next section is of this kind and field.
    pub(super) fn next_is(&self, kind: Kind, field: usize) -> bool {
        let next = self.sections.as_slice().first();
        next.is_some_and(|next| next.kind == kind as u16 && next.field as usize == field)
    }

    /// The next section when it is of this kind and field.
    pub(super) fn take_if(&mut self, kind: Kind, field: usize) -> Option<Section> {
        if self.next_is(kind, field) { self.sections.next() } else { None }
    }

    /// The next section, which must be of this kind and field.
    pub(super) fn take(&mut self, kind: Kind, field: usize) -> Result<Section> {
        self.take_if(kind, field)
            .ok_or_else(|| corrupt(format!("section {kind:?} of field {field} is missing or out of place")))
    }

    /// Checks that every section was taken.
    pub(super) fn end(mut self) -> Result<()> {
        match self.sections.next() {
            None => Ok(()),
            Some(section) => Err(corrupt(format!("section of kind {} is not expected", section.kind))),
        }
    }
}

fn parse_table(bytes: &[u8]) -> Result<Vec<Section>> {
    let count = u32_at(bytes, 12)? as usize;
    if count > 16 + 4 * MAX_FIELDS {
        return Err(corrupt(format!("{count} sections are stated")));
    }
    let mut expected = HEADER_BYTES + count * ENTRY_BYTES;
    let mut sections = Vec::with_capacity(count);
    for index in 0..count {
        let at = HEADER_BYTES + index * ENTRY_BYTES;
        let head = u64_at(bytes, at)?;
        let offset = u64_at(bytes, at + 8)?;
        let length = usize::try_from(u64_at(bytes, at + 16)?).unwrap_or(usize::MAX);
        let end = expected.checked_add(length).filter(|end| *end <= bytes.len());
        let flags = (head >> 24) as u8;
        let (true, Some(end)) = (offset == expected as u64 && flags <= 1, end) else {
            return Err(corrupt(format!("section {index} has flags or a place it cannot have")));
        };
        sections.push(Section {
            kind: head as u16,
            width: (head >> 16) as u8,
            nullable: flags == 1,
            field: (head >> 32) as u32,
            base: u64_at(bytes, at + 24)?,
            range: expected..end,
        });
        expected = end.next_multiple_of(8);
    }
    if expected != bytes.len() {
        return Err(corrupt("bytes follow the last section"));
    }
    Ok(sections)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32> {
    let found = bytes.get(at..).and_then(<[u8]>::first_chunk);
    found.map(|chunk| u32::from_le_bytes(*chunk)).ok_or_else(|| corrupt("the header is cut short"))
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64> {
    let found = bytes.get(at..).and_then(<[u8]>::first_chunk);
    found.map(|chunk| u64::from_le_bytes(*chunk)).ok_or_else(|| corrupt("the header is cut short"))
}

/// Collects sections in file order and frames them.
#[derive(Default)]
pub(super) struct Writer {
    sections: Vec<(Kind, u64, ColumnBody)>,
}

impl Writer {
    /// Appends a section of plain bytes.
    pub(super) fn bytes(&mut self, kind: Kind, bytes: Vec<u8>) {
        self.sections.push((kind, 0, ColumnBody { width: 0, nullable: false, base: 0, bytes }));
    }

    /// Appends a column of `count` values.
    pub(super) fn column(&mut self, kind: Kind, field: usize, column: ColumnBuilder, count: u64) {
        self.sections.push((kind, field as u64, column.finish(count)));
    }

    /// The whole file.
    pub(super) fn finish(self, counts: &Counts) -> Vec<u8> {
        let table_end = HEADER_BYTES + self.sections.len() * ENTRY_BYTES;
        let body: usize = self.sections.iter().map(|(_, _, body)| body.bytes.len().next_multiple_of(8)).sum();
        let mut file = Vec::with_capacity(table_end + body);
        file.extend_from_slice(&MAGIC);
        file.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        file.extend_from_slice(&(self.sections.len() as u32).to_le_bytes());
        file.resize(VERSION.end, 0);
        file.extend_from_slice(&((table_end + body) as u64).to_le_bytes());
        file.extend_from_slice(&counts.samples.to_le_bytes());
        file.extend_from_slice(&counts.objects.to_le_bytes());
        file.extend_from_slice(&counts.fields.to_le_bytes());
        file.extend_from_slice(&counts.total_bytes.to_le_bytes());
        file.extend_from_slice(&counts.largest_sample_bytes.to_le_bytes());

        let mut content = Xxh3::new();
        content.update(&file[56..HEADER_BYTES]);
        let mut offset = table_end;
        for (kind, field, body) in &self.sections {
            let head =
                *kind as u64 | u64::from(body.width) << 16 | u64::from(body.nullable) << 24 | field << 32;
            let length = body.bytes.len() as u64;
            for word in [head, offset as u64, length, body.base] {
                file.extend_from_slice(&word.to_le_bytes());
            }
            if !kind.is_build_fact() {
                for word in [head, length, body.base] {
                    content.update(&word.to_le_bytes());
                }
                content.update(&body.bytes);
            }
            offset += body.bytes.len().next_multiple_of(8);
        }
        for (_, _, body) in &self.sections {
            file.extend_from_slice(&body.bytes);
            file.resize(file.len().next_multiple_of(8), 0);
        }
        file[VERSION].copy_from_slice(&content.digest128().to_le_bytes());
        seal(&mut file);
        file
    }
}

/// Writes the checksum over everything behind it.
pub(super) fn seal(file: &mut [u8]) {
    let checksum = xxh3_128(&file[CHECKSUM.end..]);
    file[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
}
