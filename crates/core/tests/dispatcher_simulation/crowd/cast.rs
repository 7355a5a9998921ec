//! Who takes part in a crowd: their numbers, and the commands by which they come in.

use forebay_core::dispatcher::{
    Command, Dispatcher, JobName, Reached, Reply, Settings, Sharding, State, Terms, Visitation, Who, WorkerId,
};
use forebay_core::feed::FeedId;

/// Positions in a span.
pub(super) const SPAN: u64 = 1000;

/// How large a crowd is, and for how long it is watched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) workers: u64,
    /// Ranks of each job.
    pub(super) ranks: u64,
    pub(super) jobs: u64,
    /// Spans in an epoch.
    pub(super) spans: u64,
    /// Steps of trouble.
    pub(super) steps: u64,
    /// Steps between two comparisons of the whole state with what the events give; 0 compares after every command.
    pub(super) compares: u64,
}

impl Size {
    pub(super) fn consumers(&self) -> u64 {
        self.ranks * self.jobs
    }
}

/// Everybody is there: what all schedules of a size begin with.
pub(super) struct Cast {
    pub(super) size: Size,
    pub(super) state: State,
    pub(super) incarnations: Vec<u64>,
}

impl Cast {
    pub(super) fn new(size: Size) -> Self {
        let mut machine = Dispatcher::new(State::default(), Settings::default(), 0);
        let mut incarnations = Vec::new();
        for worker in 0..size.workers {
            if let (Reply::Registered { incarnation, .. }, _) = machine.apply(0, register(worker)).unwrap() {
                incarnations.push(incarnation);
            }
        }
        for number in 0..size.consumers() {
            machine.apply(0, attach(&size, number, number + 1)).unwrap();
        }
        Self { size, state: machine.state().clone(), incarnations }
    }
}

pub(super) fn who(size: &Size, number: u64, process: u64) -> Who {
    let job = JobName::new(format!("job-{}", number / size.ranks)).unwrap();
    Who { job, rank: number % size.ranks, consumer: process }
}

/// The first job takes spans as they come, the others read portions of three feeds.
pub(super) fn is_dynamic(size: &Size, number: u64) -> bool {
    number < size.ranks
}

pub(super) fn attach(size: &Size, number: u64, process: u64) -> Command {
    let dynamic = is_dynamic(size, number);
    let terms = Terms {
        feed: FeedId(u128::from(number / size.ranks % 3) + u128::from(dynamic) * 10),
        label: "data".into(),
        world_size: size.ranks,
        span_positions: SPAN,
        epoch_positions: SPAN * size.spans,
        sharding: if dynamic { Sharding::Dynamic } else { Sharding::Portion },
        visitation: Visitation::ExactlyOnce,
    };
    Command::AttachJob { who: who(size, number, process), terms, from: Reached::default(), step: 0 }
}

pub(super) fn register(worker: u64) -> Command {
    let address = format!("w{worker}");
    Command::RegisterWorker { worker: WorkerId(worker + 1), address, tags: vec![], slots: 4 }
}
