//! What is read is what was sent, whatever is in it and however it is packed.

use crate::make::{batch, every_kind, filled, following, read, shape, tensor, written};
use bytes::Bytes;
use forebay_core::tensor::{Dtype, TensorSpec};
use forebay_net::service::message::Packing;
use forebay_net::service::{Sending, Times};
use forebay_ops::{Buffer, BufferPool, Column, Tensor};
use proptest::prelude::*;
use std::time::Duration;

const PACKINGS: [Packing; 4] = [Packing::None, Packing::Lz4, Packing::Zstd, Packing::Auto];
const DTYPES: [Dtype; 5] = [Dtype::Bool, Dtype::U8, Dtype::Bf16, Dtype::F32, Dtype::I64];

#[derive(Clone, Debug)]
struct Drawn {
    kind: u8,
    dtype: usize,
    sizes: Vec<usize>,
    salt: u64,
}

fn column(drawn: &Drawn, rows: usize) -> Column {
    let size = |row: usize| drawn.sizes[row % drawn.sizes.len()];
    let bytes = |row: usize| filled(Buffer::alone(size(row)), drawn.salt + row as u64).as_slice().to_vec();
    let text = |row: usize| bytes(row).into_iter().map(char::from).collect::<String>();
    let dtype = DTYPES[drawn.dtype % DTYPES.len()];
    match drawn.kind {
        0 => {
            let shape = drawn.sizes.iter().take(3).map(|size| size % 7).collect();
            let spec = TensorSpec { dtype, shape };
            let data = filled(BufferPool::new(0).take(spec.bytes() * rows), drawn.salt);
            Column::Tensor { spec, rows, data }
        }
        1 => {
            let one = |row: usize| {
                let spec = TensorSpec { dtype, shape: vec![size(row) % 50, row % 3] };
                Tensor { data: filled(Buffer::alone(spec.bytes()), drawn.salt), spec }
            };
            Column::Tensors((0..rows).map(one).collect())
        }
        2 => Column::Bytes((0..rows).map(|row| Bytes::from(bytes(row))).collect()),
        3 => Column::Text((0..rows).map(text).collect()),
        4 => following(&BufferPool::new(0), dtype, &(0..rows).map(size).collect::<Vec<_>>(), drawn.salt),
        _ => Column::Json((0..rows).map(|row| format!("[{}]", size(row))).collect()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn what_is_read_is_what_was_sent(
        rows in 0usize..20,
        drawn in prop::collection::vec(
            (0u8..6, 0usize..5, prop::collection::vec(0usize..6000, 1..6), any::<u64>()), 0..6,
        ),
        packing in 0usize..4,
    ) {
        let drawn = drawn.into_iter().map(|(kind, dtype, sizes, salt)| {
            Drawn { kind, dtype, sizes, salt: salt >> 8 }
        });
        let sent = batch(rows, drawn.map(|drawn| column(&drawn, rows)).collect());
        let (bytes, counted) = written(&sent, PACKINGS[packing]);
        let (header, received) = read(bytes).unwrap();
        prop_assert_eq!(shape(&received), shape(&sent));
        prop_assert_eq!((header.bytes, header.packed_bytes), (counted.bytes, counted.packed_bytes));
    }
}

#[test]
fn faults_and_times_cross_too() {
    let sent = every_kind(4);
    let sink = crate::make::Sink::default();
    let times = Times { fetch: Duration::from_millis(3), prep: Duration::from_nanos(5) };
    let mut sending = Sending::over(sink.clone(), "a test");
    sending.send_batch(1, &sent, times, Packing::None).unwrap();
    let bytes = sink.take();
    assert_eq!(sending.wire_bytes(), bytes.len() as u64);
    let (header, received) = read(bytes).unwrap();
    assert_eq!(shape(&received), shape(&sent));
    assert_eq!(received.faults[0].error.hint(), Some("look at it"));
    assert_eq!((header.fetch_nanos, header.prep_nanos), (3_000_000, 5));
}

#[test]
fn p062_auto_packs_what_shrinks_by_a_tenth_and_nothing_else_and_the_bytes_are_counted() {
    let pool = BufferPool::new(0);
    let noise = batch(4, vec![tensor(&pool, 4, 100_000, 3)]);
    let mut calm = pool.take(400_000);
    calm.as_mut_slice().fill(1);
    let spec = TensorSpec { dtype: Dtype::U8, shape: vec![100_000] };
    let calm = batch(4, vec![Column::Tensor { spec, rows: 4, data: calm }]);
    let sink = crate::make::Sink::default();
    let mut sending = Sending::over(sink.clone(), "a test");
    let mut send = |batch: &_, packing| {
        let sent = sending.send_batch(0, batch, Times::default(), packing).unwrap();
        let crossed = sink.take().len() as u64;
        assert!((sent.packed_bytes..sent.packed_bytes + 200).contains(&crossed), "{sent:?} {crossed}");
        assert_eq!(sent.bytes, 400_000);
        sent.packed_bytes
    };
    for packing in [Packing::Lz4, Packing::Zstd] {
        assert!(send(&calm, packing) < 10_000, "{packing:?}");
    }
    assert_eq!(send(&calm, Packing::None), 400_000);
    assert_eq!(send(&noise, Packing::Lz4), 400_000, "what does not shrink crosses as it is");
    assert_eq!(send(&noise, Packing::Auto), 400_000);
    for body in 1..32 {
        assert_eq!(send(&calm, Packing::Auto), 400_000, "body {body}: not looked at before the 32nd");
    }
    for _ in 0..40 {
        assert!(send(&calm, Packing::Auto) < 10_000);
    }
    assert_eq!(send(&noise, Packing::Auto), 400_000);
}
