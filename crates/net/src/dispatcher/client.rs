//! Asking a dispatcher. While it is away calls wait and try again, until the time that was given for them is over.
//!
//! Every command may be given twice: what was obeyed already is answered again. So a call whose answer was lost is
//! made again without asking what became of the first.

use super::message::{CALL, CONTROL_VERSION, HELLO, Hello, MAX_MESSAGE, Request, Response, bearer};
use crate::credentials::Credentials;
use crate::credentials::name_provider;
use crate::threads::Threads;
use forebay_core::dispatcher::{Command, Reply};
use forebay_core::{Error, ErrorKind, Result};
use std::fmt;
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

/// Pauses between tries, from the first to the longest.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long one try may take.
const TRY: Duration = Duration::from_secs(10);

/// How a dispatcher is reached.
#[derive(Clone, Debug)]
pub struct ControlOptions {
    /// `host:port`, with or without `forebay://` before it.
    pub address: String,
    /// What it wants to see.
    pub credentials: Credentials,
}

/// A dispatcher, from any thread: [`Control::call`] waits, [`Control::ask`] is for async code. Clones share a connection.
#[derive(Clone)]
pub struct Control {
    shared: Arc<Shared>,
}

struct Shared {
    address: String,
    channel: Channel,
    bearer: Option<MetadataValue<Ascii>>,
    /// Whether the other side has said its version.
    met: AtomicBool,
    threads: Threads,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("address", &self.shared.address).finish_non_exhaustive()
    }
}

impl Control {
    /// Makes ready to ask; connects with the first call. Reads the files of certificates now.
    pub fn new(options: &ControlOptions, threads: Threads) -> Result<Self> {
        let address = options.address.strip_prefix("forebay://").unwrap_or(&options.address);
        let address = address.trim_end_matches('/').to_owned();
        let fault = |why: &str| Error::invalid_config(format!("reach the dispatcher at `{address}`: {why}"));
        let Some((host, _)) = address.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()) else {
            return Err(fault("it is no `host:port`"));
        };
        let Credentials { token, tls } = &options.credentials;
        if token.is_some() && tls.is_none() && !is_loopback(&address) {
            return Err(fault("a token may not cross a network in the open")
                .with_hint("give certificates, or reach it at 127.0.0.1"));
        }
        let scheme = if tls.is_some() { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))
            .map_err(|error| fault("it is no address").with_source(error))?
            .connect_timeout(Duration::from_secs(5))
            .http2_keep_alive_interval(Duration::from_secs(10))
            .keep_alive_timeout(Duration::from_secs(10))
            .tcp_nodelay(true);
        if let Some(tls) = tls {
            let read = |path: &std::path::PathBuf| {
                std::fs::read(path).map_err(|error| Error::io(format!("read `{}`", path.display()), error))
            };
            // The checks of files are better told there than by the transport.
            tls.client()?;
            tls.name_for(host)?;
            let name = tls.name.as_deref().unwrap_or(host).trim_start_matches('[').trim_end_matches(']');
            name_provider();
            let config = ClientTlsConfig::new()
                .ca_certificate(Certificate::from_pem(read(&tls.ca_file)?))
                .identity(Identity::from_pem(read(&tls.cert)?, read(&tls.key)?))
                .domain_name(name);
            endpoint = endpoint
                .tls_config(config)
                .map_err(|error| fault("TLS cannot be set up").with_source(error))?;
        }
        let bearer = token.as_ref().map(|token| bearer(token).parse()).transpose();
        let bearer = bearer.map_err(|error| Error::internal("write a token's proof").with_source(error))?;
        if !threads.are_alive() {
            return Err(Error::internal("the network threads belong to another process"));
        }
        let _on_threads = threads.handle().enter();
        let channel = endpoint.connect_lazy();
        let shared = Shared { address, channel, bearer, met: AtomicBool::new(false), threads };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Where it is.
    pub fn address(&self) -> &str {
        &self.shared.address
    }

    /// Gives a command and waits for the answer, for at most `time` while the dispatcher is away. Not for threads that
    /// drive async code.
    pub fn call(&self, command: &Command, time: Duration) -> Result<Reply> {
        if !self.shared.threads.are_alive() {
            return Err(Error::internal("the network threads belong to another process"));
        }
        self.shared.threads.block_on(self.ask(command, time))
    }

    /// As [`Self::call`], for async code.
    pub async fn ask(&self, command: &Command, time: Duration) -> Result<Reply> {
        let request = Request::new(command)?;
        let (end, mut pause) = (Instant::now() + time, PAUSE);
        loop {
            let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            let once = self.once(request.clone());
            let error = match tokio::time::timeout(left.min(TRY), once).await {
                Ok(Err(error)) if error.kind() == ErrorKind::Unavailable => error,
                Ok(outcome) => return outcome,
                Err(_) => {
                    Error::unavailable(format!("ask the dispatcher at `{}`: no answer", self.shared.address))
                }
            };
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(error.with_hint("check that `forebay dispatcher` runs there"));
            }
            tokio::time::sleep(pause.min(left)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn once(&self, request: Request) -> Result<Reply> {
        if !self.shared.met.load(Ordering::Relaxed) {
            let hello: Hello = self.unary(HELLO, Hello::ours()).await?;
            if hello.version != CONTROL_VERSION {
                let (address, theirs) = (&self.shared.address, hello.version);
                let release: String = hello.release.chars().filter(|c| !c.is_control()).take(40).collect();
                let why = format!(
                    "ask the dispatcher at `{address}`: it speaks version {theirs} (release {release}), this is {CONTROL_VERSION}"
                );
                return Err(Error::unsupported(why).with_hint("run the same release of forebay everywhere"));
            }
            self.shared.met.store(true, Ordering::Relaxed);
        }
        let response: Response = self.unary(CALL, request).await?;
        let outcome = response.reply();
        if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unsupported) {
            // Another release may run there now.
            self.shared.met.store(false, Ordering::Relaxed);
        }
        outcome
    }

    async fn unary<Q, A>(&self, path: &'static str, message: Q) -> Result<A>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut grpc =
            tonic::client::Grpc::new(self.shared.channel.clone()).max_decoding_message_size(MAX_MESSAGE);
        let lost = |error: tonic::transport::Error| {
            let why = format!("ask the dispatcher at `{}`", self.shared.address);
            Error::unavailable(why).with_source(error)
        };
        grpc.ready().await.map_err(lost)?;
        let mut request = tonic::Request::new(message);
        if let Some(bearer) = &self.shared.bearer {
            request.metadata_mut().insert("authorization", bearer.clone());
        }
        let codec = ProstCodec::<Q, A>::default();
        let answered = grpc.unary(request, PathAndQuery::from_static(path), codec).await;
        answered.map(tonic::Response::into_inner).map_err(|status| self.fault(&status))
    }

    fn fault(&self, status: &Status) -> Error {
        let (kind, hint) = match status.code() {
            Code::Unauthenticated | Code::PermissionDenied => {
                (ErrorKind::Denied, Some("give the dispatcher's token"))
            }
            Code::Unimplemented => {
                (ErrorKind::Unsupported, Some("run the same release of forebay everywhere"))
            }
            Code::OutOfRange | Code::ResourceExhausted => (ErrorKind::Exhausted, None),
            _ => (ErrorKind::Unavailable, None),
        };
        let mut why = status.message().to_owned();
        let mut cause = std::error::Error::source(status);
        while let Some(inner) = cause {
            why = format!("{why}: {inner}");
            cause = inner.source();
        }
        let error = Error::new(kind, format!("ask the dispatcher at `{}`: {why}", self.shared.address));
        match hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }
}

/// Whether an address is of this machine, all its meanings included.
fn is_loopback(address: &str) -> bool {
    address.to_socket_addrs().is_ok_and(|mut all| all.all(|one| one.ip().is_loopback()))
}
