//! Expands one object, piece by piece, into a temporary file, and stops at the bounds.

use super::GunzipOptions;
use super::kept::{Expanded, Kept, Room};
use crate::local::files::OpenFile;
use crate::{ObjectMeta, fault};
use flate2::Compression;
use flate2::write::{GzEncoder, MultiGzDecoder};
use forebay_core::{Error, Result};
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use zstd::stream::write::Decoder as ZstdDecoder;

/// Below this size no ratio is held against an object: a short run of zeros is no bomb.
const RATIO_FROM_BYTES: u64 = 64 << 20;

/// How an object is compressed, as its key tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Gzip,
    Zstd,
}

impl Packing {
    pub(super) fn of(key: &str) -> Option<Self> {
        let name = key.rsplit('/').next().unwrap_or(key).to_ascii_lowercase();
        let (stem, end) = name.rsplit_once('.')?;
        match end {
            "gz" | "tgz" => Some(Self::Gzip),
            "zst" | "zstd" => Some(Self::Zstd),
            // `chunk-0-0.zstd.bin` and, with a level, `chunk-0-0.zstd:4.bin`.
            "bin" => {
                let inner = stem.rsplit_once('.')?.1;
                let level = inner.strip_prefix("zstd")?.strip_prefix(':').unwrap_or_default();
                let plain =
                    inner == "zstd" || (!level.is_empty() && level.bytes().all(|byte| byte.is_ascii_digit()));
                plain.then_some(Self::Zstd)
            }
            _ => None,
        }
    }
}

enum Decoder {
    Gzip(Box<MultiGzDecoder<Sink>>),
    Zstd(Box<ZstdDecoder<'static, Sink>>),
}

impl Decoder {
    fn new(packing: Packing, sink: Sink) -> io::Result<Self> {
        Ok(match packing {
            Packing::Gzip => Self::Gzip(Box::new(MultiGzDecoder::new(sink))),
            Packing::Zstd => Self::Zstd(Box::new(ZstdDecoder::new(sink)?)),
        })
    }

    fn write_all(&mut self, chunk: &[u8]) -> io::Result<()> {
        match self {
            Self::Gzip(decoder) => decoder.write_all(chunk),
            Self::Zstd(decoder) => decoder.write_all(chunk),
        }
    }

    fn try_finish(&mut self) -> io::Result<()> {
        match self {
            Self::Gzip(decoder) => decoder.try_finish(),
            Self::Zstd(decoder) => decoder.do_finish(),
        }
    }

    fn sink(&self) -> &Sink {
        match self {
            Self::Gzip(decoder) => decoder.get_ref(),
            Self::Zstd(decoder) => decoder.get_ref(),
        }
    }

    fn into_sink(self) -> io::Result<Sink> {
        match self {
            Self::Gzip(decoder) => decoder.finish(),
            Self::Zstd(decoder) => Ok(decoder.into_inner()),
        }
    }
}

/// An object on its way from compressed to expanded.
pub(super) struct Expansion {
    decoder: Decoder,
    packing: Packing,
    meta: ObjectMeta,
    url: String,
}

/// The temporary file, which takes no more than it may.
struct Sink {
    file: File,
    written: u64,
    room: Room,
    kept: Arc<Kept>,
    bounds: Bounds,
    /// Why no more was taken: an `io::Error` cannot carry our kinds through the decoder.
    stopped: Option<Stop>,
}

#[derive(Clone, Copy)]
struct Bounds {
    object_bytes: u64,
    ratio_bytes: u64,
    ratio: u64,
}

#[derive(Clone, Copy)]
enum Stop {
    ObjectBytes,
    Ratio,
    KeptBytes,
    /// The temporary file: the error itself goes through the decoder.
    File,
}

impl Expansion {
    pub(super) fn start(
        options: &GunzipOptions,
        kept: Arc<Kept>,
        meta: &ObjectMeta,
        url: String,
    ) -> Result<Self> {
        let place = &options.directory;
        let file = tempfile::tempfile_in(place).map_err(|error| {
            fault::system("make a temporary file in", &place.to_string_lossy(), None, error)
        })?;
        let ratio_bytes = meta.size.saturating_mul(options.ratio).max(RATIO_FROM_BYTES);
        let bounds = Bounds { object_bytes: options.object_bytes, ratio_bytes, ratio: options.ratio };
        let sink = Sink { file, written: 0, room: kept.room(), kept, bounds, stopped: None };
        let packing = Packing::of(&meta.key).unwrap_or(Packing::Gzip);
        let decoder = Decoder::new(packing, sink)
            .map_err(|error| Error::internal("start to expand").with_source(error))?;
        Ok(Self { decoder, packing, meta: meta.clone(), url })
    }

    /// Expands the next piece of the compressed object.
    pub(super) fn feed(mut self, chunk: &[u8]) -> Result<Self> {
        match self.decoder.write_all(chunk) {
            Ok(()) => Ok(self),
            Err(error) => Err(self.failure(error)),
        }
    }

    /// Checks that the object is complete.
    pub(super) fn finish(mut self) -> Result<Expanded> {
        if self.meta.size == 0 {
            return Err(self.failure(io::ErrorKind::UnexpectedEof.into()));
        }
        if let Err(error) = self.decoder.try_finish() {
            return Err(self.failure(error));
        }
        let Self { decoder, packing, meta, url } = self;
        let sink = decoder.into_sink().map_err(|error| corrupt(packing, &url, error))?;
        let file = OpenFile::named(sink.file, PathBuf::from(&url))
            .map_err(|error| fault::system("expand", &url, None, error))?;
        Ok(Expanded::new(file, &meta, sink.room))
    }

    fn failure(&self, error: io::Error) -> Error {
        let (url, sink) = (&self.url, self.decoder.sink());
        let exhausted = |why: String, hint: &str| {
            Error::exhausted(format!("expand `{url}`: {why}"))
                .with_hint(hint)
                .with_facts(fault::facts(url, None))
        };
        match sink.stopped {
            Some(Stop::ObjectBytes) => exhausted(
                format!("it expands to more than {} bytes", sink.bounds.object_bytes),
                "raise `object_bytes` if the object is meant to be that large",
            ),
            Some(Stop::Ratio) => exhausted(
                format!("{} bytes expand to more than {} times as many", self.meta.size, sink.bounds.ratio),
                "it looks like a decompression bomb; raise `ratio` if it is not",
            ),
            Some(Stop::KeptBytes) => exhausted(
                format!("expanded objects in use take all of {} bytes", sink.kept.limit()),
                "raise `kept_bytes`, or read fewer compressed objects at once",
            ),
            Some(Stop::File) => fault::system("expand", url, None, error),
            None => corrupt(self.packing, url, error),
        }
    }
}

impl Sink {
    fn stop(&mut self, stop: Stop) -> io::Error {
        self.stopped = Some(stop);
        io::ErrorKind::QuotaExceeded.into()
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let size = self.written.saturating_add(bytes.len() as u64);
        if size > self.bounds.object_bytes {
            return Err(self.stop(Stop::ObjectBytes));
        }
        if size > self.bounds.ratio_bytes {
            return Err(self.stop(Stop::Ratio));
        }
        if !self.kept.grow(&mut self.room, bytes.len() as u64) {
            return Err(self.stop(Stop::KeptBytes));
        }
        if let Err(error) = self.file.write_all(bytes) {
            self.stopped = Some(Stop::File);
            return Err(error);
        }
        self.written = size;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The inverse, for writes: one gzip member, or one frame of zstd.
pub(super) fn compress(packing: Packing, bytes: &[u8]) -> Result<Vec<u8>> {
    let fail = |error| Error::internal("compress bytes in memory").with_source(error);
    if packing == Packing::Zstd {
        return zstd::encode_all(bytes, zstd::DEFAULT_COMPRESSION_LEVEL).map_err(fail);
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).map_err(fail)?;
    encoder.finish().map_err(fail)
}

fn corrupt(packing: Packing, url: &str, error: io::Error) -> Error {
    let cut = matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::WriteZero);
    let name = if packing == Packing::Zstd { "zstd" } else { "gzip" };
    let why =
        if cut { format!("the {name} stream is cut short") } else { format!("not a valid {name} stream") };
    Error::corrupt(format!("expand `{url}`: {why}")).with_source(error).with_facts(fault::facts(url, None))
}
