//! Connections of a dispatcher: at most so many at once, fewer that nobody was answered on yet, and those not for long.
//!
//! Whoever connects has shown that it belongs here with its first call that is answered. Until then it holds one of a
//! smaller number of places and is closed when its time is over, whatever it says meanwhile: bytes one by one, the
//! beginning of HTTP/2 and nothing else, calls without the token.

use futures::Stream;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tonic::transport::server::Connected;

/// How many may be connected, and how those are held who have not shown yet that they belong here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doors {
    pub(super) connections: usize,
    pub(super) arriving: usize,
    pub(super) begin_time: Duration,
}

/// Connections as they come. One is taken in only when there is a place for it; others wait with the system.
pub(super) fn incoming(listener: TcpListener, doors: Doors) -> impl Stream<Item = io::Result<Socket>> + Send {
    let places = |most: usize| Arc::new(Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS)));
    let begun = (listener, places(doors.connections), places(doors.arriving));
    futures::stream::unfold(begun, move |(listener, places, arriving)| async move {
        loop {
            let Ok(place) = places.clone().acquire_owned().await else { return None };
            let Ok(waiting) = arriving.clone().acquire_owned().await else { return None };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    let arriving_for = Arriving { until: Box::pin(sleep(doors.begin_time)), _place: waiting };
                    let socket =
                        Socket { stream, met: Met::default(), arriving: Some(arriving_for), _place: place };
                    return Some((Ok(socket), (listener, places, arriving)));
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

/// Whether somebody has been answered on a connection; comes with each of its requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Met(Arc<AtomicBool>);

impl Met {
    /// It belongs here.
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A connection that holds its place.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    met: Met,
    /// Until it has shown that it belongs here.
    arriving: Option<Arriving>,
    _place: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct Arriving {
    until: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl Connected for Socket {
    type ConnectInfo = Met;

    fn connect_info(&self) -> Met {
        self.met.clone()
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.met.is_set() {
            self.arriving = None;
        } else if let Some(arriving) = &mut self.arriving
            && arriving.until.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
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
