//! Ranges of objects are what slices of the same bytes are, on every store.
#![expect(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

use forebay_core::ErrorKind;
use forebay_store::local::{LocalOptions, ReadMode};
use forebay_store::{ByteRange, GunzipOptions, GunzipStore, LocalStore, MemoryStore, Store};
use proptest::prelude::*;
use std::sync::{Arc, LazyLock};
use tempfile::TempDir;
use tokio::runtime::Runtime;

const KEY: &str = "object.gz";
const SIZE: u64 = 300_007;

/// One object on every store, made once: cases are cheap then.
struct Bench {
    runtime: Runtime,
    bytes: Vec<u8>,
    stores: Vec<Arc<dyn Store>>,
    _directory: TempDir,
}

static BENCH: LazyLock<Bench> = LazyLock::new(|| {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let bytes: Vec<u8> = (0..SIZE).map(|number| forebay_core::rng::mix64(number) as u8).collect();
    let local = |read_mode| -> Arc<dyn Store> {
        let options = LocalOptions { read_mode, ..LocalOptions::default() };
        Arc::new(LocalStore::with_options(directory.path().to_owned(), &options))
    };
    let stores: Vec<Arc<dyn Store>> = vec![
        Arc::new(MemoryStore::new()),
        local(ReadMode::Buffered),
        local(ReadMode::Direct),
        Arc::new(GunzipStore::new(Arc::new(MemoryStore::new()), GunzipOptions::default())),
    ];
    let runtime = Runtime::new().unwrap();
    for store in &stores {
        runtime.block_on(store.write(KEY, bytes.clone().into())).unwrap();
    }
    Bench { runtime, bytes, stores, _directory: directory }
});

fn any_range() -> impl Strategy<Value = ByteRange> {
    let edge = || prop_oneof![0..SIZE + 10, SIZE - 3..SIZE + 3, (0..80u64).prop_map(|block| block * 4096)];
    prop_oneof![
        (edge(), edge()).prop_map(|(start, end)| ByteRange::Bounded { start, end }),
        edge().prop_map(ByteRange::From),
        edge().prop_map(ByteRange::Last),
        edge().prop_map(ByteRange::Whole),
        Just(ByteRange::Whole(SIZE)),
        Just(ByteRange::Full),
    ]
}

proptest! {
    #[test]
    fn p016_ranges_equal_local_slices_and_out_of_bounds_is_an_error(range in any_range()) {
        let (start, end) = match range {
            ByteRange::Full | ByteRange::Whole(SIZE) => (0, SIZE),
            // An object of another size is another object.
            ByteRange::Whole(_) => (0, SIZE + 1),
            ByteRange::Bounded { start, end } => (start, end),
            ByteRange::From(start) => (start, SIZE),
            ByteRange::Last(length) => (SIZE.wrapping_sub(length), SIZE),
        };
        let slice = BENCH.bytes.get(start as usize..end as usize);
        for store in &BENCH.stores {
            match (BENCH.runtime.block_on(store.read(KEY, range)), slice) {
                (Ok(found), Some(slice)) => prop_assert!(found == slice, "{store:?}"),
                (Err(error), None) => {
                    let stale = matches!(range, ByteRange::Whole(_));
                    let kind = if stale { ErrorKind::Stale } else { ErrorKind::InvalidConfig };
                    prop_assert_eq!(error.kind(), kind);
                }
                (found, _) => prop_assert!(false, "{store:?} gave {:?}", found.map(|bytes| bytes.len())),
            }
        }
    }

    #[test]
    fn p016_parts_equal_local_slices(steps in prop::collection::vec((0..30_000u64, 0..90_000u64), 0..12)) {
        let mut at = 0;
        let parts: Vec<_> = steps.iter().map(|(gap, length)| {
            let start = at + gap;
            at = start + length;
            start..at
        }).collect();
        for store in &BENCH.stores {
            match BENCH.runtime.block_on(store.read_parts(KEY, &parts)) {
                Ok(found) => {
                    prop_assert!(at <= SIZE && found.len() == parts.len());
                    for (part, found) in parts.iter().zip(found) {
                        prop_assert!(found == BENCH.bytes[part.start as usize..part.end as usize], "{store:?}");
                    }
                }
                Err(error) => {
                    prop_assert!(at > SIZE, "{store:?} refused parts inside the object: {error:?}");
                    prop_assert_eq!(error.kind(), ErrorKind::InvalidConfig);
                }
            }
        }
    }
}
