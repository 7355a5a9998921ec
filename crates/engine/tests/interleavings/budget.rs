//! The budget: never more than its limit, or one reservation alone, and every one that waits gets in.

use super::draw;
use forebay_engine::budget::Budget;
use shuttle::future::{block_on, spawn};
use shuttle::thread;

const LIMIT: u64 = 100;

#[test]
fn everyone_who_waits_for_the_budget_gets_in_and_it_is_never_exceeded() {
    draw(3000, || {
        let budget = Budget::new(LIMIT);
        // Two fit beside each other, three do not; the last is larger than all of it and comes alone.
        let tasks: Vec<_> = [40, 60, 40, 250]
            .into_iter()
            .map(|bytes| {
                let budget = budget.clone();
                spawn(async move {
                    let mut hold = budget.reserve(bytes).await;
                    let used = budget.used();
                    assert!(used <= LIMIT.max(bytes), "{used} bytes are held");
                    // Let go of in two parts, as the payloads of one request are.
                    drop(hold.split(bytes / 2));
                })
            })
            .collect();
        block_on(async {
            for task in tasks {
                task.await.unwrap();
            }
        });
        assert_eq!(budget.used(), 0);
        assert!(budget.peak() <= 250);
    });
}

#[test]
fn a_limit_that_is_raised_while_somebody_waits_lets_him_in() {
    draw(1000, || {
        let budget = Budget::new(LIMIT);
        let held = budget.try_reserve(80).unwrap();
        let raise = budget.clone();
        let raising = thread::spawn(move || raise.set_limit(2 * LIMIT));
        // `held` stays: only the limit can let this one in.
        let second = block_on(budget.reserve(80));
        assert_eq!(budget.used(), 160);
        drop((held, second));
        raising.join().unwrap();
        assert_eq!(budget.used(), 0);
    });
}
