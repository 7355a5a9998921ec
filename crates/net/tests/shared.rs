//! Clients that share one keeper: claims, waiting, losing each other.
#![allow(clippy::unwrap_used, reason = "a test helper fails by panicking")]

mod common;

use common::{MEMORY, MapKeeper, Pipe, body, payload, payloads, until};
use forebay_core::ErrorKind;
use forebay_core::cache::{Capacity, Place};
use forebay_engine::cache::{Keeper, Look, Payload, Tier};
use forebay_net::wire::Kind;
use forebay_net::{
    Credentials, PeerTls, Purpose, RemoteKeeper, RemoteOptions, Server, ServerOptions, TcpConnector, Threads,
    Token,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn serve(keeper: Arc<MapKeeper>) -> Arc<Server> {
    Arc::new(Server::new(keeper, ServerOptions::default(), Threads::current()))
}

async fn join(server: &Arc<Server>) -> RemoteKeeper {
    let pipe = Pipe::to(server.clone());
    RemoteKeeper::connect(pipe, RemoteOptions::default(), Threads::current()).await.unwrap()
}

/// Whether the asker is to fetch.
async fn is_absent(keeper: &RemoteKeeper, payload: Payload) -> bool {
    matches!(keeper.look(&[payload]).await[0], Look::Absent)
}

/// Brings every payload as a loader does; counts what comes from the store.
async fn epoch(keeper: &dyn Keeper, payloads: &[Payload], store: &AtomicU64) {
    for part in payloads.chunks(7) {
        for (look, payload) in keeper.look(part).await.into_iter().zip(part) {
            let bytes = match look {
                Look::Here(bytes) => Some(bytes),
                Look::Near { .. } | Look::Coming => {
                    keeper.read(&[*payload]).await.remove(0).map(|(bytes, _)| bytes)
                }
                Look::Absent => None,
            };
            if let Some(bytes) = bytes {
                assert_eq!(bytes, body(payload));
            } else {
                store.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                keeper.keep(*payload, MEMORY, &body(payload)).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn p045_four_clients_read_the_store_once_for_each_payload() {
    let server = serve(MapKeeper::new(u64::MAX));
    let (all, store) = (payloads(300), AtomicU64::new(0));
    let clients = [join(&server).await, join(&server).await, join(&server).await, join(&server).await];
    let mut orders = vec![all.clone(), all.clone(), all.clone(), all.clone()];
    orders[1].reverse();
    orders[2].rotate_left(100);
    let work = clients.iter().zip(&orders).map(|(client, order)| epoch(client, order, &store));
    futures::future::join_all(work).await;
    assert_eq!(store.load(Ordering::SeqCst), 300);
    assert_eq!(server.claimed(), 0);
}

#[tokio::test(start_paused = true)]
async fn p045_who_waits_gets_the_payload_as_soon_as_it_was_kept() {
    let server = serve(MapKeeper::new(u64::MAX));
    let (first, second) = (join(&server).await, join(&server).await);
    let one = payload(1);
    assert!(is_absent(&first, one).await);
    assert!(matches!(second.look(&[one]).await[0], Look::Coming));
    let waiting = tokio::spawn(async move { (second.read(&[one]).await, second) });
    tokio::task::yield_now().await;
    first.keep(one, MEMORY, &body(&one)).await;
    let (read, second) = waiting.await.unwrap();
    assert_eq!(read, [Some((body(&one), Tier::Memory))]);
    assert!(matches!(second.look(&[one]).await[0], Look::Near { together: Some(_), .. }));
}

#[tokio::test(start_paused = true)]
async fn p045_exactly_one_goes_on_when_the_fetcher_gives_up_leaves_or_is_slow() {
    for how in ["give up", "leave", "slow"] {
        let server = serve(MapKeeper::new(u64::MAX));
        let first = join(&server).await;
        let one = payload(1);
        assert!(is_absent(&first, one).await);
        let waiting: Vec<_> = futures::future::join_all((0..3).map(|_| join(&server))).await;
        let (told, mut tells) = tokio::sync::mpsc::channel(3);
        for client in waiting {
            assert!(!is_absent(&client, one).await);
            let told = told.clone();
            tokio::spawn(async move {
                let read = client.read(&[one]).await.remove(0);
                told.send((read, client)).await.unwrap();
            });
        }
        let before = tokio::time::Instant::now();
        match how {
            "give up" => first.give_up(one),
            "leave" => drop(first),
            _ => std::mem::forget(first),
        }
        let (read, next) = tells.recv().await.unwrap();
        assert!(read.is_none(), "{how}");
        assert_eq!(before.elapsed().as_secs() >= 30, how == "slow", "{how}");
        next.keep(one, MEMORY, &body(&one)).await;
        for _ in 0..2 {
            assert_eq!(tells.recv().await.unwrap().0, Some((body(&one), Tier::Memory)), "{how}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn p045_what_belongs_nowhere_or_finds_no_room_makes_nobody_wait() {
    for place in [Place::default(), MEMORY] {
        let server = serve(MapKeeper::new(0));
        let (first, second, third) = (join(&server).await, join(&server).await, join(&server).await);
        let one = payload(1);
        assert!(is_absent(&first, one).await);
        let before = tokio::time::Instant::now();
        let waiting = tokio::spawn(async move {
            let payloads = [one];
            let reads = futures::future::join(second.read(&payloads), third.read(&payloads)).await;
            (reads.0[0].is_none(), reads.1[0].is_none())
        });
        tokio::task::yield_now().await;
        first.keep(one, place, &body(&one)).await;
        assert_eq!(waiting.await.unwrap(), (true, true));
        assert!(before.elapsed() < Duration::from_secs(1));
    }
}

#[tokio::test(start_paused = true)]
async fn p045_a_question_that_is_dropped_leaves_no_claim_behind() {
    let server = serve(MapKeeper::new(u64::MAX));
    let (first, second) = (join(&server).await, join(&server).await);
    let all = payloads(100);
    // Dropped before the answer is there: it comes all the same, and nobody takes it.
    assert!(futures::poll!(first.look(&all)).is_pending());
    let before = tokio::time::Instant::now();
    loop {
        let looks = second.look(&all).await;
        let mine = looks.iter().filter(|look| matches!(look, Look::Absent)).count();
        if mine == 100 {
            break;
        }
        for (payload, _) in all.iter().zip(&looks).filter(|(_, look)| matches!(look, Look::Absent)) {
            second.give_up(*payload);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(before.elapsed() < Duration::from_secs(20), "{mine} of 100");
    }
}

#[tokio::test(start_paused = true)]
async fn a_keeper_behind_a_connection_is_the_keeper_itself() {
    let map = MapKeeper::new(1_000_000);
    let server = serve(map.clone());
    let client = join(&server).await;
    let all = payloads(5000);
    for one in &all[..3000] {
        map.keep(*one, MEMORY, &body(one)).await;
    }
    let looks = client.look(&all).await;
    assert!(looks[..3000].iter().all(|look| matches!(look, Look::Near { .. })));
    assert!(looks[3000..].iter().all(|look| matches!(look, Look::Absent)));
    let read = client.read(&all[..3000]).await;
    assert!(read.iter().zip(&all).all(|(read, one)| *read == Some((body(one), Tier::Memory))));
    assert_eq!(client.held(1).await.len(), 3000);
    assert!(client.held(2).await.is_empty());
    client.forget(&all[..2990].iter().map(|one| one.id).collect::<Vec<_>>()).await;
    assert_eq!((map.len(), client.ask_view().await), (10, map.view()));
    client.resize(Capacity { memory: 77, disk: 0 }).await.unwrap();
    assert_eq!(map.view().memory.limit, 77);
    let refused = client.resize(Capacity { memory: 1, disk: 1 }).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert_eq!(client.view(), map.view());
    // One that is as long as it says is taken, another is not, and nobody waits for it.
    let odd = Payload { length: 5, ..all[4000] };
    client.keep(odd, MEMORY, &body(&all[4000])).await;
    assert_eq!(map.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_lost_server_means_absent_until_it_is_there_again() {
    let map = MapKeeper::new(u64::MAX);
    let server = serve(map.clone());
    let pipe = Pipe::to(server.clone());
    let client =
        RemoteKeeper::connect(pipe.clone(), RemoteOptions::default(), Threads::current()).await.unwrap();
    let one = payload(1);
    client.keep(one, MEMORY, &body(&one)).await;
    pipe.cut();
    drop(server);
    until(|| !client.is_connected()).await;
    assert!(is_absent(&client, one).await);
    assert_eq!(client.read(&[one]).await, [None]);
    client.keep(one, MEMORY, &body(&one)).await;
    client.give_up(one);
    assert!(client.resize(Capacity::default()).await.is_err());
    pipe.mend(serve(map));
    let mut asked = 0;
    while is_absent(&client, one).await {
        asked += 1;
        assert!(asked < 100);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn peers_may_not_manage_what_another_node_holds() {
    let map = MapKeeper::new(u64::MAX);
    let server = serve(map.clone());
    let options = RemoteOptions { purpose: Purpose::Peer, ..RemoteOptions::default() };
    let peer = RemoteKeeper::connect(Pipe::to(server.clone()), options, Threads::current()).await.unwrap();
    let one = payload(1);
    peer.keep(one, MEMORY, &body(&one)).await;
    assert_eq!(peer.read(&[one, payload(2)]).await, [Some((body(&one), Tier::Memory)), None]);
    peer.forget(&[one.id]).await;
    assert_eq!(peer.resize(Capacity::default()).await.unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!((map.len(), server.claimed()), (1, 0));
    assert_eq!(server.counts().of(Kind::Read), 1);
}

#[tokio::test]
async fn strangers_are_refused_with_a_clear_error() {
    let token = |text: &str| Some(Token::new(text).unwrap());
    let credentials = Credentials { token: token("the token of this job"), tls: None };
    let options = ServerOptions { credentials, ..ServerOptions::default() };
    let server = Server::new(MapKeeper::new(0), options, Threads::current());
    let address = server.listen_tcp("127.0.0.1:0").await.unwrap().to_string();
    let connect = |token| {
        let connector = TcpConnector::new(&address, &Credentials::default()).unwrap();
        let options = RemoteOptions { token, ..RemoteOptions::default() };
        RemoteKeeper::connect(connector, options, Threads::current())
    };
    connect(token("the token of this job")).await.unwrap();
    for wrong in [token("the token of another job"), None] {
        let error = connect(wrong).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
        assert!(error.message().contains("token") && error.message().contains(&address), "{error:?}");
    }
}

#[tokio::test]
async fn an_open_server_listens_on_this_machine_only() {
    let serve = |token: Option<Token>| {
        let credentials = Credentials { token, tls: None };
        let options = ServerOptions { credentials, ..ServerOptions::default() };
        Server::new(MapKeeper::new(0), options, Threads::current())
    };
    let error = serve(None).listen_tcp("0.0.0.0:0").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.hint().is_some_and(|hint| hint.contains("token")));
    serve(None).listen_tcp("127.0.0.1:0").await.unwrap();
    serve(Some(Token::new("the token of this job").unwrap())).listen_tcp("0.0.0.0:0").await.unwrap();
}

/// Files of an authority and of two members, one signed by it and one by itself.
fn certificates(folder: &std::path::Path) -> (PeerTls, PeerTls) {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(params, &authority_key);
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let ca_file = write("ca.pem", authority.pem());
    let member = |name: &str, signed: bool| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let cert = if signed { params.signed_by(&key, &issuer) } else { params.self_signed(&key) }.unwrap();
        PeerTls {
            ca_file: ca_file.clone(),
            cert: write(&format!("{name}.pem"), cert.pem()),
            key: write(&format!("{name}.key"), key.serialize_pem()),
            name: None,
        }
    };
    (member("member", true), member("stranger", false))
}

#[tokio::test]
async fn members_with_certificates_meet_and_others_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (member, stranger) = certificates(folder.path());
    let served = |tls: &PeerTls| {
        let credentials = Credentials { token: None, tls: Some(tls.clone()) };
        let options = ServerOptions { credentials, ..ServerOptions::default() };
        Server::new(MapKeeper::new(u64::MAX), options, Threads::current())
    };
    let connect = |address: String, tls: Option<&PeerTls>| {
        let credentials = Credentials { token: None, tls: tls.cloned() };
        let connector = TcpConnector::new(&address, &credentials).unwrap();
        RemoteKeeper::connect(connector, RemoteOptions::default(), Threads::current())
    };
    let server = served(&member);
    let address = server.listen_tcp("127.0.0.1:0").await.unwrap().to_string();
    let client = connect(address.clone(), Some(&member)).await.unwrap();
    let one = payload(3);
    assert!(is_absent(&client, one).await);
    client.keep(one, MEMORY, &body(&one)).await;
    assert_eq!(client.read(&[one]).await, [Some((body(&one), Tier::Memory))]);
    let error = connect(address, Some(&stranger)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(error.message().contains("refused our certificate"), "{error:?}");
    let server = served(&stranger);
    let address = server.listen_tcp("127.0.0.1:0").await.unwrap().to_string();
    let error = connect(address, Some(&member)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(error.message().contains("not to be trusted"), "{error:?}");
}
