//! The shortest journal that gives a state back.

use super::command::Event;
use super::known::{Job, Worker};
use super::state::State;
use super::words::{JobName, Terms, Who};

/// Leases in one event of a snapshot.
const LEASES_PER_EVENT: usize = 1024;

impl State {
    /// The shortest list of events that gives this state.
    pub fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (worker, known) in &self.workers {
            let Worker { address, tags, slots, incarnation, draining, .. } = known.clone();
            events.push(Event::WorkerRegistered { worker: *worker, address, tags, slots, incarnation });
            if draining {
                events.push(Event::WorkerDraining { worker: *worker });
            }
        }
        for (feed, known) in &self.feeds {
            for name in &known.jobs {
                if let Some(job) = self.jobs.get(name) {
                    // The first job of a feed decides its spans, and may have gone since.
                    let terms = Terms { feed: *feed, label: known.label.clone(), ..job.terms.clone() };
                    let terms = Terms { span_positions: known.span_positions, ..terms };
                    job_events(name, job, terms, &mut events);
                }
            }
            let leases: Vec<_> = known
                .leases
                .iter()
                .map(|(span, lease)| (span.epoch, span.number, lease.worker, lease.id))
                .collect();
            for some in leases.chunks(LEASES_PER_EVENT) {
                events.push(Event::SpansLeased { feed: *feed, leases: some.to_vec() });
            }
        }
        let (next_lease, next_incarnation) = (self.next_lease, self.next_incarnation);
        events.push(Event::NumbersUsed { next_lease, next_incarnation });
        events
    }
}

/// The events that bring one job back.
fn job_events(name: &JobName, job: &Job, terms: Terms, events: &mut Vec<Event>) {
    events.push(Event::JobAttached { job: name.clone(), terms });
    for (rank, consumer) in &job.consumers {
        for process in consumer.before.into_iter().chain([consumer.process]) {
            let who = Who { job: name.clone(), rank: *rank, consumer: process };
            events.push(Event::ConsumerAttached { who, from: consumer.reached, step: consumer.step });
        }
    }
    let Some(taking) = &job.taking else { return };
    events.push(Event::EpochStarted {
        job: name.clone(),
        epoch: taking.epoch,
        start: taking.start,
        remaining: taking.not_done(),
        done: taking.done,
        dropped: taking.dropped,
    });
    let taken = |rank, request, given| {
        let done = Vec::new();
        Event::SpanTaken { job: name.clone(), rank, request, done, given }
    };
    for (number, rank) in &taking.in_hand {
        events.push(taken(*rank, 0, Some(*number)));
    }
    for (rank, consumer) in job.consumers.iter().filter(|(_, consumer)| consumer.request > 0) {
        events.push(taken(*rank, consumer.request, consumer.given));
    }
}
