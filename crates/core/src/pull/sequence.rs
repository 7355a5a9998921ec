//! The batches of one rank in the order of its portion, epoch after epoch, named one at a time.

use super::PullSettings;
use crate::Result;
use crate::cursor::Cursor;
use crate::feed::BatchName;
use crate::plan::Sampler;
use crate::portion::{Consumer, Place, Portion};

/// A batch that will be wanted.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) epoch: u64,
    pub(super) name: BatchName,
    pub(super) places: Vec<Place>,
    /// Whether it has fewer rows than others.
    pub(super) short: bool,
}

/// Where naming stands.
#[derive(Debug)]
pub(super) struct Sequence {
    consumer: Consumer,
    sampler: Sampler,
    epochs: Option<u64>,
    epoch: u64,
    /// `None` when nothing more comes.
    portion: Option<Portion>,
    step: u64,
}

impl Sequence {
    pub(super) fn new(settings: &PullSettings, cursor: &Cursor) -> Result<Self> {
        let PullSettings { consumer, ref sampler, epochs, .. } = *settings;
        let (portion, sampler) = (Some(sampler.portion(consumer, cursor)?), sampler.clone());
        let mut sequence = Self { consumer, sampler, epochs, epoch: cursor.epoch, portion, step: 0 };
        sequence.turn();
        Ok(sequence)
    }

    pub(super) fn is_over(&self) -> bool {
        self.portion.is_none()
    }

    pub(super) fn next(&mut self) -> Option<Wanted> {
        let portion = self.portion.as_ref()?;
        let places: Vec<Place> = portion.batch(self.step).collect();
        let wanted = Wanted {
            epoch: self.epoch,
            name: BatchName::new(self.epoch, places.iter().copied()),
            short: (places.len() as u64) < self.consumer.batch_size,
            places,
        };
        self.step += 1;
        self.turn();
        Some(wanted)
    }

    /// Goes to the next epoch when this one has no more steps, and ends when the next one has none either.
    fn turn(&mut self) {
        if self.epochs.is_some_and(|epochs| self.epoch >= epochs) {
            self.portion = None;
        }
        let Some(portion) = &self.portion else { return };
        if self.step < portion.steps() {
            return;
        }
        self.epoch += 1;
        self.step = 0;
        let next = self.sampler.portion(self.consumer, &Cursor::start_of(self.epoch));
        self.portion = next.ok().filter(|portion| portion.steps() > 0);
        if self.epochs.is_some_and(|epochs| self.epoch >= epochs) {
            self.portion = None;
        }
    }
}
