//! Hosts with several ranks: the ranks of a host share its memory, hosts are nodes of one cache, and whichever rank is
//! left serves its host to the others.

use crate::network::Network;
use crate::process::Process;
use crate::{LONG, Ranks};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Instant;

const SAMPLES: u64 = 1200;
const BYTES: u64 = 1000;
const HOSTS: usize = 2;
const RANKS: usize = 2;

struct Hosts {
    /// By host, then by rank; `None` is gone.
    ranks: Vec<Option<Process>>,
    store: Process,
    epoch: u64,
    _runtime: Vec<tempfile::TempDir>,
}

impl Hosts {
    /// All hosts together have room for everything and a fifth more.
    fn start() -> Self {
        let network = Network::loopback();
        let setting = json!({ "host": network.store_host(), "samples": SAMPLES, "bytes": BYTES });
        let mut store = Process::start(&[], "store", &setting);
        let url = store.hear()["url"].clone();
        let addresses: Vec<String> = (0..HOSTS).map(|host| network.address(host)).collect();
        let runtime: Vec<_> = (0..HOSTS).map(|_| tempfile::tempdir().unwrap()).collect();
        let begin = |rank: usize| {
            let host = rank / RANKS;
            let cache = json!({
                "memory": SAMPLES * BYTES * 60 / 100, "share": "host", "peers": addresses,
                "peer_address": addresses[host], "peer_timeout_seconds": 5,
            });
            let setting = json!({ "store": url, "bytes": BYTES, "cache": cache });
            // Hosts are told apart by where their sockets lie.
            let folder = format!("XDG_RUNTIME_DIR={}", runtime[host].path().display());
            let mut process = Process::start(&["env".into(), folder], "node", &setting);
            process.hear();
            Some(process)
        };
        // One after the other: the first rank of a host is the one that serves it.
        let ranks = (0..HOSTS * RANKS).map(begin).collect();
        Self { ranks, store, epoch: 0, _runtime: runtime }
    }

    /// One epoch of all ranks that are left; hits by where they came from.
    fn epoch(&mut self) -> Ranks {
        let left: Vec<usize> = (0..self.ranks.len()).filter(|rank| self.ranks[*rank].is_some()).collect();
        let epoch = self.epoch;
        self.epoch += 1;
        for (rank, process) in left.iter().enumerate() {
            let order = json!({ "order": "epoch", "epoch": epoch, "rank": rank, "ranks": left.len() });
            self.ranks[*process].as_mut().unwrap().order(&order);
        }
        let told: Vec<Value> =
            left.iter().map(|process| self.ranks[*process].as_mut().unwrap().hear()).collect();
        let mut ids: Vec<u64> = told
            .iter()
            .flat_map(|told| told["ids"].as_array().unwrap())
            .map(|id| id.as_u64().unwrap())
            .collect();
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..SAMPLES), "every sample once");
        let sum = |name: &str| told.iter().map(|told| told[name].as_u64().unwrap()).sum();
        Ranks { local: sum("local"), peer: sum("peer"), store: sum("store") }
    }

    /// Reads of the store so far, by sample.
    fn reads(&mut self) -> Vec<u64> {
        let told = self.store.ask(&json!({}));
        told["reads"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).collect()
    }
}

#[test]
fn p046_ranks_share_the_memory_of_their_host_and_hosts_divide_the_cache() {
    let mut hosts = Hosts::start();
    let first = hosts.epoch();
    assert_eq!((first.local, first.peer, first.store), (0, 0, SAMPLES));
    for _ in 0..3 {
        let came = hosts.epoch();
        assert_eq!((came.store, came.local + came.peer), (0, SAMPLES));
        // A host owns half; the room beyond that holds copies of what the other owns.
        let share = came.peer as f64 / SAMPLES as f64;
        assert!((0.3..=0.5).contains(&share), "{share} came from the other host");
    }
    assert!(hosts.reads().iter().all(|reads| *reads == 1));
}

#[test]
fn p047_another_rank_serves_its_host_when_the_one_that_did_is_killed() {
    let mut hosts = Hosts::start();
    hosts.epoch();
    assert_eq!(hosts.epoch().store, 0);
    hosts.ranks[0].take().unwrap().signal(Signal::KILL);
    // Until the other one has noticed, what the host owns comes from the store; nothing is lost, nothing comes twice.
    let since = Instant::now();
    while hosts.epoch().store > 0 {
        assert!(since.elapsed() < LONG, "nobody serves the host");
    }
    let before = hosts.reads();
    let came = hosts.epoch();
    assert_eq!(came.store, 0);
    assert!(came.peer > SAMPLES / 6, "{came:?}");
    assert_eq!(hosts.reads(), before);
}
