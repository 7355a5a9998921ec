//! Audio files as samples in `-1..1`: which format it is, what its header says, and a part of it decoded.
//!
//! Bytes are hostile: channels, rate and the number of samples decoded are bounded, whatever the header says. Part of
//! a file is decoded as it is in the whole: bit for bit. WAV and FLAC are entered where the part begins, Ogg Vorbis a
//! little before. Opus and MP3 are decoded from their beginning, because their frames lean on those before them, MP3
//! as a whole when its length matters, because its header need not know it. What is done to the samples is in
//! [`crate::audio_path`].

mod compressed;
mod ogg;
mod ogg_opus;
mod wav;

use bytes::Bytes;
use forebay_core::recipe::{MAX_RATE, MIN_RATE};
use forebay_core::{Error, Result};
use std::ops::Range;

/// Most channels of a file.
const MAX_CHANNELS: usize = 64;

/// What a file says about itself before its samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Samples a second and channel.
    pub rate: u32,
    /// Channels.
    pub channels: usize,
    /// Samples of one channel, when that is known before they are decoded.
    pub samples: Option<u64>,
}

/// Samples of all channels, one channel after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waveform {
    /// Samples a second and channel.
    pub rate: u32,
    /// One list per channel, all equally long.
    pub channels: Vec<Vec<f32>>,
}

/// An opened file.
pub struct Audio {
    header: Header,
    format: Format,
}

enum Format {
    Wav(wav::Wav),
    Opus(ogg_opus::Opus),
    Compressed(compressed::Compressed),
}

impl Waveform {
    /// Samples of one channel.
    pub fn samples(&self) -> usize {
        self.channels.first().map_or(0, Vec::len)
    }
}

impl Audio {
    /// Reads the header.
    pub fn open(payload: &Bytes) -> Result<Self> {
        let (header, format) = if payload.starts_with(b"RIFF") {
            let (header, wav) = wav::Wav::open(payload)?;
            (header, Format::Wav(wav))
        } else if ogg_opus::is_opus(payload) {
            let (header, opus) = ogg_opus::Opus::open(payload)?;
            (header, Format::Opus(opus))
        } else {
            let (header, compressed) = compressed::Compressed::open(payload)?;
            (header, Format::Compressed(compressed))
        };
        let Header { rate, channels, .. } = header;
        if !(1..=MAX_CHANNELS).contains(&channels) {
            return Err(Error::corrupt(format!(
                "decode audio: {channels} channels are not in 1..={MAX_CHANNELS}"
            )));
        }
        if !(MIN_RATE..=MAX_RATE).contains(&rate) {
            let why = format!("decode audio: a rate of {rate} Hz is not in {MIN_RATE}..={MAX_RATE}");
            return Err(Error::corrupt(why));
        }
        Ok(Self { header, format })
    }

    /// What the file says about itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Decodes everything, unless that is more than `max_samples` in all channels together.
    pub fn decode(self, max_samples: u64) -> Result<Waveform> {
        let limit = max_samples / self.header.channels as u64;
        if let Some(samples) = self.header.samples {
            return self.decode_part(0..samples, max_samples);
        }
        let Header { rate, channels, .. } = self.header;
        let Format::Compressed(mut compressed) = self.format else {
            return Err(Error::internal("decode audio: WAV and Opus know their length"));
        };
        let channels = compressed.decode(&self.header, None, limit, vec![Vec::new(); channels])?;
        Ok(Waveform { rate, channels })
    }

    /// Decodes a part of every channel. Only for files whose length is known, within which it lies.
    pub fn decode_part(self, part: Range<u64>, max_samples: u64) -> Result<Waveform> {
        let Header { rate, channels, .. } = self.header;
        let limit = max_samples / channels as u64;
        let len = part.end.saturating_sub(part.start);
        if len > limit {
            return Err(too_long(limit));
        }
        let empty = vec![Vec::new(); channels];
        let channels = match self.format {
            Format::Wav(wav) => wav.decode(&part, empty),
            Format::Opus(opus) => opus.decode(&part, empty)?,
            Format::Compressed(mut compressed) => {
                compressed.decode(&self.header, Some(part.clone()), limit, empty)?
            }
        };
        if channels.iter().any(|samples| samples.len() as u64 != len) {
            let found = channels.first().map_or(0, Vec::len) as u64 + part.start;
            let why = format!("decode audio: it ends after {found} samples, its header promises more");
            return Err(Error::corrupt(why));
        }
        Ok(Waveform { rate, channels })
    }
}

fn too_long(limit: u64) -> Error {
    Error::exhausted(format!("decode audio: it has more than {limit} samples a channel"))
        .with_hint("raise `max_samples`, or put a crop first")
}

#[cfg(test)]
#[path = "audio/made.rs"]
pub(crate) mod made;

#[cfg(test)]
#[path = "audio/tests.rs"]
mod tests;

#[cfg(test)]
#[path = "audio/opus_tests.rs"]
mod opus_tests;
