//! A journal in a folder: a file of events that only grows, and is written anew when it has grown long.
//!
//! ```text
//! "FBYJ0001" | record | record | ...
//! record: u32 length of the text | u64 xxh3 of length and text | text: events as JSON
//! ```
//!
//! A record is on disk before the next one is written, so only the last can be torn: whatever follows a record that
//! does not add up was never answered for, and is cut off. When whole records follow, the file was damaged by
//! something else, and is refused rather than half believed. Writing anew puts the shortest list of events that gives
//! the same state into a second file, which then takes the name of the first.

use super::Journal;
use forebay_core::dispatcher::{Event, State};
use forebay_core::{Error, Result};
use futures::future::{BoxFuture, ready};
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const MAGIC: [u8; 8] = *b"FBYJ0001";
const HEAD: usize = 12;

/// Largest record; a group of events that is larger is cut into several.
const MAX_RECORD: usize = 16 << 20;

/// A journal shorter than this is not written anew.
const COMPACT_BYTES: u64 = 1 << 20;

/// Events in one record of a journal that is written anew.
const EVENTS_PER_RECORD: usize = 256;

/// The open journal of a folder. Nobody else can open it meanwhile.
#[derive(Debug)]
pub(crate) struct FileJournal {
    folder: PathBuf,
    file: File,
    bytes: u64,
    /// Its length when it was written anew the last time.
    shortest: u64,
    /// Holds the lock of the folder.
    _lock: File,
}

impl FileJournal {
    /// Opens or begins the journal of a folder; also gives the state it tells of.
    pub(crate) fn open(folder: &Path) -> Result<(Self, State)> {
        let fail = |error| Error::io(format!("open dispatcher state `{}`", folder.display()), error);
        std::fs::create_dir_all(folder).map_err(fail)?;
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(folder.join("lock"))
            .map_err(fail)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            let why = format!("open dispatcher state `{}`: another process uses it", folder.display());
            Error::unavailable(why)
                .with_source(std::io::Error::from(error))
                .with_hint("end the other dispatcher, or name another folder with `--state`")
        })?;
        let path = folder.join("journal");
        let mut options = OpenOptions::new();
        let mut file =
            options.create(true).truncate(false).read(true).write(true).open(&path).map_err(fail)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(fail)?;
        let whole = if bytes.len() < MAGIC.len() && MAGIC.starts_with(&bytes) {
            // It was being begun when somebody ended us.
            file.set_len(0)
                .and_then(|()| file.rewind())
                .and_then(|()| file.write_all(&MAGIC))
                .map_err(fail)?;
            bytes.clear();
            MAGIC.len()
        } else if bytes.starts_with(&MAGIC) {
            MAGIC.len()
        } else {
            let why = format!("open dispatcher state `{}`: it is no journal of this release", path.display());
            return Err(Error::unsupported(why).with_hint("name another folder with `--state`"));
        };
        let (state, whole) = read(&bytes, whole, &path)?;
        file.set_len(whole as u64).map_err(fail)?;
        file.seek(SeekFrom::End(0)).map_err(fail)?;
        file.sync_all().map_err(fail)?;
        sync_folder(folder).map_err(fail)?;
        let folder = folder.to_owned();
        Ok((Self { folder, file, bytes: whole as u64, shortest: 0, _lock: lock }, state))
    }

    fn write(&mut self, events: &[Event]) -> Result<()> {
        let mut bytes = Vec::new();
        write(events, &mut bytes)?;
        let fail = |error| Error::io(format!("write dispatcher state `{}`", self.folder.display()), error);
        self.file.write_all(&bytes).map_err(fail)?;
        self.file.sync_data().map_err(fail)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn write_anew(&mut self, events: &[Event]) -> Result<()> {
        let fail = |error| Error::io(format!("write dispatcher state `{}`", self.folder.display()), error);
        let mut bytes = MAGIC.to_vec();
        for some in events.chunks(EVENTS_PER_RECORD) {
            write(some, &mut bytes)?;
        }
        let aside = self.folder.join("journal.new");
        let mut options = OpenOptions::new();
        let mut file =
            options.create(true).truncate(true).read(true).write(true).open(&aside).map_err(fail)?;
        file.write_all(&bytes).map_err(fail)?;
        file.sync_all().map_err(fail)?;
        std::fs::rename(&aside, self.folder.join("journal")).map_err(fail)?;
        sync_folder(&self.folder).map_err(fail)?;
        (self.file, self.bytes, self.shortest) = (file, bytes.len() as u64, bytes.len() as u64);
        Ok(())
    }
}

impl Journal for FileJournal {
    fn append<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, Result<()>> {
        Box::pin(ready(self.write(events)))
    }

    fn is_long(&self) -> bool {
        self.bytes > COMPACT_BYTES.max(2 * self.shortest)
    }

    fn compact<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, Result<()>> {
        Box::pin(ready(self.write_anew(events)))
    }
}

fn sync_folder(folder: &Path) -> std::io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Adds records with these events.
fn write(events: &[Event], bytes: &mut Vec<u8>) -> Result<()> {
    let text = serde_json::to_vec(events)
        .map_err(|error| Error::internal("write events as JSON").with_source(error))?;
    if text.len() > MAX_RECORD {
        if let [one, rest @ ..] = events
            && !rest.is_empty()
        {
            write(std::slice::from_ref(one), bytes)?;
            return write(rest, bytes);
        }
        return Err(Error::internal("write events as JSON: one alone is too large"));
    }
    let length = text.len() as u32;
    bytes.extend(length.to_le_bytes());
    bytes.extend(xxh3_64_with_seed(&text, length.into()).to_le_bytes());
    bytes.extend(text);
    Ok(())
}

/// The text of the record at this place, when it adds up.
fn record(bytes: &[u8]) -> Option<&[u8]> {
    let length = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
    let sum = u64::from_le_bytes(bytes.get(4..HEAD)?.try_into().ok()?);
    let text = bytes.get(HEAD..HEAD + length as usize)?;
    let adds_up = text.len() <= MAX_RECORD && text.first() == Some(&b'[');
    (adds_up && xxh3_64_with_seed(text, length.into()) == sum).then_some(text)
}

/// The state that the records tell of, and where the last whole one ends.
fn read(bytes: &[u8], mut at: usize, path: &Path) -> Result<(State, usize)> {
    let mut state = State::default();
    while let Some(text) = bytes.get(at..).and_then(record) {
        let events: Vec<Event> = serde_json::from_slice(text).map_err(|error| {
            let why =
                format!("read dispatcher state `{}` at byte {at}: it is of another release", path.display());
            Error::unsupported(why).with_source(error)
        })?;
        for event in &events {
            state.apply(event);
        }
        at += HEAD + text.len();
    }
    let later = (at + 1..bytes.len()).find(|place| record(&bytes[*place..]).is_some());
    if let Some(later) = later {
        let why = format!(
            "read dispatcher state `{}`: bytes {at} to {later} are damaged, and whole records follow them",
            path.display()
        );
        return Err(Error::corrupt(why).with_hint(
            "check the disk; jobs resume from their own checkpoints with an empty `--state` folder",
        ));
    }
    Ok((state, at.min(bytes.len().max(MAGIC.len()))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::ErrorKind;
    use forebay_core::dispatcher::{
        Command, Dispatcher, JobName, Reached, Reply, Settings, Sharding, Terms, Visitation, Who, WorkerId,
    };
    use forebay_core::feed::{FeedId, Span};

    fn who() -> Who {
        Who { job: JobName::new("a").unwrap(), rank: 0, consumer: 1 }
    }

    /// A machine with one worker and one consumer of a job with many spans, and the events up to there.
    fn machine(spans: u64) -> (Dispatcher, Vec<Event>) {
        let mut machine = Dispatcher::new(State::default(), Settings::default(), 0);
        let terms = Terms {
            feed: FeedId(u128::MAX),
            label: "data".into(),
            world_size: 1,
            span_positions: 1,
            epoch_positions: spans,
            sharding: Sharding::Dynamic,
            visitation: Visitation::ExactlyOnce,
        };
        let worker = WorkerId(1);
        let register = Command::RegisterWorker { worker, address: "h:1".into(), tags: vec![], slots: 1 };
        let attach = Command::AttachJob { who: who(), terms, from: Reached::default(), step: 0 };
        let events = [register, attach].into_iter().flat_map(|command| machine.apply(0, command).unwrap().1);
        let events = events.collect();
        (machine, events)
    }

    fn take(machine: &mut Dispatcher, number: u64) -> Vec<Event> {
        let span = |number| Span { epoch: 0, number };
        let locate = Command::Locate { who: who(), spans: vec![span(number)], avoid: vec![] };
        let done = number.checked_sub(1).map(span).into_iter().collect();
        let take = Command::TakeSpan { who: who(), request: number + 1, epoch: 0, done };
        let (reply, mut events) = machine.apply(0, take).unwrap();
        assert_eq!(reply, Reply::Taken(span(number)));
        events.extend(machine.apply(0, locate).unwrap().1);
        events
    }

    #[test]
    fn p057_a_last_record_torn_at_any_byte_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut machine, events) = machine(100);
        let (mut journal, empty) = FileJournal::open(folder.path()).unwrap();
        assert_eq!(empty, State::default());
        journal.write(&events).unwrap();
        journal.write(&take(&mut machine, 0)).unwrap();
        let before = machine.state().clone();
        let kept = std::fs::metadata(&path).unwrap().len();
        journal.write(&take(&mut machine, 1)).unwrap();
        drop(journal);
        let whole = std::fs::read(&path).unwrap();
        for cut in kept as usize..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let (mut journal, state) = FileJournal::open(folder.path()).unwrap();
            assert_eq!(state, before, "cut at {cut}");
            // It goes on from there.
            journal.write(&[Event::WorkerLost { worker: WorkerId(1) }]).unwrap();
            drop(journal);
            let (_, state) = FileJournal::open(folder.path()).unwrap();
            assert_eq!(state.sizes()[0], 0, "cut at {cut}");
        }
        for flipped in kept as usize..whole.len() {
            let mut bytes = whole.clone();
            bytes[flipped] ^= 0x20;
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(FileJournal::open(folder.path()).unwrap().1, before, "flipped at {flipped}");
        }
        std::fs::write(&path, &whole).unwrap();
        assert_eq!(FileJournal::open(folder.path()).unwrap().1, *machine.state());
        for cut in 0..MAGIC.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert_eq!(FileJournal::open(folder.path()).unwrap().1, State::default());
        }
    }

    #[test]
    fn damage_before_whole_records_is_told_and_nothing_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut machine, events) = machine(100);
        let (mut journal, _) = FileJournal::open(folder.path()).unwrap();
        journal.write(&events).unwrap();
        journal.write(&take(&mut machine, 0)).unwrap();
        drop(journal);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[40] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(FileJournal::open(folder.path()).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        std::fs::write(&path, "something else").unwrap();
        assert_eq!(FileJournal::open(folder.path()).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn p057_a_journal_stays_small_over_100000_spans_and_gives_the_state_back() {
        let folder = tempfile::tempdir().unwrap();
        let (mut machine, mut events) = machine(100_000);
        let (mut journal, _) = FileJournal::open(folder.path()).unwrap();
        let (mut longest, mut times) = (0, 0);
        for number in 0..100_000 {
            events.extend(take(&mut machine, number));
            if number % 500 == 499 {
                journal.write(&std::mem::take(&mut events)).unwrap();
                longest = longest.max(journal.bytes);
                if journal.is_long() {
                    journal.write_anew(&machine.state().events()).unwrap();
                    times += 1;
                }
            }
        }
        assert!(longest < 10 << 20 && times > 0, "{longest} bytes, written anew {times} times");
        drop(journal);
        let (_, state) = FileJournal::open(folder.path()).unwrap();
        assert_eq!(state, *machine.state());
        assert!(!folder.path().join("journal.new").exists());
    }

    #[test]
    fn a_folder_has_one_dispatcher() {
        let folder = tempfile::tempdir().unwrap();
        let held = FileJournal::open(folder.path()).unwrap();
        let error = FileJournal::open(folder.path()).unwrap_err();
        assert!(error.message().contains("another process uses it"), "{}", error.report());
        drop(held);
        FileJournal::open(folder.path()).unwrap();
    }
}
