//! Connections over sockets, as links see them.

use super::link::{Dialled, Hear, Most, Say};
use crate::credentials::Credentials;
use crate::service::message::{BatchHeader, ToClient, ToWorker};
use crate::service::{Address, Limits, Receiving, Sending, connect};
use forebay_core::Result;
use forebay_engine::Batch;
use forebay_ops::BufferPool;

/// Connects to a worker.
pub(super) fn dial(address: &Address, credentials: &Credentials) -> Result<Dialled> {
    let (sending, receiving) = connect(address, credentials)?;
    let closer = sending.closer();
    Ok(Dialled { say: Box::new(sending), hear: Box::new(receiving), close: Box::new(move || closer.close()) })
}

impl Say for Sending {
    fn say(&mut self, message: &ToWorker) -> Result<()> {
        self.send(message)
    }

    fn rest(&mut self) -> Result<()> {
        self.send_releases()
    }
}

impl Hear for Receiving {
    fn hear(&mut self) -> Result<Option<ToClient>> {
        self.receive()
    }

    fn batch(&mut self, header: &BatchHeader, pool: &BufferPool, most: Most) -> Result<Batch> {
        self.read_batch(header, pool, Limits::expecting(most.bytes, most.rows))
    }
}
