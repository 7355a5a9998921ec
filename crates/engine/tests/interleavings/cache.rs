//! Admission to the cache: of all who want a payload one fetches it, the others wait for it or fetch it when it fails.

use super::draw;
use super::late::Late;
use crate::common::*;
use bytes::Bytes;
use forebay_core::cache::{PayloadId, Place, Rank};
use forebay_core::plan::Shuffle;
use forebay_engine::cache::{CacheConfig, Keeper, LocalKeeper, Look, Payload};
use forebay_engine::{CacheSettings, LoaderConfig};
use shuttle::future::{block_on, spawn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const PAYLOADS: u64 = 3;
const MEMORY: Place = Place { memory: true, disk: false };

fn payload(id: u64) -> Payload {
    Payload { id: PayloadId(id.into()), rank: Rank(id), length: 10, group: 1 }
}

#[test]
fn a_payload_that_several_want_is_fetched_once_and_once_more_for_each_fetch_that_failed() {
    draw(2000, || {
        let keeper = Arc::new(LocalKeeper::new(PAYLOADS * 10, None));
        let fetches = Arc::new(AtomicU64::new(0));
        let failures = Arc::new(AtomicU64::new(0));
        let tasks: Vec<_> = (0..3)
            .map(|task| {
                let (keeper, fetches, failures) =
                    (Arc::clone(&keeper), Arc::clone(&fetches), Arc::clone(&failures));
                spawn(async move {
                    // Everyone begins elsewhere, so that each fetches something and waits for something.
                    for id in (0..PAYLOADS).map(|step| (step + task) % PAYLOADS) {
                        let bytes = Bytes::from(vec![id as u8; 10]);
                        let mut fails = task == 0;
                        loop {
                            let found = match keeper.look(&[payload(id)]).await.pop().unwrap() {
                                Look::Here(bytes) => Some(bytes),
                                Look::Coming | Look::Near { .. } => {
                                    let came = keeper.read(&[payload(id)]).await.pop().unwrap();
                                    came.map(|(bytes, _)| bytes)
                                }
                                Look::Absent => {
                                    fetches.fetch_add(1, Relaxed);
                                    shuttle::future::yield_now().await;
                                    if std::mem::take(&mut fails) {
                                        failures.fetch_add(1, Relaxed);
                                        keeper.give_up(payload(id));
                                        None
                                    } else {
                                        keeper.keep(payload(id), MEMORY, &bytes).await;
                                        Some(bytes.clone())
                                    }
                                }
                            };
                            match found {
                                Some(found) => break assert_eq!(found, bytes),
                                None => shuttle::future::yield_now().await,
                            }
                        }
                    }
                })
            })
            .collect();
        block_on(async {
            for task in tasks {
                task.await.unwrap();
            }
        });
        assert_eq!(fetches.load(Relaxed), PAYLOADS + failures.load(Relaxed));
        let view = keeper.view();
        assert_eq!((view.memory.payloads, view.memory.bytes, view.coming), (PAYLOADS, PAYLOADS * 10, 0));
    });
}

#[test]
fn a_tier_that_is_made_smaller_while_payloads_come_in_never_holds_more_than_it_may() {
    draw(1000, || {
        let keeper = Arc::new(LocalKeeper::new(PAYLOADS * 10, None));
        let keeping: Vec<_> = (0..PAYLOADS)
            .map(|id| {
                let keeper = Arc::clone(&keeper);
                spawn(async move {
                    if matches!(keeper.look(&[payload(id)]).await[..], [Look::Absent]) {
                        keeper.keep(payload(id), MEMORY, &Bytes::from_static(&[7; 10])).await;
                    }
                })
            })
            .collect();
        let capacity = forebay_core::cache::Capacity { memory: 20, disk: 0 };
        block_on(async {
            keeper.resize(capacity).await.unwrap();
            assert!(keeper.view().memory.bytes <= 20);
            for task in keeping {
                task.await.unwrap();
            }
        });
        let view = keeper.view();
        assert_eq!((view.memory.bytes, view.coming), (20, 0));
    });
}

/// The next epoch is looked for while this one's payloads still come in.
#[test]
fn a_loader_with_a_cache_reads_every_payload_from_the_store_once_in_all_epochs() {
    draw(1000, || {
        let (manifest, store) = objects(5, 10);
        let store = Late::over(store);
        let cache = CacheConfig::from_json(&serde_json::json!("1MiB")).unwrap();
        let config = LoaderConfig { shuffle: Shuffle::Full, threads: 2, epochs: Some(3), ..alone(2) };
        let mut loader = loader_on(&manifest, store.clone(), &bytes_recipe(), config)
            .with_cache(CacheSettings::local(cache));
        for _ in 0..3 {
            assert_each_once(ids(&epoch(&mut loader)), 5);
        }
        loader.close();
        assert_eq!(store.reads().values().copied().collect::<Vec<_>>(), [1; 5]);
    });
}
