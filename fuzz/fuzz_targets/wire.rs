//! Messages of a shared cache: any bytes are refused or understood, and what was understood says the same again.
#![no_main]

use forebay_net::wire::{MAX_TAIL, Message};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok((request, message)) = Message::decode(bytes) else { return };
    assert!(message.tail() <= MAX_TAIL);
    let again = message.encode(request);
    assert_eq!(Message::decode(&again[4..]).ok(), Some((request, message)));
});
