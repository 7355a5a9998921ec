//! Pieces of a journal in etcd: any values are refused or understood, whoever wrote them.
#![no_main]

use forebay_net::dispatcher::read_pieces;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // 255 is in no piece: text is UTF-8.
    let _ = read_pieces(bytes.split(|byte| *byte == 255));
});
