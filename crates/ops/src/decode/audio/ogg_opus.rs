//! Ogg Opus, by libopus: SILK, CELT and what mixes them, in one or two channels, at 48 kHz.
//!
//! The length is known beforehand: every packet says how long it is, the header how many samples at the beginning are
//! nobody's, and the last page where the end is. A decoder leans on all packets before, so it begins at the first one
//! and stops where the part ends. libopus computes in integers here: then it comes to the same values on any processor.

use super::Header;
use super::ogg::{self, Reader};
use bytes::Bytes;
use forebay_core::{Error, Result};
use opus::{Channels, Decoder, packet};
use std::ops::Range;

/// Samples a second, whatever rate the encoder was given: the header's is a remark.
const RATE: u32 = 48_000;
/// Samples of the longest packet, of 120 ms.
const MAX_FRAMES: usize = RATE as usize * 120 / 1000;
/// Bytes of the largest packet that may be expected: of two channels at the highest rates, for 120 ms.
const MAX_PACKET: usize = 61_440;
/// Steps of the header's gain in what multiplies the samples by ten.
const GAIN_STEPS: f64 = 20.0 * 256.0;

/// An opened file.
pub(super) struct Opus {
    /// Before the first page of audio.
    reader: Reader,
    head: Head,
}

#[derive(Clone, Copy)]
struct Head {
    channels: Channels,
    /// Samples before the first one that anybody gets.
    skip: u64,
    gain: i16,
}

/// Whether it is Ogg Opus, by the first bytes.
pub(super) fn is_opus(bytes: &[u8]) -> bool {
    ogg::first_packet(bytes).is_some_and(|packet| packet.starts_with(b"OpusHead"))
}

impl Opus {
    pub(super) fn open(payload: &Bytes) -> Result<(Header, Self)> {
        let mut reader = Reader::new(payload.clone());
        let cut = || Error::corrupt("decode ogg opus: it ends within its headers");
        let first = reader.next_page()?.ok_or_else(cut)?;
        let head = Head::read(first.packets.first().map_or(&[][..], |packet| packet))?;
        let tags = loop {
            // Tags with pictures take many pages.
            let page = reader.next_page()?.ok_or_else(cut)?;
            if !page.packets.is_empty() {
                break page.packets;
            }
        };
        if tags.len() != 1 || !tags[0].starts_with(b"OpusTags") {
            return Err(Error::corrupt("decode ogg opus: its tags do not follow its header"));
        }
        reader.cut();
        let channels = head.channels as usize;
        let samples = Some(samples(reader.clone(), head.skip)?);
        Ok((Header { rate: RATE, channels, samples }, Self { reader, head }))
    }

    /// Appends the samples `part` of every channel, as far as they are there.
    pub(super) fn decode(mut self, part: &Range<u64>, mut channels: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>> {
        let Head { skip, gain, .. } = self.head;
        let mut decoder = Decoder::new(RATE, self.head.channels)
            .map_err(|cause| Error::exhausted(format!("decode ogg opus: {cause}")))?;
        let factor = 10f64.powf(f64::from(gain) / GAIN_STEPS) as f32;
        let wanted = part.start.saturating_add(skip)..part.end.saturating_add(skip);
        let mut buffer = vec![0.0; MAX_FRAMES * channels.len()];
        let (mut at, mut number) = (0, 0);
        while at < wanted.end
            && let Some(page) = self.reader.next_page()?
        {
            for packet in page.packets {
                let count = decoder
                    .decode_float(&packet, &mut buffer, false)
                    .map_err(|cause| damaged(number, at, skip, cause.description()))?;
                let span = at..at + count as u64;
                let taken = span.start.max(wanted.start)..span.end.min(wanted.end);
                if taken.start < taken.end {
                    let stride = channels.len();
                    let from = (taken.start - span.start) as usize * stride;
                    let to = (taken.end - span.start) as usize * stride;
                    for (first, channel) in channels.iter_mut().enumerate() {
                        let values = buffer[from..to].iter().skip(first).step_by(stride);
                        channel.extend(values.map(|value| value * factor));
                    }
                }
                (at, number) = (span.end, number + 1);
                if at >= wanted.end {
                    break;
                }
            }
        }
        Ok(channels)
    }
}

impl Head {
    fn read(packet: &[u8]) -> Result<Self> {
        let corrupt = |why: &str| Err(Error::corrupt(format!("decode ogg opus: {why}")));
        let unsupported = |what: &str| {
            Err(Error::unsupported(format!("decode ogg opus: {what}")).with_hint("store mono or stereo"))
        };
        // The rate, four bytes, was the encoder's.
        let Some(&[version, channels, s0, s1, _, _, _, _, g0, g1, family]) =
            packet.strip_prefix(b"OpusHead").and_then(<[u8]>::first_chunk)
        else {
            return corrupt("its header is too short");
        };
        if version >> 4 != 0 {
            return unsupported(&format!("version {version} of its header"));
        }
        let channels = match (family, channels) {
            (_, 0) => return corrupt("it has no channels"),
            (0, 1) => Channels::Mono,
            (0, 2) => Channels::Stereo,
            (0, _) => return corrupt(&format!("{channels} channels without a table of them")),
            _ => return unsupported(&format!("{channels} channels of mapping family {family}")),
        };
        let skip = u64::from(u16::from_le_bytes([s0, s1]));
        Ok(Self { channels, skip, gain: i16::from_le_bytes([g0, g1]) })
    }
}

/// Samples that the pages hold, by the lengths of their packets, without what is cut off at both ends.
fn samples(mut reader: Reader, skip: u64) -> Result<u64> {
    let (mut total, mut number) = (0u64, 0);
    // Where the stream begins, if it was cut out of a longer one, and where its writer says that it ends.
    let (mut begins, mut ends) = (None, None);
    while let Some(page) = reader.next_page()? {
        for packet in &page.packets {
            let why = |why: &str| damaged(number, total, skip, why);
            if packet.len() > MAX_PACKET {
                return Err(why(&format!("its {} bytes are more than {MAX_PACKET}", packet.len())));
            }
            match packet::get_nb_samples(packet, RATE) {
                _ if packet.is_empty() => return Err(why("it is empty")),
                Ok(0) => return Err(why("it has no frame")),
                Ok(count) => total += count as u64,
                Err(cause) => return Err(why(cause.description())),
            }
            number += 1;
        }
        if let (Some(granule), false) = (page.granule, page.packets.is_empty()) {
            begins.get_or_insert(granule.saturating_sub(total));
        }
        if page.is_last {
            ends = page.granule;
        }
    }
    if let (Some(begins), Some(ends)) = (begins, ends) {
        total = total.min(ends.saturating_sub(begins));
    }
    Ok(total.saturating_sub(skip))
}

fn damaged(number: u64, at: u64, skip: u64, why: &str) -> Error {
    let seconds = at.saturating_sub(skip) as f64 / f64::from(RATE);
    Error::corrupt(format!("decode ogg opus: packet {number}, which begins after {seconds:.3} s: {why}"))
}
