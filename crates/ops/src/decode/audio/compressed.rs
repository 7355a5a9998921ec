//! FLAC, MP3 and Ogg Vorbis, by symphonia: which is told apart here, and only these are tried.
//!
//! A damaged packet makes the file corrupt rather than a gap in it. Should symphonia ever give up with a panic, that is
//! a corrupt file too: it is pure Rust without `unsafe`, and its state is thrown away.

use super::{Header, ogg, too_long};
use bytes::Bytes;
use forebay_core::{Error, Result};
use std::io::Cursor;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use symphonia::core::audio::{Channels, GenericAudioBufferRef};
use symphonia::core::codecs::CodecParameters;
use symphonia::core::codecs::audio::{AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error as Cause;
use symphonia::core::formats::{FormatOptions, FormatReader, SeekMode, SeekTo};
use symphonia::core::io::{MediaSourceStream, MediaSourceStreamOptions};
use symphonia::core::units::Timestamp;
use symphonia::default::codecs::{FlacDecoder, MpaDecoder, VorbisDecoder};
use symphonia::default::formats::{FlacReader, MpaReader, OggReader};

#[cfg(test)]
thread_local! {
    /// Packets that this thread decoded: tests compare them with what a part needs.
    pub(crate) static DECODED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Bytes of an ID3v2 tag's head.
const TAG_HEAD: usize = 10;

/// An opened file, at its beginning.
pub(super) struct Compressed {
    kind: Kind,
    track: u32,
    /// Samples before the first one, which its encoder made up and nobody gets.
    delay: i64,
    reader: Box<dyn FormatReader>,
    decoder: Box<dyn AudioDecoder>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Flac,
    Mp3,
    Vorbis,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Flac => "flac",
            Self::Mp3 => "mp3",
            Self::Vorbis => "ogg vorbis",
        }
    }

    /// Tells the format by the first bytes.
    fn of(bytes: &[u8]) -> Result<Self> {
        let unsupported = |what: &str| {
            Err(Error::unsupported(format!("decode audio: {what}"))
                .with_hint("store WAV, FLAC, MP3, Ogg Vorbis or Ogg Opus"))
        };
        match bytes {
            [b'f', b'L', b'a', b'C', ..] => Ok(Self::Flac),
            [b'O', b'g', b'g', b'S', ..] => match ogg::first_packet(bytes).unwrap_or_default() {
                [1, b'v', b'o', b'r', b'b', b'i', b's', ..] => Ok(Self::Vorbis),
                [b'S', b'p', b'e', b'e', b'x', ..] => unsupported("Ogg Speex"),
                [0x7F, b'F', b'L', b'A', b'C', ..] => unsupported("FLAC in Ogg"),
                _ => unsupported("an Ogg file of something else than Vorbis or Opus"),
            },
            [0xFF, second, ..] if second & 0xE6 == 0xE2 => Ok(Self::Mp3),
            [b'R', b'F', b'6', b'4', ..] => unsupported("RF64, a WAV file of more than 4 GB"),
            [b'F', b'O', b'R', b'M', ..] => unsupported("AIFF"),
            [_, _, _, _, b'f', b't', b'y', b'p', ..] => unsupported("an MP4 file"),
            [] => Err(Error::corrupt("decode audio: it is empty")),
            _ => Err(Error::corrupt("decode audio: it begins like no format that is known")),
        }
    }
}

/// Bytes of ID3v2 tags before the audio.
fn tags(bytes: &[u8]) -> usize {
    let mut start = 0;
    while let Some(&[b'I', b'D', b'3', _, _, flags, a, b, c, d]) =
        bytes.get(start..).and_then(<[u8]>::first_chunk::<TAG_HEAD>)
    {
        // Seven bits a byte; a footer repeats the head.
        let len = [a, b, c, d].iter().fold(0usize, |len, byte| len << 7 | usize::from(byte & 0x7F));
        start += TAG_HEAD + len + if flags & 0x10 == 0 { 0 } else { TAG_HEAD };
    }
    start
}

impl Compressed {
    pub(super) fn open(payload: &Bytes) -> Result<(Header, Self)> {
        let start = tags(payload);
        if start >= payload.len() && start > 0 {
            return Err(Error::corrupt("decode audio: nothing but tags"));
        }
        let payload = payload.slice(start..);
        let kind = Kind::of(&payload)?;
        guarded(kind, || {
            let source =
                MediaSourceStream::new(Box::new(Cursor::new(payload)), MediaSourceStreamOptions::default());
            let options = FormatOptions::default();
            let reader: Box<dyn FormatReader> = match kind {
                Kind::Flac => Box::new(FlacReader::try_new(source, options)?),
                Kind::Mp3 => Box::new(MpaReader::try_new(source, options)?),
                Kind::Vorbis => Box::new(OggReader::try_new(source, options)?),
            };
            let track = reader.tracks().first().ok_or(Cause::DecodeError("it has no track"))?;
            let Some(CodecParameters::Audio(parameters)) = &track.codec_params else {
                return Err(Cause::DecodeError("its track has no parameters"));
            };
            let options = AudioDecoderOptions::default();
            let decoder: Box<dyn AudioDecoder> = match kind {
                Kind::Flac => Box::new(FlacDecoder::try_new(parameters, &options)?),
                Kind::Mp3 => Box::new(MpaDecoder::try_new(parameters, &options)?),
                Kind::Vorbis => Box::new(VorbisDecoder::try_new(parameters, &options)?),
            };
            // An MP3 file's own count is missing, of another encoder's making, or of frames that are no audio; a stream
            // of Vorbis that was cut out of another one counts from where that began.
            let delay = i64::from(track.delay.unwrap_or_default());
            let begins = track.start_ts.get().saturating_add(delay);
            let is_known = kind == Kind::Flac || kind == Kind::Vorbis && begins == 0;
            let header = Header {
                rate: parameters.sample_rate.unwrap_or_default(),
                channels: parameters.channels.as_ref().map_or(0, Channels::count),
                samples: track.num_frames.filter(|samples| is_known && (1..1 << 62).contains(samples)),
            };
            let track = track.id;
            Ok((header, Self { kind, track, delay, reader, decoder }))
        })
    }

    /// Appends the samples `part` of every channel, or all of them, as far as they are there. No more than `limit` each.
    pub(super) fn decode(
        &mut self,
        header: &Header,
        part: Option<Range<u64>>,
        limit: u64,
        channels: Vec<Vec<f32>>,
    ) -> Result<Vec<Vec<f32>>> {
        let kind = self.kind;
        let mut taken =
            Taken { channels, limit, part: part.unwrap_or(0..u64::MAX), is_long: false, plane: Vec::new() };
        guarded(kind, || self.walk(header, &mut taken))?;
        if taken.is_long {
            return Err(too_long(limit));
        }
        Ok(taken.channels)
    }

    /// Decodes packet by packet until the part is complete.
    fn walk(&mut self, header: &Header, taken: &mut Taken) -> Result<(), Cause> {
        let mut place = Some(0);
        // Where a little is to be skipped, getting there costs more than decoding it.
        if taken.part.start > u64::from(header.rate) / 4 && self.kind != Kind::Mp3 {
            // Places are looked for as if there were no delay, so the last of them would be out of reach.
            let ts = Timestamp::new(taken.part.start as i64 - self.delay);
            self.reader.seek(SeekMode::Accurate, SeekTo::Timestamp { ts, track_id: self.track })?;
            self.decoder.reset();
            place = None;
        }
        loop {
            let packet = match self.reader.next_packet() {
                Ok(Some(packet)) => packet,
                Ok(None) => return Ok(()),
                Err(Cause::IoError(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            if packet.track_id != self.track {
                return Err(Cause::DecodeError("it has more than one stream"));
            }
            let decoded = self.decoder.decode(&packet)?;
            #[cfg(test)]
            DECODED.set(DECODED.get() + 1);
            if decoded.frames() == 0 {
                continue;
            }
            let spec = decoded.spec();
            if spec.rate() != header.rate || spec.channels().count() != header.channels {
                return Err(Cause::DecodeError("its rate or channels change"));
            }
            let begins = packet.pts.get().saturating_add_unsigned(packet.trim_start.get());
            let begins = place.unwrap_or(u64::try_from(begins).unwrap_or_default());
            let ends = begins + decoded.frames() as u64;
            if taken.take(&decoded, begins..ends) {
                return Ok(());
            }
            place = Some(ends);
        }
    }
}

/// Samples taken so far.
struct Taken {
    channels: Vec<Vec<f32>>,
    /// Samples of the file that are wanted.
    part: Range<u64>,
    limit: u64,
    is_long: bool,
    /// Planes of one packet.
    plane: Vec<Vec<f32>>,
}

impl Taken {
    /// Takes what is wanted of the samples `span`; true when nothing more is.
    fn take(&mut self, decoded: &GenericAudioBufferRef<'_>, span: Range<u64>) -> bool {
        let wanted = span.start.max(self.part.start)..span.end.min(self.part.end);
        if wanted.start < wanted.end {
            let from = (wanted.start - span.start) as usize;
            let to = (wanted.end - span.start) as usize;
            decoded.copy_to_vecs_planar(&mut self.plane);
            for (channel, plane) in self.channels.iter_mut().zip(&self.plane) {
                channel.extend_from_slice(&plane[from..to]);
            }
        }
        self.is_long = self.channels.first().is_some_and(|channel| channel.len() as u64 > self.limit);
        self.is_long || span.end >= self.part.end
    }
}

/// Runs what is symphonia's, and says of what it complained.
fn guarded<T>(kind: Kind, run: impl FnOnce() -> Result<T, Cause>) -> Result<T> {
    let name = kind.name();
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(Cause::Unsupported(what))) => Err(Error::unsupported(format!("decode {name}: {what}"))),
        Ok(Err(cause)) => Err(Error::corrupt(format!("decode {name}: {cause}"))),
        Err(_) => Err(Error::corrupt(format!("decode {name}: its decoder gave up"))),
    }
}
