//! Made batches, ways to compare them, and connections to send them over.

use bytes::Bytes;
use forebay_core::recipe::Offsets;
use forebay_core::tensor::{Dtype, TensorSpec};
use forebay_core::{Error, Facts, Result, SampleId};
use forebay_engine::{Batch, Fault};
use forebay_net::Credentials;
use forebay_net::service::message::{BatchHeader, Packing, ToClient};
use forebay_net::service::{
    Address, Limits, ListenOptions, Listener, Receiving, Sending, Sent, Times, connect,
};
use forebay_ops::{Buffer, BufferPool, Column, Ragged, Tensor};
use std::io::Write;
use std::sync::{Arc, Mutex};

pub(crate) const LIMITS: Limits = Limits { bytes: 1 << 30, rows: 1 << 20 };

/// What was written, also after the writer is gone.
#[derive(Clone, Default)]
pub(crate) struct Sink(pub(crate) Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Sink {
    pub(crate) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// The bytes of a batch.
pub(crate) fn written(batch: &Batch, packing: Packing) -> (Vec<u8>, Sent) {
    let sink = Sink::default();
    let mut sending = Sending::over(sink.clone(), "a test");
    let sent = sending.send_batch(9, batch, Times::default(), packing).unwrap();
    (sink.take(), sent)
}

/// The batch in some bytes.
pub(crate) fn read(bytes: Vec<u8>) -> Result<(BatchHeader, Batch)> {
    let mut receiving = Receiving::over(std::io::Cursor::new(bytes), "a test");
    receive(&mut receiving, &BufferPool::new(0))
}

/// The next message, which must be a batch.
pub(crate) fn receive(receiving: &mut Receiving, pool: &BufferPool) -> Result<(BatchHeader, Batch)> {
    match receiving.receive::<ToClient>()? {
        Some(ToClient::Batch { header, .. }) => {
            let batch = receiving.read_batch(&header, pool, LIMITS)?;
            Ok((*header, batch))
        }
        None => Err(Error::unavailable("read a batch: the stream has ended")),
        other => Err(Error::corrupt(format!("read a batch: {other:?} came"))),
    }
}

pub(crate) fn filled(mut buffer: Buffer, salt: u64) -> Buffer {
    let mut state = salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for chunk in buffer.as_mut_slice().chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
    buffer
}

/// A tensor of bytes: `rows` times `row_bytes`.
pub(crate) fn tensor(pool: &BufferPool, rows: usize, row_bytes: usize, salt: u64) -> Column {
    let spec = TensorSpec { dtype: Dtype::U8, shape: vec![row_bytes] };
    Column::Tensor { spec, rows, data: filled(pool.take(rows * row_bytes), salt) }
}

/// Rows of these lengths one behind the other, along the second of two axes.
pub(crate) fn following(pool: &BufferPool, dtype: Dtype, lengths: &[usize], salt: u64) -> Column {
    let mut offsets = vec![0];
    offsets.extend(lengths.iter().scan(0, |end, length| {
        *end += *length as u64;
        Some(*end)
    }));
    let spec = TensorSpec { dtype, shape: vec![2, lengths.iter().sum()] };
    let data = filled(pool.take(spec.bytes()), salt);
    Column::Ragged(Ragged::checked(Tensor { spec, data }, 1, offsets, Offsets::I32).unwrap())
}

/// A batch with these columns.
pub(crate) fn batch(rows: usize, columns: Vec<Column>) -> Batch {
    let named = columns.into_iter().enumerate().map(|(index, column)| (format!("column {index}"), column));
    Batch {
        epoch: 4,
        step: 0,
        ids: (0..rows as u64).map(|row| SampleId(row * 1000)).collect(),
        padding: (0..rows).map(|row| row + 1 == rows).collect(),
        columns: named.collect(),
        faults: Vec::new(),
        object: None,
    }
}

/// A batch with one column of every kind, and a fault.
pub(crate) fn every_kind(rows: usize) -> Batch {
    let ragged = |row: usize| {
        let spec = TensorSpec { dtype: Dtype::F32, shape: vec![row, 2] };
        Tensor { data: filled(Buffer::alone(spec.bytes()), row as u64), spec }
    };
    let text = |row: usize| "wäre ".repeat(row);
    let columns = vec![
        tensor(&BufferPool::new(0), rows, 12, 1),
        Column::Tensors((0..rows).map(ragged).collect()),
        Column::Bytes((0..rows).map(|row| Bytes::from(vec![row as u8; 5000 * row])).collect()),
        Column::Text((0..rows).map(text).collect()),
        Column::Json((0..rows).map(|row| format!("{{\"row\": {row}}}")).collect()),
        following(&BufferPool::new(0), Dtype::F32, &(0..rows).collect::<Vec<_>>(), 3),
    ];
    let mut batch = batch(rows, columns);
    let facts = Facts { sample_id: Some(SampleId(7)), op: Some("decode".into()), ..Facts::default() };
    batch.faults.push(Fault {
        sample_id: SampleId(7),
        key: "a/b.jpg".into(),
        epoch: 4,
        error: Error::corrupt("decode `a/b.jpg`: it is cut").with_facts(facts).with_hint("look at it"),
        substitute: Some(SampleId(8)),
    });
    batch
}

/// Everything about a batch, in a form that compares.
pub(crate) fn shape(batch: &Batch) -> Vec<String> {
    let columns = batch.columns.iter().map(|(name, column)| match column {
        Column::Tensor { spec, rows, data } => format!("{name} {spec:?} {rows} {:?}", data.as_slice()),
        Column::Tensors(tensors) => {
            let all: Vec<_> = tensors
                .iter()
                .map(|tensor| format!("{:?} {:?}", tensor.spec, tensor.data.as_slice()))
                .collect();
            format!("{name} {all:?}")
        }
        other => format!("{name} {other:?}"),
    });
    let faults = batch.faults.iter().map(|fault| {
        let facts = fault.error.facts();
        format!("{:?} {} {:?} {facts:?} {:?}", fault.sample_id, fault.key, fault.error, fault.substitute)
    });
    let head = format!("{} {:?} {:?}", batch.epoch, batch.ids, batch.padding);
    std::iter::once(head).chain(columns).chain(faults).collect()
}

/// A worker's and a client's halves, connected at `address`.
pub(crate) fn pair(
    address: &Address,
    credentials: &Credentials,
) -> ((Sending, Receiving), (Sending, Receiving)) {
    let listener = Listener::bind(address, credentials, ListenOptions::default()).unwrap();
    let at = listener.address().clone();
    std::thread::scope(|scope| {
        let worker = scope.spawn(move || listener.accept().unwrap().unwrap().meet().unwrap());
        let client = connect(&at, credentials).unwrap();
        (worker.join().unwrap(), client)
    })
}

pub(crate) fn loopback() -> Address {
    Address::Tcp("127.0.0.1:0".into())
}
