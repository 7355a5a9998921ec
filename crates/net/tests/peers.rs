//! Three nodes with one cache: over sockets on three loopback addresses, and over pipes in virtual time.
#![allow(clippy::unwrap_used, reason = "a test helper fails by panicking")]

mod common;

use common::{BOTH, Flow, LONG, MEMORY, MapKeeper, Pipe, body, payloads};
use forebay_core::cache::{Capacity, Cost, Ownership, Residency};
use forebay_engine::cache::{Keeper, LocalKeeper, Look, Payload, Read, Tier};
use forebay_net::peer::{OwnedKeeper, PeerKeeper, PeerOptions};
use forebay_net::wire::Kind;
use forebay_net::{Connect, Credentials, Server, ServerOptions, TcpConnector, Threads, Token};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

const COUNT: u64 = 3000;
const NAMES: [&str; 4] = ["node-0", "node-1", "node-2", "node-3"];

/// One node: what it keeps, how it asks others, and what others ask of it.
struct Node {
    map: Arc<MapKeeper>,
    keeper: PeerKeeper,
    ownership: Ownership,
    residency: Residency,
    server: Option<Arc<Server>>,
    /// Payloads that it read from the store.
    store: u64,
}

struct Plan {
    ownership: Ownership,
    residency: Residency,
    options: PeerOptions,
}

/// What node `me` of `count` keeps, with room for 40 % of all payloads.
fn plan(me: usize, count: usize, all: &[Payload], patience: Option<Duration>) -> Plan {
    let ownership = Ownership::new(11, &NAMES[..count], me).unwrap();
    let ranked = all.iter().map(|payload| {
        let cost = Cost { memory: payload.length, disk: payload.length };
        (ownership.local_rank(payload.rank), cost)
    });
    let residency = Residency::choose(Capacity { memory: room(all), disk: 0 }, ranked);
    let mut options = PeerOptions::default();
    if let Some(patience) = patience {
        (options.first_deadline, options.shortest_deadline) = (patience, patience);
    }
    Plan { ownership, residency, options }
}

fn room(all: &[Payload]) -> u64 {
    all.iter().map(|payload| payload.length).sum::<u64>() * 40 / 100
}

fn serve(map: &Arc<MapKeeper>, plan: &Plan, options: ServerOptions) -> Server {
    let keeper = OwnedKeeper::new(map.clone(), plan.ownership.clone().into());
    Server::new(Arc::new(keeper), options, Threads::current())
}

/// Nodes on 127.0.0.1, 127.0.0.2 and 127.0.0.3 that know a token.
async fn sockets(all: &[Payload]) -> Vec<Node> {
    let credentials = Credentials { token: Some(Token::new("the token of this job").unwrap()), tls: None };
    let mut nodes = Vec::new();
    let mut addresses = Vec::new();
    for me in 0..3 {
        let mut plan = plan(me, 3, all, Some(LONG));
        plan.options.credentials = credentials.clone();
        let map = MapKeeper::new(room(all));
        let options = ServerOptions { credentials: credentials.clone(), ..ServerOptions::default() };
        let server = serve(&map, &plan, options);
        addresses.push(server.listen_tcp(&format!("127.0.0.{}:0", me + 1)).await.unwrap().to_string());
        nodes.push((map, plan, server));
    }
    let connect =
        |address: &String| Box::new(TcpConnector::new(address, &credentials).unwrap()) as Box<dyn Connect>;
    let node = |(map, plan, server): (Arc<MapKeeper>, Plan, Server)| {
        node(map, plan, Arc::new(server), addresses.iter().map(connect).collect())
    };
    nodes.into_iter().map(node).collect()
}

fn node(map: Arc<MapKeeper>, plan: Plan, server: Arc<Server>, connectors: Vec<Box<dyn Connect>>) -> Node {
    let Plan { ownership, residency, options } = plan;
    let keeper = PeerKeeper::with_connectors(
        map.clone(),
        Arc::new(ownership.clone()),
        connectors,
        options,
        Threads::current(),
    );
    Node { map, keeper, ownership, residency, server: Some(server), store: 0 }
}

/// Nodes over pipes, with what each kept before.
fn piped(maps: &[Arc<MapKeeper>], all: &[Payload]) -> (Vec<Node>, Vec<Pipe>) {
    let plans: Vec<Plan> = (0..maps.len()).map(|me| plan(me, maps.len(), all, None)).collect();
    let servers: Vec<Arc<Server>> = maps
        .iter()
        .zip(&plans)
        .map(|(map, plan)| Arc::new(serve(map, plan, ServerOptions::default())))
        .collect();
    let pipes: Vec<Pipe> =
        NAMES.iter().zip(&servers).map(|(name, server)| Pipe::named(name, server.clone())).collect();
    let connectors = || pipes.iter().map(|pipe| Box::new(pipe.clone()) as Box<dyn Connect>).collect();
    let nodes = maps.iter().zip(plans).zip(&servers);
    let nodes =
        nodes.map(|((map, plan), server)| node(map.clone(), plan, server.clone(), connectors())).collect();
    (nodes, pipes)
}

/// Where an epoch's payloads came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Came {
    local: u64,
    peer: u64,
    store: u64,
}

impl Node {
    /// Brings payloads as a loader does.
    async fn bring(&mut self, part: &[Payload]) -> Came {
        let mut came = Came::default();
        let mut near = Vec::new();
        let mut absent = Vec::new();
        for (look, payload) in self.keeper.look(part).await.into_iter().zip(part) {
            match look {
                Look::Here(bytes) => {
                    assert_eq!(bytes, body(payload));
                    came.local += 1;
                }
                Look::Near { tier: Tier::Peer, together: Some(_) } => near.push(*payload),
                Look::Near { .. } | Look::Coming => panic!("a map has nothing to read"),
                Look::Absent => absent.push(*payload),
            }
        }
        for (found, payload) in self.keeper.read(&near).await.into_iter().zip(&near) {
            match found {
                Some((bytes, tier)) => {
                    assert_eq!((&bytes, tier), (&body(payload), Tier::Peer));
                    came.peer += 1;
                    let place = self.residency.place(self.ownership.local_rank(payload.rank));
                    if place.is_kept() {
                        self.keeper.settle(*payload, place, &bytes).await;
                    }
                }
                None => absent.push(*payload),
            }
        }
        for payload in absent {
            came.store += 1;
            let place = self.residency.place(self.ownership.local_rank(payload.rank));
            self.keeper.keep(payload, place, &body(&payload)).await;
        }
        self.store += came.store;
        came
    }

    /// What must come from the store when these nodes do not answer.
    async fn lost(&self, part: &[Payload], gone: usize) -> u64 {
        let looks = self.map.look(part).await;
        let lost = |(payload, look): &(&Payload, Look)| {
            self.ownership.owner(payload.rank) == gone && matches!(look, Look::Absent)
        };
        part.iter().zip(looks).filter(lost).count() as u64
    }
}

/// The payloads of each of `count` nodes in an epoch: another cut each time.
fn portions(all: &[Payload], epoch: u64, count: usize) -> Vec<Vec<Payload>> {
    let mut portions = vec![Vec::new(); count];
    for payload in all {
        let draw = forebay_core::cache::Rank::new(epoch, 99, payload.id.0 as u64).0;
        portions[(draw % count as u64) as usize].push(*payload);
    }
    portions
}

async fn epoch(nodes: &mut [Node], all: &[Payload], number: u64) -> Came {
    let mut sum = Came::default();
    let portions = portions(all, number, nodes.len());
    for (node, portion) in nodes.iter_mut().zip(&portions) {
        for part in portion.chunks(64) {
            let came = node.bring(part).await;
            sum.local += came.local;
            sum.peer += came.peer;
            sum.store += came.store;
        }
        node.keeper.flush().await;
    }
    sum
}

#[tokio::test]
async fn p046_three_nodes_read_the_store_once_and_exchange_payloads_only() {
    let all = payloads(COUNT);
    let mut nodes = sockets(&all).await;
    let first = epoch(&mut nodes, &all, 1).await;
    assert_eq!((first.store, first.local), (COUNT, 0));
    assert!(nodes.iter().all(|node| node.keeper.peers_view().dropped == 0));
    let before: Vec<_> = nodes.iter().map(|node| node.server.as_ref().unwrap().counts()).collect();
    for number in 2..5 {
        let came = epoch(&mut nodes, &all, number).await;
        assert_eq!((came.store, came.local + came.peer), (0, COUNT), "epoch {number}");
        let share = came.peer as f64 / COUNT as f64;
        assert!((0.60..=0.67).contains(&share), "epoch {number}: {share} came from peers");
    }
    for (node, before) in nodes.iter().zip(&before) {
        let since = node.server.as_ref().unwrap().counts().since(before);
        assert!(since.of(Kind::Ask) > 0);
        assert_eq!(since.total(), since.of(Kind::Ask), "only payloads are asked for: {since:?}");
        assert!(node.map.view().memory.bytes <= room(&all) && node.map.view().memory.refused == 0);
    }
}

#[tokio::test]
async fn p047_a_node_that_is_killed_costs_its_own_payloads_only() {
    let all = payloads(COUNT);
    let mut nodes = sockets(&all).await;
    epoch(&mut nodes, &all, 1).await;
    let mut gone = nodes.pop().unwrap();
    let portions = portions(&all, 2, 2);
    let (mut expected, mut seen) = (0, 0);
    for (number, (node, portion)) in nodes.iter_mut().zip(&portions).enumerate() {
        let (before, after) = portion.split_at(portion.len() / 2);
        if number == 0 {
            for part in before.chunks(50) {
                assert_eq!(node.bring(part).await.store, 0);
            }
            gone.server = None;
        } else {
            expected += node.lost(before, 2).await;
            for part in before.chunks(50) {
                seen += node.bring(part).await.store;
            }
        }
        expected += node.lost(after, 2).await;
        for part in after.chunks(50) {
            seen += node.bring(part).await.store;
        }
    }
    assert!(expected > 700, "{expected}");
    assert_eq!(seen, expected, "exactly what the lost node held came from the store");
}

#[tokio::test(start_paused = true)]
async fn p047_a_slow_or_cut_off_node_costs_its_own_payloads_and_little_time() {
    for flow in [Flow::Held, Flow::Swallowed] {
        let all = payloads(600);
        let maps: Vec<_> = (0..3).map(|_| MapKeeper::new(room(&all))).collect();
        let (mut nodes, pipes) = piped(&maps, &all);
        epoch(&mut nodes, &all, 1).await;
        assert_eq!(epoch(&mut nodes, &all, 2).await.store, 0);
        pipes[2].set(flow);
        let started = tokio::time::Instant::now();
        let portions = portions(&all, 3, 2);
        for (node, portion) in nodes.iter_mut().zip(&portions) {
            let expected = node.lost(portion, 2).await;
            let mut seen = 0;
            for part in portion.chunks(20) {
                seen += node.bring(part).await.store;
            }
            assert_eq!(seen, expected, "{flow:?}");
            assert!(expected > 30);
        }
        assert!(started.elapsed() < Duration::from_secs(5), "{flow:?}: {:?}", started.elapsed());
        // It is asked again after a while, and then has what it had.
        pipes[2].set(Flow::Open);
        tokio::time::sleep(Duration::from_secs(31)).await;
        assert_eq!(epoch(&mut nodes, &all, 4).await.store, 0, "{flow:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn p047_a_node_that_joins_or_leaves_moves_what_changes_its_owner_and_no_more() {
    let all = payloads(2000);
    let maps: Vec<_> = (0..4).map(|_| MapKeeper::new(room(&all))).collect();
    let (mut three, mut pipes) = piped(&maps[..3], &all);
    epoch(&mut three, &all, 1).await;
    // The fourth comes; the three go on with the connections that they have.
    let plans: Vec<Plan> = (0..4).map(|me| plan(me, 4, &all, None)).collect();
    let server = Arc::new(serve(&maps[3], &plans[3], ServerOptions::default()));
    pipes.push(Pipe::named("node-3", server.clone()));
    let connectors =
        || pipes.iter().map(|pipe| Box::new(pipe.clone()) as Box<dyn Connect>).collect::<Vec<_>>();
    let mut plans = plans.into_iter();
    for node in &mut three {
        let plan = plans.next().unwrap();
        node.keeper.change_connectors(Arc::new(plan.ownership.clone()), connectors());
        (node.ownership, node.residency) = (plan.ownership, plan.residency);
    }
    let joined = node(maps[3].clone(), plans.next().unwrap(), server, connectors());
    let mut nodes = three;
    nodes.push(joined);
    // What the new node owns comes from the store once, when somebody reads it who does not happen to have it.
    let mut store = 0;
    for number in 2..12 {
        store += epoch(&mut nodes, &all, number).await.store;
    }
    let ours = &nodes[3].ownership;
    let moved = all.iter().filter(|payload| ours.is_mine(payload.rank)).count() as u64;
    assert!(moved as f64 <= (0.25 + 0.05) * all.len() as f64, "{moved}");
    assert!(store > moved / 2 && store <= moved, "{store} of {moved}");
    assert_eq!(maps[3].view().memory.refused, 0);
    assert!(nodes.iter().all(|node| node.keeper.peers_view().members == 4));
    // And leaves again: those who had what it owned still have it, the rest comes from the store.
    nodes.pop();
    for (me, node) in nodes.iter_mut().enumerate() {
        let plan = plan(me, 3, &all, None);
        let connectors = pipes[..3].iter().map(|pipe| Box::new(pipe.clone()) as Box<dyn Connect>).collect();
        node.keeper.change_connectors(Arc::new(plan.ownership.clone()), connectors);
        (node.ownership, node.residency) = (plan.ownership, plan.residency);
    }
    let portions = portions(&all, 12, 3);
    let (mut expected, mut store) = (0, 0);
    for (me, portion) in portions.iter().enumerate() {
        for payload in portion {
            let owner = &nodes[nodes[me].ownership.owner(payload.rank)].map;
            let has = |look: &[Look]| matches!(look[0], Look::Here(_));
            let asked = [*payload];
            let (here, there) = (has(&nodes[me].map.look(&asked).await), has(&owner.look(&asked).await));
            expected += u64::from(!here && !there);
        }
    }
    for (node, portion) in nodes.iter_mut().zip(&portions) {
        store += node.bring(portion).await.store;
    }
    assert_eq!(store, expected);
    assert!(expected < moved, "{expected} of {moved}");
}

#[tokio::test(start_paused = true)]
async fn p047_gifts_that_find_no_room_are_dropped_and_nobody_waits_for_them() {
    let all = payloads(200);
    let maps: Vec<_> = (0..2).map(|_| MapKeeper::new(u64::MAX)).collect();
    let server = |me: usize| Arc::new(serve(&maps[me], &plan(me, 2, &all, None), ServerOptions::default()));
    let servers: Vec<_> = (0..2).map(server).collect();
    let pipes: Vec<Pipe> = servers.iter().map(|server| Pipe::to(server.clone())).collect();
    let connectors = pipes.iter().map(|pipe| Box::new(pipe.clone()) as Box<dyn Connect>).collect();
    let Plan { ownership, mut options, .. } = plan(0, 2, &all, None);
    options.give_bytes = 1000;
    let keeper = PeerKeeper::with_connectors(
        maps[0].clone(),
        Arc::new(ownership.clone()),
        connectors,
        options,
        Threads::current(),
    );
    pipes[1].set(Flow::Held);
    let others: HashSet<_> =
        all.iter().filter(|payload| !ownership.is_mine(payload.rank)).map(|payload| payload.id).collect();
    for payload in &all {
        keeper.keep(*payload, BOTH, &body(payload)).await;
    }
    pipes[1].set(Flow::Open);
    keeper.flush().await;
    let view = keeper.peers_view();
    assert_eq!(view.given + view.dropped, others.len() as u64);
    assert!(view.given <= 10 && maps[1].len() as u64 == view.given, "{view:?}");
}

/// Two processes of one host want the same payload of a peer at once: both ask the owner, which knows who is to fetch it.
/// Nobody goes to the store, and nobody here is left with a claim.
#[tokio::test(start_paused = true)]
async fn p047_processes_of_a_host_ask_the_owner_before_the_store() {
    use forebay_net::{RemoteKeeper, RemoteOptions};
    let all = payloads(50);
    let (theirs, ours) = (MapKeeper::new(u64::MAX), MapKeeper::new(u64::MAX));
    let owner = Arc::new(serve(&theirs, &plan(1, 2, &all, None), ServerOptions::default()));
    let host = Arc::new(Server::new(ours.clone(), ServerOptions::default(), Threads::current()));
    let mut processes = Vec::new();
    for _ in 0..2 {
        let local =
            RemoteKeeper::connect(Pipe::to(host.clone()), RemoteOptions::default(), Threads::current()).await;
        let connectors: Vec<Box<dyn Connect>> =
            vec![Box::new(Pipe::to(owner.clone())), Box::new(Pipe::to(owner.clone()))];
        let Plan { ownership, options, .. } = plan(0, 2, &all, None);
        let local = Arc::new(local.unwrap());
        processes.push(PeerKeeper::with_connectors(
            local,
            Arc::new(ownership),
            connectors,
            options,
            Threads::current(),
        ));
    }
    let ownership = Ownership::new(11, &NAMES[..2], 0).unwrap();
    let one = *all.iter().find(|payload| !ownership.is_mine(payload.rank)).unwrap();
    theirs.keep(one, BOTH, &body(&one)).await;
    let asked = [one];
    assert!(matches!(processes[0].look(&asked).await[0], Look::Near { tier: Tier::Peer, .. }));
    assert!(matches!(processes[1].look(&asked).await[0], Look::Near { tier: Tier::Peer, .. }));
    let reads = futures::future::join(processes[0].read(&asked), processes[1].read(&asked)).await;
    let expected = Some((body(&one), Tier::Peer));
    assert_eq!((&reads.0[0], &reads.1[0]), (&expected, &expected));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(host.claimed(), 0);
}

/// An owner whose own store is slow says at once that a payload is coming. Who waits for it gets it, and does not take the
/// owner for sick.
#[tokio::test(start_paused = true)]
async fn p047_an_owner_that_waits_for_its_store_is_well_and_gives_what_came() {
    let all = payloads(200);
    let keeper = Arc::new(LocalKeeper::new(u64::MAX, None));
    let owned = OwnedKeeper::new(keeper.clone(), plan(1, 2, &all, None).ownership.into());
    let owner = Arc::new(Server::new(Arc::new(owned), ServerOptions::default(), Threads::current()));
    let asker = asker(&owner, &all);
    let mine = asked_of_the_owner(&all);
    let (slow, ready) = (mine[0], mine[1]);
    // The owner's loader fetches one, and has the other.
    assert!(matches!(keeper.look(&[slow]).await[0], Look::Absent));
    keeper.keep(ready, MEMORY, &body(&ready)).await;
    for _ in 0..3 {
        assert!(matches!(asker.look(&[slow]).await[0], Look::Near { tier: Tier::Peer, .. }));
        assert_eq!(asker.read_now(&[slow]).await, [Read::Coming]);
        let reading = asker.read(std::slice::from_ref(&slow));
        assert!(tokio::time::timeout(Duration::from_secs(4), reading).await.is_err());
        // Ready ones are given meanwhile, by the connection there is.
        assert!(matches!(asker.look(&[ready]).await[0], Look::Near { tier: Tier::Peer, .. }));
        assert_eq!(asker.read_now(&[ready]).await, [Read::Here(body(&ready), Tier::Peer)]);
    }
    assert!(matches!(asker.look(&[slow]).await[0], Look::Near { tier: Tier::Peer, .. }));
    let asked = [slow];
    let bytes = body(&slow);
    let came = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        keeper.keep(slow, MEMORY, &bytes).await;
    };
    let (found, ()) = futures::future::join(asker.read(&asked), came).await;
    assert_eq!(found, [Some((body(&slow), Tier::Peer))]);
    let view = asker.peers_view();
    assert_eq!(view.unanswered, 0, "{view:?}");
}

/// A peer that was told to fetch a payload is waited for, by other peers and by the owner; when it gives up or is gone,
/// one of those fetches it.
#[tokio::test(start_paused = true)]
async fn p046_what_is_on_its_way_to_its_owner_is_waited_for() {
    for end in ["given", "given up", "gone", "silent"] {
        let all = payloads(200);
        let keeper = Arc::new(LocalKeeper::new(u64::MAX, None));
        let owned = OwnedKeeper::new(keeper.clone(), plan(1, 2, &all, None).ownership.into());
        let owner = Arc::new(Server::new(Arc::new(owned), ServerOptions::default(), Threads::current()));
        let (first, second) = (asker(&owner, &all), asker(&owner, &all));
        let one = [asked_of_the_owner(&all)[0]];
        first.look(&one).await;
        assert_eq!(first.read_now(&one).await, [Read::Absent], "it is the one to fetch");
        second.look(&one).await;
        assert_eq!(second.read_now(&one).await, [Read::Coming]);
        assert!(matches!(keeper.look(&one).await[0], Look::Coming), "also for the owner");
        let (waiting, other) = (keeper.clone(), second.read(&one));
        let own = tokio::spawn(async move { waiting.read(&one).await });
        let ending = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            match end {
                "given" => {
                    first.keep(one[0], BOTH, &body(&one[0])).await;
                    first.flush().await;
                }
                "given up" => first.give_up(one[0]),
                "gone" => drop(first),
                // Nothing is said for longer than a peer may take.
                _ => tokio::time::sleep(Duration::from_secs(40)).await,
            }
        };
        let (other, ()) = futures::future::join(other, ending).await;
        if end == "given" {
            assert_eq!(other, [Some((body(&one[0]), Tier::Peer))]);
            assert_eq!(own.await.unwrap(), [Some((body(&one[0]), Tier::Memory))]);
        } else {
            assert_eq!(other, [None], "{end}");
            second.give_up(one[0]);
            assert_eq!(tokio::time::timeout(LONG, own).await.expect(end).unwrap(), [None], "{end}");
            tokio::time::sleep(LONG).await;
            assert!(matches!(keeper.look(&one).await[0], Look::Absent), "{end}: nobody claims it");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(owner.claimed(), 0, "{end}");
    }
}

/// Node 0 of two, which asks this owner.
fn asker(owner: &Arc<Server>, all: &[Payload]) -> PeerKeeper {
    let connectors: Vec<Box<dyn Connect>> =
        vec![Box::new(Pipe::to(owner.clone())), Box::new(Pipe::to(owner.clone()))];
    let Plan { ownership, options, .. } = plan(0, 2, all, None);
    let local = Arc::new(LocalKeeper::new(0, None));
    PeerKeeper::with_connectors(local, Arc::new(ownership), connectors, options, Threads::current())
}

fn asked_of_the_owner(all: &[Payload]) -> Vec<Payload> {
    let ownership = Ownership::new(11, &NAMES[..2], 0).unwrap();
    all.iter().copied().filter(|payload| !ownership.is_mine(payload.rank)).collect()
}
