//! Batches on disk, for jobs that are late: one file without a name for each feed, cut into equal places.
//!
//! The file is unlinked as soon as it is open, so nothing stays behind whatever happens. Bytes are written as they would
//! cross the wire, with a checksum that is kept in memory. Whatever goes wrong with a disk (it is full, it gives other
//! bytes back) costs time: the batch is made again.

use super::feed::{Prepared, batch_bytes};
use crate::server::lock;
use crate::service::message::{Packing, ToClient};
use crate::service::{Limits, Receiving, Sending, Times};
use forebay_core::staging::{Command, Name};
use forebay_core::{Error, Result};
use forebay_engine::Batch;
use forebay_ops::BufferPool;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use xxhash_rust::xxh3::Xxh3;

/// Places begin at whole pages, and have some room for what stands before the columns.
const PAGE: u64 = 4096;

/// Something to be done with a disk.
pub(super) enum Errand {
    Write(Name, Arc<Prepared>),
    Read(Name),
    Remove(Name),
}

/// The disk of one feed. Errands are run in order, on a thread of their own, which ends when this is dropped.
pub(super) struct Disk {
    errands: Option<Sender<Errand>>,
    thread: Option<JoinHandle<()>>,
    /// Until it is started.
    shelf: Option<(Shelf, Receiver<Errand>)>,
}

impl Disk {
    /// Makes the file, which may take this many bytes.
    pub(super) fn create(folder: &Path, limit_bytes: u64, pool: &BufferPool) -> Result<Self> {
        let (errands, run) = channel();
        let shelf = Shelf {
            file: Arc::new(create(folder)?),
            limit_bytes,
            place_bytes: 0,
            places: 0,
            free: Vec::new(),
            kept: HashMap::new(),
            pool: pool.clone(),
            complained: false,
        };
        Ok(Self { errands: Some(errands), thread: None, shelf: Some((shelf, run)) })
    }

    /// Starts its thread; `told` gets what came of each errand.
    pub(super) fn start(
        mut self,
        told: impl Fn(Command, Option<Arc<Prepared>>) + Send + 'static,
    ) -> Result<Self> {
        if let Some((mut shelf, run)) = self.shelf.take() {
            let work = move || {
                while let Ok(errand) = run.recv() {
                    if let Some((command, batch)) = shelf.run(errand) {
                        told(command, batch);
                    }
                }
            };
            let thread = std::thread::Builder::new().name("forebay-spill".into()).spawn(work);
            self.thread = Some(thread.map_err(|error| Error::io("start the thread of a disk", error))?);
        }
        Ok(self)
    }

    /// Runs an errand soon; false when the disk is gone.
    pub(super) fn run(&self, errand: Errand) -> bool {
        self.errands.as_ref().is_some_and(|errands| errands.send(errand).is_ok())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.errands = None;
        // The last errand may let go of the feed, and then this runs on the disk's own thread.
        if let Some(thread) =
            self.thread.take().filter(|thread| thread.thread().id() != std::thread::current().id())
        {
            let _ = thread.join();
        }
    }
}

/// What lies where.
struct Shelf {
    file: Arc<File>,
    limit_bytes: u64,
    place_bytes: u64,
    places: u64,
    free: Vec<u64>,
    kept: HashMap<Name, Kept>,
    pool: BufferPool,
    complained: bool,
}

struct Kept {
    place: u64,
    length: u64,
    checksum: u64,
    bytes: u64,
    rows: u64,
    times: Times,
}

impl Shelf {
    fn run(&mut self, errand: Errand) -> Option<(Command, Option<Arc<Prepared>>)> {
        match errand {
            Errand::Write(name, batch) => {
                let written = self.write(&name, &batch);
                drop(batch);
                let command = match written {
                    Ok(()) => Command::Spilled { name },
                    Err(error) => {
                        if !std::mem::replace(&mut self.complained, true) {
                            tracing::warn!(error = %error.report(), "late batches cannot be spilled: they are made again");
                        }
                        Command::NotSpilled { name }
                    }
                };
                Some((command, None))
            }
            Errand::Read(name) => Some(match self.read(&name) {
                Ok(batch) => (Command::Loaded { name }, Some(Arc::new(batch))),
                Err(error) => {
                    tracing::warn!(error = %error.report(), "a spilled batch cannot be read: it is made again");
                    (Command::NotLoaded { name }, None)
                }
            }),
            Errand::Remove(name) => {
                if let Some(kept) = self.kept.remove(&name) {
                    self.free.push(kept.place);
                }
                None
            }
        }
    }

    fn write(&mut self, name: &Name, prepared: &Prepared) -> Result<()> {
        let bytes = batch_bytes(&prepared.batch);
        let place = self.find_place(bytes)?;
        let end = place + self.place_bytes;
        let track =
            Arc::new(Mutex::new(Track { file: Arc::clone(&self.file), at: place, end, hash: Xxh3::new() }));
        let mut sending = Sending::over(Tracked(Arc::clone(&track)), "disk");
        let sent = sending.send_batch(0, &prepared.batch, prepared.times, Packing::None);
        if let Err(error) = sent {
            self.free.push(place);
            return Err(error.while_doing("spill a batch"));
        }
        let track = lock(&track);
        let rows = prepared.batch.len() as u64;
        let (length, checksum) = (track.at - place, track.hash.digest());
        self.kept
            .insert(Name::clone(name), Kept { place, length, checksum, bytes, rows, times: prepared.times });
        Ok(())
    }

    fn read(&self, name: &Name) -> Result<Prepared> {
        let fail = |why: &str| Error::corrupt(format!("read a spilled batch of {name}: {why}"));
        let kept = self.kept.get(name).ok_or_else(|| fail("it is not there"))?;
        let end = kept.place + kept.length;
        let track = Arc::new(Mutex::new(Track {
            file: Arc::clone(&self.file),
            at: kept.place,
            end,
            hash: Xxh3::new(),
        }));
        let mut receiving = Receiving::over(Tracked(Arc::clone(&track)), "disk");
        let Some(ToClient::Batch { header, .. }) = receiving.receive::<ToClient>()? else {
            return Err(fail("something else is there"));
        };
        let batch: Batch =
            receiving.read_batch(&header, &self.pool, Limits::expecting(kept.bytes, kept.rows))?;
        let track = lock(&track);
        if track.at != end || track.hash.digest() != kept.checksum {
            return Err(fail("its checksum is wrong"));
        }
        Ok(Prepared { batch, times: kept.times })
    }

    /// A place for a batch. All are as large as the first batch needed, with some room.
    fn find_place(&mut self, bytes: u64) -> Result<u64> {
        let wanted = (bytes + bytes / 8 + 16 * PAGE).next_multiple_of(PAGE);
        if self.place_bytes == 0 {
            self.place_bytes = wanted;
        }
        if wanted > self.place_bytes {
            return Err(Error::exhausted("spill a batch: it is larger than others"));
        }
        if let Some(place) = self.free.pop() {
            return Ok(place);
        }
        if (self.places + 1).saturating_mul(self.place_bytes) > self.limit_bytes {
            return Err(Error::exhausted(format!(
                "spill a batch: {} bytes are in use, no more may be",
                self.limit_bytes
            )));
        }
        self.places += 1;
        Ok((self.places - 1) * self.place_bytes)
    }
}

/// A file that nobody else can open, below a folder.
fn create(folder: &Path) -> Result<File> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let fail = |error| Error::io(format!("make a file for late batches in `{}`", folder.display()), error);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!("forebay-spill-{}-{number}", std::process::id()));
    // One of that name was left by a process that is gone, between making and unlinking it.
    let _ = std::fs::remove_file(&path);
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path).map_err(fail)?;
    std::fs::remove_file(&path).map_err(fail)?;
    Ok(file)
}

/// Reads or writes a stretch of a file and adds up what went by.
struct Track {
    file: Arc<File>,
    at: u64,
    end: u64,
    hash: Xxh3,
}

struct Tracked(Arc<Mutex<Track>>);

impl Write for Tracked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut track = lock(&self.0);
        if track.at + bytes.len() as u64 > track.end {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let written = track.file.write_at(bytes, track.at)?;
        track.hash.update(&bytes[..written]);
        track.at += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Tracked {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut track = lock(&self.0);
        let most = into.len().min((track.end - track.at) as usize);
        let read = track.file.read_at(&mut into[..most], track.at)?;
        track.hash.update(&into[..read]);
        track.at += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::SampleId;
    use forebay_core::feed::BatchName;
    use forebay_ops::Column;

    fn prepared(fill: u8, len: usize) -> Arc<Prepared> {
        let payload = bytes::Bytes::from(vec![fill; len]);
        let batch = Batch {
            epoch: 1,
            step: 0,
            ids: vec![SampleId(7)],
            padding: vec![false],
            columns: vec![("data".into(), Column::Bytes(vec![payload]))],
            faults: Vec::new(),
            object: None,
        };
        Arc::new(Prepared { batch, times: Times::default() })
    }

    fn name(epoch: u64) -> Name {
        Name::new(BatchName { epoch, runs: Vec::new() })
    }

    fn shelf(folder: &Path, limit: u64) -> Shelf {
        Disk::create(folder, limit, &BufferPool::new(0)).unwrap().shelf.take().unwrap().0
    }

    #[test]
    fn p053_a_spilled_batch_comes_back_as_it_was_and_leaves_nothing_behind() {
        let temp = tempfile::tempdir().unwrap();
        let mut shelf = shelf(temp.path(), 1 << 20);
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0, "the file has no name");
        for fill in 0..3 {
            shelf.write(&name(fill.into()), &prepared(fill, 1000)).unwrap();
        }
        for fill in [2, 0, 1] {
            let back = shelf.read(&name(fill.into())).unwrap();
            let Some(Column::Bytes(payloads)) = back.batch.column("data") else { panic!("no payloads") };
            assert_eq!(payloads[0], vec![fill; 1000]);
            assert_eq!((back.batch.epoch, back.batch.ids.clone()), (1, vec![SampleId(7)]));
        }
    }

    #[test]
    fn a_disk_that_is_full_or_gives_other_bytes_back_is_found_out() {
        let temp = tempfile::tempdir().unwrap();
        let mut shelf = shelf(temp.path(), 2 * (16 * PAGE + 2 * PAGE));
        shelf.write(&name(0), &prepared(0, 1000)).unwrap();
        shelf.write(&name(1), &prepared(1, 1000)).unwrap();
        assert!(shelf.write(&name(2), &prepared(2, 1000)).is_err(), "it may take no more");
        assert!(shelf.write(&name(3), &prepared(3, 1 << 20)).is_err(), "it is larger than others");
        shelf.run(Errand::Remove(name(0)));
        shelf.write(&name(2), &prepared(2, 1000)).unwrap();
        let at = shelf.kept[&name(1)].place + 600;
        shelf.file.write_all_at(&[9], at).unwrap();
        assert!(shelf.read(&name(1)).is_err() && shelf.read(&name(0)).is_err());
        assert!(matches!(shelf.run(Errand::Read(name(1))), Some((Command::NotLoaded { .. }, None))));
    }
}
