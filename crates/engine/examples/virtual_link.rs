//! A link that no machine at hand carries, 25 Gb/s at 100 ms, filled by a whole loader in virtual time. Prints one line of
//! JSON, which `forebay bench wan` takes into its figures; the test beside the other timed promises asserts it.
#![allow(clippy::unwrap_used, reason = "the parts are those of tests")]
#![allow(dead_code, reason = "the parts are those of tests")]

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/common/timed.rs"]
mod timed;

use std::io::Write;

fn main() -> std::io::Result<()> {
    let filled = timed::fill_link();
    let line = serde_json::json!({
        "link_share": filled.link_share,
        "held_delays": filled.held_delays,
        "seconds": filled.seconds,
    });
    writeln!(std::io::stdout(), "{line}")
}
