//! Pages of an Ogg file of one stream, and the packets that end on each.
//!
//! A damaged page, a missing one and a second stream are errors, because what follows would be at another place than it
//! seems. A file that was cut off ends with its last whole page.

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};
use forebay_core::{Error, Result};

/// First bytes of every page.
const SIGNATURE: &[u8; 4] = b"OggS";
/// Bytes of a page before the table of its segments.
const HEAD: usize = 27;
/// Where the checksum lies, which is taken with zeros in its place.
const CHECKSUM: usize = 22;

/// The page goes on with a packet of the one before.
const CONTINUES: u8 = 1;
/// The page is the first of a stream.
const BEGINS: u8 = 2;
/// The page is the last of its stream.
const ENDS: u8 = 4;

/// Reads page after page.
#[derive(Clone)]
pub(super) struct Reader {
    payload: Bytes,
    /// Where the next page begins.
    at: usize,
    /// Stream and number of the page before.
    before: Option<(u32, u32)>,
    /// The beginning of a packet that ends on a later page.
    open: Option<Vec<u8>>,
    is_cut: bool,
    is_over: bool,
}

/// What a page brings.
pub(super) struct Page {
    /// Packets that end on it.
    pub(super) packets: Vec<Bytes>,
    /// Place in the stream where the last of them ends, in units of the codec; none when none ends here.
    pub(super) granule: Option<u64>,
    /// Whether the writer said that nothing follows.
    pub(super) is_last: bool,
}

/// The first packet of the first page, which names the codec.
pub(super) fn first_packet(bytes: &[u8]) -> Option<&[u8]> {
    let start = HEAD + usize::from(*bytes.strip_prefix(SIGNATURE)?.get(HEAD - 1 - SIGNATURE.len())?);
    bytes.get(start..)
}

impl Reader {
    /// At the first page.
    pub(super) fn new(payload: Bytes) -> Self {
        Self { payload, at: 0, before: None, open: None, is_cut: false, is_over: false }
    }

    /// Lets the next page have any number: streams that are recorded in the midst of their time begin with the headers
    /// of long ago.
    pub(super) fn cut(&mut self) {
        self.is_cut = true;
    }

    /// The next page, unless the file ends.
    pub(super) fn next_page(&mut self) -> Result<Option<Page>> {
        let at = self.at;
        let place = |why: &str| format!("decode ogg: the page at byte {at} {why}");
        let rest = self.payload.slice(at..);
        if self.is_over {
            // What is no Ogg may lie behind it, such as tags of another format.
            return if rest.starts_with(SIGNATURE) {
                Err(Error::unsupported(place("begins a second stream")))
            } else {
                Ok(None)
            };
        }
        let known = rest.len().min(SIGNATURE.len());
        if rest[..known] != SIGNATURE[..known] {
            return Err(Error::corrupt(format!("decode ogg: no page begins at byte {at}")));
        }
        let Some(head) = rest.first_chunk::<HEAD>() else { return Ok(None) };
        let Some(table) = rest.get(HEAD..HEAD + usize::from(head[HEAD - 1])) else { return Ok(None) };
        let (start, len) = (HEAD + table.len(), table.iter().map(|len| usize::from(*len)).sum::<usize>());
        if rest.len() < start + len {
            return Ok(None);
        }
        if checksum(&rest[..start + len]) != number(head, CHECKSUM) {
            return Err(Error::corrupt(place("is damaged: its checksum is another")));
        }
        let (version, flags) = (head[4], head[5]);
        if version != 0 {
            return Err(Error::unsupported(place(&format!("has version {version}"))));
        }
        let (stream, sequence) = (number(head, 14), number(head, 18));
        match self.before {
            None if flags & BEGINS == 0 => return Err(Error::corrupt(place("is not the first of a stream"))),
            Some(_) if flags & BEGINS != 0 => {
                return Err(Error::unsupported(place("begins a second stream")));
            }
            Some((other, _)) if other != stream => {
                return Err(Error::unsupported(place("is of a second stream")));
            }
            Some((_, before)) if before.wrapping_add(1) != sequence && !self.is_cut => {
                return Err(Error::corrupt(place(&format!("is number {sequence}, after number {before}"))));
            }
            _ => {}
        }
        if (flags & CONTINUES != 0) != self.open.is_some() {
            return Err(Error::corrupt(place("does not go on where the one before ended")));
        }

        let mut packets = Vec::new();
        let (mut from, mut to) = (start, start);
        for len in table {
            to += usize::from(*len);
            if *len < u8::MAX {
                packets.push(match self.open.take() {
                    Some(mut begun) => {
                        begun.extend_from_slice(&rest[from..to]);
                        begun.into()
                    }
                    None => rest.slice(from..to),
                });
                from = to;
            }
        }
        if from < to {
            self.open.get_or_insert_default().extend_from_slice(&rest[from..to]);
        }
        self.before = Some((stream, sequence));
        (self.is_cut, self.is_over) = (false, flags & ENDS != 0);
        self.at += to;
        let granule = u64::from(number(head, 6)) | u64::from(number(head, 10)) << 32;
        // No place is negative, and -1 stands for none.
        Ok(Some(Page { packets, granule: Some(granule).filter(|at| at >> 63 == 0), is_last: self.is_over }))
    }
}

fn number(head: &[u8; HEAD], at: usize) -> u32 {
    u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
}

/// The checksum of a page: that of `cksum`, not inverted.
pub(super) fn checksum(page: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Cksum);
    for part in [&page[..CHECKSUM], &[0; 4], &page[CHECKSUM + 4..]] {
        digest.update(part);
    }
    !(digest.finalize() as u32)
}
