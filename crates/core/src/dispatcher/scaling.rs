//! What consumers tell of their waits, summed up for [`Scaler`]. Nothing of it is in the journal: a dispatcher that started
//! again measures anew.

use super::pulse::Pulses;
use super::state::State;
use crate::scale::{ScaleSettings, Scaler, Seen, Wanted};

/// Milliseconds between two looks.
const EVERY: u64 = 1000;

/// Most waiting of one consumer that is counted: of one who did nothing else it is not known what it would take.
const MOST_WAITING: f64 = 0.99;

#[derive(Clone, Debug)]
pub(super) struct Scaling {
    scaler: Scaler,
    wanted: Wanted,
    next: u64,
}

impl Scaling {
    /// Wants the workers that are known, until something is measured.
    pub(super) fn new(settings: ScaleSettings, state: &State, now: u64) -> Self {
        let mut scaling = Self { scaler: Scaler::new(settings), wanted: Wanted::default(), next: now };
        scaling.look(state, &Pulses::default(), now);
        scaling
    }

    pub(super) fn wanted(&self) -> Wanted {
        self.wanted
    }

    /// Looks at what is measured, when it is time to.
    pub(super) fn look(&mut self, state: &State, pulses: &Pulses, now: u64) {
        if now >= self.next {
            self.next = now.saturating_add(EVERY);
            self.wanted = self.scaler.observe(now, seen(state, pulses));
        }
    }
}

fn seen(state: &State, pulses: &Pulses) -> Seen {
    let workers = state.workers.values().filter(|worker| !worker.draining).count() as u64;
    let mut seen = Seen { workers, ..Seen::default() };
    let mut telling = 0.0;
    for pulse in pulses.consumers.values().flat_map(|all| all.values()).filter(|pulse| pulse.told.is_some()) {
        let waiting = pulse.waiting_share.min(MOST_WAITING);
        seen.supply += pulse.samples_per_second;
        seen.demand += pulse.samples_per_second / (1.0 - waiting);
        seen.waiting += waiting;
        telling += 1.0;
    }
    seen.waiting /= f64::max(telling, 1.0);
    seen
}

#[cfg(test)]
mod tests {
    use super::super::{
        Command, Dispatcher, JobName, Progress, Reached, Reply, Settings, Sharding, Terms, View, Visitation,
        Who, WorkerId,
    };
    use super::*;
    use crate::feed::{FeedId, Span};

    /// A service with one consumer, and somebody who obeys it.
    struct Service {
        machine: Dispatcher,
        now: u64,
        progress: Progress,
        workers: Vec<(WorkerId, u64)>,
    }

    fn who() -> Who {
        Who { job: JobName::new("train").unwrap(), rank: 0, consumer: 1 }
    }

    impl Service {
        fn new() -> Self {
            let settings = Settings { worker_timeout_ms: 3_600_000, ..Settings::default() };
            let machine = Dispatcher::new(State::default(), settings, 0);
            let (now, progress, workers) = (0, Progress::default(), Vec::new());
            let mut service = Self { machine, now, progress, workers };
            service.start_worker();
            let terms = Terms {
                feed: FeedId(1),
                label: "data".into(),
                world_size: 1,
                span_positions: 8,
                epoch_positions: 1 << 40,
                sharding: Sharding::Portion,
                visitation: Visitation::ExactlyOnce,
            };
            service.obey(Command::AttachJob { who: who(), terms, from: Reached::default(), step: 0 });
            service
        }

        fn obey(&mut self, command: Command) -> Reply {
            self.machine.apply(self.now, command).unwrap().0
        }

        fn view(&self) -> View {
            self.machine.view(self.now)
        }

        fn start_worker(&mut self) {
            let number = self.now * 1000 + self.workers.len() as u64;
            let (worker, address) = (WorkerId(number), number.to_string());
            let command = Command::RegisterWorker { worker, address, tags: vec![], slots: 1 };
            let Reply::Registered { incarnation, .. } = self.obey(command) else { panic!("not registered") };
            self.workers.push((worker, incarnation));
        }

        /// The consumer takes `step_ms` for a sample, a worker makes one in `worker_ms`. How many workers there were
        /// at the end of each second.
        fn run(&mut self, step_ms: f64, worker_ms: f64, seconds: u64) -> Vec<usize> {
            (0..seconds).map(|_| self.second(step_ms, worker_ms)).collect()
        }

        fn second(&mut self, step_ms: f64, worker_ms: f64) -> usize {
            let waits = (worker_ms / self.workers.len() as f64 - step_ms).max(0.0);
            let samples = 1000.0 / (step_ms + waits);
            self.progress.taken += samples as u64;
            self.progress.waits_ms += (samples * waits) as u64;
            self.now += 990;
            // What it says besides does not make it faster.
            let spans = vec![Span { epoch: 0, number: self.now / 1000 }];
            self.obey(Command::Locate { who: who(), spans, avoid: vec![] });
            self.now += 10;
            self.obey(Command::ReportProgress { who: who(), progress: self.progress });
            self.obey(Command::Tick);
            let wanted = self.view().scale.workers as usize;
            while self.workers.len() < wanted {
                self.start_worker();
            }
            while self.workers.len() > wanted {
                let (worker, incarnation) = self.workers.pop().unwrap();
                self.obey(Command::RemoveWorker { worker, incarnation });
            }
            self.workers.len()
        }
    }

    #[test]
    fn p065_a_dispatcher_wants_four_workers_of_25_a_second_for_steps_of_10_ms_and_two_for_20() {
        let mut service = Service::new();
        let workers = service.run(10.0, 40.0, 60);
        assert!((3..=5).contains(workers.last().unwrap()), "{workers:?}");
        let workers = service.run(20.0, 40.0, 60);
        assert_eq!(*workers.last().unwrap(), 2, "{workers:?}");
        let workers = service.run(20.0, 40.0, 600);
        assert!(workers.iter().all(|workers| *workers == 2), "{workers:?}");
    }

    #[test]
    fn a_dispatcher_that_starts_again_wants_the_workers_that_it_knows() {
        let mut service = Service::new();
        for _ in 0..4 {
            service.start_worker();
        }
        let again = Dispatcher::new(service.machine.state().clone(), Settings::default(), service.now);
        assert_eq!(again.view(service.now).scale.workers, 5);
        let least = ScaleSettings { least_workers: 7, ..ScaleSettings::default() };
        assert_eq!(again.with_scale(least, service.now).view(service.now).scale.workers, 7);
    }

    #[test]
    fn a_consumers_rate_is_what_it_took_since_it_last_told_so() {
        let mut service = Service::new();
        service.run(10.0, 13.0, 8);
        let consumer = service.view().jobs[0].consumers[0].clone();
        assert!((consumer.samples_per_second - 76.0).abs() < 2.0, "{consumer:?}");
        assert!((consumer.waiting_share - 3.0 / 13.0).abs() < 0.02, "{consumer:?}");
    }
}
