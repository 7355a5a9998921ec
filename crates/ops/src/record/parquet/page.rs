//! Pages: the head of each, its checksum, what it is compressed by, its levels and its values.

use super::packed::{cut_off, hybrid};
use super::schema::Leaf;
use super::thrift::{CUT_OFF, FALSE, Reader, STRUCT, TRUE};
use super::values::{self, PageValues, Values};
use crc_fast::CrcAlgorithm;
use flate2::read::MultiGzDecoder;
use forebay_core::{Error, Result};
use std::borrow::Cow;
use std::io::Read;
use std::sync::Arc;

/// The largest page that is read, also once it is expanded.
pub const MAX_PAGE_BYTES: usize = 256 << 20;

/// The longest head of a page: statistics may hold values.
pub const MAX_HEAD_BYTES: usize = 16 << 20;

/// Most values of a page.
const MAX_PAGE_VALUES: u64 = 1 << 25;

/// What a page says about itself.
#[derive(Debug, Default)]
pub struct Head {
    /// Bytes of the head itself.
    pub length: usize,
    /// Bytes that follow it.
    pub body: usize,
    kind: i64,
    expanded: usize,
    checksum: Option<u32>,
    values: usize,
    encoding: i64,
    /// Bytes of levels that stand before what is compressed, in pages of the second kind.
    levels: Option<(usize, usize)>,
    is_compressed: bool,
}

impl Head {
    /// The head that `bytes` begin with; `None` when more bytes are needed.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>> {
        match Self::read(bytes) {
            Err(error) if error.message() == CUT_OFF && bytes.len() < MAX_HEAD_BYTES => Ok(None),
            other => other.map(Some),
        }
    }

    /// Whether it is a dictionary's page.
    pub fn is_dictionary(&self) -> bool {
        self.kind == 2
    }

    /// Whether it holds values of rows. Other pages are passed over.
    pub fn has_rows(&self) -> bool {
        matches!(self.kind, 0 | 3)
    }

    fn read(bytes: &[u8]) -> Result<Self> {
        let mut head = Self { is_compressed: true, ..Self::default() };
        let (mut body, mut expanded, mut values) = (0, 0, 0);
        let mut reader = Reader::new(bytes);
        reader.fields(|reader, number, kind| {
            match (number, kind) {
                (1, _) => head.kind = reader.int()?,
                (2, _) => expanded = reader.count()?,
                (3, _) => body = reader.count()?,
                (4, _) => head.checksum = Some(reader.int()? as u32),
                (5 | 7, STRUCT) => reader.fields(|reader, number, _| {
                    match number {
                        1 => values = reader.count()?,
                        2 => head.encoding = reader.int()?,
                        _ => return Ok(false),
                    }
                    Ok(true)
                })?,
                (8, STRUCT) => {
                    let mut levels = (0, 0);
                    reader.fields(|reader, number, kind| {
                        match (number, kind) {
                            (1, _) => values = reader.count()?,
                            (4, _) => head.encoding = reader.int()?,
                            (5, _) => levels.1 = reader.count()?,
                            (6, _) => levels.0 = reader.count()?,
                            (7, TRUE | FALSE) => head.is_compressed = kind == TRUE,
                            _ => return Ok(false),
                        }
                        Ok(true)
                    })?;
                    let size = |length| usize::try_from(length).unwrap_or(usize::MAX);
                    head.levels = Some((size(levels.0), size(levels.1)));
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        head.length = reader.at();
        if body.max(expanded) > MAX_PAGE_BYTES as u64 || values > MAX_PAGE_VALUES {
            let why = format!("a page has {values} values in {} bytes", body.max(expanded));
            let most = format!("at most {MAX_PAGE_VALUES} values in {MAX_PAGE_BYTES} bytes are read");
            return Err(Error::exhausted(format!("{why}, {most}")).with_hint("write smaller pages"));
        }
        (head.body, head.expanded, head.values) = (body as usize, expanded as usize, values as usize);
        Ok(head)
    }
}

/// How the pages of a chunk are read.
#[derive(Debug)]
pub struct Pages {
    leaf: Leaf,
    codec: u8,
    dictionary: Option<Arc<Values>>,
}

/// Levels and values of one page.
#[derive(Debug)]
pub(super) struct Page {
    /// For each value, how many lists it goes on in; empty when there are none.
    pub(super) repeated: Vec<u32>,
    /// For each value, how much of it is there; empty when all are.
    pub(super) defined: Vec<u32>,
    pub(super) values: PageValues,
    pub(super) count: usize,
}

impl Pages {
    /// For the chunks of a column. `codec` is Parquet's number of what they are compressed by.
    pub fn new(leaf: Leaf, codec: u8) -> Result<Self> {
        match codec {
            0 | 1 | 2 | 5 | 6 | 7 => Ok(Self { leaf, codec, dictionary: None }),
            3 => Err(refused_codec("LZO")),
            4 => Err(refused_codec("Brotli")),
            other => Err(refused_codec(&other.to_string())),
        }
    }

    /// The column.
    pub fn leaf(&self) -> &Leaf {
        &self.leaf
    }

    /// Takes the dictionary that later pages need.
    pub fn read_dictionary(&mut self, head: &Head, body: &[u8]) -> Result<()> {
        check(head, body)?;
        let bytes = self.expanded(body, head.expanded)?;
        self.dictionary = Some(Arc::new(values::plain(self.leaf.stored, &bytes, head.values)?));
        Ok(())
    }

    pub(super) fn read(&self, head: &Head, body: &[u8]) -> Result<Page> {
        check(head, body)?;
        let (lists, defined) = (self.leaf.lists.len() as u32, u32::from(self.leaf.defined));
        let (mut page_repeated, mut page_defined) = (Vec::new(), Vec::new());
        let mut whole = Cow::Borrowed(body);
        let mut at = 0;
        let levels = |most: u32, to: &mut Vec<u32>, bytes: &[u8]| -> Result<()> {
            if most > 0 {
                hybrid(bytes, u32::BITS - most.leading_zeros(), head.values, to)?;
            }
            Ok(())
        };
        if let Some((of_lists, of_values)) = head.levels {
            let first = body.get(..of_lists).ok_or_else(cut_off)?;
            let second = of_lists.checked_add(of_values).and_then(|end| body.get(of_lists..end));
            let second = second.ok_or_else(cut_off)?;
            levels(lists, &mut page_repeated, first)?;
            levels(defined, &mut page_defined, second)?;
            let before = of_lists + of_values;
            whole = Cow::Borrowed(&body[before..]);
            if head.is_compressed {
                let expanded = head.expanded.checked_sub(before).ok_or_else(cut_off)?;
                whole = self.expanded(&body[before..], expanded)?;
            }
        } else {
            if head.is_compressed {
                whole = self.expanded(body, head.expanded)?;
            }
            for (most, to) in [(lists, &mut page_repeated), (defined, &mut page_defined)] {
                if most > 0 {
                    let length = whole.get(at..).and_then(<[u8]>::first_chunk).ok_or_else(cut_off)?;
                    let start = at + 4;
                    at = start.checked_add(u32::from_le_bytes(*length) as usize).ok_or_else(cut_off)?;
                    levels(most, to, whole.get(start..at).ok_or_else(cut_off)?)?;
                }
            }
        }
        if page_defined.iter().any(|level| *level > defined)
            || page_repeated.iter().any(|level| *level > lists)
        {
            return Err(Error::corrupt("a level is higher than the column has"));
        }
        let there = match page_defined.as_slice() {
            [] => head.values,
            levels => levels.iter().filter(|level| **level == defined).count(),
        };
        let bytes = whole.get(at..).ok_or_else(cut_off)?;
        let values = values::read(head.encoding, self.leaf.stored, bytes, there, self.dictionary.as_ref())?;
        if values.len() < there {
            return Err(cut_off());
        }
        Ok(Page { repeated: page_repeated, defined: page_defined, values, count: head.values })
    }

    /// What was compressed, which has to have the told length.
    fn expanded<'a>(&self, bytes: &'a [u8], length: usize) -> Result<Cow<'a, [u8]>> {
        if length > MAX_PAGE_BYTES {
            return Err(Error::exhausted(format!("a page expands to {length} bytes")));
        }
        let wrong = || Error::corrupt("what a page is compressed by is damaged");
        let made = match self.codec {
            0 => return Ok(Cow::Borrowed(bytes)),
            _ if length == 0 => Vec::new(),
            1 => {
                let told = snap::raw::decompress_len(bytes).map_err(|cause| wrong().with_source(cause))?;
                if told != length {
                    return Err(wrong());
                }
                snap::raw::Decoder::new().decompress_vec(bytes).map_err(|cause| wrong().with_source(cause))?
            }
            2 => {
                let mut made = Vec::with_capacity(length);
                let mut from = MultiGzDecoder::new(bytes).take(length as u64 + 1);
                from.read_to_end(&mut made).map_err(|cause| wrong().with_source(cause))?;
                made
            }
            5 => framed_lz4(bytes, length).or_else(|_| lz4(bytes, length))?,
            6 => zstd::bulk::decompress(bytes, length).map_err(|cause| wrong().with_source(cause))?,
            _ => lz4(bytes, length)?,
        };
        if made.len() != length {
            return Err(wrong());
        }
        Ok(Cow::Owned(made))
    }
}

fn lz4(bytes: &[u8], length: usize) -> Result<Vec<u8>> {
    let mut made = vec![0; length];
    let written = lz4_flex::block::decompress_into(bytes, &mut made)
        .map_err(|cause| Error::corrupt("what a page is compressed by is damaged").with_source(cause))?;
    made.truncate(written);
    Ok(made)
}

/// LZ4 as Hadoop frames it: both lengths before each block, the larger end first.
fn framed_lz4(mut bytes: &[u8], length: usize) -> Result<Vec<u8>> {
    let mut made = Vec::new();
    while !bytes.is_empty() {
        let head = bytes.first_chunk::<8>().ok_or_else(cut_off)?;
        let [expanded, packed] = [&head[..4], &head[4..]]
            .map(|word| word.iter().fold(0usize, |all, byte| all << 8 | usize::from(*byte)));
        let end = packed.checked_add(8).filter(|end| *end <= bytes.len()).ok_or_else(cut_off)?;
        if made.len() + expanded > length {
            return Err(cut_off());
        }
        made.extend(lz4(&bytes[8..end], expanded)?);
        bytes = &bytes[end..];
    }
    Ok(made)
}

fn check(head: &Head, body: &[u8]) -> Result<()> {
    if body.len() != head.body {
        return Err(cut_off());
    }
    let Some(told) = head.checksum else { return Ok(()) };
    let found = crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, body) as u32;
    if found != told {
        return Err(Error::corrupt(format!("the CRC-32 of a page is {found:08x}, its head says {told:08x}")));
    }
    Ok(())
}

fn refused_codec(name: &str) -> Error {
    Error::unsupported(format!("it is compressed by {name}"))
        .with_hint("write it with Snappy, Zstandard, gzip, LZ4 or without compression")
}
