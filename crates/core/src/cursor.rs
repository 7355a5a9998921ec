//! The cursor: all that is needed to resume, small enough to live in the user's checkpoint.
//!
//! In plan order it is (epoch, base): the first `base` positions were received. In arrival order a rank also lists
//! which places of its own sequence it took ahead and which it left behind. A cursor describes what the *training
//! loop received*, never what was prefetched. Cursors of all ranks taken at one step can be [`Cursor::merge`]d and
//! loaded on any number of ranks.

use crate::portion::{Consumer, LastBatch, Portion};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// The numbers `0..len` without the first `base` and without those taken ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remaining {
    len: u64,
    base: u64,
    /// Sorted, above `base`, without repeats.
    taken: Vec<u64>,
}

impl Remaining {
    /// Everything of `0..len`.
    pub fn full(len: u64) -> Self {
        Self { len, base: 0, taken: Vec::new() }
    }

    /// `base..len` without `taken`.
    pub fn new(len: u64, base: u64, mut taken: Vec<u64>) -> Result<Self> {
        taken.sort_unstable();
        taken.dedup();
        if base > len || taken.last().is_some_and(|last| *last >= len) {
            return Err(Error::stale(format!("load cursor: it lies beyond the end of {len} samples")));
        }
        let mut remaining = Self { len, base, taken };
        remaining.settle();
        Ok(remaining)
    }

    /// Size of the whole, taken or not.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The first number that is left, or the end.
    pub(crate) fn first(&self) -> u64 {
        self.base
    }

    /// Whether nothing after the first number that is left was taken.
    pub(crate) fn is_a_run(&self) -> bool {
        self.taken.is_empty()
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// How many are left.
    pub fn count(&self) -> u64 {
        self.len - self.base - self.taken.len() as u64
    }

    /// Whether a number is left.
    pub(crate) fn contains(&self, number: u64) -> bool {
        (self.base..self.len).contains(&number) && self.taken.binary_search(&number).is_err()
    }

    /// The `ordinal`-th number that is left.
    pub fn nth(&self, ordinal: u64) -> u64 {
        debug_assert!(ordinal < self.count(), "only {} are left", self.count());
        // taken[i] - base - i numbers are left before taken[i]; the ones at or before `ordinal` shift it up.
        let (mut low, mut high) = (0, self.taken.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.taken[middle] - self.base - middle as u64 <= ordinal {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.base + ordinal + low as u64
    }

    /// What is left after the first `count` of what is left were taken.
    #[must_use]
    pub fn skip(&self, count: u64) -> Self {
        let base = if count >= self.count() { self.len } else { self.nth(count) };
        let taken = self.taken.iter().copied().filter(|number| *number > base).collect();
        Self { len: self.len, base, taken }
    }

    /// What is left after `numbers` were taken too.
    #[must_use]
    pub fn without(&self, numbers: &[u64]) -> Self {
        let mut taken = [&self.taken, numbers].concat();
        taken.sort_unstable();
        taken.dedup();
        let mut remaining = Self { len: self.len, base: self.base, taken };
        remaining.settle();
        remaining
    }

    /// Moves the base past everything that was taken right behind it.
    fn settle(&mut self) {
        self.taken.retain(|number| *number >= self.base);
        let run = self.taken.iter().zip(self.base..).take_while(|(taken, next)| *taken == next).count();
        self.base += run as u64;
        self.taken.drain(..run);
    }
}

/// Format of the cursor; raised when an older reader could misunderstand a newer cursor.
const VERSION: u32 = 1;

/// Where a job stands. Serialises to a small JSON object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cursor {
    version: u32,
    /// The epoch that is being read.
    pub epoch: u64,
    /// Positions of that epoch's plan that were received before everything else.
    base: u64,
    /// Positions beyond `base` that were received too.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "packed")]
    taken: Vec<u64>,
    /// One rank's own progress since, when order is by arrival.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    arrival: Option<Arrived>,
}

/// Progress of one rank in arrival order, relative to the split that began at the cursor's base.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arrived {
    rank: u64,
    world_size: u64,
    batch_size: u64,
    last_batch: LastBatch,
    step: u64,
    length: u64,
    base: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "packed")]
    taken: Vec<u64>,
}

impl Cursor {
    /// The beginning of an epoch.
    pub fn start_of(epoch: u64) -> Self {
        Self { version: VERSION, epoch, base: 0, taken: Vec::new(), arrival: None }
    }

    /// Inside an epoch, with `remaining` still to come.
    pub fn at(epoch: u64, remaining: Remaining) -> Self {
        Self { version: VERSION, epoch, base: remaining.base, taken: remaining.taken, arrival: None }
    }

    /// One rank's place in arrival order: the split began at `start`, `step` batches were received since.
    pub(crate) fn in_arrival(
        epoch: u64,
        start: Remaining,
        who: &Consumer,
        step: u64,
        local: Remaining,
    ) -> Self {
        let arrival = Arrived {
            rank: who.rank,
            world_size: who.world_size,
            batch_size: who.batch_size,
            last_batch: who.last_batch,
            step,
            length: local.len,
            base: local.base,
            taken: local.taken,
        };
        Self { arrival: Some(arrival), ..Self::at(epoch, start) }
    }

    /// Reads a cursor and checks that this version understands it.
    pub fn from_json(text: &str) -> Result<Self> {
        let cursor: Self = serde_json::from_str(text).map_err(|cause| {
            Error::invalid_config("read cursor: not a cursor of Forebay").with_source(cause)
        })?;
        cursor.check()?;
        Ok(cursor)
    }

    /// Checks that this version understands it.
    pub(crate) fn check(&self) -> Result<()> {
        if self.version == VERSION {
            return Ok(());
        }
        Err(Error::unsupported(format!(
            "read cursor: format {} was written by a newer Forebay, this one reads format {VERSION}",
            self.version
        )))
    }

    /// Samples received in the current epoch, over all ranks; exact in plan order, a lower bound by arrival.
    pub fn samples_received(&self) -> u64 {
        self.base + self.taken.len() as u64
    }

    /// Whether the cursor speaks for one rank only, so that another number of ranks needs all of them merged.
    pub fn is_of_one_rank(&self) -> bool {
        self.arrival.as_ref().is_some_and(|arrival| arrival.world_size > 1)
    }

    /// Positions of the epoch that were received when they are all before those that were not; `None` otherwise.
    pub fn received_run(&self) -> Option<u64> {
        (self.taken.is_empty() && self.arrival.is_none()).then_some(self.base)
    }

    /// Whether it has one rank's own progress by arrival.
    pub fn is_by_arrival(&self) -> bool {
        self.arrival.is_some()
    }

    /// Whether ranks that begin at these two could be ranks of one job: the same start, as many steps since.
    pub(crate) fn is_same_split(&self, other: &Self) -> bool {
        let start = |cursor: &Self| (cursor.epoch, cursor.base, cursor.arrival.as_ref().map(|own| own.step));
        start(self) == start(other) && self.taken == other.taken
    }

    /// One cursor for the whole job from the cursors of all its ranks, taken at the same step.
    pub fn merge(cursors: &[Self], samples: u64) -> Result<Self> {
        let Some(first) = cursors.first() else {
            return Err(Error::invalid_config("merge cursors: none was given"));
        };
        let Some(lead) = &first.arrival else {
            if cursors.iter().any(|cursor| cursor != first) {
                return Err(Error::invalid_config("merge cursors: they were not taken at the same step"));
            }
            return Ok(first.clone());
        };
        let mut ranks = vec![false; lead.world_size.min(1 << 20) as usize];
        // Whole steps that every rank has received are skipped at once; only what lies beyond is listed.
        let received =
            cursors.iter().filter_map(|cursor| cursor.arrival.as_ref()).map(|arrival| arrival.base).min();
        let common_steps = received.unwrap_or(0) / lead.batch_size.max(1);
        let mut start = first.start(samples)?;
        start = start.skip(common_steps.saturating_mul(lead.batch_size.saturating_mul(lead.world_size)));
        for cursor in cursors {
            let fits = cursor.arrival.as_ref().is_some_and(|arrival| {
                (cursor.epoch, cursor.base, &cursor.taken) == (first.epoch, first.base, &first.taken)
                    && (arrival.step, arrival.world_size, arrival.batch_size, arrival.last_batch)
                        == (lead.step, lead.world_size, lead.batch_size, lead.last_batch)
            });
            let Some(arrival) = cursor.arrival.as_ref().filter(|_| fits) else {
                return Err(Error::invalid_config(
                    "merge cursors: they were not taken at the same step of one job",
                ));
            };
            let portion = Portion::new(samples, arrival.consumer(), cursor)?;
            let local = Remaining::new(arrival.length, arrival.base, arrival.taken.clone())?;
            let received = (common_steps * arrival.batch_size..local.base).chain(local.taken);
            let places = received.map(|number| portion.place(number)).filter(|place| !place.padding);
            start = start.without(&places.map(|place| place.position).collect::<Vec<_>>());
            match ranks.get_mut(arrival.rank as usize) {
                Some(seen) if !*seen => *seen = true,
                _ => {
                    return Err(Error::invalid_config(format!("merge cursors: rank {} twice", arrival.rank)));
                }
            }
        }
        if let Some(missing) = ranks.iter().position(|seen| !seen) {
            return Err(Error::invalid_config(format!(
                "merge cursors: rank {missing} of {} is missing",
                lead.world_size
            ))
            .with_hint("give the states of all ranks, saved at the same step"));
        }
        Ok(Self::at(first.epoch, start))
    }

    /// What was left of the epoch when the split among ranks began.
    pub(crate) fn start(&self, samples: u64) -> Result<Remaining> {
        Remaining::new(samples, self.base, self.taken.clone())
    }

    /// Steps done since the split began and what is left of the rank's sequence; `None` in plan order.
    pub(crate) fn local(&self, consumer: &Consumer) -> Result<Option<(u64, Remaining)>> {
        let Some(arrival) = &self.arrival else { return Ok(None) };
        if arrival.consumer() != *consumer {
            return Err(Error::stale(format!(
                "load cursor: it was taken in arrival order by rank {} of {} with batch_size {}, this is rank {} of {} with batch_size {}",
                arrival.rank, arrival.world_size, arrival.batch_size, consumer.rank, consumer.world_size,
                consumer.batch_size,
            ))
            .with_hint("load the list of the states of all ranks instead of one"));
        }
        Ok(Some((arrival.step, Remaining::new(arrival.length, arrival.base, arrival.taken.clone())?)))
    }
}

impl Arrived {
    fn consumer(&self) -> Consumer {
        Consumer {
            rank: self.rank,
            world_size: self.world_size,
            batch_size: self.batch_size,
            last_batch: self.last_batch,
        }
    }
}

/// Sorted numbers as `first:bits` in hexadecimal, one bit per number from `first` on: a thousand positions taken
/// ahead fit in a few hundred characters of JSON.
mod packed {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Widest run of numbers that is read back: far beyond any window, far below what would hurt.
    const MAX_SPAN: usize = 1 << 22;

    pub(super) fn serialize<S: Serializer>(numbers: &Vec<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        let first = numbers.first().copied().unwrap_or(0);
        let span = numbers.last().map_or(0, |last| last - first + 1) as usize;
        let mut nibbles = vec![0u8; span.div_ceil(4)];
        for number in numbers {
            let bit = (number - first) as usize;
            nibbles[bit / 4] |= 1 << (bit % 4);
        }
        let digits: String =
            nibbles.iter().map(|nibble| char::from(b"0123456789abcdef"[*nibble as usize])).collect();
        serializer.serialize_str(&format!("{first}:{digits}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (first, digits) =
            text.split_once(':').ok_or_else(|| D::Error::custom("expected `first:bits`"))?;
        let first: u64 = first.parse().map_err(D::Error::custom)?;
        if digits.len() > MAX_SPAN / 4 || first.checked_add(MAX_SPAN as u64).is_none() {
            return Err(D::Error::custom("too many numbers"));
        }
        let mut numbers = Vec::new();
        for (place, digit) in digits.chars().enumerate() {
            let nibble = digit.to_digit(16).ok_or_else(|| D::Error::custom("expected hexadecimal digits"))?;
            let bits = (0..4).filter(|bit| nibble >> bit & 1 == 1);
            numbers.extend(bits.map(|bit| first + place as u64 * 4 + bit));
        }
        Ok(numbers)
    }
}
