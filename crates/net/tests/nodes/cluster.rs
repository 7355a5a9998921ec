//! Store and nodes of one test, beside a model of them that every epoch is compared with.

use crate::LONG;
use crate::model::{Came, Model, Modelled};
use crate::network::Network;
use crate::process::Process;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub(crate) const SAMPLES: u64 = 3000;
const BYTES: u64 = 1000;
/// Each node has room for 40 %.
const ROOM: u64 = SAMPLES * BYTES * 40 / 100;

pub(crate) struct Cluster {
    nodes: Vec<Option<Node>>,
    store: Process,
    dispatcher: Option<Process>,
    store_url: String,
    /// Reads of every sample so far, as the store counts them.
    reads: Vec<u64>,
    members: Vec<usize>,
    peers: Value,
    file: Option<(tempfile::TempDir, PathBuf)>,
    more: Value,
    model: Option<Model>,
    cut: HashSet<usize>,
    epoch: u64,
    /// Last, so that it goes when nobody is in it any more.
    network: Network,
}

struct Node {
    process: Process,
    model: Option<Modelled>,
}

impl Cluster {
    /// Nodes that know each other by a list.
    pub(crate) fn start(network: Network, count: usize, more: &Value) -> Self {
        let peers: Vec<String> = (0..count).map(|node| network.address(node)).collect();
        Self::with(network, count, peers.into(), None, None, more.clone())
    }

    /// Nodes that know each other by a file.
    pub(crate) fn start_with_file(network: Network, count: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nodes");
        let lines: Vec<String> = (0..count).map(|node| network.address(node)).collect();
        std::fs::write(&path, lines.join("\n")).unwrap();
        let peers = format!("@{}", path.display()).into();
        Self::with(network, count, peers, Some((folder, path)), None, json!({}))
    }

    /// Nodes that a dispatcher tells of each other, on loopback.
    pub(crate) fn start_with_dispatcher(count: usize) -> Self {
        let mut dispatcher = Process::start(&[], "dispatcher", &json!({ "timeout_ms": 5000 }));
        let address = dispatcher.hear()["address"].as_str().unwrap().to_owned();
        let peers = format!("forebay://{address}/job").into();
        Self::with(Network::loopback(), count, peers, None, Some(dispatcher), json!({}))
    }

    fn with(
        network: Network,
        count: usize,
        peers: Value,
        file: Option<(tempfile::TempDir, PathBuf)>,
        dispatcher: Option<Process>,
        more: Value,
    ) -> Self {
        let setting = json!({ "host": network.store_host(), "samples": SAMPLES, "bytes": BYTES });
        let mut store = Process::start(&network.before_store(), "store", &setting);
        let store_url = store.hear()["url"].as_str().unwrap().to_owned();
        let mut cluster = Self {
            nodes: Vec::new(),
            store,
            dispatcher,
            store_url,
            reads: vec![0; SAMPLES as usize],
            members: (0..count).collect(),
            peers,
            file,
            more,
            model: None,
            cut: HashSet::new(),
            epoch: 0,
            network,
        };
        cluster.nodes = (0..count).map(|node| Some(cluster.begin(node))).collect();
        cluster.remodel();
        cluster
    }

    /// Starts a node's process, which waits for orders then.
    fn begin(&mut self, node: usize) -> Node {
        let mut cache = json!({
            "memory": ROOM, "peers": self.peers, "peer_address": self.network.address(node),
            // Longer than anything takes that is there, on a machine that is busy with other things.
            "peer_timeout_seconds": 5, "peer_token": "the token of this test",
        });
        for (name, value) in self.more.as_object().unwrap() {
            cache[name] = value.clone();
        }
        if self.dispatcher.is_some() {
            // The dispatcher of the test wants none.
            cache.as_object_mut().unwrap().remove("peer_token");
        }
        let setting = json!({ "store": self.store_url, "bytes": BYTES, "cache": cache });
        let mut process = Process::start(&self.network.before_node(node), "node", &setting);
        let keys = process.hear()["keys"].as_array().unwrap().clone();
        let keys: Vec<String> = keys.iter().map(|key| key.as_str().unwrap().to_owned()).collect();
        self.model.get_or_insert_with(|| Model::new(&keys, BYTES, ROOM));
        Node { process, model: None }
    }

    /// Every node as it should be among those who take part.
    fn remodel(&mut self) {
        let addresses: Vec<String> = self.members.iter().map(|node| self.network.address(*node)).collect();
        let model = self.model.as_ref().unwrap();
        for (number, node) in self.nodes.iter_mut().enumerate() {
            if let Some(node) = node {
                let held = node.model.take().map(|node| node.held).unwrap_or_default();
                node.model = Some(model.node(&addresses, &self.network.address(number), held));
            }
        }
    }

    fn node(&mut self, node: usize) -> &mut Node {
        self.nodes[node].as_mut().unwrap()
    }

    fn held(&self, node: usize) -> &HashSet<u64> {
        &self.nodes[node].as_ref().unwrap().model.as_ref().unwrap().held
    }

    /// Whether one node gets answers of another.
    fn reaches(&self, from: usize, to: usize) -> bool {
        self.nodes[to].is_some() && !self.cut.contains(&from) && !self.cut.contains(&to)
    }

    /// One epoch of all these nodes, and no others.
    pub(crate) fn epoch(&mut self, nodes: &[usize]) -> Came {
        let ranks: Vec<(usize, usize)> = nodes.iter().copied().enumerate().collect();
        self.portions(&ranks, nodes.len(), true)
    }

    /// As the ranks they have had; `gone` is missing.
    pub(crate) fn epoch_of(&mut self, nodes: &[usize], gone: usize) -> Came {
        assert!(self.nodes[gone].is_none());
        let ranks: Vec<(usize, usize)> = nodes.iter().map(|node| (*node, *node)).collect();
        self.portions(&ranks, nodes.len() + 1, false)
    }

    /// Portions of an epoch of those who are there, and afterwards of the one that was away.
    pub(crate) fn epoch_while_away(&mut self, nodes: &[usize], away: usize) -> Came {
        self.cut.insert(away);
        let ranks: Vec<(usize, usize)> = nodes.iter().map(|node| (*node, *node)).collect();
        let came = self.portions(&ranks, nodes.len() + 1, false);
        self.cut.remove(&away);
        came
    }

    /// Runs portions given as (rank, node), and compares everything with the model.
    fn portions(&mut self, ranks: &[(usize, usize)], count: usize, whole: bool) -> Came {
        let epoch = self.epoch;
        self.epoch += 1;
        for (rank, node) in ranks {
            let order = json!({ "order": "epoch", "epoch": epoch, "rank": rank, "ranks": count });
            self.node(*node).process.order(&order);
        }
        let told: Vec<Value> = ranks.iter().map(|(_, node)| self.node(*node).process.hear()).collect();
        let portions: Vec<Vec<u64>> = told.iter().map(ids).collect();
        assert_portions(&portions, whole);
        let nodes: Vec<usize> = ranks.iter().map(|(_, node)| *node).collect();
        let expected = self.expect(&nodes, &portions);
        let mut came = Came::default();
        for ((node, told), expected) in nodes.iter().zip(&told).zip(&expected) {
            let number = |name: &str| told[name].as_u64().unwrap();
            let seen = Came { local: number("local"), peer: number("peer"), store: number("store") };
            assert_eq!(
                seen,
                *expected,
                "node {node} in epoch {epoch}: {:?}",
                (number("kept"), number("refused"), number("dropped"))
            );
            came.local += seen.local;
            came.peer += seen.peer;
            came.store += seen.store;
        }
        assert_eq!(self.store_reads().iter().sum::<u64>(), came.store, "as the store counts");
        came
    }

    /// Where the model says each portion comes from; the model has what the nodes have then.
    fn expect(&mut self, nodes: &[usize], portions: &[Vec<u64>]) -> Vec<Came> {
        let before: Vec<HashSet<u64>> = (0..self.nodes.len())
            .map(|node| if self.nodes[node].is_some() { self.held(node).clone() } else { HashSet::new() })
            .collect();
        let mut all = Vec::new();
        for (node, portion) in nodes.iter().zip(portions) {
            let mut came = Came::default();
            for id in portion {
                let rank = self.model.as_ref().unwrap().rank(*id);
                let mine = self.nodes[*node].as_ref().unwrap().model.as_ref().unwrap();
                let (owner, keeps) = (self.members[mine.owner(rank)], mine.keeps(rank));
                let reached = owner != *node && self.reaches(*node, owner);
                if before[*node].contains(id) {
                    came.local += 1;
                    continue;
                }
                if reached && before[owner].contains(id) {
                    came.peer += 1;
                } else {
                    came.store += 1;
                    if reached {
                        self.node(owner).model.as_mut().unwrap().held.insert(*id);
                    }
                }
                if keeps {
                    self.node(*node).model.as_mut().unwrap().held.insert(*id);
                }
            }
            all.push(came);
        }
        all
    }

    /// How often each sample was read from the store since this was asked last.
    fn store_reads(&mut self) -> Vec<u64> {
        let told = self.store.ask(&json!({}));
        let reads: Vec<u64> = told["reads"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
        let since = reads.iter().zip(&self.reads).map(|(now, before)| now - before).collect();
        self.reads = reads;
        since
    }

    /// How often each sample was read from the store in all.
    pub(crate) fn reads(&mut self) -> Vec<u64> {
        self.store_reads();
        self.reads.clone()
    }

    /// Kills a node when all are in the midst of an epoch. The others' portions are whole, and what they read from the
    /// store is what the lost one kept: each of it once.
    pub(crate) fn kill_in_an_epoch(&mut self, lost: usize) {
        let (epoch, count) = (self.epoch, self.nodes.len());
        self.epoch += 1;
        for node in 0..count {
            let order =
                json!({ "order": "epoch", "epoch": epoch, "rank": node, "ranks": count, "pause": true });
            self.node(node).process.order(&order);
        }
        for node in 0..count {
            assert_eq!(self.node(node).process.hear()["paused"], true);
        }
        assert_eq!(self.store_reads().iter().sum::<u64>(), 0);
        self.kill(lost);
        let left: Vec<usize> = (0..count).filter(|node| *node != lost).collect();
        for node in &left {
            self.node(*node).process.order(&json!({}));
        }
        let told: Vec<Value> = left.iter().map(|node| self.node(*node).process.hear()).collect();
        let portions: Vec<Vec<u64>> = told.iter().map(ids).collect();
        assert_portions(&portions, false);
        let reads = self.store_reads();
        let mut store = 0;
        for (node, portion) in left.iter().zip(&portions) {
            for id in portion {
                let read = reads[*id as usize];
                let model = self.nodes[*node].as_ref().unwrap().model.as_ref().unwrap();
                let owner = self.members[model.owner(self.model.as_ref().unwrap().rank(*id))];
                assert!(
                    read == 0 || (read == 1 && owner == lost && !model.held.contains(id)),
                    "{id}: {read}"
                );
                store += read;
            }
        }
        assert_eq!(reads.iter().sum::<u64>(), store, "nothing else was read");
        assert!(store > 0);
        for (node, portion) in left.iter().zip(&portions) {
            let ranks = self.model.as_ref().unwrap();
            let model = self.nodes[*node].as_mut().unwrap().model.as_mut().unwrap();
            let copies: Vec<u64> =
                portion.iter().copied().filter(|id| model.keeps(ranks.rank(*id))).collect();
            model.held.extend(copies);
        }
        for (told, portion) in told.iter().zip(&portions) {
            let came = ["local", "peer", "store"].map(|name| told[name].as_u64().unwrap());
            assert_eq!(came.iter().sum::<u64>(), portion.len() as u64);
        }
    }

    pub(crate) fn kill(&mut self, node: usize) {
        self.node(node).process.signal(Signal::KILL);
        self.nodes[node] = None;
    }

    pub(crate) fn stop(&mut self, node: usize) {
        self.node(node).process.stop();
    }

    pub(crate) fn go_on(&mut self, node: usize) {
        self.node(node).process.signal(Signal::CONT);
    }

    pub(crate) fn cut(&mut self, node: usize) {
        self.network.set_link(node, false);
        self.cut.insert(node);
    }

    pub(crate) fn mend(&mut self, node: usize) {
        self.network.set_link(node, true);
        self.cut.remove(&node);
    }

    /// Another process in the place of one that is gone.
    pub(crate) fn restart(&mut self, node: usize) {
        let begun = self.begin(node);
        self.nodes[node] = Some(begun);
        self.remodel();
    }

    /// As [`Self::restart`], where a dispatcher tells who is there.
    pub(crate) fn restart_running(&mut self, node: usize) {
        self.restart(node);
    }

    /// Epochs until the store is not read any more: nodes that were away are asked again after a while.
    pub(crate) fn until_settled(&mut self, nodes: &[usize]) {
        let since = Instant::now();
        loop {
            let epoch = self.epoch;
            self.epoch += 1;
            for (rank, node) in nodes.iter().enumerate() {
                let order = json!({ "order": "epoch", "epoch": epoch, "rank": rank, "ranks": nodes.len() });
                self.node(*node).process.order(&order);
            }
            let told: Vec<Value> = nodes.iter().map(|node| self.node(*node).process.hear()).collect();
            assert_portions(&told.iter().map(ids).collect::<Vec<_>>(), true);
            if self.store_reads().iter().sum::<u64>() == 0 {
                return;
            }
            assert!(since.elapsed() < LONG, "payloads do not settle with their owners");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// A node more takes part.
    pub(crate) fn join(&mut self) {
        let node = self.nodes.len();
        self.members.push(node);
        // As one that is started with the new list; the others read it while they run.
        self.write_members();
        let begun = self.begin(node);
        self.nodes.push(Some(begun));
        let all: Vec<usize> = (0..=node).collect();
        self.until_members(&all, node as u64 + 1);
        self.choose_anew();
    }

    /// A node takes part no more.
    pub(crate) fn leave(&mut self, node: usize) {
        self.members.retain(|member| *member != node);
        self.write_members();
        self.kill(node);
        self.until_members(&self.members.clone(), self.members.len() as u64);
        self.choose_anew();
    }

    /// Nodes choose what is resident for those who take part now, and hold that and no more then.
    fn choose_anew(&mut self) {
        self.remodel();
        for node in self.members.clone() {
            self.node(node).process.ask(&json!({ "order": "choose" }));
            let expected = self.held(node).len() as u64;
            assert_eq!(self.node(node).process.ask(&json!({ "order": "view" }))["kept"], expected);
        }
    }

    fn write_members(&self) {
        let (folder, path) = self.file.as_ref().unwrap();
        let lines: Vec<String> = self.members.iter().map(|node| self.network.address(*node)).collect();
        let fresh = folder.path().join("nodes.new");
        std::fs::write(&fresh, lines.join("\n")).unwrap();
        std::fs::rename(fresh, path).unwrap();
    }

    /// Waits until all of them know of so many.
    pub(crate) fn until_members(&mut self, nodes: &[usize], members: u64) {
        let since = Instant::now();
        for node in nodes {
            while self.node(*node).process.ask(&json!({ "order": "view" }))["members"] != members {
                assert!(since.elapsed() < LONG, "node {node} does not hear of {members} members");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    /// Samples that a node owns.
    pub(crate) fn owned_by(&self, node: usize) -> u64 {
        let model = self.model.as_ref().unwrap();
        let of = self.nodes[node].as_ref().unwrap().model.as_ref().unwrap();
        let mine = (0..SAMPLES).filter(|id| self.members[of.owner(model.rank(*id))] == node);
        mine.count() as u64
    }

    /// The next epoch of loaders that run on: exact, and this often the store was read.
    pub(crate) fn run_on(&mut self, nodes: &[usize]) -> u64 {
        for (rank, node) in nodes.iter().enumerate() {
            let order = json!({ "order": "run_on", "rank": rank, "ranks": nodes.len() });
            self.node(*node).process.order(&order);
        }
        let portions: Vec<Vec<u64>> =
            nodes.iter().map(|node| ids(&self.node(*node).process.hear())).collect();
        assert_portions(&portions, true);
        self.store_reads().iter().sum()
    }
}

fn ids(told: &Value) -> Vec<u64> {
    told["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

/// No sample twice; of a whole epoch none is missing.
fn assert_portions(portions: &[Vec<u64>], whole: bool) {
    let mut all: Vec<u64> = portions.iter().flatten().copied().collect();
    all.sort_unstable();
    if whole {
        assert_eq!(all, (0..SAMPLES).collect::<Vec<_>>());
    } else {
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
        let even = SAMPLES as usize / (portions.len() + 1);
        assert_eq!(count, portions.len() * even, "portions of those who are there are whole");
    }
}
