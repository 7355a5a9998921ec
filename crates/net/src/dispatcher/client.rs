//! Asking a dispatcher. While it is away calls wait and try again, until the time that was given for them is over.
//!
//! Of several that share a journal one leads. Calls go to the one that answered last; when it does not answer, or says
//! that it stands by, they go to the one it names if that is in our list, and to the next in the list otherwise. Nobody
//! is connected to who was not named to us: a token goes nowhere else.
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
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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

/// The longest where there are several: one of them answers soon after another has gone.
const LONGEST_PAUSE_OF_SEVERAL: Duration = Duration::from_millis(200);

/// How long one try may take.
const TRY: Duration = Duration::from_secs(10);

/// How long one try may take where there is another dispatcher to ask.
const TRY_ONE_OF: Duration = Duration::from_secs(2);

/// Most dispatchers of a service.
const MAX_DISPATCHERS: usize = 16;

/// How a dispatcher is reached.
#[derive(Clone, Debug)]
pub struct ControlOptions {
    /// `host:port`, with or without `forebay://` before it. Several that share a journal are separated by commas.
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
    /// As it was given, for people.
    address: String,
    members: Vec<Member>,
    /// The one that is asked.
    current: AtomicUsize,
    bearer: Option<MetadataValue<Ascii>>,
    threads: Threads,
}

/// One dispatcher.
struct Member {
    address: String,
    channel: Channel,
    /// Whether it has said its version.
    met: AtomicBool,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("address", &self.shared.address).finish_non_exhaustive()
    }
}

impl Control {
    /// Makes ready to ask; connects with the first call. Reads the files of certificates now.
    pub fn new(options: &ControlOptions, threads: Threads) -> Result<Self> {
        let list = options.address.strip_prefix("forebay://").unwrap_or(&options.address);
        let list = list.trim_end_matches('/');
        let addresses: Vec<&str> = list.split(',').map(str::trim).collect();
        if addresses.len() > MAX_DISPATCHERS {
            let why = format!("reach the dispatcher at `{list}`: more than {MAX_DISPATCHERS} are named");
            return Err(Error::invalid_config(why));
        }
        let credentials = &options.credentials;
        let bearer = credentials.token.as_ref().map(|token| bearer(token).parse()).transpose();
        let bearer = bearer.map_err(|error| Error::internal("write a token's proof").with_source(error))?;
        if !threads.are_alive() {
            return Err(Error::internal("the network threads belong to another process"));
        }
        let _on_threads = threads.handle().enter();
        let members = addresses.into_iter().map(|address| Member::new(address, credentials));
        let members = members.collect::<Result<_>>()?;
        let shared =
            Shared { address: list.to_owned(), members, current: AtomicUsize::new(0), bearer, threads };
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
        let members = self.shared.members.len();
        let (end, mut pause) = (Instant::now() + time, PAUSE);
        let (longest, longest_pause) =
            if members > 1 { (TRY_ONE_OF, LONGEST_PAUSE_OF_SEVERAL) } else { (TRY, LONGEST_PAUSE) };
        for tries in 1.. {
            let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            let current = self.shared.current.load(Ordering::Relaxed) % members;
            let member = &self.shared.members[current];
            let once = self.once(member, request.clone());
            let (error, leader) = match tokio::time::timeout(left.min(longest), once).await {
                Ok(Err((error, leader))) if error.kind() == ErrorKind::Unavailable => (error, leader),
                Ok(outcome) => return outcome.map_err(|(error, _)| error),
                Err(_) => {
                    let why = format!("ask the dispatcher at `{}`: no answer", member.address);
                    (Error::unavailable(why), None)
                }
            };
            // Only if nobody else has moved on meanwhile: several calls may have found the same.
            let named = self.shared.members.iter().position(|one| Some(&one.address) == leader.as_ref());
            let next = named.unwrap_or((current + 1) % members);
            let _ = self.shared.current.compare_exchange(current, next, Ordering::Relaxed, Ordering::Relaxed);
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(error.with_hint("check that `forebay dispatcher` runs there"));
            }
            // All were asked, or the one that should know sends us elsewhere in vain.
            if tries % members == 0 {
                tokio::time::sleep(pause.min(left)).await;
                pause = (pause * 2).min(longest_pause);
            }
        }
        Err(Error::internal("ask the dispatcher: nobody was asked"))
    }

    /// One try. An error comes with whom to ask instead, if the other side says.
    async fn once(&self, member: &Member, request: Request) -> Result<Reply, (Error, Option<String>)> {
        let alone = |error| (error, None);
        if !member.met.load(Ordering::Relaxed) {
            let hello: Hello = self.unary(member, HELLO, Hello::ours()).await.map_err(alone)?;
            if hello.version != CONTROL_VERSION {
                let (address, theirs) = (&member.address, hello.version);
                let release: String = hello.release.chars().filter(|c| !c.is_control()).take(40).collect();
                let why = format!(
                    "ask the dispatcher at `{address}`: it speaks version {theirs} (release {release}), this is {CONTROL_VERSION}"
                );
                let error = Error::unsupported(why);
                return Err(alone(error.with_hint("run the same release of forebay everywhere")));
            }
            member.met.store(true, Ordering::Relaxed);
        }
        let response: Response = self.unary(member, CALL, request).await.map_err(alone)?;
        let leader = response.leader().map(str::to_owned);
        response.reply().map_err(|error| {
            if error.kind() == ErrorKind::Unsupported {
                // Another release may run there now.
                member.met.store(false, Ordering::Relaxed);
            }
            (error, leader)
        })
    }

    async fn unary<Q, A>(&self, member: &Member, path: &'static str, message: Q) -> Result<A>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut grpc =
            tonic::client::Grpc::new(member.channel.clone()).max_decoding_message_size(MAX_MESSAGE);
        let lost = |error: tonic::transport::Error| {
            let why = format!("ask the dispatcher at `{}`", member.address);
            Error::unavailable(why).with_source(error)
        };
        grpc.ready().await.map_err(lost)?;
        let mut request = tonic::Request::new(message);
        if let Some(bearer) = &self.shared.bearer {
            request.metadata_mut().insert("authorization", bearer.clone());
        }
        let codec = ProstCodec::<Q, A>::default();
        let answered = grpc.unary(request, PathAndQuery::from_static(path), codec).await;
        answered.map(tonic::Response::into_inner).map_err(|status| member.fault(&status))
    }
}

impl Member {
    fn new(address: &str, credentials: &Credentials) -> Result<Self> {
        let fault = |why: &str| Error::invalid_config(format!("reach the dispatcher at `{address}`: {why}"));
        let Some((host, _)) = address.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()) else {
            return Err(fault("it is no `host:port`"));
        };
        let Credentials { token, tls } = credentials;
        if token.is_some() && tls.is_none() && !is_loopback(address) {
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
        let channel = endpoint.connect_lazy();
        Ok(Self { address: address.to_owned(), channel, met: AtomicBool::new(false) })
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
        let error = Error::new(kind, format!("ask the dispatcher at `{}`: {why}", self.address));
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
