//! WAV: integers of 8, 16, 24 and 32 bits and floats of 32 and 64, of which any part is read where it lies.
//!
//! Chunks are walked by their stated lengths, each checked against the payload. A data chunk that claims more than
//! there is holds what is there, as writers leave it when they could not go back to fill in the length.

use super::Header;
use bytes::Bytes;
use forebay_core::{Error, Result};
use std::ops::Range;

/// Format of integers.
const PCM: u16 = 1;
/// Format of floats.
const FLOAT: u16 = 3;
/// The format stands further behind.
const EXTENSIBLE: u16 = 0xFFFE;

/// Where samples lie in a payload, and how.
pub(super) struct Wav {
    /// Interleaved samples, whole frames only.
    data: Bytes,
    channels: usize,
    encoding: Encoding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    U8,
    I16,
    I24,
    I32,
    F32,
    F64,
}

impl Wav {
    pub(super) fn open(payload: &Bytes) -> Result<(Header, Self)> {
        let mut rest: &[u8] = match payload.as_ref() {
            [_, _, _, _, _, _, _, _, b'W', b'A', b'V', b'E', rest @ ..] => rest,
            _ => return Err(Error::corrupt("decode wav: it is a RIFF file of another kind")),
        };
        let mut format = None;
        while let Some((head, body)) = rest.split_first_chunk::<8>() {
            let stated = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
            let len = stated.min(body.len());
            match &head[..4] {
                b"fmt " => format = Some(Format::parse(&body[..len])?),
                b"data" => {
                    let format =
                        format.ok_or_else(|| Error::corrupt("decode wav: data before its format"))?;
                    let start = payload.len() - body.len();
                    return Ok(format.over(payload.slice(start..start + len)));
                }
                _ => {}
            }
            // Chunks are padded to an even length.
            rest = body.get(stated.saturating_add(stated % 2)..).unwrap_or_default();
        }
        Err(Error::corrupt("decode wav: it has no data"))
    }

    /// The samples `part` of every channel, as far as they are there.
    pub(super) fn decode(&self, part: &Range<u64>, mut channels: Vec<Vec<f32>>) -> Vec<Vec<f32>> {
        let frame = self.encoding.bytes() * self.channels;
        let place = |sample: u64| usize::try_from(sample).unwrap_or(usize::MAX).saturating_mul(frame);
        let data = self.data.get(place(part.start)..place(part.end)).unwrap_or_default();
        match self.encoding {
            Encoding::U8 => fill(data, &mut channels, |[byte]| (f32::from(byte) - 128.0) / 128.0),
            Encoding::I16 => {
                fill(data, &mut channels, |bytes| f32::from(i16::from_le_bytes(bytes)) / 32_768.0);
            }
            Encoding::I24 => fill(data, &mut channels, |[low, middle, high]| {
                (i32::from_le_bytes([0, low, middle, high]) >> 8) as f32 / 8_388_608.0
            }),
            Encoding::I32 => {
                fill(data, &mut channels, |bytes| i32::from_le_bytes(bytes) as f32 / 2_147_483_648.0);
            }
            Encoding::F32 => fill(data, &mut channels, f32::from_le_bytes),
            Encoding::F64 => fill(data, &mut channels, |bytes| f64::from_le_bytes(bytes) as f32),
        }
        channels
    }
}

fn fill<const N: usize>(data: &[u8], channels: &mut [Vec<f32>], value: impl Fn([u8; N]) -> f32) {
    let (samples, _) = data.as_chunks::<N>();
    let count = channels.len();
    for (number, channel) in channels.iter_mut().enumerate() {
        channel.extend(samples.iter().skip(number).step_by(count).map(|bytes| value(*bytes)));
    }
}

struct Format {
    channels: usize,
    rate: u32,
    encoding: Encoding,
}

impl Format {
    fn parse(chunk: &[u8]) -> Result<Self> {
        let Some(head) = chunk.first_chunk::<16>() else {
            return Err(Error::corrupt(format!("decode wav: a format of {} bytes", chunk.len())));
        };
        let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let (mut tag, channels, bits) = (half(0), usize::from(half(2)), half(14));
        if tag == EXTENSIBLE {
            // The first half of an identifier whose rest is always the same.
            tag = chunk.get(24..26).map_or(tag, |code| u16::from_le_bytes([code[0], code[1]]));
        }
        let encoding = match (tag, bits) {
            (PCM, 8) => Encoding::U8,
            (PCM, 16) => Encoding::I16,
            (PCM, 24) => Encoding::I24,
            (PCM, 32) => Encoding::I32,
            (FLOAT, 32) => Encoding::F32,
            (FLOAT, 64) => Encoding::F64,
            _ => {
                let why = format!("decode wav: format {tag} with {bits} bits");
                return Err(
                    Error::unsupported(why).with_hint("store integers of 8, 16, 24 or 32 bits, or floats")
                );
            }
        };
        if usize::from(half(12)) != channels * encoding.bytes() || channels == 0 {
            let why =
                format!("decode wav: frames of {} bytes for {channels} channels of {bits} bits", half(12));
            return Err(Error::corrupt(why));
        }
        let rate = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        Ok(Self { channels, rate, encoding })
    }

    fn over(self, data: Bytes) -> (Header, Wav) {
        let Self { channels, rate, encoding } = self;
        let samples = (data.len() / (channels * encoding.bytes())) as u64;
        (Header { rate, channels, samples: Some(samples) }, Wav { data, channels, encoding })
    }
}

impl Encoding {
    fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::I16 => 2,
            Self::I24 => 3,
            Self::I32 | Self::F32 => 4,
            Self::F64 => 8,
        }
    }
}
