//! Files that tests write: pages of Ogg and frames of FLAC with right checksums, whatever is in them.

pub(crate) use super::compressed::DECODED;
use super::ogg::{Reader, checksum};
use bytes::Bytes;

/// All packets of an Ogg file, headers and all.
pub(crate) fn packets(payload: &Bytes) -> Vec<Vec<u8>> {
    let mut reader = Reader::new(payload.clone());
    let pages = std::iter::from_fn(|| reader.next_page().unwrap());
    pages.flat_map(|page| page.packets).map(|packet| packet.to_vec()).collect()
}

/// Writes pages of Ogg.
#[derive(Default)]
pub(crate) struct Ogg {
    pub(crate) made: Vec<u8>,
    /// Number of the next page.
    pub(crate) sequence: u32,
}

impl Ogg {
    pub(crate) fn page(&mut self, flags: u8, granule: u64, table: &[u8], body: &[u8]) {
        let mut page = [b"OggS\0", &[flags][..], &granule.to_le_bytes(), &7u32.to_le_bytes()].concat();
        page.extend(self.sequence.to_le_bytes());
        page.extend([0; 4]);
        page.push(u8::try_from(table.len()).unwrap());
        page.extend_from_slice(table);
        page.extend_from_slice(body);
        let sum = checksum(&page);
        page[22..26].copy_from_slice(&sum.to_le_bytes());
        self.made.extend(page);
        self.sequence += 1;
    }

    /// A page of whole packets.
    pub(crate) fn packets(&mut self, flags: u8, granule: u64, packets: &[Vec<u8>]) {
        let table: Vec<u8> = packets.iter().flat_map(|packet| laces(packet.len())).collect();
        self.page(flags, granule, &table, &packets.concat());
    }
}

/// How a page writes the length of a packet.
pub(crate) fn laces(len: usize) -> Vec<u8> {
    let mut laces = vec![255; len / 255];
    laces.push((len % 255) as u8);
    laces
}

/// Samples of a block of [`flac`].
pub(crate) const FLAC_BLOCK: usize = 4096;

/// One channel of 16 bits at 8 kHz in frames of [`FLAC_BLOCK`] samples.
pub(crate) fn flac(samples: &[i16]) -> Bytes {
    let mut made = b"fLaC\x80\0\0\x22\x10\0\x10\0\0\0\0\0\0\0".to_vec();
    made.extend((8000u64 << 44 | 15 << 36 | samples.len() as u64).to_be_bytes());
    made.extend([0; 16]);
    for (number, block) in samples.chunks_exact(FLAC_BLOCK).enumerate() {
        let mut frame = vec![0xFF, 0xF8, 0xC4, 0x08];
        frame.extend(char::from_u32(number as u32).unwrap().to_string().bytes());
        frame.push(rest(&frame, 0x0700) as u8);
        // The samples as they are.
        frame.push(2);
        frame.extend(block.iter().flat_map(|sample| sample.to_be_bytes()));
        frame.extend((rest(&frame, 0x8005) as u16).to_be_bytes());
        made.extend(frame);
    }
    made.into()
}

/// What remains of a division by a polynomial of 16 bits, or of 8 in the upper ones.
fn rest(bytes: &[u8], polynomial: u16) -> u16 {
    let remains = bytes.iter().fold(0u16, |mut rest, byte| {
        rest ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            rest = rest << 1 ^ if rest >> 15 == 1 { polynomial } else { 0 };
        }
        rest
    });
    if polynomial.trailing_zeros() >= 8 { remains >> 8 } else { remains }
}
