//! Our HTTP/1.1 client: requests over connections that are kept and used again.
//!
//! It exists because the hot path of a loader is one thing only, a body of known length read into one buffer, and
//! doing no more than that costs a fraction of what a general client costs. HTTP/2, cookies, proxies and content
//! encodings are not here.

use super::checksum::Checksums;
use super::connection::{Connection, Target};
use super::exchange::{self, Exchanged, Limits};
use super::head::Headers;
pub(crate) use super::message::{HttpAnswer, HttpRequest, Method};
use super::options::HttpOptions;
use super::{tls, uri};
use crate::net::Net;
use bytes::BytesMut;
use forebay_core::{Error, Result};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use url::Url;

/// Hosts whose connections are kept; beyond, those of the first are dropped.
const MOST_ORIGINS: usize = 256;
/// A connection that nobody used for so long is not trusted any more.
const IDLE_LIFE: Duration = Duration::from_secs(60);
/// Redirects of one request.
const MOST_REDIRECTS: usize = 10;

/// An answer whose body may be cut.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) status: u16,
    pub(crate) headers: Headers,
    /// The buffer that was given, with the body behind what was in it.
    pub(crate) body: BytesMut,
    /// Why the body is not whole.
    pub(crate) cut: Option<Error>,
}

/// Whom redirects may lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Redirects {
    /// Anyone, but credentials stay with the host they were meant for.
    Anyone,
    /// Machines of one cluster, which share credentials.
    Cluster,
    /// As `Cluster`, and the path stays ours: names in `Location` may be damaged by characters that headers cannot
    /// hold.
    SamePath,
}

/// A pool of connections. Clones share it.
#[derive(Clone, Debug)]
pub struct HttpClient(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: HttpOptions,
    net: Net,
    tls: OnceLock<Arc<rustls::ClientConfig>>,
    origins: Mutex<Vec<Arc<Origin>>>,
}

#[derive(Debug)]
struct Origin {
    target: Target,
    slots: Semaphore,
    idle: Mutex<Vec<Connection>>,
}

impl HttpClient {
    /// A client without connections. Starts the network threads if they do not run yet.
    pub fn new(options: &HttpOptions) -> Result<Self> {
        Self::with_tls(options, None)
    }

    /// A client that trusts as this configuration says, whatever the options say of TLS.
    pub fn with_config(options: &HttpOptions, tls: Arc<rustls::ClientConfig>) -> Result<Self> {
        Self::with_tls(options, Some(tls))
    }

    pub(crate) fn with_tls(options: &HttpOptions, tls: Option<Arc<rustls::ClientConfig>>) -> Result<Self> {
        let lock = OnceLock::new();
        if let Some(config) = tls {
            let _ = lock.set(config);
        }
        let (net, origins) = (Net::shared()?, Mutex::default());
        Ok(Self(Arc::new(Inner { options: options.clone(), net, tls: lock, origins })))
    }

    /// The threads that its connections belong to. A client does not outlive a fork: see [`Net::is_alive`].
    pub fn net(&self) -> &Net {
        &self.0.net
    }

    /// Which checksums are compared.
    pub(crate) fn checksums(&self) -> Checksums {
        self.0.options.checksums
    }

    /// Sends a request and waits for all of the answer. Statuses are for the caller to judge; redirects are not
    /// followed. Runs where it is polled, which should be on the threads of [`Self::net`].
    pub async fn send(&self, request: HttpRequest<'_>) -> Result<HttpAnswer> {
        let limits = Limits { part: request.expect, whole: request.expect };
        let doing = |error: Error| {
            error.while_doing(format!("{} `{}`", request.method.name(), uri::shown(request.url)))
        };
        let received = self.receive(&request, limits, BytesMut::new()).await.map_err(doing)?;
        match received.cut {
            Some(error) => Err(doing(error)),
            None => Ok(HttpAnswer {
                status: received.status,
                headers: received.headers,
                body: received.body.freeze(),
            }),
        }
    }

    /// As [`Self::receive`], going where redirects lead. `into` is as it was given unless the last answer is there.
    pub(crate) async fn follow(
        &self,
        request: &HttpRequest<'_>,
        limits: Limits,
        into: BytesMut,
        redirects: Redirects,
    ) -> Result<Received> {
        let (had, mut into) = (into.len(), into);
        let mut stripped = false;
        let mut moved: Option<(Url, Vec<(&str, String)>)> = None;
        for _ in 0..MOST_REDIRECTS {
            let asked = match &moved {
                Some((url, headers)) => HttpRequest { url, headers, ..request.clone() },
                None => request.clone(),
            };
            let mut received = self.receive(&asked, limits, into).await?;
            let reads = matches!(request.method, Method::Get | Method::Head);
            let follows = match received.status {
                307 | 308 => true,
                301 => redirects != Redirects::Anyone || reads,
                302 | 303 => reads,
                _ => false,
            };
            let location = received.headers.get("location").filter(|_| follows);
            let Some(mut next) = location.map(|location| redirected(asked.url, location)).transpose()? else {
                return Ok(received);
            };
            if redirects == Redirects::SamePath {
                next.set_path(request.url.path());
            }
            // Once given up, credentials do not come back, even if the next redirect leads home.
            stripped |= redirects == Redirects::Anyone && next.origin() != asked.url.origin();
            let secret =
                |name: &str| ["authorization", "cookie"].iter().any(|s| name.eq_ignore_ascii_case(s));
            let headers =
                request.headers.iter().filter(|(name, _)| !stripped || !secret(name)).cloned().collect();
            moved = Some((next, headers));
            received.body.truncate(had);
            into = received.body;
        }
        Err(Error::unavailable(format!("the server redirects more than {MOST_REDIRECTS} times")))
    }

    /// Sends a request; what came of the body stands behind what is in `into`, even when it is cut.
    pub(crate) async fn receive(
        &self,
        request: &HttpRequest<'_>,
        limits: Limits,
        mut into: BytesMut,
    ) -> Result<Received> {
        let origin = self.origin(request.url)?;
        let ended = |_| Error::internal("the connection pool is closed");
        let _slot = origin.slots.acquire().await.map_err(ended)?;
        let mut kept = origin.take();
        loop {
            let reused = kept.is_some();
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => origin.target.connect(&self.0.options, self.tls(&origin)?).await?,
            };
            let silence = self.0.options.read_timeout;
            match exchange::exchange(&mut connection, request, limits, silence, &mut into).await {
                Ok(Exchanged { status, headers, cut, reusable }) => {
                    if reusable {
                        origin.keep(connection, self.0.options.idle_connections);
                    }
                    return Ok(Received { status, headers, body: into, cut });
                }
                // The server had closed it while it lay idle. On a fresh one the same would be a real failure.
                Err(unanswered)
                    if unanswered.early
                        && reused
                        && !matches!(request.method, Method::Post | Method::Patch) => {}
                Err(unanswered) => return Err(unanswered.error),
            }
        }
    }

    fn origin(&self, url: &Url) -> Result<Arc<Origin>> {
        let is_tls = match url.scheme() {
            "http" => false,
            "https" => true,
            other => return Err(Error::unsupported(format!("`{other}://` is not HTTP"))),
        };
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Err(Error::invalid_config("the URL names no host"));
        };
        let mut origins = self.0.origins.lock().unwrap_or_else(PoisonError::into_inner);
        let is = |origin: &&Arc<Origin>| {
            let target = &origin.target;
            target.port == port && target.is_tls == is_tls && target.host == host
        };
        if let Some(origin) = origins.iter().find(is) {
            return Ok(origin.clone());
        }
        if origins.len() >= MOST_ORIGINS {
            origins.remove(0);
        }
        let origin = Arc::new(Origin {
            target: Target::new(is_tls, host, port),
            slots: Semaphore::new(self.0.options.connections.clamp(1, Semaphore::MAX_PERMITS)),
            idle: Mutex::default(),
        });
        origins.push(origin.clone());
        Ok(origin)
    }

    fn tls(&self, origin: &Origin) -> Result<Option<Arc<rustls::ClientConfig>>> {
        if !origin.target.is_tls {
            return Ok(None);
        }
        if let Some(config) = self.0.tls.get() {
            return Ok(Some(config.clone()));
        }
        // Two may read the files at once; the first one's configuration serves both.
        let config = tls::client_config(&self.0.options.tls)?;
        Ok(Some(self.0.tls.get_or_init(|| config).clone()))
    }
}

impl Origin {
    /// The connection used last: the others may rest and be closed.
    fn take(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(connection) = idle.pop() {
            if connection.last_used.elapsed() > IDLE_LIFE {
                // Those below it have rested even longer.
                idle.clear();
            } else if !connection.is_stale() {
                return Some(connection);
            }
        }
        None
    }

    fn keep(&self, mut connection: Connection, most: usize) {
        connection.last_used = Instant::now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < most {
            idle.push(connection);
        }
    }
}

fn redirected(from: &Url, location: &str) -> Result<Url> {
    let next = from
        .join(location)
        .map_err(|error| Error::corrupt("the server redirects to what is no URL").with_source(error))?;
    match (from.scheme(), next.scheme()) {
        (_, "https") | ("http", "http") => Ok(next),
        _ => Err(Error::new(
            forebay_core::ErrorKind::Denied,
            format!("the server redirects from `{}://` to `{}://`", from.scheme(), next.scheme()),
        )),
    }
}
