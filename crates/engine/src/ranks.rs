//! Ranks of a job that tell each other how they go, over a [`RankChannel`].
//!
//! What a rank tells is replaced as a whole a few times a second by a thread that the loop never waits for. The same
//! thread reads what the others tell: what this rank waited for them goes into its meter, and the late rank is named. No
//! barrier, no clock of others: what was not replaced for a while does not count. A channel that fails or words that make
//! no sense cost the report, never a batch.

mod channel;

pub use channel::{RankChannel, RanksFolder};

use crate::meter::Meter;
use crate::pacer::Pacer;
use forebay_core::stall::{OthersWatch, Pace, Straggler, ToldStep, judge, told_steps};
use forebay_core::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a rank tells how it goes.
const TELL: Duration = Duration::from_millis(100);
/// What stays the same for longer does not count: its rank is gone, or hangs.
const FRESH: Duration = Duration::from_secs(30);
/// Most bytes that a rank tells.
const MAX_BYTES: u64 = 64 << 10;
/// Most ranks that are looked at.
const MAX_RANKS: u64 = 4096;

/// What a rank tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Told {
    world_size: u64,
    /// One more with every time it is told: what stands still shows.
    beat: u64,
    pace: Pace,
    steps: Vec<ToldStep>,
}

/// Tells and listens while it lives.
#[derive(Debug)]
pub(crate) struct Ranks {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    late: Mutex<Option<Straggler>>,
    stopped: Mutex<bool>,
    wake: Condvar,
}

impl Ranks {
    /// Begins to tell how `rank` goes.
    pub(crate) fn start(
        channel: &Arc<dyn RankChannel>,
        rank: u64,
        world_size: u64,
        meter: &Arc<Meter>,
    ) -> Result<Self> {
        let doing = "tell other ranks how this one goes";
        let mut listener = Listener {
            channel: Arc::clone(channel),
            rank,
            world_size,
            seen: BTreeMap::new(),
            watch: OthersWatch::default(),
        };
        let mut pacer = Pacer::new(meter);
        // Said now: a folder that cannot be written is a mistake, not a bad moment.
        listener.tell(0, &mut pacer, meter).map_err(|error| error.while_doing(doing))?;
        let shared = Arc::<Shared>::default();
        let (told, meter) = (Arc::clone(&shared), Arc::clone(meter));
        let run = move || {
            let (tell_each, read_each) = listener.channel.beats(world_size);
            for beat in 1u64.. {
                if told.sleep() {
                    break;
                }
                if beat % tell_each.max(1) == 0
                    && let Err(error) = listener.tell(beat, &mut pacer, &meter)
                {
                    tracing::debug!(%error, "other ranks were not told how this one goes");
                }
                if beat % read_each.max(1) == 0 {
                    let late = listener.listen(&mut pacer, &meter);
                    *told.late.lock().unwrap_or_else(PoisonError::into_inner) = late;
                }
            }
            // Whoever is gone is not late.
            listener.channel.leave(rank);
        };
        let thread = std::thread::Builder::new().name("forebay-ranks".into()).spawn(run);
        let thread = thread.map_err(|error| Error::io(doing, error))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The rank that makes the others wait, as of the last look.
    pub(crate) fn late(&self) -> Option<Straggler> {
        self.shared.late.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        *self.shared.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Waits for the next time; whether it is the end.
    fn sleep(&self) -> bool {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.wake.wait_timeout_while(stopped, TELL, |stopped| !*stopped);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The others as one rank sees them.
struct Listener {
    channel: Arc<dyn RankChannel>,
    rank: u64,
    world_size: u64,
    /// The last beat of every other rank, and when it was first seen.
    seen: BTreeMap<u64, (u64, Instant)>,
    watch: OthersWatch,
}

impl Listener {
    fn tell(&self, beat: u64, pacer: &mut Pacer, meter: &Meter) -> Result<()> {
        let Some(pace) = pacer.pace() else { return Ok(()) };
        let told = Told { world_size: self.world_size, beat, pace, steps: meter.look(told_steps) };
        let text = serde_json::to_vec(&told)
            .map_err(|cause| Error::internal("put the pace of this rank into words").with_source(cause))?;
        self.channel.tell(self.rank, &text)
    }

    /// Reads what the others tell.
    fn listen(&mut self, pacer: &mut Pacer, meter: &Meter) -> Option<Straggler> {
        let now = Instant::now();
        let mut others: Vec<(u64, Told)> = Vec::new();
        for rank in others_of(self.rank, self.world_size) {
            let told = self.channel.told(rank).and_then(|bytes| read(&bytes));
            let told = told.filter(|told| told.world_size == self.world_size);
            let Some(told) = told else { continue };
            let seen = self.seen.entry(rank).or_insert((told.beat, now));
            if seen.0 != told.beat {
                *seen = (told.beat, now);
            }
            if now - seen.1 <= FRESH {
                others.push((rank, told));
            }
        }
        let own = meter.look(told_steps);
        let mut paces = vec![(self.rank, pacer.pace()?)];
        paces.extend(others.iter().map(|(rank, told)| (*rank, told.pace)));
        // Without one of them nobody knows who was last.
        if others.len() as u64 + 1 == self.world_size {
            let steps: Vec<Vec<ToldStep>> = others.into_iter().map(|(_, told)| told.steps).collect();
            for (epoch, step, micros) in self.watch.found(&own, &steps) {
                meter.waited_for_others(epoch, step, Duration::from_micros(micros));
            }
        }
        judge(&paces).late
    }
}

/// The other ranks that are looked at.
fn others_of(own: u64, world_size: u64) -> impl Iterator<Item = u64> {
    (0..world_size.min(MAX_RANKS)).filter(move |rank| *rank != own)
}

fn read(bytes: &[u8]) -> Option<Told> {
    if bytes.len() as u64 > MAX_BYTES {
        return None;
    }
    serde_json::from_slice(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::stall::{Stage, StallSplit, Took};
    use std::path::Path;

    /// A loop of twenty steps, each after a stall.
    fn ran(fetch_ms: u64, step_ms: u64) -> Arc<Meter> {
        let meter = Arc::<Meter>::default();
        let now = tokio::time::Instant::now();
        for step in 0..20 {
            let fetch = Duration::from_millis(fetch_ms);
            let stall = StallSplit { fetch, prep: Duration::ZERO };
            meter.took(&Took { epoch: 0, step, samples: 1, bytes: 1, stall, queue: Duration::ZERO }, now);
            meter.worked(now, now + Duration::from_millis(step_ms));
        }
        meter
    }

    fn listener(folder: &Path, rank: u64) -> Listener {
        let channel = Arc::new(RanksFolder::new(folder.to_owned()));
        Listener { channel, rank, world_size: 3, seen: BTreeMap::new(), watch: OthersWatch::default() }
    }

    #[test]
    fn ranks_that_tell_each_other_name_the_late_one_and_know_what_they_waited() {
        let folder = tempfile::tempdir().unwrap();
        // All take 30 ms for a step; rank 1 has its batches late.
        let meters = [ran(5, 25), ran(20, 10), ran(5, 25)];
        let mut ranks: Vec<Listener> = (0..3).map(|rank| listener(folder.path(), rank)).collect();
        for (rank, meter) in ranks.iter().zip(&meters) {
            rank.tell(1, &mut Pacer::new(meter), meter).unwrap();
        }
        for (rank, meter) in ranks.iter_mut().zip(&meters) {
            let late = rank.listen(&mut Pacer::new(meter), meter).unwrap();
            assert_eq!((late.rank, late.stage), (1, Stage::Fetch), "{late}");
        }
        let waited: Vec<f64> =
            meters.iter().map(|meter| meter.look(|ledger| ledger.total().others_seconds)).collect();
        assert!((waited[0] - 0.3).abs() < 0.01 && waited[1] == 0.0, "{waited:?}");
        // Told once, they are not counted again.
        ranks[0].listen(&mut Pacer::new(&meters[0]), &meters[0]);
        assert_eq!(meters[0].look(|ledger| ledger.total().others_seconds), waited[0]);
    }

    #[test]
    fn files_that_make_no_sense_are_of_another_size_or_too_long_do_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let meter = ran(20, 10);
        let mut rank = listener(folder.path(), 0);
        let told = |world_size| Told { world_size, beat: 1, pace: Pace::default(), steps: Vec::new() };
        let good = serde_json::to_vec(&told(3)).unwrap();
        let long = [vec![b' '; MAX_BYTES as usize], good.clone()].concat();
        let other = serde_json::to_vec(&told(4)).unwrap();
        for bytes in [b"{".as_slice(), b"\xff\xfe", &long, &other, b"null"] {
            rank.channel.tell(1, bytes).unwrap();
            let heard = rank.channel.told(1).unwrap();
            assert_eq!(read(&heard).filter(|told| told.world_size == 3), None);
            assert_eq!(rank.listen(&mut Pacer::new(&meter), &meter), None);
        }
        rank.channel.tell(1, &good).unwrap();
        assert_eq!(read(&rank.channel.told(1).unwrap()), Some(told(3)));
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_told_at_once_and_the_own_file_goes_with_the_rank() {
        let folder = tempfile::tempdir().unwrap();
        let meter = ran(1, 1);
        std::fs::write(folder.path().join("file"), b"").unwrap();
        let channel =
            |name: &str| Arc::new(RanksFolder::new(folder.path().join(name))) as Arc<dyn RankChannel>;
        let error = Ranks::start(&channel("file"), 0, 2, &meter).unwrap_err();
        assert!(error.message().contains("tell other ranks"), "{error}");
        let file = folder.path().join("job/rank-0.json");
        let ranks = Ranks::start(&channel("job"), 0, 2, &meter).unwrap();
        assert!(file.exists() && ranks.late().is_none());
        drop(ranks);
        assert!(!file.exists());
    }
}
