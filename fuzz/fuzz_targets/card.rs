//! Cards of materialized datasets: any bytes are refused, or describe chunks that cover the epoch.
#![no_main]

use forebay_engine::materialize::Card;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(card) = Card::from_bytes(bytes) else { return };
    let chunks = card.chunks().expect("a card that is read can be cut");
    assert_eq!(chunks.span(chunks.count() - 1).end, card.samples);
    assert_eq!(Card::from_bytes(&card.to_bytes()).expect("what was read can be written"), card);
});
