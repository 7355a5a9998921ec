//! The relay: a thread that accepts connections and joins each to one of its own to the target.

use super::counts::{Counts, Meters};
use super::pump::{Line, Pump};
use super::schedule::{Lane, WanOptions, Way};
use forebay_core::{Error, Result};
use std::net::{SocketAddr, TcpListener as StdListener};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::sleep;

/// A running relay; dropping it closes every connection and ends its thread.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    meters: Arc<Meters>,
    freeze: UnboundedSender<mpsc::Receiver<()>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// While it lives its relay passes nothing on.
#[derive(Debug)]
#[must_use]
pub struct Frozen<'a> {
    _until_dropped: mpsc::Sender<()>,
    _relay: &'a Relay,
}

impl Relay {
    /// Listens on `listen` (port 0 for any free one) and relays to `target` on a thread of its own.
    pub fn start(listen: SocketAddr, target: SocketAddr, options: WanOptions) -> Result<Self> {
        let fault = |source| Error::io(format!("listen on `{listen}` for the emulated line"), source);
        let listener = StdListener::bind(listen).map_err(fault)?;
        listener.set_nonblocking(true).map_err(fault)?;
        let address = listener.local_addr().map_err(fault)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fault)?;
        let meters = Arc::new(Meters::default());
        let (stop, stopped) = oneshot::channel();
        let (freeze, freezes) = unbounded_channel();
        let counted = Arc::clone(&meters);
        let thread = std::thread::Builder::new()
            .name("forebay-wan".into())
            .spawn(move || {
                let line = Line::new(target, options, counted);
                let local = tokio::task::LocalSet::new();
                local.block_on(&runtime, async {
                    tokio::select! {
                        () = accept(Rc::new(line), listener) => {}
                        () = frozen(freezes) => {}
                        _ = stopped => {}
                    }
                });
            })
            .map_err(fault)?;
        Ok(Self { address, meters, freeze, stop: Some(stop), thread: Some(thread) })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Passes nothing on as long as the result lives, in silence: connections stay open and new ones seem to come about, as
    /// where a cable was pulled far away.
    pub fn freeze(&self) -> Frozen<'_> {
        let (until_dropped, until) = mpsc::channel();
        // A relay whose thread has ended passes nothing on anyway.
        drop(self.freeze.send(until));
        Frozen { _until_dropped: until_dropped, _relay: self }
    }

    /// What went over the line so far.
    pub fn counts(&self) -> Counts {
        self.meters.counts()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the relay's thread was printed by it; there is nothing to add while dropping.
            drop(thread.join());
        }
    }
}

/// Stops the thread, and all connections with it, for as long as it was asked to.
async fn frozen(mut freezes: UnboundedReceiver<mpsc::Receiver<()>>) {
    while let Some(until) = freezes.recv().await {
        let _ = until.recv();
    }
}

async fn accept(line: Rc<Line>, listener: StdListener) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    for number in 0.. {
        let client = loop {
            match listener.accept().await {
                Ok((client, _)) => break client,
                // Out of file descriptors: connections that end will free some.
                Err(_) => sleep(Duration::from_millis(10)).await,
            }
        };
        let meters = &line.meters;
        meters.connections.fetch_add(1, Relaxed);
        let open = meters.open.fetch_add(1, Relaxed) + 1;
        meters.most_open.fetch_max(open, Relaxed);
        let line = Rc::clone(&line);
        tokio::task::spawn_local(async move {
            connect(&line, client, number).await;
            line.meters.open.fetch_sub(1, Relaxed);
        });
    }
}

async fn connect(line: &Line, client: TcpStream, number: u64) {
    let [up, down] = [Way::Up, Way::Down].map(|way| Lane::new(&line.options, way, number, line.now()));
    let Ok(server) = TcpStream::connect(line.target).await else {
        line.meters.refused.fetch_add(1, Relaxed);
        return;
    };
    if client.set_nodelay(true).is_err() || server.set_nodelay(true).is_err() {
        return;
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // When one direction breaks, both are dropped; when one ends, the other goes on to its own end.
    drop(tokio::try_join!(
        Pump::new(line, Way::Up, up).run(from_client, to_server),
        Pump::new(line, Way::Down, down).run(from_server, to_client),
    ));
}
