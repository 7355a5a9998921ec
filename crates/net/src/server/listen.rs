//! Taking connections in, and refusing addresses where anyone could connect.

use super::{Server, Shared, connection};
use crate::Stream;
use crate::handshake::{self, Purpose};
use crate::host;
use forebay_core::{Error, Result};
use std::net::SocketAddr;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::Path;
use std::sync::Arc;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

impl Server {
    /// Listens at `host:port`; port 0 is any free one. Returns where.
    ///
    /// Beyond this machine it takes a token or certificates. With a token alone bytes are not encrypted, which is
    /// said in the log.
    pub async fn listen_tcp(&self, address: &str) -> Result<SocketAddr> {
        let fail = |error| Error::io(format!("listen at `{address}`"), error);
        let credentials = &self.shared.options.credentials;
        let tls = credentials.tls.as_ref().map(crate::PeerTls::server).transpose()?.map(TlsAcceptor::from);
        let listener = self.threads.run(TcpListener::bind(address.to_owned())).await;
        let listener =
            listener.ok_or_else(|| Error::internal("the network threads have ended"))?.map_err(fail)?;
        let bound = listener.local_addr().map_err(fail)?;
        if !bound.ip().is_loopback() && tls.is_none() {
            if credentials.token.is_none() {
                let why =
                    format!("listen at `{address}`: anyone who reaches it could read and write the cache");
                return Err(Error::invalid_config(why)
                    .with_hint("give peers a token or certificates, or listen at 127.0.0.1"));
            }
            tracing::warn!(address = %bound, "payloads between peers are not encrypted; give certificates if others can listen");
        }
        let (shared, stop) = (self.shared.clone(), self.stop.subscribe());
        self.threads.handle().spawn(async move {
            let (inner, ends) = (shared.clone(), stop.clone());
            let accepting = async move {
                loop {
                    let Some(stream) = accepted(listener.accept().await).await else { continue };
                    let _ = stream.set_nodelay(true);
                    let (shared, stop, tls) = (inner.clone(), ends.clone(), tls.clone());
                    tokio::spawn(async move {
                        match tls {
                            None => begin(shared, stop, stream).await,
                            Some(tls) => {
                                let met = tokio::time::timeout(handshake::TIME, tls.accept(stream)).await;
                                match met {
                                    Ok(Ok(stream)) => begin(shared, stop, stream).await,
                                    Ok(Err(error)) => tracing::warn!(%error, "a peer was turned away"),
                                    Err(_) => {}
                                }
                            }
                        }
                    });
                }
            };
            until_stopped(stop, accepting).await;
        });
        Ok(bound)
    }

    /// Listens at a unix socket that was bound already. Only processes of the same user get in.
    pub fn listen_unix(&self, listener: StdUnixListener, path: &Path) -> Result<()> {
        let fail = |error| Error::io(format!("listen at `{}`", path.display()), error);
        listener.set_nonblocking(true).map_err(fail)?;
        let _on_threads = self.threads.handle().enter();
        let listener = UnixListener::from_std(listener).map_err(fail)?;
        let (shared, stop) = (self.shared.clone(), self.stop.subscribe());
        self.threads.handle().spawn(async move {
            let (inner, ends) = (shared.clone(), stop.clone());
            let accepting = async move {
                loop {
                    let Some(stream) = accepted(listener.accept().await).await else { continue };
                    if let Err(error) = host::check_peer(&stream) {
                        tracing::warn!(%error, "a process of another user was turned away");
                        continue;
                    }
                    tokio::spawn(begin_unix(inner.clone(), ends.clone(), stream));
                }
            };
            until_stopped(stop, accepting).await;
        });
        Ok(())
    }

    /// Serves one stream, from its beginning on.
    pub fn attach(&self, stream: impl Stream + 'static) {
        self.threads.handle().spawn(begin(self.shared.clone(), self.stop.subscribe(), stream));
    }
}

async fn accepted<S, A>(outcome: std::io::Result<(S, A)>) -> Option<S> {
    match outcome {
        Ok((stream, _)) => Some(stream),
        Err(error) => {
            // No descriptors left, mostly: those who are connected go on, and the next may find one.
            tracing::warn!(%error, "a connection could not be taken in");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            None
        }
    }
}

async fn until_stopped(mut stop: watch::Receiver<bool>, work: impl Future<Output = ()>) {
    tokio::select! {
        () = work => {}
        // The server was dropped.
        _ = stop.changed() => {}
    }
}

async fn begin<S: Stream>(shared: Arc<Shared>, stop: watch::Receiver<bool>, mut stream: S) {
    let serving = async move {
        let place = shared.places.clone().try_acquire_owned();
        match meet(&shared, &mut stream, place.is_err()).await {
            Some(Purpose::Slabs) | None => {}
            Some(purpose) => connection::serve(&shared, stream, purpose).await,
        }
        drop(place);
    };
    until_stopped(stop, serving).await;
}

async fn begin_unix(shared: Arc<Shared>, stop: watch::Receiver<bool>, mut stream: UnixStream) {
    let serving = async move {
        let place = shared.places.clone().try_acquire_owned();
        match (meet(&shared, &mut stream, place.is_err()).await, &shared.slabs) {
            (Some(Purpose::Slabs), Some(slabs)) => host::hand_out(&mut stream, slabs).await,
            (Some(Purpose::Slabs), None) | (None, _) => {}
            (Some(purpose), _) => connection::serve(&shared, stream, purpose).await,
        }
        drop(place);
    };
    until_stopped(stop, serving).await;
}

async fn meet<S: Stream>(shared: &Shared, stream: &mut S, busy: bool) -> Option<Purpose> {
    let token = shared.options.credentials.token.as_ref();
    match tokio::time::timeout(handshake::TIME, handshake::accept(stream, token, busy)).await {
        Ok(Ok(purpose)) => Some(purpose),
        Ok(Err(error)) => {
            tracing::warn!(error = %error.report(), "a client was turned away");
            None
        }
        Err(_) => None,
    }
}
