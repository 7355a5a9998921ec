//! Getting a stream to a server: over TCP, with TLS where certificates were given.

use crate::credentials::{Credentials, Token, tls_fault};
use crate::handshake::{self, Purpose};
use crate::{PeerTls, Stream};
use forebay_core::{Error, Result};
use futures::future::{BoxFuture, FutureExt};
use rustls::ClientConfig;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Makes streams to one server. They are fresh: nothing was said on them yet.
pub trait Connect: Send + Sync + std::fmt::Debug {
    /// How the other side is called in messages.
    fn name(&self) -> String;

    /// A new stream.
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Stream>>>;
}

/// Connects to `host:port`.
#[derive(Clone, Debug)]
pub struct TcpConnector {
    address: String,
    tls: Option<(PeerTls, Arc<ClientConfig>)>,
}

impl TcpConnector {
    /// For this address; reads the files of certificates now.
    pub fn new(address: &str, credentials: &Credentials) -> Result<Self> {
        let tls = match &credentials.tls {
            Some(tls) => {
                tls.name_for(host_of(address))?;
                Some((tls.clone(), tls.client()?))
            }
            None => None,
        };
        Ok(Self { address: address.to_owned(), tls })
    }
}

impl Connect for TcpConnector {
    fn name(&self) -> String {
        self.address.clone()
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Stream>>> {
        async move {
            let fail = |error| Error::io(format!("connect to the shared cache at `{}`", self.address), error);
            let stream = TcpStream::connect(&self.address).await.map_err(fail)?;
            stream.set_nodelay(true).map_err(fail)?;
            let Some((tls, config)) = &self.tls else { return Ok(Box::new(stream) as Box<dyn Stream>) };
            let name = tls.name_for(host_of(&self.address))?;
            let stream = TlsConnector::from(config.clone()).connect(name, stream).await;
            let lost = |error| tls_fault(&format!("join the shared cache at `{}`", self.address), error);
            Ok(Box::new(stream.map_err(lost)?) as Box<dyn Stream>)
        }
        .boxed()
    }
}

fn host_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

/// A stream on which the beginning has been made.
pub(crate) async fn meet(
    connector: &dyn Connect,
    token: Option<&Token>,
    purpose: Purpose,
) -> Result<Box<dyn Stream>> {
    let name = connector.name();
    let meeting = async {
        let mut stream = connector.connect().await?;
        handshake::join(&mut stream, &name, token, purpose).await?;
        Ok(stream)
    };
    tokio::time::timeout(handshake::TIME, meeting).await.unwrap_or_else(|_| {
        let seconds = handshake::TIME.as_secs();
        Err(Error::unavailable(format!("join the shared cache at `{name}`: no answer in {seconds} s")))
    })
}
