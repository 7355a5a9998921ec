//! A real etcd: gRPC to one of its members, and to the next when that one does not answer.

use super::message::{
    AUTHENTICATE, AuthenticateRequest, AuthenticateResponse, Compare, CompareWith, DeleteRangeRequest, GRANT,
    KEEP_ALIVE, KeyValue, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveResponse, LeaseRequest,
    Nothing, PutRequest, RANGE, REVOKE, RangeRequest, RangeResponse, RequestKind, RequestOp, TARGET_CREATE,
    TXN, TxnRequest, TxnResponse,
};
use super::url::{EtcdLogin, EtcdOptions, EtcdTls};
use super::{Do, Etcd, Lease, Outcome, Pair, Range, Transaction};
use crate::credentials::name_provider;
use crate::server::lock;
use crate::threads::Threads;
use forebay_core::{Error, ErrorKind, Result};
use futures::future::{BoxFuture, FutureExt};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

/// How long one member may take. A lease of some seconds must bear a member that says nothing.
const TRY: Duration = Duration::from_millis(900);

/// Largest answer: a page of our own records, and some.
const MAX_ANSWER: usize = 64 << 20;

/// The members of an etcd. One of them is spoken to until it does not answer.
pub(crate) struct Client {
    members: Vec<(String, Channel)>,
    current: AtomicUsize,
    login: Option<EtcdLogin>,
    token: Mutex<Option<MetadataValue<Ascii>>>,
}

impl Client {
    /// Makes ready to ask; connects with the first call. Reads the files of certificates now.
    pub(crate) fn new(options: &EtcdOptions, threads: &Threads) -> Result<Self> {
        options.check()?;
        let _on_threads = threads.handle().enter();
        let members = options.members.iter().map(|member| {
            let fault = |why: &str| Error::invalid_config(format!("reach etcd at `{member}`: {why}"));
            let scheme = if options.tls.is_some() { "https" } else { "http" };
            let mut endpoint = Endpoint::from_shared(format!("{scheme}://{member}"))
                .map_err(|error| fault("it is no address").with_source(error))?
                .connect_timeout(TRY)
                .http2_keep_alive_interval(Duration::from_secs(10))
                .keep_alive_timeout(Duration::from_secs(5))
                .tcp_nodelay(true);
            if let Some(tls) = &options.tls {
                let host = member.rsplit_once(':').map_or(member.as_str(), |(host, _)| host);
                endpoint = endpoint
                    .tls_config(config(tls, host)?)
                    .map_err(|error| fault("TLS cannot be set up").with_source(error))?;
            }
            Ok((member.clone(), endpoint.connect_lazy()))
        });
        let members = members.collect::<Result<_>>()?;
        let login = options.login.clone();
        Ok(Self { members, current: AtomicUsize::new(0), login, token: Mutex::default() })
    }

    /// Asks one member after the other, each once; the second time with a new token when the first was refused.
    async fn ask<Q, A>(&self, path: &'static str, message: Q) -> Result<A>
    where
        Q: prost::Message + Clone + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut last = None;
        for _ in 0..=self.members.len() {
            let current = self.current.load(Ordering::Relaxed) % self.members.len();
            let error = match tokio::time::timeout(TRY, self.once(current, path, message.clone())).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(status)) if self.login.is_some() && is_old_token(&status) => {
                    *lock(&self.token) = None;
                    last = Some(self.fault(current, &status));
                    continue;
                }
                Ok(Err(status)) => self.fault(current, &status),
                Err(_) => Error::unavailable(format!("ask etcd at `{}`: no answer", self.members[current].0)),
            };
            if error.kind() != ErrorKind::Unavailable {
                return Err(error);
            }
            self.current.store((current + 1) % self.members.len(), Ordering::Relaxed);
            last = Some(error);
        }
        Err(last.unwrap_or_else(|| Error::internal("ask etcd: it has no members")))
    }

    async fn once<Q, A>(&self, member: usize, path: &'static str, message: Q) -> Result<A, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let known = lock(&self.token).clone();
        let token = match (&self.login, known) {
            (Some(EtcdLogin { user, password }), None) => {
                let login = AuthenticateRequest { name: user.clone(), password: password.clone() };
                let answer: AuthenticateResponse = self.call(member, AUTHENTICATE, login, None).await?;
                let token: MetadataValue<Ascii> =
                    answer.token.parse().map_err(|_| Status::internal("its token is no text"))?;
                *lock(&self.token) = Some(token.clone());
                Some(token)
            }
            (_, known) => known,
        };
        self.call(member, path, message, token).await
    }

    /// One call with one message each way. Renewing a lease is a stream to etcd; ours has one message.
    async fn call<Q, A>(
        &self,
        member: usize,
        path: &'static str,
        message: Q,
        token: Option<MetadataValue<Ascii>>,
    ) -> Result<A, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut grpc =
            tonic::client::Grpc::new(self.members[member].1.clone()).max_decoding_message_size(MAX_ANSWER);
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let mut request = tonic::Request::new(futures::stream::once(std::future::ready(message)));
        if let Some(token) = token {
            request.metadata_mut().insert("token", token);
        }
        // A member that is cut off from the others says so at once instead of waiting for them.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        let codec = ProstCodec::<Q, A>::default();
        let answered = grpc.streaming(request, PathAndQuery::from_static(path), codec).await?;
        let answer = answered.into_inner().message().await?;
        answer.ok_or_else(|| Status::unavailable("it ended the call without an answer"))
    }

    fn fault(&self, member: usize, status: &Status) -> Error {
        let text = status.message();
        let (kind, hint) = match status.code() {
            Code::Unauthenticated | Code::PermissionDenied => {
                (ErrorKind::Denied, Some("check `--etcd-user`, its password and what its role may do"))
            }
            Code::InvalidArgument if text.contains("user name is empty") => {
                (ErrorKind::Denied, Some("give `--etcd-user` and `--etcd-password-file`"))
            }
            Code::InvalidArgument if text.contains("authentication failed") => {
                (ErrorKind::Denied, Some("check `--etcd-user` and its password"))
            }
            Code::InvalidArgument if is_old_token(status) => (ErrorKind::Unavailable, None),
            Code::FailedPrecondition if text.contains("authentication is not enabled") => {
                (ErrorKind::InvalidConfig, Some("leave out `--etcd-user`, or enable users in etcd"))
            }
            Code::InvalidArgument => (ErrorKind::Internal, None),
            Code::Unimplemented => (ErrorKind::Unsupported, Some("etcd 3.4 or newer is needed")),
            Code::ResourceExhausted => (
                ErrorKind::Exhausted,
                Some("give etcd room: compact and defragment it, and let it compact by itself"),
            ),
            Code::OutOfRange => (ErrorKind::Corrupt, None),
            Code::NotFound => (ErrorKind::NotFound, None),
            _ => (ErrorKind::Unavailable, None),
        };
        let mut why = text.to_owned();
        let mut cause = std::error::Error::source(status);
        while let Some(inner) = cause {
            why = format!("{why}: {inner}");
            cause = inner.source();
        }
        let why: String = why.chars().filter(|c| !c.is_control()).take(500).collect();
        let error = Error::new(kind, format!("ask etcd at `{}`: {why}", self.members[member].0));
        match hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }
}

impl Etcd for Client {
    fn range(&self, range: Range, limit: usize) -> BoxFuture<'_, Result<Vec<Pair>>> {
        async move {
            let Range { from, end } = range;
            let request = RangeRequest { key: from.into(), range_end: end.into(), limit: limit as i64 };
            let answer: RangeResponse = self.ask(RANGE, request).await?;
            answer.kvs.into_iter().map(pair).collect()
        }
        .boxed()
    }

    fn transact(&self, transaction: Transaction) -> BoxFuture<'_, Result<Outcome>> {
        async move {
            let compare = transaction.made_at.into_iter().map(|(key, revision)| Compare {
                result: 0,
                target: TARGET_CREATE,
                key: key.into(),
                with: Some(CompareWith::CreateRevision(revision)),
            });
            let is_get = |list: &[Do]| list.iter().map(|one| matches!(one, Do::Get(_))).collect::<Vec<_>>();
            let gets = [is_get(&transaction.otherwise), is_get(&transaction.then)];
            let list = |list: Vec<Do>| list.into_iter().map(operation).collect();
            let (success, failure) = (list(transaction.then), list(transaction.otherwise));
            let request = TxnRequest { compare: compare.collect(), success, failure };
            let answer: TxnResponse = self.ask(TXN, request).await?;
            let held = answer.succeeded;
            let answers = answer.responses.into_iter().zip(&gets[usize::from(held)]);
            let got = answers.filter(|(_, is_get)| **is_get).map(|(answer, _)| {
                answer.range.unwrap_or_default().kvs.into_iter().next().map(pair).transpose()
            });
            Ok(Outcome { held, got: got.collect::<Result<_>>()? })
        }
        .boxed()
    }

    fn grant(&self, seconds: u64) -> BoxFuture<'_, Result<Lease>> {
        async move {
            let request = LeaseGrantRequest { ttl: seconds as i64 };
            let LeaseGrantResponse { id, ttl, error } = self.ask(GRANT, request).await?;
            if !error.is_empty() || ttl <= 0 {
                return Err(Error::unavailable(format!("ask etcd for a lease: {error}")));
            }
            Ok(Lease { id, length_ms: ttl.unsigned_abs() * 1000 })
        }
        .boxed()
    }

    fn renew(&self, lease: i64) -> BoxFuture<'_, Result<Option<u64>>> {
        async move {
            let answer: LeaseKeepAliveResponse = self.ask(KEEP_ALIVE, LeaseRequest { id: lease }).await?;
            Ok((answer.ttl > 0).then_some(answer.ttl.unsigned_abs() * 1000))
        }
        .boxed()
    }

    fn revoke(&self, lease: i64) -> BoxFuture<'_, Result<()>> {
        async move {
            let _: Nothing = self.ask(REVOKE, LeaseRequest { id: lease }).await?;
            Ok(())
        }
        .boxed()
    }
}

/// Whether a token is too old, which a new one cures.
fn is_old_token(status: &Status) -> bool {
    let text = status.message();
    text.contains("invalid auth token") || text.contains("auth store is old")
}

fn operation(one: Do) -> RequestOp {
    let request = match one {
        Do::Put { key, value, lease } => RequestKind::Put(PutRequest { key: key.into(), value, lease }),
        Do::Delete(Range { from, end }) => {
            RequestKind::DeleteRange(DeleteRangeRequest { key: from.into(), range_end: end.into() })
        }
        Do::Get(key) => RequestKind::Range(RangeRequest { key: key.into(), range_end: Vec::new(), limit: 1 }),
    };
    RequestOp { request: Some(request) }
}

fn pair(found: KeyValue) -> Result<Pair> {
    let KeyValue { key, create_revision, value, lease } = found;
    let key = String::from_utf8(key)
        .map_err(|error| Error::corrupt("read a key of etcd: it is no text").with_source(error))?;
    Ok(Pair { key, value, created: create_revision, lease })
}

fn config(tls: &EtcdTls, host: &str) -> Result<ClientTlsConfig> {
    let read = |path: &PathBuf| {
        std::fs::read(path).map_err(|error| Error::io(format!("read `{}`", path.display()), error))
    };
    name_provider();
    let name = tls.name.as_deref().unwrap_or(host).trim_start_matches('[').trim_end_matches(']');
    let mut config =
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&tls.ca_file)?)).domain_name(name);
    if let Some((cert, key)) = &tls.own {
        config = config.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    Ok(config)
}
