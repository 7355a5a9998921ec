//! Tests that have nothing to run against: they pass, and say so where the reader of the log sees it.

use std::io::Write;

/// Says that the test which calls this does nothing, and why. Past libtest's capture, so that a run without servers
/// does not look like one beside them: `scripts/promises.py` reads the line.
pub fn skipped(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("main");
    let _ = writeln!(std::io::stderr(), "skipped: test `{test}`: {why}");
}

/// What the environment variable says that names a server; without it the test is [`skipped`].
pub fn server(variable: &str) -> Option<String> {
    let named = std::env::var(variable).ok().filter(|server| !server.is_empty());
    if named.is_none() {
        skipped(&format!("`{variable}` names no server; `make test-servers` starts it"));
    }
    named
}
