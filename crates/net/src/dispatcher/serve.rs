//! The running dispatcher: the machine of core behind gRPC, with its journal and a clock.
//!
//! What a call meets is in `machine`, who leads where several share a journal in `seat`. When the journal cannot be
//! written any more every call is refused: what would be decided could be forgotten.

use super::commit::{Commit, Promise, Writer};
use super::etcd::{Client, EtcdOptions};
use super::journal::{FileJournal, Keys};
use super::machine::{Gate, Leading, Machine, real_clock};
use super::message::{CALL, HELLO, Hello, MAX_COMMAND, MAX_MESSAGE, Request, Response, is_bearer};
use super::metrics::text;
use super::seat::Seat;
use super::socket::{Doors, Met, incoming};
use crate::credentials::name_provider;
use crate::credentials::{Credentials, Token};
use crate::metrics::{Pages, Show};
use crate::scale::{Wish, object};
use crate::threads::Threads;
use forebay_core::dispatcher::{Command, Dispatcher, Reply, Settings, State, View};
use forebay_core::election::Times;
use forebay_core::scale::ScaleSettings;
use forebay_core::{Error, Result};
use futures::FutureExt;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::codegen::{BoxFuture, Context, Poll, Service, http};
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic_prost::ProstCodec;

/// How long a connection may be silent before it is asked whether it lives, and how long it may think about that.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// How long one call may take.
const CALL_TIME: Duration = Duration::from_secs(30);

/// Calls of one connection that are worked on at once, each with a command in memory; others wait.
const CALLS: usize = 16;

/// Calls of one connection that may have begun.
const STREAMS: u32 = 128;

/// Bytes of one call, and of all calls of a connection, that are taken in before somebody wants them.
const STREAM_BYTES: u32 = 64 << 10;
const CONNECTION_BYTES: u32 = 256 << 10;

/// Bytes of the headers of one call.
const HEADER_BYTES: u32 = 16 << 10;

/// How long calls may take to end when the dispatcher stops.
const GRACE: Duration = Duration::from_secs(2);

/// What a dispatcher is started with.
#[derive(Clone, Debug)]
pub struct DispatcherOptions {
    /// Where it listens, `host:port`; port 0 is any.
    pub listen: String,
    /// The folder of its journal. Without one it forgets everything when it ends.
    pub state: Option<PathBuf>,
    /// An etcd for its journal instead, which it shares with other dispatchers: one of them leads.
    pub etcd: Option<EtcdOptions>,
    /// Where others are told to find it, when that is not where it listens.
    pub advertise: Option<String>,
    /// Who may connect. Off this machine certificates are needed: a token alone would cross the wire in the open.
    pub credentials: Credentials,
    /// Time-outs and limits of the machine.
    pub settings: Settings,
    /// What is aimed at with the number of workers.
    pub scale: ScaleSettings,
    /// Most connections at once; more wait until one is closed.
    pub connections: usize,
    /// Most connections at once on which no call was answered yet; more wait, too.
    pub arriving: usize,
    /// How long a connection may take until its first call is answered. One that has no token never gets there.
    pub begin_time: Duration,
}

impl Default for DispatcherOptions {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7077".into(),
            state: None,
            etcd: None,
            advertise: None,
            credentials: Credentials::default(),
            settings: Settings::default(),
            scale: ScaleSettings::default(),
            connections: 16_384,
            arriving: 1024,
            begin_time: Duration::from_secs(10),
        }
    }
}

/// A running dispatcher; it ends when this is dropped.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    threads: Threads,
    stop: watch::Sender<bool>,
    serving: Option<tokio::task::JoinHandle<Result<()>>>,
    promise: Option<Promise>,
    journal: Option<Writer>,
    /// Its part in an election, and the word that ends it.
    seat: Option<(tokio::task::JoinHandle<Result<()>>, watch::Sender<bool>)>,
    machine: Arc<Machine>,
}

/// Starts a dispatcher on these threads.
pub async fn serve(options: DispatcherOptions, threads: Threads) -> Result<Running> {
    let fail = |error| Error::io(format!("listen at `{}`", options.listen), error);
    let listener = threads.run(TcpListener::bind(options.listen.clone())).await;
    let listener =
        listener.ok_or_else(|| Error::internal("the network threads have ended"))?.map_err(fail)?;
    let address = listener.local_addr().map_err(fail)?;
    if !address.ip().is_loopback() && options.credentials.tls.is_none() {
        let why = format!("listen at `{}`: off this machine a dispatcher needs certificates", options.listen);
        return Err(Error::invalid_config(why)
            .with_hint("give `--tls-cert`, `--tls-key` and `--tls-ca`, or listen at 127.0.0.1"));
    }
    let mut server = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .concurrency_limit_per_connection(CALLS)
        .max_concurrent_streams(Some(STREAMS))
        .initial_stream_window_size(Some(STREAM_BYTES))
        .initial_connection_window_size(Some(CONNECTION_BYTES))
        .http2_max_header_list_size(Some(HEADER_BYTES))
        .timeout(CALL_TIME);
    if let Some(tls) = &options.credentials.tls {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|error| Error::io(format!("read `{}`", path.display()), error))
        };
        // The checks of files are better told there than by the transport.
        tls.server()?;
        name_provider();
        let config = ServerTlsConfig::new()
            .identity(Identity::from_pem(read(&tls.cert)?, read(&tls.key)?))
            .client_ca_root(Certificate::from_pem(read(&tls.ca_file)?))
            .timeout(options.begin_time);
        server = server.tls_config(config).map_err(|error| {
            Error::invalid_config(format!("use `{}` for TLS", tls.cert.display())).with_source(error)
        })?;
    }
    let machine = Arc::new(Machine::new(real_clock()));
    let (mut promise, mut journal, mut seat) = (None, None, None);
    if let Some(etcd) = &options.etcd {
        let taking_part = Seat {
            etcd: Arc::new(Client::new(etcd, &threads)?),
            keys: Keys::new(&etcd.prefix),
            address: options.advertise.clone().unwrap_or_else(|| address.to_string()),
            times: Times::default(),
            settings: options.settings,
            scale: options.scale,
            machine: machine.clone(),
            handle: threads.handle().clone(),
        };
        let (leave, told) = watch::channel(false);
        let checked = threads.run(async move { taking_part.check().await.map(|()| taking_part) }).await;
        let taking_part = checked.ok_or_else(|| Error::internal("the network threads have ended"))??;
        seat = Some((threads.handle().spawn(taking_part.run(told)), leave));
    } else {
        let (mut state, mut commit) = (State::default(), None);
        if let Some(folder) = &options.state {
            let (file, found) = FileJournal::open(folder)?;
            let (writing, writer) = Commit::on_thread(Box::new(file))?;
            (state, promise, journal) = (found, Some(writing.promise()), Some(writer));
            commit = Some(writing);
        }
        let decides = Dispatcher::new(state, options.settings, 0).with_scale(options.scale, 0);
        machine.lead(Leading::new(decides, commit, Gate::open(), machine.clock()));
    }
    let control =
        Control { machine: machine.clone(), token: options.credentials.token.clone().map(Arc::new) };
    let (stop, stopped) = watch::channel(false);
    let pause = (options.settings.worker_timeout_ms / 10).clamp(20, 1000);
    threads.handle().spawn(tick(machine.clone(), Duration::from_millis(pause), stopped.clone()));
    let DispatcherOptions { connections, arriving, begin_time, .. } = options;
    let incoming = incoming(listener, Doors { connections, arriving, begin_time });
    let serving = threads.handle().spawn(async move {
        let asked = ended(stopped.clone());
        let serving = server.serve_with_incoming_shutdown(control, incoming, asked);
        let served = tokio::select! {
            served = serving => served,
            () = async { ended(stopped).await; tokio::time::sleep(GRACE).await; } => Ok(()),
        };
        served.map_err(|error| Error::unavailable("serve the dispatcher").with_source(error))
    });
    Ok(Running { address, threads, stop, serving: Some(serving), promise, journal, seat, machine })
}

impl Running {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Shows what it knows, for as long as it runs.
    pub fn metrics(&self) -> Show {
        let machine = Arc::downgrade(&self.machine);
        Arc::new(move || {
            machine.upgrade().and_then(|machine| machine.view()).map(|view| text(&view)).unwrap_or_default()
        })
    }

    /// How many workers it wants, for as long as it runs.
    pub fn wanted(&self) -> Wish {
        let machine = Arc::downgrade(&self.machine);
        Arc::new(move || machine.upgrade().and_then(|machine| machine.wanted()))
    }

    /// All that it shows over HTTP, for as long as it runs.
    pub fn pages(&self) -> Pages {
        let (wanted, asked) = (self.wanted(), self.wanted());
        Pages {
            metrics: self.metrics(),
            // One whose journal cannot be written ends by itself; one that stands by is to be asked nothing.
            ready: Some(Arc::new(move || asked().map(drop).ok_or("not leading"))),
            scale: Some(Arc::new(move || {
                wanted().map_or_else(|| "{}".to_owned(), |wanted| object(&wanted).to_string())
            })),
        }
    }

    /// Everything it knows, for as long as it runs.
    pub fn views(&self) -> impl Fn() -> Result<View> + Send + use<> {
        let machine = Arc::downgrade(&self.machine);
        move || {
            let view = machine.upgrade().and_then(|machine| machine.view());
            view.ok_or_else(|| Error::unavailable("look at the dispatcher: it was stopped"))
        }
    }

    /// Waits until it cannot go on: its journal cannot be written, or it does not listen any more.
    pub async fn failed(&mut self) -> Error {
        let broken = match self.promise.clone() {
            Some(promise) => promise.broken().left_future(),
            None => std::future::pending().right_future(),
        };
        let unseated = match &mut self.seat {
            Some((seat, _)) => seat.left_future(),
            None => std::future::pending().right_future(),
        };
        let Some(serving) = &mut self.serving else { return Error::internal("the dispatcher was stopped") };
        let (error, is_unseated) = tokio::select! {
            error = broken => (error, false),
            ended = unseated => match ended {
                Ok(Err(error)) => (error, true),
                _ => (Error::internal("the dispatcher's part in the election has ended"), true),
            },
            ended = serving => match ended {
                Ok(Err(error)) => (error, false),
                _ => (Error::internal("the dispatcher has ended"), false),
            },
        };
        if is_unseated {
            // A task is waited for once.
            self.seat = None;
        }
        error
    }

    /// Whether it leads and may answer. One that is alone always does.
    pub fn leads(&self) -> bool {
        self.machine.leads()
    }

    /// Ends it: calls are answered, and all that was decided is kept when this returns. Another dispatcher that shares its
    /// journal leads at once.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        if let Some((seat, leave)) = self.seat.take() {
            // First of all: others wait for it, and whoever is still connected here is sent to them.
            leave.send_replace(true);
            let _ = seat.await;
        }
        if let Some(serving) = self.serving.take() {
            let _ = serving.await;
        }
        self.machine.close();
        if let Some(journal) = self.journal.take() {
            journal.finish(self.threads.handle()).await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.machine.close();
    }
}

async fn ended(mut stopped: watch::Receiver<bool>) {
    // Dropping the handle ends it too.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

async fn tick(machine: Arc<Machine>, pause: Duration, stopped: watch::Receiver<bool>) {
    let ticking = async move {
        loop {
            tokio::time::sleep(pause).await;
            // One that stands by, or may not answer, has no time to keep.
            let _ = machine.obey(Command::Tick).await;
        }
    };
    tokio::select! {
        () = ticking => {}
        () = ended(stopped) => {}
    }
}

/// The gRPC service.
#[derive(Clone, Debug)]
struct Control {
    machine: Arc<Machine>,
    token: Option<Arc<Token>>,
}

impl Control {
    fn check(&self, request: &http::Request<tonic::body::Body>) -> Result<(), tonic::Status> {
        let Some(token) = &self.token else { return Ok(()) };
        let given = request.headers().get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        if given.is_some_and(|given| is_bearer(token, given)) {
            return Ok(());
        }
        let why = if given.is_some() { "it has another token" } else { "the dispatcher wants a token" };
        Err(tonic::Status::unauthenticated(why))
    }
}

impl Service<http::Request<tonic::body::Body>> for Control {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        if let Err(status) = self.check(&request) {
            return Box::pin(async move { Ok(status.into_http()) });
        }
        let met = request.extensions().get::<Met>().cloned().unwrap_or_default();
        let machine = self.machine.clone();
        match request.uri().path() {
            HELLO => Box::pin(async move {
                let mut grpc = tonic::server::Grpc::new(ProstCodec::<Hello, Hello>::default())
                    .max_decoding_message_size(MAX_COMMAND);
                Ok(grpc.unary(SayHello(met), request).await)
            }),
            CALL => Box::pin(async move {
                let mut grpc = tonic::server::Grpc::new(ProstCodec::<Response, Request>::default())
                    .max_decoding_message_size(MAX_COMMAND + 1024)
                    .max_encoding_message_size(MAX_MESSAGE);
                Ok(grpc.unary(Obey(machine, met), request).await)
            }),
            _ => Box::pin(async { Ok(tonic::Status::unimplemented("there is no such method").into_http()) }),
        }
    }
}

struct SayHello(Met);

impl tonic::server::UnaryService<Hello> for SayHello {
    type Response = Hello;
    type Future = std::future::Ready<Result<tonic::Response<Hello>, tonic::Status>>;

    fn call(&mut self, _: tonic::Request<Hello>) -> Self::Future {
        self.0.set();
        std::future::ready(Ok(tonic::Response::new(Hello::ours())))
    }
}

struct Obey(Arc<Machine>, Met);

impl tonic::server::UnaryService<Request> for Obey {
    type Response = Response;
    type Future = BoxFuture<tonic::Response<Response>, tonic::Status>;

    fn call(&mut self, request: tonic::Request<Request>) -> Self::Future {
        self.1.set();
        let machine = self.0.clone();
        Box::pin(async move {
            let outcome = match request.get_ref().command() {
                // Time passes here, not when somebody says so.
                Ok(Command::Tick) => Ok(Reply::Done),
                Ok(command) => machine.obey(command).await,
                Err(error) => Err(error),
            };
            let leader = if outcome.is_err() { machine.leader() } else { None };
            Ok(tonic::Response::new(Response::new(&outcome).naming(leader)))
        })
    }
}
