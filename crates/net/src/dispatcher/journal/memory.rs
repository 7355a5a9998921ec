//! Journals for tests: one in memory, and one that fails when it is told to.

use super::Journal;
use crate::server::lock;
use forebay_core::dispatcher::{Event, State};
use forebay_core::{Error, Result};
use futures::future::{BoxFuture, ready};
use std::sync::{Arc, Mutex};

/// A place in memory where events are kept. Clones are the same place.
#[derive(Clone, Debug, Default)]
pub(in crate::dispatcher) struct MemoryPlace(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    events: Vec<Event>,
    shortest: usize,
    /// Counts who opened it: only the last one may write.
    opened: u64,
    /// Writes until one fails, and how many of its events are kept all the same.
    fails: Option<(u64, usize)>,
}

/// A journal there.
pub(in crate::dispatcher) struct MemoryJournal {
    place: MemoryPlace,
    opened: u64,
}

impl MemoryPlace {
    pub(in crate::dispatcher) fn open(&self) -> (MemoryJournal, State) {
        let mut kept = lock(&self.0);
        kept.opened += 1;
        let mut state = State::default();
        kept.events.iter().for_each(|event| state.apply(event));
        (MemoryJournal { place: self.clone(), opened: kept.opened }, state)
    }

    /// The write after so many fails, once, and keeps so many of its events.
    pub(in crate::dispatcher) fn fail_after(&self, writes: u64, keeps: usize) {
        lock(&self.0).fails = Some((writes, keeps));
    }
}

impl MemoryJournal {
    fn write(&mut self, change: impl FnOnce(&mut Kept, usize)) -> Result<()> {
        let mut kept = lock(&self.place.0);
        if kept.opened != self.opened {
            return Err(Error::stale("write events: another one has opened this"));
        }
        match kept.fails {
            Some((0, keeps)) => {
                kept.fails = None;
                change(&mut kept, keeps);
                return Err(Error::unavailable("write events: told to fail"));
            }
            Some((writes, keeps)) => kept.fails = Some((writes - 1, keeps)),
            None => {}
        }
        change(&mut kept, usize::MAX);
        Ok(())
    }
}

impl Journal for MemoryJournal {
    fn append<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, Result<()>> {
        let outcome = self.write(|kept, most| kept.events.extend(events.iter().take(most).cloned()));
        Box::pin(ready(outcome))
    }

    fn is_long(&self) -> bool {
        let kept = lock(&self.place.0);
        kept.events.len() > 1000.max(2 * kept.shortest)
    }

    fn compact<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, Result<()>> {
        let outcome = self.write(|kept, most| {
            if most > 0 {
                (kept.events, kept.shortest) = (events.to_vec(), events.len());
            }
        });
        Box::pin(ready(outcome))
    }
}
