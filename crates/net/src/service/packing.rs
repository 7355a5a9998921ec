//! Bodies made smaller: chunks of at most 1 MiB, `u32 packed length | u32 length | bytes`, so that a reader needs room
//! for one chunk only. A chunk that does not shrink crosses as it is, with both lengths equal.

use super::message::Packing;
use forebay_core::{Error, Result};
use std::io::Read;

/// Bytes of a chunk before it is packed.
pub(crate) const CHUNK: usize = 1 << 20;

/// Bodies between two looks at whether packing has become worth it.
const LOOK_EVERY: u64 = 32;

/// Most bytes that a body of `bytes` takes when it is packed.
pub(crate) fn most_packed(bytes: u64) -> u64 {
    bytes.saturating_add(bytes.div_ceil(CHUNK as u64).saturating_mul(8))
}

/// Whether `auto` packs the next body.
#[derive(Debug, Default)]
pub(crate) struct Auto {
    bodies: u64,
    shrinks: bool,
}

impl Auto {
    /// Asked once for each body that is not empty.
    pub(crate) fn packs(&mut self) -> bool {
        let look = self.bodies.is_multiple_of(LOOK_EVERY);
        self.bodies += 1;
        look || self.shrinks
    }

    /// What became of a body that was packed. A tenth smaller is worth the time.
    pub(crate) fn packed(&mut self, bytes: u64, packed: u64) -> bool {
        self.shrinks = u128::from(packed) * 10 <= u128::from(bytes) * 9;
        self.shrinks
    }
}

/// Packs the bodies of one connection.
#[derive(Default)]
pub(crate) struct Packer {
    zstd: Option<zstd::bulk::Compressor<'static>>,
    gathered: Vec<u8>,
    packed: Vec<u8>,
}

impl Packer {
    /// The packed body, until the next one.
    pub(crate) fn pack<'a>(
        &mut self,
        packing: Packing,
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<&[u8]> {
        self.packed.clear();
        self.gathered.clear();
        for mut piece in pieces {
            while !piece.is_empty() {
                if self.gathered.is_empty() && piece.len() >= CHUNK {
                    let (chunk, rest) = piece.split_at(CHUNK);
                    chunk_into(&mut self.zstd, packing, chunk, &mut self.packed)?;
                    piece = rest;
                } else {
                    let (more, rest) = piece.split_at(piece.len().min(CHUNK - self.gathered.len()));
                    self.gathered.extend_from_slice(more);
                    piece = rest;
                    if self.gathered.len() == CHUNK {
                        chunk_into(&mut self.zstd, packing, &self.gathered, &mut self.packed)?;
                        self.gathered.clear();
                    }
                }
            }
        }
        if !self.gathered.is_empty() {
            chunk_into(&mut self.zstd, packing, &self.gathered, &mut self.packed)?;
        }
        Ok(&self.packed)
    }
}

fn chunk_into(
    zstd: &mut Option<zstd::bulk::Compressor<'static>>,
    packing: Packing,
    chunk: &[u8],
    packed: &mut Vec<u8>,
) -> Result<()> {
    let fail = |cause| Error::internal("pack a batch").with_source(cause);
    let start = packed.len() + 8;
    // Room for the chunk as it is: what needs more has not shrunk.
    packed.resize(start + chunk.len(), 0);
    let target = &mut packed[start..];
    let shrunk = match packing {
        Packing::Zstd => {
            if zstd.is_none() {
                *zstd = Some(zstd::bulk::Compressor::new(1).map_err(fail)?);
            }
            zstd.as_mut().and_then(|zstd| zstd.compress_to_buffer(chunk, target).ok())
        }
        Packing::Lz4 | Packing::Auto => {
            // The compressor wants room for the worst case, which is more than is worth keeping.
            let mut room = vec![0; lz4_flex::block::get_maximum_output_size(chunk.len())];
            let count = lz4_flex::block::compress_into(chunk, &mut room).ok();
            count.filter(|count| *count < chunk.len()).inspect(|count| {
                target[..*count].copy_from_slice(&room[..*count]);
            })
        }
        Packing::None => None,
    };
    let count = shrunk.filter(|count| *count < chunk.len()).unwrap_or_else(|| {
        target.copy_from_slice(chunk);
        chunk.len()
    });
    packed.truncate(start + count);
    packed[start - 8..start - 4].copy_from_slice(&(count as u32).to_le_bytes());
    packed[start - 4..start].copy_from_slice(&(chunk.len() as u32).to_le_bytes());
    Ok(())
}

/// Reads a body out of its chunks. Nonsense is an error of kind `InvalidData`.
pub(crate) struct Unpack<R> {
    from: R,
    packing: Packing,
    /// Bytes of the packed body that were not read yet.
    left: u64,
    packed: Vec<u8>,
    chunk: Vec<u8>,
    place: usize,
}

impl<R: Read> Unpack<R> {
    pub(crate) fn new(from: R, packing: Packing, packed_bytes: u64) -> Self {
        Self { from, packing, left: packed_bytes, packed: Vec::new(), chunk: Vec::new(), place: 0 }
    }

    /// Whether everything was read.
    pub(crate) fn is_done(&self) -> bool {
        self.left == 0 && self.place == self.chunk.len()
    }

    fn next_chunk(&mut self) -> std::io::Result<()> {
        let nonsense = |why: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, why.to_owned());
        let mut head = [0; 8];
        self.left = self.left.checked_sub(8).ok_or_else(|| nonsense("a chunk is cut"))?;
        self.from.read_exact(&mut head)?;
        let [a, b, c, d, rest @ ..] = head;
        let (packed, bytes) = (u32::from_le_bytes([a, b, c, d]) as usize, u32::from_le_bytes(rest) as usize);
        if bytes == 0 || bytes > CHUNK || packed > bytes {
            return Err(nonsense("a chunk has impossible lengths"));
        }
        self.left = self.left.checked_sub(packed as u64).ok_or_else(|| nonsense("a chunk is cut"))?;
        self.chunk.resize(bytes, 0);
        self.place = 0;
        if packed == bytes {
            return self.from.read_exact(&mut self.chunk);
        }
        self.packed.resize(packed, 0);
        self.from.read_exact(&mut self.packed)?;
        let count = match self.packing {
            Packing::Zstd => zstd::bulk::decompress_to_buffer(&self.packed, &mut self.chunk[..])
                .map_err(|_| nonsense("a chunk is not zstd"))?,
            Packing::Lz4 => lz4_flex::block::decompress_into(&self.packed, &mut self.chunk)
                .map_err(|_| nonsense("a chunk is not lz4"))?,
            Packing::None | Packing::Auto => return Err(nonsense("a chunk is packed in no known way")),
        };
        if count == bytes { Ok(()) } else { Err(nonsense("a chunk is shorter than it says")) }
    }
}

impl<R: Read> Read for Unpack<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.place == self.chunk.len() {
            if self.left == 0 || into.is_empty() {
                return Ok(0);
            }
            self.chunk.clear();
            self.place = 0;
            self.next_chunk()?;
        }
        let count = into.len().min(self.chunk.len() - self.place);
        into[..count].copy_from_slice(&self.chunk[self.place..self.place + count]);
        self.place += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unpack(packing: Packing, packed: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut body = Vec::new();
        Unpack::new(packed, packing, packed.len() as u64).read_to_end(&mut body)?;
        Ok(body)
    }

    #[test]
    fn auto_packs_while_it_helps_and_looks_again_every_32nd_body() {
        let mut auto = Auto::default();
        let packed: Vec<bool> = (0..100)
            .map(|body| {
                let packs = auto.packs();
                if packs {
                    // The second look finds bodies that shrink, for a while.
                    let shrinks = (32..40).contains(&body);
                    assert_eq!(auto.packed(1000, if shrinks { 900 } else { 901 }), shrinks);
                }
                packs
            })
            .collect();
        let at: Vec<usize> = (0..100).filter(|body| packed[*body]).collect();
        assert_eq!(at, [0, 32, 33, 34, 35, 36, 37, 38, 39, 40, 64, 96]);
    }

    #[test]
    fn a_long_body_crosses_in_chunks_and_what_does_not_shrink_as_it_is() {
        let mut noise = 7u64;
        let noisy: Vec<u8> = std::iter::repeat_with(|| {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (noise >> 56) as u8
        })
        .take(CHUNK + 10)
        .collect();
        let zeros = vec![0; 2 * CHUNK];
        for packing in [Packing::Lz4, Packing::Zstd] {
            let mut packer = Packer::default();
            let packed = packer.pack(packing, [&noisy[..], &zeros, b"end"]).unwrap();
            assert!(packed.len() as u64 <= most_packed((noisy.len() + zeros.len() + 3) as u64));
            assert!(packed.len() < noisy.len() + 30_000);
            assert_eq!(unpack(packing, packed).unwrap(), [&noisy[..], &zeros, b"end"].concat());
        }
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked_and_any_damage_is_no_panic(
            pieces in prop::collection::vec(prop::collection::vec(0u8..4, 0..3000), 0..6),
            zstd: bool, at: prop::sample::Index, with: u8,
        ) {
            let packing = if zstd { Packing::Zstd } else { Packing::Lz4 };
            let mut packer = Packer::default();
            let packed = packer.pack(packing, pieces.iter().map(Vec::as_slice)).unwrap().to_vec();
            prop_assert_eq!(unpack(packing, &packed).unwrap(), pieces.concat());
            if !packed.is_empty() {
                let mut damaged = packed.clone();
                damaged[at.index(packed.len())] = with;
                if let Ok(body) = unpack(packing, &damaged) {
                    prop_assert!(body.len() <= CHUNK);
                }
                prop_assert!(unpack(packing, &packed[..at.index(packed.len())]).is_err() || at.index(packed.len()) == 0);
            }
        }
    }
}
