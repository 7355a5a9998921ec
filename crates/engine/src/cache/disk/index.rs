//! The index: what lies where, as units of 64 bytes that are only ever appended.
//!
//! The first unit is a header. Each one behind it says where a payload lies, or that it was forgotten; later ones win.
//! Every unit has a checksum, so that a torn end is noticed. An index with too much that is out of date is written
//! anew under another name and put in place by `rename`.

use super::segment::{Entry, FORMAT, UNIT, Unit, is_sealed, seal, u32_at, u64_at, u128_at};
use forebay_core::cache::{PayloadId, Rank};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const INDEX_MAGIC: &[u8; 8] = b"FBCINDX\n";
/// Sets checksums of the index apart from those of segments.
const SEED: u64 = 0x1dec;
/// Bytes read at once.
const CHUNK: usize = 1 << 20;

/// One line of the index: where a payload lies, or `None` when it was forgotten.
pub(super) type Line = (PayloadId, Option<Entry>);

/// The first unit. Segments get numbers from `next_segment` on, so that none is used twice.
pub(super) fn index_head(next_segment: u32) -> Unit {
    let mut head = [0; UNIT as usize];
    head[..8].copy_from_slice(INDEX_MAGIC);
    head[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    head[12..16].copy_from_slice(&next_segment.to_le_bytes());
    seal(&mut head, SEED);
    head
}

/// Reads the first unit: the next segment's number. `None` when it is no index of ours.
pub(super) fn read_index_head(head: &Unit) -> Option<u32> {
    let ours = &head[..8] == INDEX_MAGIC && u32_at(head, 8) == FORMAT && is_sealed(head, SEED);
    ours.then(|| u32_at(head, 12))
}

/// One line as a unit. Forgotten payloads have segment 0.
pub(super) fn write_line(id: PayloadId, entry: Option<&Entry>) -> Unit {
    let mut line = [0; UNIT as usize];
    line[..16].copy_from_slice(&id.0.to_le_bytes());
    if let Some(entry) = entry {
        line[16..24].copy_from_slice(&entry.rank.0.to_le_bytes());
        line[24..32].copy_from_slice(&entry.group.to_le_bytes());
        line[32..40].copy_from_slice(&entry.hash.to_le_bytes());
        line[40..44].copy_from_slice(&entry.length.to_le_bytes());
        line[44..48].copy_from_slice(&entry.segment.to_le_bytes());
        line[48..52].copy_from_slice(&entry.at.to_le_bytes());
        line[52..56].copy_from_slice(&entry.seconds.to_le_bytes());
    }
    seal(&mut line, SEED);
    line
}

/// Reads one line; `None` when its checksum is wrong.
pub(super) fn read_line(line: &Unit) -> Option<Line> {
    if !is_sealed(line, SEED) {
        return None;
    }
    let entry = Entry {
        rank: Rank(u64_at(line, 16)),
        group: u64_at(line, 24),
        hash: u64_at(line, 32),
        length: u32_at(line, 40),
        segment: u32_at(line, 44),
        at: u32_at(line, 48),
        seconds: u32_at(line, 52),
    };
    // A record lies behind the segment's header.
    let kept = entry.segment > 0 && entry.at > 0;
    Some((PayloadId(u128_at(line, 0)), kept.then_some(entry)))
}

/// What reading an index came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    /// The next segment's number; `None` when the header is not sound.
    pub(super) next_segment: Option<u32>,
    /// First byte behind the last sound line.
    pub(super) end: u64,
    /// Lines that are not sound with sound ones behind them: not a torn end, but damage.
    pub(super) holes: u64,
}

/// Reads an index of `length` bytes from `from` on (0 includes the header) and calls `found` for each sound line.
pub(super) fn read(
    from: u64,
    length: u64,
    mut read_at: impl FnMut(&mut [u8], u64) -> io::Result<()>,
    mut found: impl FnMut(Line),
) -> io::Result<Extent> {
    let whole = length / UNIT * UNIT;
    let mut extent = Extent { end: from, ..Extent::default() };
    let (mut at, mut bad) = (from, 0);
    let mut chunk = vec![0; CHUNK.min(whole.saturating_sub(from) as usize)];
    while at < whole {
        let part = (whole - at).min(CHUNK as u64) as usize;
        read_at(&mut chunk[..part], at)?;
        for unit in chunk[..part].as_chunks().0 {
            if at == 0 {
                extent.next_segment = read_index_head(unit);
                if extent.next_segment.is_none() {
                    return Ok(extent);
                }
                extent.end = UNIT;
            } else if let Some(line) = read_line(unit) {
                extent.holes += bad;
                (bad, extent.end) = (0, at + UNIT);
                found(line);
            } else {
                bad += 1;
            }
            at += UNIT;
        }
    }
    Ok(extent)
}

/// As [`read`], from a file as long as it is now.
pub(super) fn read_file(file: &File, from: u64, found: impl FnMut(Line)) -> io::Result<Extent> {
    read(from, file.metadata()?.len(), |into, at| file.read_exact_at(into, at), found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(segment: u32) -> Entry {
        Entry { rank: Rank(1), group: 2, hash: 3, length: 4, segment, at: 5, seconds: 6 }
    }

    fn read_bytes(bytes: &[u8]) -> (Extent, Vec<Line>) {
        let mut lines = Vec::new();
        let read_at = |into: &mut [u8], at: u64| {
            into.copy_from_slice(&bytes[at as usize..at as usize + into.len()]);
            Ok(())
        };
        let extent = read(0, bytes.len() as u64, read_at, |line| lines.push(line)).unwrap();
        (extent, lines)
    }

    #[test]
    fn lines_are_read_again_up_to_a_torn_end_and_past_damage() {
        let mut bytes = index_head(9).to_vec();
        let lines = [(PayloadId(1), Some(entry(1))), (PayloadId(2), None), (PayloadId(3), Some(entry(2)))];
        for (id, entry) in &lines {
            bytes.extend(write_line(*id, entry.as_ref()));
        }
        let all = Extent { next_segment: Some(9), end: 256, holes: 0 };
        assert_eq!(read_bytes(&bytes), (all, lines.to_vec()));
        for cut in 64..bytes.len() {
            let (extent, found) = read_bytes(&bytes[..cut]);
            assert_eq!((extent.end, extent.holes), (cut as u64 / 64 * 64, 0));
            assert_eq!(found, lines[..cut / 64 - 1]);
        }
        for at in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[at] ^= 0x10;
            let (extent, found) = read_bytes(&broken);
            match at / 64 {
                0 => assert_eq!((extent.next_segment, found.len()), (None, 0)),
                3 => assert_eq!((extent.end, extent.holes, found.len()), (192, 0, 2)),
                _ => assert_eq!((extent.end, extent.holes, found.len()), (256, 1, 2)),
            }
        }
    }
}
