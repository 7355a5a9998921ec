//! What a decision of the dispatcher costs with 1,000 workers and 10,000 consumers, as JSON.
//!
//! `cargo run --release -p forebay-core --example dispatcher_cost`
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "an example that measures"
)]

use forebay_core::dispatcher::{
    Command, Dispatcher, JobName, Load, Progress, Reached, Reply, Settings, Sharding, State, Terms,
    Visitation, Who, WorkerId,
};
use forebay_core::feed::{FeedId, Span};
use forebay_core::rng::Rng;
use std::collections::BTreeMap;
use std::time::Instant;

const WORKERS: u64 = 1000;
const CONSUMERS: u64 = 10_000;
const JOBS: u64 = 10;

fn main() {
    let mut machine = Dispatcher::new(State::default(), Settings::default(), 0);
    let mut costs: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut events = 0;
    let mut obey = |name, now, command| {
        let start = Instant::now();
        let (reply, new) = machine.apply(now, command).unwrap();
        costs.entry(name).or_default().push(start.elapsed().as_secs_f64() * 1e6);
        events += new.len();
        reply
    };
    let mut incarnations = Vec::new();
    let mut rng = Rng::keyed(7, 0, 0);
    for worker in 0..WORKERS {
        let address = format!("10.1.{}.{}:7000", worker / 256, worker % 256);
        let command = Command::RegisterWorker { worker: WorkerId(worker), address, tags: vec![], slots: 16 };
        let Reply::Registered { incarnation, .. } = obey("register", 0, command) else { return };
        incarnations.push(incarnation);
    }
    let ranks = CONSUMERS / JOBS;
    let who = |number: u64| Who {
        job: JobName::new(format!("job-{}", number / ranks)).unwrap(),
        rank: number % ranks,
        consumer: number,
    };
    // The first job takes spans as they come, the others read portions of three feeds.
    for number in 0..CONSUMERS {
        let is_dynamic = number < ranks;
        let terms = Terms {
            feed: FeedId(u128::from(number / ranks % 3) + u128::from(is_dynamic) * 10),
            label: "data".into(),
            world_size: ranks,
            span_positions: 1024,
            epoch_positions: 1 << 30,
            sharding: if is_dynamic { Sharding::Dynamic } else { Sharding::Portion },
            visitation: Visitation::ExactlyOnce,
        };
        obey("attach", 0, Command::AttachJob { who: who(number), terms, from: Reached::default(), step: 0 });
    }
    let mut requests = vec![(0, None); ranks as usize];
    for step in 0..200_000u64 {
        let now = step / 50;
        let number = rng.below(CONSUMERS);
        let spans = |count| (0..count).map(|next| Span { epoch: 0, number: step / 100 + next }).collect();
        match step % 5 {
            0 => {
                let reached = Reached { epoch: 0, position: step / 100 * 1024 };
                let progress = Progress { reached, step, ..Progress::default() };
                obey("progress", now, Command::ReportProgress { who: who(number), progress });
            }
            1 => drop(obey(
                "locate 8",
                now,
                Command::Locate { who: who(number), spans: spans(8), avoid: vec![] },
            )),
            2 => {
                let worker = rng.below(WORKERS);
                let (worker, incarnation) = (WorkerId(worker), incarnations[worker as usize]);
                obey("heartbeat", now, Command::Heartbeat { worker, incarnation, load: Load::default() });
            }
            3 => {
                let rank = number % ranks;
                let (request, hand) = &mut requests[rank as usize];
                *request += 1;
                let done = Option::<Span>::take(hand).into_iter().collect();
                let command = Command::TakeSpan { who: who(rank), request: *request, epoch: 0, done };
                if let Reply::Taken(span) = obey("take span", now, command) {
                    *hand = Some(span);
                }
            }
            _ => {
                let worker = WorkerId(rng.below(WORKERS));
                obey("report lost", now, Command::ReportLost { who: who(number), worker, spans: spans(1) });
                obey("tick", now, Command::Tick);
            }
        }
    }
    let rows: serde_json::Map<String, serde_json::Value> = costs
        .iter_mut()
        .map(|(name, times)| {
            times.sort_by(f64::total_cmp);
            let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
            let row = serde_json::json!({ "count": times.len(), "p50_us": at(0.5), "p99_us": at(0.99), "p999_us": at(0.999), "max_us": at(1.0) });
            ((*name).to_owned(), row)
        })
        .collect();
    let object = serde_json::json!({
        "workers": WORKERS, "consumers": CONSUMERS, "events": events,
        "leases": machine.state().sizes()[3], "commands": rows,
    });
    println!("{object:#}");
}
