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

/// Below this size no ratio is held against an object: a short run of zeros is no bomb.
const RATIO_FROM_BYTES: u64 = 64 << 20;

/// An object on its way from compressed to expanded.
pub(super) struct Expansion {
    decoder: MultiGzDecoder<Sink>,
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
        Ok(Self { decoder: MultiGzDecoder::new(sink), meta: meta.clone(), url })
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
        let Self { decoder, meta, url } = self;
        let sink = decoder.finish().map_err(|error| corrupt(&url, error))?;
        let file = OpenFile::named(sink.file, PathBuf::from(&url))
            .map_err(|error| fault::system("expand", &url, None, error))?;
        Ok(Expanded::new(file, &meta, sink.room))
    }

    fn failure(&self, error: io::Error) -> Error {
        let (url, sink) = (&self.url, self.decoder.get_ref());
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
            None => corrupt(url, error),
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

/// The inverse, for writes: one gzip member.
pub(super) fn compress(bytes: &[u8]) -> Result<Vec<u8>> {
    let fail = |error| Error::internal("compress bytes in memory").with_source(error);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).map_err(fail)?;
    encoder.finish().map_err(fail)
}

fn corrupt(url: &str, error: io::Error) -> Error {
    let cut = matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::WriteZero);
    let why = if cut { "the gzip stream is cut short" } else { "not a valid gzip stream" };
    Error::corrupt(format!("expand `{url}`: {why}")).with_source(error).with_facts(fault::facts(url, None))
}
