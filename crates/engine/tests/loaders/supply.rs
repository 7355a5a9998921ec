//! A loader whose batches come from elsewhere: what the supply leaves out uses up its step, in the cursor too.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::common::{alone, epoch, ids, label_recipe, loader, noise, steps};
use forebay_core::Result;
use forebay_core::cursor::Cursor;
use forebay_core::plan::Shuffle;
use forebay_core::portion::{Consumer, LastBatch, Portion};
use forebay_engine::feed::FeedSpec;
use forebay_engine::{
    Asked, Batch, DeliveryOrder, LoaderConfig, Meter, SkippedBatch, Supplier, Supply, SupplyView, Taken,
};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Hands over two epochs in plan order, without the batches of these steps.
struct LeavesOut(Vec<u64>);

struct Lined(Mutex<VecDeque<Taken>>);

impl Supplier for LeavesOut {
    fn start(&self, asked: Asked, cursor: Cursor, _meter: &Arc<Meter>) -> Result<Box<dyn Supply>> {
        let mut line = VecDeque::new();
        for epoch in cursor.epoch..cursor.epoch + 2 {
            let from = if epoch == cursor.epoch { cursor.clone() } else { Cursor::start_of(epoch) };
            let plan = asked.sampler.plan(epoch);
            let portion = Portion::new(asked.sampler.samples(), asked.consumer, &from)?;
            let done = asked.sampler.samples().div_ceil(asked.consumer.batch_size) - portion.steps();
            for step in 0..portion.steps() {
                let places: Vec<_> = portion.batch(step).collect();
                let batch = Batch {
                    epoch,
                    step,
                    ids: places.iter().map(|place| plan.at(place.position)).collect(),
                    padding: places.iter().map(|place| place.padding).collect(),
                    columns: Vec::new(),
                    faults: Vec::new(),
                    object: None,
                };
                let batch = (!self.0.contains(&(done + step))).then_some(batch);
                line.push_back(Taken { batch, ..Taken::left_out(places, 1) });
            }
        }
        Ok(Box::new(Lined(Mutex::new(line))))
    }
}

impl Supply for Lined {
    fn take(&self, _wait: Duration) -> Result<Option<Taken>> {
        Ok(self.0.lock().unwrap().pop_front())
    }

    fn describe_wait(&self) -> String {
        String::new()
    }

    fn view(&self) -> SupplyView {
        SupplyView::default()
    }
}

fn feed() -> FeedSpec {
    FeedSpec::from_json(
        r#"{"format": 1, "data": {"spec": ["/data"], "extensions": []}, "dataset": "v1", "recipe": [],
            "order": {"seed": 1, "shuffle": "sequential"}, "on_error": "raise", "batch_size": 4,
            "fetch": {"inflight": null, "request_bytes": null, "tries": 1, "request_timeout": 1.0,
                      "request_deadline": 1.0, "hedge": false}}"#,
    )
    .unwrap()
}

#[test]
fn a_batch_that_is_left_out_uses_up_its_step_and_its_places() {
    let dataset = noise(32, 8, 1);
    for order in [DeliveryOrder::Plan, DeliveryOrder::Arrival { window: 8 }] {
        let config = LoaderConfig { order, ..alone(4) };
        let make = || {
            let supplier = Arc::new(LeavesOut(vec![0, 3, 7]));
            loader(&dataset, &label_recipe(), config.clone()).with_supplier(supplier, feed())
        };
        let mut whole = make();
        let expected: Vec<u64> = (4..12).chain(16..28).collect();
        assert_eq!(ids(&epoch(&mut whole)), expected, "{order:?}");
        assert_eq!(ids(&epoch(&mut whole)), expected, "the next epoch begins where it should");
        // A resume after the second batch that came goes on behind the third, whether one was left out or not.
        let mut first = make();
        assert_eq!(ids(&steps(&mut first, 3)), (4..12).chain(16..20).collect::<Vec<_>>());
        let mut second = make();
        second.seek(first.cursor()).unwrap();
        assert_eq!(ids(&epoch(&mut second)), (20..28).collect::<Vec<_>>(), "{order:?}");
    }
}

#[test]
fn p061_what_was_skipped_is_listed_with_the_samples_that_the_loop_did_not_get() {
    let dataset = noise(34, 8, 1);
    let last_batch = LastBatch::Pad;
    let consumer = Consumer { last_batch, ..alone(4).consumer };
    let config = LoaderConfig { shuffle: Shuffle::Full, seed: 5, consumer, ..alone(4) };
    let supplier = Arc::new(LeavesOut(vec![1, 6, 8]));
    let mut loader = loader(&dataset, &label_recipe(), config).with_supplier(supplier, feed());
    for number in 0..2 {
        let received = epoch(&mut loader);
        let steps: Vec<u64> = received.iter().map(|batch| batch.step).collect();
        assert_eq!(steps, [0, 2, 3, 4, 5, 7], "epoch {number}");
        let missed: Vec<&SkippedBatch> = loader.skipped().iter().filter(|one| one.epoch == number).collect();
        assert_eq!(missed.iter().map(|one| one.step).collect::<Vec<_>>(), [1, 6, 8]);
        // The last one has two samples, and two rows that only fill it.
        assert_eq!(missed.iter().map(|one| one.ids.len()).collect::<Vec<_>>(), [4, 4, 2]);
        let mut all = ids(&received);
        all.extend(missed.iter().flat_map(|one| &one.ids).map(|id| id.0));
        all.sort_unstable();
        assert_eq!(all, (0..34).collect::<Vec<_>>());
    }
    assert_eq!(loader.skipped().len(), 6);
}
