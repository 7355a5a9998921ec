//! The dispatcher as a process would run it: gRPC over sockets, credentials, versions, and a journal it comes back from.
#![allow(clippy::unwrap_used, reason = "a test whose surroundings are broken may panic")]

use forebay_core::ErrorKind;
use forebay_core::dispatcher::{
    Command, JobName, Load, Reached, Reply, Sharding, Terms, View, Visitation, Who, WorkerId,
};
use forebay_core::feed::{FeedId, Span};
use forebay_net::dispatcher::{CONTROL_VERSION, Control, ControlOptions, DispatcherOptions, Running, serve};
use forebay_net::{Credentials, PeerTls, Threads, Token};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const LONG: Duration = Duration::from_secs(30);

async fn start(state: Option<&Path>, credentials: Credentials) -> Running {
    let listen = "127.0.0.1:0".to_owned();
    let options =
        DispatcherOptions { listen, state: state.map(Into::into), credentials, ..Default::default() };
    serve(options, Threads::current()).await.unwrap()
}

fn control(address: SocketAddr, credentials: Credentials) -> Control {
    let options = ControlOptions { address: format!("forebay://{address}"), credentials };
    Control::new(&options, Threads::current()).unwrap()
}

fn who(rank: u64) -> Who {
    Who { job: JobName::new("train").unwrap(), rank, consumer: rank + 1 }
}

fn attach(rank: u64) -> Command {
    let terms = Terms {
        feed: FeedId(9),
        label: "data/train".into(),
        world_size: 2,
        span_positions: 8,
        epoch_positions: 100,
        sharding: Sharding::Dynamic,
        visitation: Visitation::ExactlyOnce,
    };
    Command::AttachJob { who: who(rank), terms, from: Reached::default(), step: 0 }
}

fn register(worker: u64) -> Command {
    let address = format!("10.0.0.{worker}:1");
    Command::RegisterWorker { worker: WorkerId(worker), address, tags: vec![], slots: 2 }
}

fn take(rank: u64, request: u64, done: &[u64]) -> Command {
    let done = done.iter().map(|number| Span { epoch: 0, number: *number }).collect();
    Command::TakeSpan { who: who(rank), request, epoch: 0, done }
}

async fn view(control: &Control) -> View {
    match control.ask(&Command::View, LONG).await.unwrap() {
        Reply::View(view) => *view,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p054_workers_and_consumers_meet_through_a_dispatcher() {
    let running = start(None, Credentials::default()).await;
    let control = control(running.address(), Credentials::default());
    control.ask(&attach(0), LONG).await.unwrap();
    let locate = Command::Locate { who: who(0), spans: vec![Span { epoch: 0, number: 3 }], avoid: vec![] };
    assert_eq!(control.ask(&locate, LONG).await.unwrap(), Reply::NoWorkers);
    let Reply::Registered { incarnation, .. } = control.ask(&register(1), LONG).await.unwrap() else {
        panic!("not registered")
    };
    let Reply::Located(located) = control.ask(&locate, LONG).await.unwrap() else { panic!("not located") };
    assert_eq!((located[0].worker, located[0].address.as_str()), (WorkerId(1), "10.0.0.1:1"));
    let beat = Command::Heartbeat { worker: WorkerId(1), incarnation, load: Load::default() };
    let Reply::Heartbeat(told) = control.ask(&beat, LONG).await.unwrap() else { panic!("not heard") };
    assert_eq!((told.leases, told.feeds.len()), (1, 1));
    let stranger = Command::Heartbeat { worker: WorkerId(2), incarnation, load: Load::default() };
    let error = control.ask(&stranger, LONG).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale, "{}", error.report());
    assert_eq!(view(&control).await.leases, 1);
    // From a plain thread.
    let from_thread = control.clone();
    let round = Command::CurrentRound { job: who(0).job };
    let called = tokio::task::spawn_blocking(move || from_thread.call(&round, LONG)).await.unwrap();
    assert!(matches!(called, Ok(Reply::Round { step: 0, .. })));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p057_a_dispatcher_comes_back_with_what_it_had_decided_and_calls_wait_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(Some(folder.path()), Credentials::default()).await;
    let door = Door::open(running.address()).await;
    let control = control(door.address, Credentials::default());
    for command in [register(1), attach(0), attach(1)] {
        control.ask(&command, LONG).await.unwrap();
    }
    let taken = |number| Reply::Taken(Span { epoch: 0, number });
    assert_eq!(control.ask(&take(0, 1, &[]), LONG).await.unwrap(), taken(0));
    assert_eq!(control.ask(&take(1, 1, &[]), LONG).await.unwrap(), taken(1));
    let before = view(&control).await;
    door.shut();
    running.stop().await;
    let waiting = control.clone();
    let waiting = tokio::spawn(async move { waiting.ask(&take(0, 1, &[]), LONG).await });
    let second = control.ask(&take(0, 1, &[]), Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(second.kind(), ErrorKind::Unavailable, "{}", second.report());
    let running = start(Some(folder.path()), Credentials::default()).await;
    door.lead_to(running.address());
    assert_eq!(waiting.await.unwrap().unwrap(), taken(0), "asked again, answered as before");
    assert_eq!(control.ask(&take(0, 2, &[0]), LONG).await.unwrap(), taken(2));
    let after = view(&control).await;
    assert_eq!(after.workers[0].worker, before.workers[0].worker);
    assert_eq!((after.jobs[0].taking.unwrap().done, after.jobs[0].taking.unwrap().in_hand), (1, 2));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_calls_at_once_are_all_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(Some(folder.path()), Credentials::default()).await;
    let control = control(running.address(), Credentials::default());
    let calls = (1..=200).map(|worker| {
        let control = control.clone();
        async move { control.ask(&register(worker), LONG).await }
    });
    assert!(futures::future::join_all(calls).await.iter().all(Result::is_ok));
    running.stop().await;
    let running = start(Some(folder.path()), Credentials::default()).await;
    assert_eq!(view(&self::control(running.address(), Credentials::default())).await.workers.len(), 200);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_who_knows_the_token_is_answered() {
    let token = |text: &str| Credentials { token: Some(Token::new(text).unwrap()), tls: None };
    let running = start(None, token("the right token, long enough")).await;
    let right = control(running.address(), token("the right token, long enough"));
    right.ask(&Command::View, LONG).await.unwrap();
    for (wrong, why) in
        [(token("another token, also long"), "another token"), (Credentials::default(), "wants a token")]
    {
        let error = control(running.address(), wrong).ask(&Command::View, LONG).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{}", error.report());
        assert!(error.message().contains(why), "{}", error.report());
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn off_this_machine_nothing_goes_without_certificates() {
    let token = Credentials { token: Some(Token::new("a token, long enough").unwrap()), tls: None };
    for credentials in [Credentials::default(), token.clone()] {
        let options = DispatcherOptions { listen: "0.0.0.0:0".into(), credentials, ..Default::default() };
        let error = serve(options, Threads::current()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{}", error.report());
    }
    for address in ["192.0.2.1:7077", "no address", "127.0.0.1:x"] {
        let options = ControlOptions { address: address.into(), credentials: token.clone() };
        let error = Control::new(&options, Threads::current()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{}", error.report());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_the_same_authority_are_needed_on_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    let (member, stranger) = certificates(folder.path());
    let with = |tls: PeerTls| Credentials { token: None, tls: Some(tls) };
    let running = start(None, with(member.clone())).await;
    control(running.address(), with(member)).ask(&Command::View, LONG).await.unwrap();
    let short = Duration::from_millis(200);
    for wrong in [with(stranger), Credentials::default()] {
        assert!(control(running.address(), wrong).ask(&Command::View, short).await.is_err());
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_is_closed_and_others_are_served() {
    let running = start(None, Credentials::default()).await;
    for garbage in [&b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..], &[0; 64], &[0xff; 64]] {
        let mut stream = TcpStream::connect(running.address()).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        let mut answer = Vec::new();
        // It may be cut off with or without a last word.
        let closed = tokio::time::timeout(LONG, stream.read_to_end(&mut answer)).await;
        assert!(closed.is_ok(), "the connection stays open");
    }
    control(running.address(), Credentials::default()).ask(&Command::View, LONG).await.unwrap();
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dispatcher_of_another_version_is_told_from_ours() {
    use tonic::codegen::{BoxFuture, Context, Poll, Service, http};
    #[derive(Clone)]
    struct Newer;
    impl Service<http::Request<tonic::body::Body>> for Newer {
        type Response = http::Response<tonic::body::Body>;
        type Error = std::convert::Infallible;
        type Future = BoxFuture<Self::Response, Self::Error>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }
        fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
            let codec = tonic_prost::ProstCodec::<Hello, Hello>::default();
            Box::pin(async move { Ok(tonic::server::Grpc::new(codec).unary(Newer, request).await) })
        }
    }
    impl tonic::server::UnaryService<Hello> for Newer {
        type Response = Hello;
        type Future = std::future::Ready<Result<tonic::Response<Hello>, tonic::Status>>;
        fn call(&mut self, _: tonic::Request<Hello>) -> Self::Future {
            let hello = Hello { version: CONTROL_VERSION + 1, release: "9.9".into() };
            std::future::ready(Ok(tonic::Response::new(hello)))
        }
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let incoming = futures::stream::unfold(listener, |listener| async move {
        Some((listener.accept().await.map(|(stream, _)| stream), listener))
    });
    let server = tokio::spawn(tonic::transport::Server::builder().serve_with_incoming(Newer, incoming));
    let error = control(address, Credentials::default()).ask(&Command::View, LONG).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{}", error.report());
    assert!(error.message().contains("9.9"), "{}", error.report());
    server.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_another_version_is_told_so_by_our_dispatcher() {
    use tonic::codegen::http;
    let running = start(None, Credentials::default()).await;
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", running.address())).unwrap();
    let mut grpc = tonic::client::Grpc::new(channel.connect().await.unwrap());
    grpc.ready().await.unwrap();
    let command = serde_json::to_vec(&Command::View).unwrap();
    let request = Request { version: CONTROL_VERSION + 1, command };
    let codec = tonic_prost::ProstCodec::<Request, Response>::default();
    let path = http::uri::PathAndQuery::from_static("/forebay.Control/Call");
    let response = grpc.unary(tonic::Request::new(request), path, codec).await.unwrap().into_inner();
    let fault = response.fault.unwrap();
    assert_eq!((fault.kind.as_str(), response.reply.is_empty()), ("unsupported", true));
    assert!(fault.message.contains(&format!("{}", CONTROL_VERSION + 1)), "{}", fault.message);
    running.stop().await;
}

#[derive(Clone, PartialEq, prost::Message)]
struct Request {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(bytes = "vec", tag = "2")]
    command: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Response {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(bytes = "vec", tag = "2")]
    reply: Vec<u8>,
    #[prost(message, optional, tag = "3")]
    fault: Option<Fault>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Fault {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "2")]
    message: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Hello {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(string, tag = "2")]
    release: String,
}

/// An address that stays the same while what is behind it comes and goes.
struct Door {
    address: SocketAddr,
    leads_to: Arc<Mutex<Option<SocketAddr>>>,
}

impl Door {
    async fn open(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let leads_to = Arc::new(Mutex::new(Some(to)));
        let inner = leads_to.clone();
        tokio::spawn(async move {
            loop {
                let (mut outside, _) = listener.accept().await.unwrap();
                let Some(to) = *inner.lock().unwrap() else { continue };
                tokio::spawn(async move {
                    let Ok(mut inside) = TcpStream::connect(to).await else { return };
                    let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
                });
            }
        });
        Self { address, leads_to }
    }

    fn shut(&self) {
        *self.leads_to.lock().unwrap() = None;
    }

    fn lead_to(&self, to: SocketAddr) {
        *self.leads_to.lock().unwrap() = Some(to);
    }
}

/// Certificates of a member and of one whom the authority does not know.
fn certificates(folder: &Path) -> (PeerTls, PeerTls) {
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
