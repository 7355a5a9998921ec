//! Bytes that are cut, changed or lie: always an error, never a panic, never memory beyond what was asked for.

use crate::make::{LIMITS, Sink, batch, every_kind, read, tensor, written};
use forebay_core::tensor::Dtype;
use forebay_core::{Error, ErrorKind};
use forebay_net::service::message::{BatchHeader, ColumnKind, MAX_NAMES, Packing, Place, ToClient, ToWorker};
use forebay_net::service::{Limits, Receiving, Sending};
use forebay_ops::BufferPool;
use proptest::prelude::*;

#[test]
fn every_truncation_of_a_stream_is_a_lost_connection() {
    for packing in [Packing::None, Packing::Lz4, Packing::Zstd] {
        let (bytes, _) = written(&every_kind(3), packing);
        for cut in 0..bytes.len() {
            let error = read(bytes[..cut].to_vec()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{packing:?} {cut}: {error:?}");
        }
        read(bytes).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn a_changed_stream_is_read_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), packing in 0usize..3,
    ) {
        let packing = [Packing::None, Packing::Lz4, Packing::Zstd][packing];
        let (mut bytes, _) = written(&every_kind(3), packing);
        for (at, with) in changes {
            // The first part is where the header is.
            let at = at.index(bytes.len().min(800));
            bytes[at] = with;
        }
        let _ = read(bytes);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut receiving = Receiving::over(std::io::Cursor::new(bytes.clone()), "a test");
        while let Ok(Some(_)) = receiving.receive::<ToWorker>() {}
        let _ = read(bytes);
    }
}

/// What comes of a batch whose header was changed.
fn lied(change: impl FnOnce(&mut BatchHeader)) -> Error {
    let (bytes, _) = written(&every_kind(3), Packing::None);
    let mut receiving = Receiving::over(std::io::Cursor::new(bytes), "a test");
    let Some(ToClient::Batch { mut header, .. }) = receiving.receive().unwrap() else { panic!("no batch") };
    change(&mut header);
    receiving.read_batch(&header, &BufferPool::new(0), LIMITS).unwrap_err()
}

fn tensor_of(header: &mut BatchHeader) -> (&mut Vec<u64>, &mut u64, &mut Place) {
    let ColumnKind::Tensor { shape, rows, place, .. } = &mut header.columns[0].kind else { panic!() };
    (shape, rows, place)
}

type Lie = Box<dyn Fn(&mut BatchHeader)>;

#[test]
fn a_header_that_lies_is_corrupt() {
    let shared = |size| Place::Shared { memory: 1, size, new: true };
    let lies: Vec<(&str, Lie)> = vec![
        ("more bytes than its columns", Box::new(|header| header.bytes += 1)),
        ("fewer bytes than its columns", Box::new(|header| header.bytes -= 1)),
        ("another packed size", Box::new(|header| header.packed_bytes -= 1)),
        ("a packing it has not", Box::new(|header| header.packing = Packing::Zstd)),
        ("no packing at all", Box::new(|header| header.packing = Packing::Auto)),
        ("a missing row", Box::new(|header| header.ids.truncate(2))),
        ("a missing mark", Box::new(|header| header.padding.truncate(2))),
        ("other rows in a column", Box::new(|header| *tensor_of(header).1 += 1)),
        ("a huge extent", Box::new(|header| tensor_of(header).0[0] = u64::MAX)),
        ("extents that overflow", Box::new(|header| *tensor_of(header).0 = vec![1 << 40, 1 << 40])),
        ("an overflow behind a zero", Box::new(|header| *tensor_of(header).0 = vec![0, u64::MAX, 9])),
        ("too many axes", Box::new(|header| *tensor_of(header).0 = vec![1; 40])),
        ("shared memory that is too small", Box::new(move |header| *tensor_of(header).2 = shared(35))),
        (
            "shared memory that did not come",
            Box::new(move |header| {
                *tensor_of(header).2 = shared(4096);
                (header.bytes, header.packed_bytes) = (header.bytes - 36, header.packed_bytes - 36);
            }),
        ),
        (
            "lengths that overflow",
            Box::new(|header| {
                header.columns[2].kind = ColumnKind::Bytes(vec![u64::MAX, 2, 0]);
            }),
        ),
        (
            "tensors that overflow",
            Box::new(|header| {
                header.columns[1].kind = ColumnKind::Tensors(vec![(Dtype::F64, vec![u64::MAX / 8]); 3]);
            }),
        ),
        (
            "bytes as text",
            Box::new(|header| {
                let ColumnKind::Text(lengths) = header.columns[3].kind.clone() else { panic!() };
                // One byte moves from one text to the next, in the middle of a letter.
                header.columns[3].kind = ColumnKind::Text(vec![lengths[0] + 2, lengths[1] - 2, lengths[2]]);
            }),
        ),
    ];
    for (lie, change) in lies {
        let error = lied(change);
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{lie}: {error:?}");
    }
}

#[test]
fn a_batch_beyond_what_was_asked_for_is_refused_before_memory_is_taken() {
    let read = |limits| {
        let (bytes, _) = written(&batch(8, vec![tensor(&BufferPool::new(0), 8, 1000, 1)]), Packing::None);
        let mut receiving = Receiving::over(std::io::Cursor::new(bytes), "a test");
        let Some(ToClient::Batch { header, .. }) = receiving.receive().unwrap() else { panic!("no batch") };
        receiving.read_batch(&header, &BufferPool::new(0), limits).map(|batch| batch.len())
    };
    assert_eq!(read(Limits { bytes: 8000, rows: 8 }).unwrap(), 8);
    for limits in [Limits { bytes: 7999, rows: 8 }, Limits { bytes: 8000, rows: 7 }] {
        assert_eq!(read(limits).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    assert_eq!(Limits::expecting(100 << 20, 5), Limits { bytes: 200 << 20, rows: 5 });
    assert_eq!(Limits::expecting(1, 5).bytes, 64 << 20);
}

#[test]
fn a_plan_with_too_many_names_is_refused() {
    let plan = |count| {
        let sink = Sink::default();
        let name = forebay_core::feed::BatchName { epoch: 0, runs: Vec::new() };
        Sending::over(sink.clone(), "a test").send(&ToWorker::Plan { names: vec![name; count] }).unwrap();
        let mut receiving = Receiving::over(std::io::Cursor::new(sink.take()), "a test");
        receiving.receive::<ToWorker>()
    };
    assert!(matches!(plan(MAX_NAMES).unwrap(), Some(ToWorker::Plan { names }) if names.len() == MAX_NAMES));
    assert_eq!(plan(MAX_NAMES + 1).unwrap_err().kind(), ErrorKind::Corrupt);
}
