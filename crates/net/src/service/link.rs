//! The two halves of a connection, each used by one thread: what is sent, and what is received.
//!
//! Shared memory is looked after here, so that neither side has to think of it. The sender keeps a handle of what it
//! has shown until the other side lets go of it; the receiver lets go when a buffer is dropped, and says so with the
//! next message. When a connection ends, memory that is still out is left to whoever looks at it and not used again.

use super::codec::{self, Limits, Times};
use super::frame::{self, Message, lost};
use super::message::{BatchHeader, Packing, Place, ToClient, ToWorker};
use super::packing::{Auto, Packer};
use super::shown::Shown;
use super::socket::{Anything, Input, MAX_DESCRIPTORS, Output, Socket};
use crate::server::lock;
use forebay_core::{Error, Result};
use forebay_engine::Batch;
use forebay_ops::buffer::{SharedMemory, SharedViews};
use forebay_ops::{Buffer, BufferPool};
use std::io::{BufReader, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// Bytes read at once where messages are small; batches are read past this.
const READ_BYTES: usize = 16 << 10;
/// Views of shared memory that a client keeps for the next batch that comes in it.
const VIEWED_BYTES: usize = 4 << 30;

/// What ties a connection's halves together.
pub(super) struct Ends {
    pub(super) peer: String,
    pub(super) socket: Option<Arc<Socket>>,
    /// Memory that was shown to the other side, when it can be shown any.
    pub(super) shown: Option<Shown>,
    /// Memory that we no longer look at, when we can be shown any.
    pub(super) unseen: Option<Arc<Mutex<Vec<u64>>>>,
    /// When the message began that is being read and has not come as a whole.
    pub(super) unfinished: Mutex<Option<Instant>>,
    /// Held as long as the connection lasts.
    pub(super) _place: Option<Box<dyn Send + Sync>>,
}

/// The half that sends. Dropping it tells the other side that nothing more comes.
pub struct Sending {
    output: Box<dyn Output>,
    ends: Arc<Ends>,
    frame: Vec<u8>,
    packer: Packer,
    auto: Auto,
    wire_bytes: u64,
}

/// The half that receives.
pub struct Receiving {
    input: BufReader<Box<dyn Input>>,
    ends: Arc<Ends>,
    /// Views of memory that we were shown and look at no more.
    views: SharedViews,
    frame: Vec<u8>,
    wire_bytes: u64,
}

/// Ends a connection from any thread: both halves find it lost. It keeps nothing of the connection alive.
#[derive(Clone)]
pub struct Closer(Weak<Ends>);

/// How a batch crossed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Bytes of its body.
    pub bytes: u64,
    /// Bytes of its body as they crossed.
    pub packed_bytes: u64,
    /// Bytes that were handed over as shared memory.
    pub shared_bytes: u64,
}

pub(super) fn halves(
    output: Box<dyn Output>,
    input: Box<dyn Input>,
    ends: Arc<Ends>,
) -> (Sending, Receiving) {
    let sending = Sending {
        output,
        ends: ends.clone(),
        frame: Vec::new(),
        packer: Packer::default(),
        auto: Auto::default(),
        wire_bytes: 0,
    };
    (sending, Receiving::new(input, ends))
}

fn apart(peer: &str) -> Arc<Ends> {
    Arc::new(Ends {
        peer: peer.to_owned(),
        socket: None,
        shown: None,
        unseen: None,
        unfinished: Mutex::default(),
        _place: None,
    })
}

impl Sending {
    /// Sends to any writer, without descriptors. What is met there was met already.
    pub fn over(writer: impl Write + Send + 'static, peer: &str) -> Self {
        halves(Box::new(Anything(writer)), Box::new(Anything(std::io::empty())), apart(peer)).0
    }

    /// Sends a message.
    pub fn send<M: Message>(&mut self, message: &M) -> Result<()> {
        self.start()?;
        frame::put(message, &mut self.frame)?;
        self.write_frame()
    }

    /// Says which shared memory is no longer looked at. Every message says it too, so that only who is silent for
    /// long needs this.
    pub fn send_releases(&mut self) -> Result<()> {
        self.start()?;
        if self.frame.is_empty() { Ok(()) } else { self.write_frame() }
    }

    /// Sends a batch that was asked for by `request`.
    pub fn send_batch(
        &mut self,
        request: u64,
        batch: &Batch,
        times: Times,
        packing: Packing,
    ) -> Result<Sent> {
        let mut shared: Vec<SharedMemory> = Vec::new();
        let mut sent = Sent::default();
        let described = codec::describe(batch, times, |buffer| match self.show(buffer, shared.len()) {
            Some(memory) => {
                sent.shared_bytes += buffer.len() as u64;
                let place = Place::Shared { memory: memory.id(), size: memory.size() as u64, new: true };
                shared.push(memory);
                place
            }
            None => Place::Body,
        });
        let codec::Described { mut header, pieces } = described;
        sent.bytes = header.bytes;
        let mut packed: Option<&[u8]> = None;
        let auto = packing == Packing::Auto;
        if packing != Packing::None && header.bytes > 0 && (!auto || self.auto.packs()) {
            let packing = if auto { Packing::Lz4 } else { packing };
            let body = self.packer.pack(packing, pieces.iter().map(|piece| &piece[..]))?;
            let bytes = body.len() as u64;
            if if auto { self.auto.packed(header.bytes, bytes) } else { bytes < header.bytes } {
                (header.packing, header.packed_bytes) = (packing, bytes);
                packed = Some(body);
            }
        }
        sent.packed_bytes = header.packed_bytes;
        self.frame.clear();
        frame::put(&ToClient::Batch { request, header: Box::new(header) }, &mut self.frame)?;
        let mut all = vec![IoSlice::new(&self.frame)];
        match packed {
            Some(body) => all.push(IoSlice::new(body)),
            None => all.extend(pieces.iter().map(|piece| IoSlice::new(piece))),
        }
        let descriptors: Vec<_> = shared.iter().filter_map(SharedMemory::descriptor).collect();
        self.output.write(&mut all, &descriptors).map_err(|error| lost(&self.ends.peer, error))?;
        self.wire_bytes += self.frame.len() as u64 + sent.packed_bytes;
        Ok(sent)
    }

    /// Bytes that were sent.
    pub fn wire_bytes(&self) -> u64 {
        self.wire_bytes
    }

    /// How long the other side may take nothing of what is sent before the connection counts as lost.
    pub fn set_write_time(&self, time: Duration) -> Result<()> {
        match &self.ends.socket {
            Some(socket) => socket.set_write_time(time).map_err(|error| lost(&self.ends.peer, error)),
            None => Ok(()),
        }
    }

    /// Who is at the other end, in words.
    pub fn peer(&self) -> &str {
        &self.ends.peer
    }

    /// Ends the connection from elsewhere.
    pub fn closer(&self) -> Closer {
        Closer(Arc::downgrade(&self.ends))
    }

    /// Whether batches are handed over as shared memory: buffers should come from a shared pool then.
    pub fn shares_memory(&self) -> bool {
        self.ends.shown.is_some()
    }

    /// Begins a frame with what we no longer look at.
    fn start(&mut self) -> Result<()> {
        self.frame.clear();
        let unseen = self.ends.unseen.as_ref().map(|unseen| std::mem::take(&mut *lock(unseen)));
        match unseen.filter(|unseen| !unseen.is_empty()) {
            Some(memory) => frame::put(&ToWorker::Release { memory }, &mut self.frame),
            None => Ok(()),
        }
    }

    fn write_frame(&mut self) -> Result<()> {
        let mut pieces = [IoSlice::new(&self.frame)];
        self.output.write(&mut pieces, &[]).map_err(|error| lost(&self.ends.peer, error))?;
        self.wire_bytes += self.frame.len() as u64;
        self.frame.shrink_to(1 << 20);
        Ok(())
    }

    fn show(&self, buffer: &Buffer, already: usize) -> Option<SharedMemory> {
        let (shown, memory) = (self.ends.shown.as_ref()?, buffer.shared_memory()?);
        (already < MAX_DESCRIPTORS && shown.keep(memory)).then(|| memory.clone())
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.output.finish();
    }
}

impl Receiving {
    /// Receives from any reader, without descriptors.
    pub fn over(reader: impl Read + Send + 'static, peer: &str) -> Self {
        Self::new(Box::new(Anything(reader)), apart(peer))
    }

    fn new(input: Box<dyn Input>, ends: Arc<Ends>) -> Self {
        let input = BufReader::with_capacity(READ_BYTES, input);
        Self { input, ends, views: SharedViews::new(VIEWED_BYTES), frame: Vec::new(), wire_bytes: 0 }
    }

    /// The next message; `None` when the other side has ended. What it says about shared memory is acted on here.
    pub fn receive<M: Message>(&mut self) -> Result<Option<M>> {
        loop {
            let peer = &self.ends.peer;
            let Some(length) = frame::read_length::<M>(&mut self.input, peer)? else { return Ok(None) };
            let begun = self.input.buffer().len() < length;
            if begun {
                *lock(&self.ends.unfinished) = Some(Instant::now());
            }
            let message = frame::read_message::<M>(&mut self.input, length, peer, &mut self.frame)?;
            if begun {
                *lock(&self.ends.unfinished) = None;
            }
            self.wire_bytes += 4 + length as u64;
            match message.released() {
                None => return Ok(Some(message)),
                Some(released) => {
                    if let Some(shown) = &self.ends.shown {
                        shown.release(released);
                    }
                }
            }
        }
    }

    /// The batch that the last message announced. After an error the connection is of no more use, and is ended.
    pub fn read_batch(&mut self, header: &BatchHeader, pool: &BufferPool, limits: Limits) -> Result<Batch> {
        let (unseen, views) = (self.ends.unseen.clone(), &self.views);
        // Those of the next batch may be here already, so only as many are taken as this one has.
        let count = if unseen.is_some() { codec::shared_columns(header).min(MAX_DESCRIPTORS) } else { 0 };
        let came: Vec<_> = std::iter::from_fn(|| self.input.get_mut().descriptor()).take(count).collect();
        let mut came = came.into_iter();
        let shared = |memory: u64, size: u64, len: usize| {
            let (Some(unseen), Some(descriptor)) = (unseen.clone(), came.next()) else {
                return Err(Error::corrupt("read a batch: its shared memory did not come with it"));
            };
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            let told = Box::new(move || lock(&unseen).push(memory));
            views.look(descriptor.as_fd(), size, len, Some(told))
        };
        let read = codec::read(&mut self.input, header, pool, limits, shared);
        match read {
            Ok(batch) => {
                self.wire_bytes += header.packed_bytes;
                Ok(batch)
            }
            Err(error) => {
                self.closer().close();
                Err(error.while_doing(format!("talk to {}", self.ends.peer)))
            }
        }
    }

    /// Bytes that were received.
    pub fn wire_bytes(&self) -> u64 {
        self.wire_bytes
    }

    /// Who is at the other end, in words.
    pub fn peer(&self) -> &str {
        &self.ends.peer
    }

    /// Ends the connection from elsewhere.
    pub fn closer(&self) -> Closer {
        Closer(Arc::downgrade(&self.ends))
    }
}

impl Closer {
    /// How long a message of the other side has been coming and is not whole.
    pub fn unfinished_for(&self) -> Option<Duration> {
        let begun = *lock(&self.0.upgrade()?.unfinished);
        begun.map(|begun| begun.elapsed())
    }

    /// Ends the connection, also while a thread waits in it.
    pub fn close(&self) {
        if let Some(socket) = self.0.upgrade().as_ref().and_then(|ends| ends.socket.as_ref()) {
            socket.shutdown(Shutdown::Both);
        }
    }
}

impl std::fmt::Debug for Closer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Closer")
    }
}
