//! The footer of a Parquet file: its columns, its row groups, and where the chunks of each column lie.
//!
//! ```text
//! "PAR1"   column chunks of the first row group, of the second ...   footer   u32 length of the footer   "PAR1"
//! ```

use super::schema::{self, Element, Leaf};
use super::thrift::{LIST, Reader, STRUCT};
use forebay_core::{Error, Result};

/// Bytes behind the footer: its length and the mark.
pub const TAIL_BYTES: u64 = 8;

/// The longest footer that is read.
pub const MAX_FOOTER_BYTES: u64 = 64 << 20;

/// Most row groups of a file.
const MAX_GROUPS: usize = 1 << 20;

/// What a file says about itself.
#[derive(Debug, Default)]
pub struct Footer {
    /// Rows in all groups.
    pub rows: u64,
    /// The columns, in the order of their chunks.
    pub leaves: Vec<Leaf>,
    /// The row groups.
    pub groups: Vec<Group>,
    /// What the writer of the file noted under `huggingface`: kinds of columns and names of classes.
    pub notes: Option<String>,
}

/// A row group.
#[derive(Debug, Default)]
pub struct Group {
    /// Its rows.
    pub rows: u64,
    /// One chunk for each column.
    pub chunks: Vec<Chunk>,
}

/// The values of one column in one row group.
#[derive(Debug, Default)]
pub struct Chunk {
    /// How its pages are compressed, by Parquet's number.
    pub codec: u8,
    /// Values, nulls included.
    pub values: u64,
    /// First byte: of the dictionary's page if there is one.
    pub start: u64,
    /// Byte behind the last page.
    pub end: u64,
    /// What is told about the values.
    pub statistics: Statistics,
}

/// What a file tells about the values of a chunk.
#[derive(Debug, Default)]
pub struct Statistics {
    /// How many are null.
    pub nulls: Option<u64>,
    /// The smallest, as it is stored.
    pub smallest: Option<Vec<u8>>,
    /// The largest.
    pub largest: Option<Vec<u8>>,
}

/// Bytes of the footer, from the last [`TAIL_BYTES`] of a file of `size` bytes.
pub fn length(tail: &[u8], size: u64) -> Result<u64> {
    let (length, mark) = match tail {
        [a, b, c, d, mark @ ..] => (u64::from(u32::from_le_bytes([*a, *b, *c, *d])), mark),
        _ => return Err(Error::corrupt("truncated, or no Parquet file: it is too short")),
    };
    match mark {
        b"PAR1" => {}
        b"PARE" => {
            return Err(
                Error::unsupported("its footer is encrypted").with_hint("write it without encryption")
            );
        }
        _ => return Err(Error::corrupt("truncated, or no Parquet file: its last bytes are not `PAR1`")),
    }
    if length > MAX_FOOTER_BYTES {
        let why = format!("its footer has {length} bytes, at most {MAX_FOOTER_BYTES} are read");
        return Err(Error::exhausted(why).with_hint("write larger row groups, or fewer columns"));
    }
    if length + TAIL_BYTES + 4 > size {
        return Err(Error::corrupt(format!("its footer has {length} bytes, the file {size}")));
    }
    Ok(length)
}

/// Reads a footer. `size` is that of the file: chunks lie inside of it.
pub fn parse(bytes: &[u8], size: u64) -> Result<Footer> {
    let mut footer = Footer::default();
    let mut schema = Vec::new();
    Reader::new(bytes).fields(|reader, number, kind| match (number, kind) {
        (2, LIST) => {
            reader.structs(|reader| {
                schema.push(Element::read(reader)?);
                Ok(())
            })?;
            Ok(true)
        }
        (3, _) => {
            footer.rows = reader.count()?;
            Ok(true)
        }
        (4, LIST) => {
            reader.structs(|reader| {
                if footer.groups.len() == MAX_GROUPS {
                    return Err(Error::exhausted(format!("it has more than {MAX_GROUPS} row groups")));
                }
                footer.groups.push(group(reader)?);
                Ok(())
            })?;
            Ok(true)
        }
        (5, LIST) => {
            reader.structs(|reader| {
                let (mut key, mut value) = (&[][..], &[][..]);
                reader.fields(|reader, number, _| {
                    match number {
                        1 => key = reader.binary()?,
                        2 => value = reader.binary()?,
                        _ => return Ok(false),
                    }
                    Ok(true)
                })?;
                if key == b"huggingface" {
                    footer.notes = Some(String::from_utf8_lossy(value).into_owned());
                }
                Ok(())
            })?;
            Ok(true)
        }
        (8, STRUCT) => Err(Error::unsupported("its columns are encrypted")),
        _ => Ok(false),
    })?;
    footer.leaves = schema::leaves(&schema)?;
    check(&footer, size)?;
    Ok(footer)
}

fn check(footer: &Footer, size: u64) -> Result<()> {
    let rows = footer.groups.iter().try_fold(0u64, |sum, group| sum.checked_add(group.rows));
    if rows != Some(footer.rows) {
        return Err(Error::corrupt(format!("it tells {} rows, and its row groups others", footer.rows)));
    }
    // A column of one value costs next to nothing, but not for ever.
    let most = (1u64 << 24).saturating_add(size.saturating_mul(64));
    if footer.rows > most {
        let why = format!("it tells {} rows in {size} bytes, at most {most} are read", footer.rows);
        return Err(Error::exhausted(why));
    }
    for (number, group) in footer.groups.iter().enumerate() {
        if group.chunks.len() != footer.leaves.len() {
            let (chunks, leaves) = (group.chunks.len(), footer.leaves.len());
            let why = format!("row group {number} has {chunks} column chunks, the file has {leaves} columns");
            return Err(Error::corrupt(why));
        }
        for (chunk, leaf) in group.chunks.iter().zip(&footer.leaves) {
            if chunk.end > size || chunk.start > chunk.end {
                let name = &leaf.name;
                return Err(Error::corrupt(format!(
                    "column `{name}` of row group {number} lies outside of the file"
                )));
            }
        }
    }
    Ok(())
}

fn group(reader: &mut Reader<'_>) -> Result<Group> {
    let mut found = Group::default();
    reader.fields(|reader, number, kind| {
        match (number, kind) {
            (1, LIST) => reader.structs(|reader| {
                found.chunks.push(chunk(reader)?);
                Ok(())
            })?,
            (3, _) => found.rows = reader.count()?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(found)
}

fn chunk(reader: &mut Reader<'_>) -> Result<Chunk> {
    let (mut found, mut elsewhere, mut described) = (Chunk::default(), false, false);
    reader.fields(|reader, number, kind| {
        match (number, kind) {
            (1, _) => elsewhere = !reader.binary()?.is_empty(),
            (3, STRUCT) => {
                found = metadata(reader)?;
                described = true;
            }
            (8, STRUCT) => return Err(Error::unsupported("its columns are encrypted")),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if elsewhere {
        return Err(Error::unsupported("its columns lie in other files"));
    }
    if !described {
        return Err(Error::corrupt("a column chunk is not described"));
    }
    Ok(found)
}

fn metadata(reader: &mut Reader<'_>) -> Result<Chunk> {
    let (mut found, mut length) = (Chunk::default(), 0);
    let (mut data, mut dictionary) = (0, None);
    reader.fields(|reader, number, kind| {
        match (number, kind) {
            (4, _) => found.codec = u8::try_from(reader.int()?).unwrap_or(u8::MAX),
            (5, _) => found.values = reader.count()?,
            (7, _) => length = reader.count()?,
            (9, _) => data = reader.count()?,
            (11, _) => dictionary = Some(reader.count()?),
            (12, STRUCT) => found.statistics = statistics(reader)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    // Some writers note a dictionary at byte 0 when there is none.
    found.start = dictionary.filter(|place| (1..data).contains(place)).unwrap_or(data);
    found.end = found.start.checked_add(length).ok_or_else(|| Error::corrupt("a column chunk has no end"))?;
    Ok(found)
}

fn statistics(reader: &mut Reader<'_>) -> Result<Statistics> {
    let mut found = Statistics::default();
    reader.fields(|reader, number, kind| {
        match (number, kind) {
            (3, _) => found.nulls = Some(reader.count()?),
            // Text may be long, and only numbers are compared.
            (5, _) => {
                found.largest = Some(reader.binary()?).filter(|value| value.len() <= 8).map(<[u8]>::to_vec);
            }
            (6, _) => {
                found.smallest = Some(reader.binary()?).filter(|value| value.len() <= 8).map(<[u8]>::to_vec);
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(found)
}
