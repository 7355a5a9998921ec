//! Tar shards: members lie inside the archive and in order, and grouping them into samples never panics.
#![no_main]

use forebay_engine::shard::{Grouper, walk};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(members) = walk(bytes) else { return };
    let mut grouper = Grouper::default();
    let mut last = 0;
    for member in &members {
        assert!(member.offset >= last && member.header < member.offset);
        last = member.offset.checked_add(member.length).expect("an end");
        assert!(last <= bytes.len() as u64);
        if grouper.add(member).is_err() {
            return;
        }
    }
    drop(grouper.finish());
});
