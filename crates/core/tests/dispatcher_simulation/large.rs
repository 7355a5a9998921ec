//! A thousand workers and ten thousand consumers, a few thousand commands.

use forebay_core::dispatcher::{
    Command, Dispatcher, JobName, Load, Progress, Reached, Reply, Settings, Sharding, State, Terms,
    Visitation, Who, WorkerId,
};
use forebay_core::feed::{FeedId, Span};
use forebay_core::rng::Rng;

#[test]
fn p057_a_large_cluster_is_the_same_after_its_journal_is_read_again() {
    let mut rng = Rng::keyed(1, 2, 3);
    let mut machine = Dispatcher::new(State::default(), Settings::default(), 0);
    let mut log = Vec::new();
    let mut obey = |now: u64, command: Command| {
        let (reply, events) = machine.apply(now, command).unwrap();
        log.extend(events);
        reply
    };
    let mut incarnations = Vec::new();
    for worker in 0..1000 {
        let address = format!("w{worker}");
        let command = Command::RegisterWorker { worker: WorkerId(worker), address, tags: vec![], slots: 4 };
        let Reply::Registered { incarnation, .. } = obey(0, command) else { panic!("not registered") };
        incarnations.push(incarnation);
    }
    let who = |number: u64| Who {
        job: JobName::new(format!("job-{}", number / 1000)).unwrap(),
        rank: number % 1000,
        consumer: number,
    };
    for number in 0..10_000 {
        let terms = Terms {
            feed: FeedId(u128::from(number / 1000 % 3)),
            label: "data".into(),
            world_size: 1000,
            span_positions: 1000,
            epoch_positions: 10_000_000,
            sharding: Sharding::Portion,
            visitation: Visitation::ExactlyOnce,
        };
        obey(0, Command::AttachJob { who: who(number), terms, from: Reached::default(), step: 0 });
    }
    let mut now = 0;
    for step in 0..6000 {
        now += rng.below(3);
        let (number, worker) = (rng.below(10_000), rng.below(1000));
        let spans = (0..4).map(|next| Span { epoch: 0, number: step / 4 + next }).collect();
        let command = match rng.below(10) {
            0..4 => Command::Locate { who: who(number), spans, avoid: vec![WorkerId(worker)] },
            4 => Command::ReportLost { who: who(number), worker: WorkerId(worker), spans },
            5..8 => {
                let reached = Reached { epoch: 0, position: step * 100 };
                let progress = Progress { reached, step, ..Progress::default() };
                Command::ReportProgress { who: who(number), progress }
            }
            8 => {
                let (worker, incarnation) = (WorkerId(worker), incarnations[worker as usize]);
                Command::Heartbeat { worker, incarnation, load: Load::default() }
            }
            _ => Command::Tick,
        };
        obey(now, command);
    }
    // All fall silent: nothing of them stays.
    obey(now + 60_000, Command::Tick);
    let state = State::replay(&log);
    assert_eq!(state.sizes(), [0; 4]);
    assert_eq!(state, *machine.state());
}
