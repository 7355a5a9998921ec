//! The running dispatcher: the machine of core behind gRPC, with its journal and a clock.
//!
//! A call locks the machine, obeys, hands the events to the journal and unlocks; the answer goes out when they are on
//! disk. When the journal cannot be written any more every call is refused: what would be decided could be forgotten.

use super::commit::{Commit, Promise, open};
use super::message::{CALL, HELLO, Hello, MAX_COMMAND, MAX_MESSAGE, Request, Response, is_bearer};
use super::metrics::text;
use super::socket::{Doors, Met, incoming};
use crate::credentials::name_provider;
use crate::credentials::{Credentials, Token};
use crate::metrics::Show;
use crate::server::lock;
use crate::threads::Threads;
use forebay_core::dispatcher::{Command, Dispatcher, Reply, Settings, State, View};
use forebay_core::scale::ScaleSettings;
use forebay_core::{Error, Result};
use futures::FutureExt;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
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
    journal: Option<std::thread::JoinHandle<()>>,
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
    let (state, commit, journal) = match &options.state {
        Some(folder) => {
            let (journal, state) = open(folder)?;
            let (commit, thread) = Commit::start(journal)?;
            (state, Some(commit), Some(thread))
        }
        None => (State::default(), None, None),
    };
    let promise = commit.as_ref().map(Commit::promise);
    let machine = Dispatcher::new(state, options.settings, 0).with_scale(options.scale, 0);
    let machine = Arc::new(Machine { inner: Mutex::new(Some((machine, commit))), started: Instant::now() });
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
    Ok(Running { address, threads, stop, serving: Some(serving), promise, journal, machine })
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
        let Some(serving) = &mut self.serving else { return Error::internal("the dispatcher was stopped") };
        tokio::select! {
            error = broken => error,
            ended = serving => match ended {
                Ok(Err(error)) => error,
                _ => Error::internal("the dispatcher has ended"),
            },
        }
    }

    /// Ends it: calls are answered, and all that was decided is on disk when this returns.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        if let Some(serving) = self.serving.take() {
            let _ = serving.await;
        }
        self.machine.close();
        if let Some(journal) = self.journal.take() {
            let _ = self.threads.handle().spawn_blocking(move || journal.join()).await;
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

#[derive(Debug)]
struct Machine {
    /// None when it was stopped: a connection that outlives that must not keep the journal open.
    inner: Mutex<Option<(Dispatcher, Option<Commit>)>>,
    started: Instant,
}

impl Machine {
    /// Obeys, and waits until what was decided is on disk.
    async fn obey(&self, command: Command) -> Result<Reply> {
        let (outcome, promise) = self.decide(command);
        if let Some(promise) = promise {
            promise.kept().await?;
        }
        outcome
    }

    fn close(&self) {
        drop(lock(&self.inner).take());
    }

    /// What it knows now; `None` when it was stopped.
    fn view(&self) -> Option<View> {
        let now = self.started.elapsed().as_millis() as u64;
        lock(&self.inner).as_ref().map(|(machine, _)| machine.view(now))
    }

    fn decide(&self, command: Command) -> (Result<Reply>, Option<Promise>) {
        let now = self.started.elapsed().as_millis() as u64;
        let mut inner = lock(&self.inner);
        let Some((machine, commit)) = &mut *inner else {
            return (Err(Error::unavailable("ask the dispatcher: it was stopped")), None);
        };
        let outcome = machine.apply(now, command);
        let Some(commit) = commit else { return (outcome.map(|(reply, _)| reply), None) };
        let reply = outcome.map(|(reply, events)| {
            commit.take(events);
            reply
        });
        if commit.is_long() {
            commit.write_anew(machine.state().events());
        }
        (reply, Some(commit.promise()))
    }
}

async fn tick(machine: Arc<Machine>, pause: Duration, stopped: watch::Receiver<bool>) {
    let ticking = async move {
        loop {
            tokio::time::sleep(pause).await;
            if machine.obey(Command::Tick).await.is_err() {
                return;
            }
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
            Ok(tonic::Response::new(Response::new(&outcome)))
        })
    }
}
