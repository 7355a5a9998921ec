//! A journal in etcd, which several dispatchers know and one writes: the one whose key is there.
//!
//! ```text
//! PREFIX/leader                                 who leads, under a lease
//! PREFIX/generation                             number of the generation that counts, as text; none is 0
//! PREFIX/record/GENERATION/NUMBER               0 or 1, then a piece of a text: events as JSON
//! ```
//!
//! A record is one piece or several: all but the last begin with 1. A generation is a list of records; writing the
//! journal anew makes the next one, and one transaction then makes it count and removes those before. Every write
//! compares the revision at which our `leader` key was made, so that nothing gets through that was decided before
//! another one led, however late it arrives.
//!
//! A write that was not answered is made again until it is: what it would put is there already if the first one got
//! through, and nobody else can have put it.

use super::Journal;
use crate::dispatcher::etcd::{Do, Etcd, Outcome, Range, Transaction, is_passing};
use forebay_core::dispatcher::{Event, State};
use forebay_core::{Error, Result};
use futures::future::{BoxFuture, FutureExt};
use std::sync::Arc;
use std::time::Duration;

/// Largest piece. etcd takes requests of 1.5 MiB.
const PIECE_BYTES: usize = 512 << 10;

/// Largest record: as much as a command may bring, and what is decided beside it.
const RECORD_BYTES: usize = 32 << 20;

/// Pieces that are read at once.
const PAGE: usize = 64;

/// A journal is written anew beyond so many bytes or pieces, and twice its shortest.
const COMPACT_BYTES: usize = 1 << 20;
const COMPACT_PIECES: u64 = 2048;

/// Events in one record of a journal that is written anew.
const EVENTS_PER_RECORD: usize = 256;

/// Pause before a write is made again.
const PAUSE: Duration = Duration::from_millis(50);

/// The names of our keys.
#[derive(Clone, Debug)]
pub(in crate::dispatcher) struct Keys(String);

impl Keys {
    pub(in crate::dispatcher) fn new(prefix: &str) -> Self {
        Self(prefix.to_owned())
    }

    pub(in crate::dispatcher) fn leader(&self) -> String {
        format!("{}/leader", self.0)
    }

    fn generation(&self) -> String {
        format!("{}/generation", self.0)
    }

    fn piece(&self, generation: u64, number: u64) -> String {
        format!("{}/record/{generation:020}/{number:020}", self.0)
    }

    /// Pieces of one generation from a number on.
    fn pieces(&self, generation: u64, from: u64) -> Range {
        Range { from: self.piece(generation, from), end: format!("{}/record/{generation:020}0", self.0) }
    }

    /// Everything before a generation.
    fn before(&self, generation: u64) -> Range {
        Range { from: format!("{}/record/", self.0), end: format!("{}/record/{generation:020}/", self.0) }
    }

    /// Everything after a generation: of a dispatcher that ended while it wrote the journal anew.
    fn after(&self, generation: u64) -> Range {
        Range { from: format!("{}/record/{generation:020}0", self.0), end: format!("{}/record0", self.0) }
    }
}

/// The journal as the one who leads has it.
pub(in crate::dispatcher) struct EtcdJournal {
    etcd: Arc<dyn Etcd>,
    keys: Keys,
    /// The revision at which our `leader` key was made.
    term: i64,
    generation: u64,
    /// Number of the next piece.
    next: u64,
    bytes: usize,
    /// Bytes and pieces when it was written anew the last time.
    shortest: (usize, u64),
}

impl EtcdJournal {
    /// Opens or begins the journal, as whoever made the `leader` key at this revision; also gives the state it tells of.
    /// Since that revision nobody else can have written, so what is read is the last word.
    pub(in crate::dispatcher) async fn open(
        etcd: Arc<dyn Etcd>,
        keys: Keys,
        term: i64,
    ) -> Result<(Self, State)> {
        let mut journal = Self { etcd, keys, term, generation: 0, next: 0, bytes: 0, shortest: (0, 0) };
        let found =
            journal.ask_again(|journal| journal.etcd.range(Range::one(&journal.keys.generation()), 1));
        if let Some(pair) = found.await?.first() {
            let text = std::str::from_utf8(&pair.value).ok();
            journal.generation = text.and_then(|text| text.parse().ok()).ok_or_else(|| {
                Error::unsupported(format!("read dispatcher state in etcd: `{}` is no number", pair.key))
                    .with_hint("name another prefix, or use the release that wrote it")
            })?;
        }
        let mut reading = Reading::default();
        loop {
            let range = journal.keys.pieces(journal.generation, journal.next);
            let page = journal.ask_again(|journal| journal.etcd.range(range.clone(), PAGE)).await?;
            let is_last = page.len() < PAGE;
            for pair in page {
                if pair.key != journal.keys.piece(journal.generation, journal.next) {
                    let why = format!(
                        "read dispatcher state in etcd: `{}` follows a piece that is missing",
                        pair.key
                    );
                    return Err(Error::corrupt(why)
                        .with_hint("name another prefix: jobs resume from their own checkpoints"));
                }
                journal.next += 1;
                journal.bytes += pair.value.len();
                reading.take(&pair.value).map_err(|error| {
                    error.while_doing(format!("read dispatcher state in etcd, `{}`", pair.key))
                })?;
            }
            if is_last {
                break;
            }
        }
        // The beginning of a record whose writer ended: nobody was told of it.
        journal.next -= reading.unfinished;
        let (left_over, later) =
            (journal.keys.pieces(journal.generation, journal.next), journal.keys.after(journal.generation));
        journal.write(vec![Do::Delete(left_over), Do::Delete(later)], None).await?;
        Ok((journal, reading.state))
    }

    /// Asks until there is an answer.
    async fn ask_again<'a, T>(&'a self, call: impl Fn(&'a Self) -> BoxFuture<'a, Result<T>>) -> Result<T> {
        loop {
            match call(self).await {
                Err(error) if is_passing(&error) => {
                    tracing::debug!(error = %error.report(), "etcd is asked again");
                    tokio::time::sleep(PAUSE).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// Does this if our `leader` key is there, until that is answered. With a key to make: only if it is not there.
    async fn write(&self, work: Vec<Do>, made: Option<&str>) -> Result<()> {
        let leader = self.keys.leader();
        let mut made_at = vec![(leader.clone(), self.term)];
        let mut otherwise = vec![Do::Get(leader)];
        if let Some(key) = made {
            made_at.push((key.to_owned(), 0));
            otherwise.push(Do::Get(key.to_owned()));
        }
        let transaction = Transaction { made_at, then: work, otherwise };
        let Outcome { held, got } =
            self.ask_again(|journal| journal.etcd.transact(transaction.clone())).await?;
        let made_at = |index: usize| got.get(index).and_then(Option::as_ref).map(|pair| pair.created);
        if held {
            return Ok(());
        }
        if made_at(0) != Some(self.term) {
            return Err(Error::stale(
                "write dispatcher state in etcd: this dispatcher does not lead any more",
            ));
        }
        // An earlier try of ours got through: since our term began nobody else can have made it.
        if made_at(1).is_some_and(|revision| revision > self.term) {
            return Ok(());
        }
        Err(Error::internal("write dispatcher state in etcd: a piece with the next number is there"))
    }

    /// Puts the pieces of a record after the others, into this generation or the next.
    async fn put(&mut self, generation: u64, events: &[Event]) -> Result<()> {
        for value in pieces(events)? {
            let key = self.keys.piece(generation, self.next);
            let size = value.len();
            let put = Do::Put { key: key.clone(), value, lease: 0 };
            self.write(vec![put], Some(&key)).await?;
            self.next += 1;
            self.bytes += size;
        }
        Ok(())
    }

    async fn write_anew(&mut self, events: &[Event]) -> Result<()> {
        let next = self.generation + 1;
        (self.next, self.bytes) = (0, 0);
        for some in events.chunks(EVENTS_PER_RECORD) {
            self.put(next, some).await?;
        }
        let value = next.to_string().into_bytes();
        let count = Do::Put { key: self.keys.generation(), value, lease: 0 };
        self.write(vec![count, Do::Delete(self.keys.before(next))], None).await?;
        (self.generation, self.shortest) = (next, (self.bytes, self.next));
        Ok(())
    }
}

impl Journal for EtcdJournal {
    fn append<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, Result<()>> {
        self.put(self.generation, events).boxed()
    }

    fn is_long(&self) -> bool {
        let (bytes, pieces) = self.shortest;
        self.bytes > COMPACT_BYTES.max(2 * bytes) || self.next > COMPACT_PIECES.max(2 * pieces)
    }

    fn compact<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, Result<()>> {
        self.write_anew(events).boxed()
    }
}

/// The pieces of one record.
fn pieces(events: &[Event]) -> Result<Vec<Vec<u8>>> {
    let text = serde_json::to_vec(events)
        .map_err(|error| Error::internal("write events as JSON").with_source(error))?;
    if text.len() > RECORD_BYTES {
        if let [first, rest @ ..] = events
            && !rest.is_empty()
        {
            let (one, others) = (pieces(std::slice::from_ref(first))?, pieces(rest)?);
            return Ok(one.into_iter().chain(others).collect());
        }
        return Err(Error::internal("write events as JSON: one alone is too large"));
    }
    let count = text.len().div_ceil(PIECE_BYTES);
    let piece = |(index, part): (usize, &[u8])| {
        let goes_on = u8::from(index + 1 < count);
        std::iter::once(goes_on).chain(part.iter().copied()).collect()
    };
    Ok(text.chunks(PIECE_BYTES).enumerate().map(piece).collect())
}

/// A state in the making, piece by piece.
#[derive(Default)]
struct Reading {
    state: State,
    text: Vec<u8>,
    /// Pieces of a record whose last one has not come.
    unfinished: u64,
}

impl Reading {
    fn take(&mut self, piece: &[u8]) -> Result<()> {
        let (goes_on, part) = match piece.split_first() {
            Some((goes_on @ (0 | 1), part)) => (*goes_on == 1, part),
            _ => return Err(Error::unsupported("it is no piece of this release")),
        };
        if self.text.len() + part.len() > RECORD_BYTES {
            return Err(Error::corrupt(format!("its record has more than {RECORD_BYTES} bytes")));
        }
        self.text.extend_from_slice(part);
        self.unfinished += 1;
        if goes_on {
            return Ok(());
        }
        let events: Vec<Event> = serde_json::from_slice(&self.text)
            .map_err(|error| Error::unsupported("it is of another release").with_source(error))?;
        for event in &events {
            self.state.apply(event);
        }
        self.text.clear();
        self.unfinished = 0;
        Ok(())
    }
}

/// What the pieces of a journal in etcd tell of; for tests that feed it anything.
#[doc(hidden)]
pub fn read_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<State> {
    let mut reading = Reading::default();
    for piece in pieces {
        reading.take(piece)?;
    }
    Ok(reading.state)
}
