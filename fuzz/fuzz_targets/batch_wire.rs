//! Messages and batches between workers and clients: any bytes are refused or understood, and a batch that was
//! understood stays within its limits and is the same when it is sent on.
#![no_main]

use forebay_net::service::message::{Packing, ToClient, ToWorker};
use forebay_net::service::{Limits, Receiving, Sending, Times};
use forebay_ops::{BufferPool, Column};
use libfuzzer_sys::fuzz_target;
use std::io::{Cursor, Write};
use std::sync::{Arc, Mutex};

const LIMITS: Limits = Limits { bytes: 1 << 20, rows: 256 };

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut worker = Receiving::over(Cursor::new(bytes.to_vec()), "a fuzzer");
    while let Ok(Some(_)) = worker.receive::<ToWorker>() {}
    let mut client = Receiving::over(Cursor::new(bytes.to_vec()), "a fuzzer");
    let pool = BufferPool::new(0);
    while let Ok(Some(said)) = client.receive::<ToClient>() {
        let ToClient::Batch { request, header } = said else { continue };
        let Ok(batch) = client.read_batch(&header, &pool, LIMITS) else { return };
        assert!(batch.len() as u64 <= LIMITS.rows && header.bytes <= LIMITS.bytes);
        assert!(batch.columns.iter().all(|(_, column): &(String, Column)| column.rows() == batch.len()));
        let sink = Sink::default();
        let sent = Sending::over(sink.clone(), "a fuzzer").send_batch(request, &batch, Times::default(), Packing::None);
        assert_eq!(sent.unwrap().bytes, header.bytes);
        let again = std::mem::take(&mut *sink.0.lock().unwrap());
        let mut again = Receiving::over(Cursor::new(again), "a fuzzer");
        let Ok(Some(ToClient::Batch { header: second, .. })) = again.receive() else { panic!("it was sent") };
        assert_eq!(second.columns, header.columns);
        assert!(again.read_batch(&second, &pool, LIMITS).is_ok());
    }
});
