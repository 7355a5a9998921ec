//! A store that is away, in virtual time: waited for once it was seen at work, given up with tries and time.
#![expect(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

use forebay_core::{Error, ErrorKind};
use forebay_store::flaky::{Fault, When};
use forebay_store::retry::AwayNotice;
use forebay_store::{ByteRange, FlakyStore, MemoryStore, RetryOptions, RetryStore, Store};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

fn memory() -> Arc<dyn Store> {
    let memory = MemoryStore::new();
    memory.insert("000", vec![7; 100]).unwrap();
    Arc::new(memory)
}

fn options() -> RetryOptions {
    let request_timeout = Duration::from_secs(5);
    RetryOptions { tries: 4, request_timeout, deadline: Duration::from_secs(60), ..RetryOptions::default() }
}

#[tokio::test(start_paused = true)]
async fn p013_a_store_that_was_seen_at_work_is_waited_for_until_the_deadline_and_one_that_never_was_is_not() {
    for seen in [false, true] {
        let first = if seen { 2 } else { 1 };
        let flaky = (first..first + 9).fold(FlakyStore::new(memory(), 1), |flaky, request| {
            flaky.with(When::Request(request), Fault::Away)
        });
        let flaky = Arc::new(flaky);
        let store = RetryStore::new(Arc::clone(&flaky) as Arc<dyn Store>, options());
        if seen {
            store.head("000").await.unwrap();
        }
        let answer = store.read("000", ByteRange::Full).await;
        if seen {
            assert_eq!((answer.unwrap().len(), flaky.requests()), (100, 11));
        } else {
            let error = answer.unwrap_err();
            assert!(error.message().contains("gave up after 4 tries"), "{error:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn p013_a_store_that_does_not_come_back_is_given_up_at_the_deadline_with_tries_and_time() {
    let flaky = FlakyStore::new(memory(), 1).with(When::Request(1), Fault::Truncate);
    let flaky = Arc::new(flaky.with(When::Always, Fault::Away));
    let store = RetryStore::new(Arc::clone(&flaky) as Arc<dyn Store>, options());
    store.head("000").await.unwrap();
    let began = Instant::now();
    let error = store.read("000", ByteRange::Full).await.unwrap_err();
    let seconds = began.elapsed().as_secs_f64();
    assert!((45.0..60.0).contains(&seconds), "{seconds} s");
    let said = format!("read `memory:000`: gave up after {} tries in {seconds:.1} s", flaky.requests() - 1);
    assert_eq!(error.message(), said);
    assert!(error.is_away() && error.kind() == ErrorKind::Unavailable, "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn it_is_said_that_a_store_is_away_at_once_and_then_twice_a_minute() {
    let notice = AwayNotice::default();
    let error = Error::unavailable("connect").with_away();
    let told = async {
        let mut told = 0;
        for _ in 0..1000 {
            told += u32::from(notice.tell(&error, Duration::ZERO));
            sleep(Duration::from_millis(100)).await;
        }
        told
    };
    assert_eq!(told.await, 4, "in 100 s");
}
