//! Connections of a dispatcher: at most so many at once, and none that says nothing.

use futures::Stream;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tonic::transport::server::Connected;

/// How long a connection may take to say its first words.
const FIRST_WORDS: Duration = Duration::from_secs(10);

/// As many bytes as every beginning of HTTP/2 has, and every one of TLS.
const FIRST_BYTES: usize = 24;

pub(super) fn places(connections: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(connections.clamp(1, Semaphore::MAX_PERMITS)))
}

/// Connections as they come. One is taken in only when there is a place for it.
pub(super) fn incoming(
    listener: TcpListener,
    places: Arc<Semaphore>,
) -> impl Stream<Item = io::Result<Socket>> + Send {
    futures::stream::unfold((listener, places), |(listener, places)| async move {
        loop {
            let Ok(place) = places.clone().acquire_owned().await else { return None };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    let silent = Some(Box::pin(sleep(FIRST_WORDS)));
                    let socket = Socket { stream, said: 0, silent, _place: place };
                    return Some((Ok(socket), (listener, places)));
                }
                Err(error) => {
                    // No descriptors left, mostly: those who are connected go on, and the next may find one.
                    tracing::warn!(%error, "a connection could not be taken in");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    })
}

/// A connection that holds its place.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    said: usize,
    /// Runs out unless it says its first words.
    silent: Option<Pin<Box<Sleep>>>,
    _place: OwnedSemaphorePermit,
}

impl Connected for Socket {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let Some(silent) = &mut self.silent {
            if read.is_pending() && silent.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.said += buf.filled().len() - before;
            if self.said >= FIRST_BYTES {
                self.silent = None;
            }
        }
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
