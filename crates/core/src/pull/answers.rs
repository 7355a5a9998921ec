//! Answers: which batch one belongs to, whether it is kept, and what becomes of others who were asked for the same.

use super::{Action, Arrival, Ask, Outcome, Pull, State};

impl Pull {
    /// A batch came. When it is kept, the shell holds it until [`Self::deliver`] names its number.
    pub fn arrived(&mut self, now: u64, request: u64) -> Arrival {
        self.settle(now, request, Outcome::Batch)
    }

    /// A worker has dropped the batch and does not make it again.
    pub fn skipped(&mut self, now: u64, request: u64) {
        self.settle(now, request, Outcome::Skipped);
    }

    /// A worker cannot make the batch. When another one might, it is asked first.
    pub fn faulted(&mut self, now: u64, request: u64, transient: bool) -> Arrival {
        let Some((number, ask)) = self.answered(now, request) else { return Arrival::Drop };
        let elsewhere = transient && self.workers.other(now, &[ask.worker]).is_some();
        let Some(entry) = self.entry_mut(number) else { return Arrival::Drop };
        if !entry.asks.is_empty() {
            return Arrival::Drop;
        }
        if elsewhere && entry.faults == 0 {
            entry.faults += 1;
            self.ask_elsewhere(now, number, &[ask.worker]);
            return Arrival::Drop;
        }
        self.ready(number, Outcome::Fault);
        Arrival::Keep(number)
    }

    fn settle(&mut self, now: u64, request: u64, outcome: Outcome) -> Arrival {
        let Some((number, ask)) = self.answered(now, request) else { return Arrival::Drop };
        let Some(entry) = self.entry_mut(number) else { return Arrival::Drop };
        if entry.state != State::Open {
            return Arrival::Drop;
        }
        if outcome == Outcome::Skipped && !entry.asks.is_empty() {
            // The other one may still have it.
            return Arrival::Drop;
        }
        let others = std::mem::take(&mut entry.asks);
        let span = self.span_of(number);
        for other in others {
            self.requests.remove(&other.request);
            self.workers.beaten(other.worker);
            self.actions.push(Action::Forget { worker: other.worker, request: other.request });
            // Neighbours are there too, by then: who answered first goes on with the span.
            if let Some(span) = span
                && self.settings.home != Some(ask.worker)
                && self.routes.get(&span) == Some(&other.worker)
            {
                self.routes.insert(span, ask.worker);
            }
        }
        self.ready(number, outcome);
        Arrival::Keep(number)
    }

    /// Takes a request off the list of open ones.
    fn answered(&mut self, now: u64, request: u64) -> Option<(u64, Ask)> {
        let Some(number) = self.requests.remove(&request) else {
            self.counts.dropped += 1;
            return None;
        };
        let entry = self.entry_mut(number)?;
        let place = entry.asks.iter().position(|ask| ask.request == request)?;
        let ask = entry.asks.swap_remove(place);
        self.workers.answered(now, ask.worker, ask.at);
        Some((number, ask))
    }

    pub(super) fn ready(&mut self, number: u64, outcome: Outcome) {
        if let Some(entry) = self.entry_mut(number) {
            entry.state = State::Ready(outcome);
        }
        self.offer(number);
    }

    /// Lets a batch be handed over, when it is of the epoch in hand. A shorter last batch waits for all others: a
    /// cursor counts the places of full batches before it.
    pub(super) fn offer(&mut self, number: u64) {
        let (epoch, first, epoch_first) = (self.epoch, self.first, self.epoch_first);
        let Some(entry) = self.entry_mut(number) else { return };
        let ready = matches!(entry.state, State::Ready(_)) && !entry.offered;
        if ready && entry.wanted.epoch == epoch && (!entry.wanted.short || number == first) {
            entry.offered = true;
            self.offered += 1;
            self.order.arrive(number - epoch_first);
        }
    }
}
