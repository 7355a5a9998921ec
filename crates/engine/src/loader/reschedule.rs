//! Weights of a mix that change while its loader is in use: what was received stays, what was made ahead is made anew.
//!
//! Which changes may come is core's to say ([`Reschedule`]). Here the order is replaced, and the iteration in hand goes on
//! from where the loop stands.

use super::{Iteration, Loader};
use crate::config::DeliveryOrder;
use crate::feed::OrderSpec;
use forebay_core::cursor::Cursor;
use forebay_core::plan::mix::schedule::{MixChange, Reschedule};
use forebay_core::{Error, Result};

impl Loader {
    /// Other weights from `place` on, an epoch and a position; from the first round on of which nothing was received when
    /// no place is given. Gives the place from which on they hold. Every rank of a job has to do this at the same step.
    pub fn change_weights(&mut self, weights: Vec<f64>, place: Option<(u64, u64)>) -> Result<(u64, u64)> {
        let cursor = self.cursor();
        let changes = &self.definition.config.mix_changes;
        let (epoch, position) =
            place.unwrap_or_else(|| self.reschedule(&cursor, changes, changes).received());
        let change = MixChange { epoch, position, weights };
        let holds_from = change.holds_from(self.epoch_samples());
        // What holds from the same place on is replaced.
        let others = changes.iter().filter(|other| other.holds_from(self.epoch_samples()) != holds_from);
        let changes = others.cloned().chain([change]).collect();
        self.set_mix_changes(changes, &cursor)?;
        Ok(holds_from)
    }

    /// Goes on under these changes instead of those that it has, from `cursor` on, of which the loop received everything
    /// before. An error says which of them differ in what was received.
    pub fn check_mix_changes(
        &self,
        before: &[MixChange],
        after: &[MixChange],
        cursor: &Cursor,
    ) -> Result<()> {
        self.reschedule(cursor, before, after).check()
    }

    /// Replaces all changes, whatever was received; for a loader that is sent elsewhere with [`Self::seek`] too.
    pub fn replace_mix_changes(&mut self, changes: Vec<MixChange>) -> Result<()> {
        let mut config = self.definition.config.clone();
        config.mix_changes = changes;
        config.check()?;
        let sampler = config.sampler(&self.manifest)?;
        if let Some((_, feed)) = &mut self.elsewhere {
            feed.order = OrderSpec::of(&config);
        }
        if let Some(ledger) = &mut self.ledger {
            ledger.reorder(&sampler, &config)?;
        }
        let at = self.cursor();
        self.skipped.reorder();
        self.stop_supply();
        (self.definition.config, self.definition.sampler) = (config, sampler);
        // One that is over, or has failed, stays so.
        let is_live =
            |iteration: &Iteration| iteration.failed.is_none() && iteration.steps < iteration.portion.steps();
        if let Some(iteration) = self.iteration.take_if(|iteration| is_live(iteration)) {
            let portion = self.portion(&at)?;
            self.iteration = Some(Iteration {
                start: at.clone(),
                first_step: iteration.first_step + iteration.steps,
                steps: 0,
                local: portion.local().clone(),
                portion,
                ..iteration
            });
            self.cursor = at;
        }
        Ok(())
    }

    fn set_mix_changes(&mut self, changes: Vec<MixChange>, cursor: &Cursor) -> Result<()> {
        if self.definition.config.mix.is_none() {
            return Err(Error::invalid_config("change the weights of a mix: this is one dataset")
                .with_hint("make one of several with `mix`"));
        }
        self.check_mix_changes(&self.definition.config.mix_changes, &changes, cursor)?;
        self.replace_mix_changes(changes)
    }

    fn reschedule<'a>(
        &self,
        cursor: &'a Cursor,
        before: &'a [MixChange],
        after: &'a [MixChange],
    ) -> Reschedule<'a> {
        let config = &self.definition.config;
        let is_moved = config.batching.is_some() || matches!(config.order, DeliveryOrder::Arrival { .. });
        Reschedule { before, after, epoch_samples: self.epoch_samples(), cursor, is_moved }
    }
}
