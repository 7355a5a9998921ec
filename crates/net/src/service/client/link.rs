//! The connection to one worker: a thread that opens it and speaks, and one that listens.
//!
//! Opening, attaching and sending happen in the first thread, so nobody else ever waits for a socket. Dropping a
//! [`Link`] closes the connection and both threads end; what they still say about it is not listened to, since a link
//! is known by its number. [`Dial`] is the trait in between: sockets in use, channels in tests.

use super::shared::{Ending, Shared};
use crate::server::lock;
use crate::service::message::{Attach, BatchHeader, ToClient, ToWorker};
use forebay_core::pull::WorkerKey;
use forebay_core::{Error, Result};
use forebay_engine::Batch;
use forebay_ops::BufferPool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Silence after which memory that is not looked at any more is given back without a message to go along with.
const REST: Duration = Duration::from_millis(500);

/// Opens connections to workers.
pub(super) trait Dial: Send + Sync {
    /// A connection that nothing was said on yet. Whoever has to wait for one looks whether it is still wanted.
    fn dial(&self, address: &str, wanted: &dyn Fn() -> bool) -> Result<Dialled>;
}

/// An open connection.
pub(super) struct Dialled {
    pub(super) say: Box<dyn Say>,
    pub(super) hear: Box<dyn Hear>,
    /// Ends it from any thread: whoever says or hears gets an error, now and later.
    pub(super) close: Box<dyn Fn() + Send>,
}

/// The half that speaks.
pub(super) trait Say: Send {
    fn say(&mut self, message: &ToWorker) -> Result<()>;

    /// Nothing was said for a while: what usually goes along with messages goes alone.
    fn rest(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The half that listens.
pub(super) trait Hear: Send {
    /// The next message; `None` when the other side has ended.
    fn hear(&mut self) -> Result<Option<ToClient>>;

    /// The batch that follows its announcement; at most this large.
    fn batch(&mut self, header: &BatchHeader, pool: &BufferPool, most: Most) -> Result<Batch>;

    /// Bytes of the link that the batch which was taken last cost.
    fn link_bytes(&mut self, header: &BatchHeader) -> u64 {
        header.packed_bytes
    }
}

/// How large a batch is expected to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    pub(super) bytes: u64,
    pub(super) rows: u64,
}

/// A connection that is open or being opened. Dropping it closes it.
pub(super) struct Link {
    number: u64,
    outbox: Sender<ToWorker>,
    closing: Arc<Closing>,
}

/// How to close a connection, once it is open.
#[derive(Default)]
struct Closing(Mutex<Closed>);

#[derive(Default)]
struct Closed {
    closed: bool,
    close: Option<Box<dyn Fn() + Send>>,
}

impl Closing {
    /// Whether the connection is still wanted now that it is open.
    fn opened(&self, close: Box<dyn Fn() + Send>) -> bool {
        let mut state = lock(&self.0);
        if state.closed {
            close();
        } else {
            state.close = Some(close);
        }
        !state.closed
    }

    fn is_closed(&self) -> bool {
        lock(&self.0).closed
    }

    fn close(&self) {
        let mut state = lock(&self.0);
        state.closed = true;
        if let Some(close) = state.close.take() {
            close();
        }
    }
}

impl Link {
    /// Begins to open a connection. The caller counts the thread, under its lock.
    pub(super) fn open(
        shared: &Arc<Shared>,
        number: u64,
        worker: WorkerKey,
        address: String,
    ) -> Result<Self> {
        let (outbox, inbox) = channel();
        let closing = Arc::new(Closing::default());
        let thread =
            Thread { shared: Arc::clone(shared), number, worker, address, closing: Arc::clone(&closing) };
        std::thread::Builder::new()
            .name("forebay-link".into())
            .spawn(move || {
                let _ending = Ending(Arc::clone(&thread.shared));
                thread.run(&inbox);
            })
            .map_err(|error| Error::io("start a thread that talks to a worker", error))?;
        Ok(Self { number, outbox, closing })
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Says something once the feed is open there.
    pub(super) fn tell(&self, message: ToWorker) {
        // A thread that has ended has said why.
        let _ = self.outbox.send(message);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.closing.close();
    }
}

/// Why a conversation ended.
enum Ended {
    Lost(Error),
    Refused(Error),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Lost(error)
    }
}

#[derive(Clone)]
struct Thread {
    shared: Arc<Shared>,
    number: u64,
    worker: WorkerKey,
    address: String,
    closing: Arc<Closing>,
}

impl Thread {
    fn run(&self, inbox: &Receiver<ToWorker>) {
        if let Err(ended) = self.speak(inbox) {
            self.end(ended);
        }
    }

    fn end(&self, ended: Ended) {
        let doing = format!("read batches from `{}`", self.address);
        match ended {
            Ended::Lost(error) => {
                self.shared.link_lost(self.worker, self.number, error.while_doing(doing));
            }
            Ended::Refused(error) => {
                self.shared.refused(self.worker, self.number, error.while_doing(doing));
            }
        }
    }

    fn speak(&self, inbox: &Receiver<ToWorker>) -> Result<(), Ended> {
        let Dialled { mut say, mut hear, close } = {
            let wanted = || !self.closing.is_closed();
            self.shared.dial.dial(&self.address, &wanted)?
        };
        if !self.closing.opened(close) {
            return Ok(());
        }
        self.attach(say.as_mut(), hear.as_mut())?;
        self.shared.attached(self.worker, self.number);
        let listener = self.clone();
        self.shared.spawn("forebay-listen", move || {
            if let Err(ended) = listener.listen(hear.as_mut()) {
                listener.end(ended);
            }
        })?;
        loop {
            match inbox.recv_timeout(REST) {
                Ok(message) => say.say(&message)?,
                Err(RecvTimeoutError::Timeout) => say.rest()?,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    /// Names the feed, and says what it is when the worker does not know it.
    fn attach(&self, say: &mut dyn Say, hear: &mut dyn Hear) -> Result<(), Ended> {
        let attach = &self.shared.attach;
        say.say(&ToWorker::Attach(attach.clone()))?;
        let mut told = false;
        loop {
            match hear.hear()?.ok_or_else(closed)? {
                ToClient::NeedSpec if !told => {
                    told = true;
                    let spec = self.shared.spec.clone();
                    say.say(&ToWorker::Attach(Attach { spec, ..attach.clone() }))?;
                }
                ToClient::Attached { epoch_samples, .. } => {
                    let ours = self.shared.epoch_samples;
                    if epoch_samples == ours {
                        return Ok(());
                    }
                    let why = format!(
                        "an epoch has {epoch_samples} positions there and {ours} here: it is not the same dataset"
                    );
                    return Err(Ended::Refused(Error::stale(why)));
                }
                ToClient::Refused { fault } => return Err(Ended::Refused(fault.into())),
                ToClient::Draining => return Err(Error::unavailable("it is about to leave").into()),
                other => return Err(nonsense(&other).into()),
            }
        }
    }

    fn listen(&self, hear: &mut dyn Hear) -> Result<(), Ended> {
        let (shared, worker, number) = (&self.shared, self.worker, self.number);
        loop {
            match hear.hear()?.ok_or_else(closed)? {
                ToClient::Batch { request, header } => {
                    let most = Most { bytes: shared.batch_bytes, rows: shared.batch_rows };
                    let batch = hear.batch(&header, &shared.pool, most)?;
                    shared.meter.wire_bytes.add(header.packed_bytes);
                    if let Some(name) = shared.name_of(request)
                        && (batch.epoch != name.epoch || batch.len() as u64 > name.rows())
                    {
                        let (rows, epoch) = (batch.len(), batch.epoch);
                        let why = format!("{rows} rows of epoch {epoch} came for the batch of {name}");
                        return Err(Error::corrupt(why).into());
                    }
                    let bytes = hear.link_bytes(&header);
                    shared.arrived(worker, number, request, (&header, bytes), batch);
                }
                ToClient::Fault { request, fault } => {
                    shared.faulted(worker, number, request, fault.into());
                }
                ToClient::Skipped { request } => shared.skipped(worker, number, request),
                ToClient::Draining => shared.draining(worker, number),
                ToClient::Refused { fault } => return Err(Ended::Refused(fault.into())),
                other => return Err(nonsense(&other).into()),
            }
        }
    }
}

fn closed() -> Error {
    Error::unavailable("it closed the connection")
}

fn nonsense(message: &ToClient) -> Error {
    let what = match message {
        ToClient::NeedSpec => "`NeedSpec`",
        ToClient::Attached { .. } => "`Attached`",
        _ => "an answer",
    };
    Error::corrupt(format!("it said {what} out of turn"))
}
