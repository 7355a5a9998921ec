//! Real processes: one that writes and is killed, and one that reads beside it.
//!
//! The child is this test binary again. After each batch it says how many payloads are flushed and waits for a line,
//! so that nothing here hangs on time. A program of its own: a child that is being started holds the locks of all other
//! tests of its program for a moment.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

#[path = "cache_disk/made.rs"]
mod made;

use forebay_core::ErrorKind;
use forebay_engine::cache::disk::{DiskOptions, DiskTier};
use made::*;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const DIRECTORY: &str = "FOREBAY_TEST_CACHE_DIRECTORY";
const ROOM: u64 = 64 << 20;
const BATCH: u64 = 8;

fn options() -> DiskOptions {
    DiskOptions { segment_bytes: Some(100_000), ..DiskOptions::new(ROOM) }
}

fn length(n: u64) -> usize {
    (n as usize * 977) % 9000
}

/// Every third payload is forgotten some time after it was kept, so that segments are compacted all the while.
fn is_forgotten(n: u64) -> bool {
    n.is_multiple_of(3) || n % 16 > 4
}

/// Not a test by itself: what the child does.
#[test]
fn child_keeps_and_forgets() {
    let Some(dir) = std::env::var_os(DIRECTORY) else { return };
    let tier = DiskTier::open_with(Path::new(&dir), &options()).unwrap();
    assert!(!tier.detail().read_only);
    let mut first = 0;
    while tier.has(payload(first + 1, 0).id).is_some() {
        first += BATCH;
    }
    let mut lines = std::io::stdin().lock().lines();
    let mut said = std::io::stdout();
    for start in (first..).step_by(BATCH as usize) {
        for n in start..start + BATCH {
            assert!(keep(&tier, n, length(n)));
        }
        let old = start.saturating_sub(4 * BATCH);
        let ids: Vec<_> = (old..old + BATCH).filter(|n| is_forgotten(*n)).map(|n| payload(n, 0).id).collect();
        tier.forget(&ids);
        assert!(tier.flush());
        writeln!(said, "flushed {}", start + BATCH).unwrap();
        if lines.next().is_none() {
            return;
        }
    }
}

struct Writer {
    child: Child,
    go: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl Writer {
    fn start(dir: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_keeps_and_forgets", "--nocapture"])
            .env(DIRECTORY, dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (go, said) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, go, said }
    }

    /// How many payloads are flushed now.
    fn flushed(&mut self) -> u64 {
        loop {
            let mut line = String::new();
            assert_ne!(self.said.read_line(&mut line).unwrap(), 0, "the child ended");
            // The harness of the child begins a line itself.
            if let Some((_, count)) = line.split_once("flushed ") {
                return count.trim().parse().unwrap();
            }
        }
    }

    fn go(&mut self, batches: u64) {
        for _ in 0..batches {
            writeln!(self.go).unwrap();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn check(tier: &DiskTier, flushed: u64) {
    for n in 0..flushed {
        match read(tier, n) {
            Some(bytes) => assert_eq!(bytes, made(n, length(n)), "payload {n}"),
            None => assert!(is_forgotten(n), "payload {n} of {flushed} is lost"),
        }
    }
    assert_eq!(tier.view().damaged, 0);
}

#[test]
fn p044_what_was_flushed_before_a_kill_is_served_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut last = 0;
    for batches in [1, 5, 20, 30] {
        let mut writer = Writer::start(dir.path());
        // It runs on while it is killed: at any byte of whatever it writes then.
        writer.go(batches * 4);
        let mut flushed = 0;
        for _ in 0..batches {
            flushed = writer.flushed();
        }
        drop(writer);
        let tier = DiskTier::open_with(dir.path(), &options()).unwrap();
        assert!(!tier.detail().read_only, "the lock went with its holder");
        check(&tier, flushed);
        assert!(flushed >= last && file_bytes(dir.path()) <= ROOM);
        last = flushed;
    }
    // Without the index the segments say the same.
    std::fs::remove_file(dir.path().join("index.fbi")).unwrap();
    check(&DiskTier::open_with(dir.path(), &options()).unwrap(), last);
}

#[test]
fn p044_a_process_reads_what_another_writes() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::start(dir.path());
    let flushed = writer.flushed();
    let reader = DiskTier::open(dir.path(), ROOM).unwrap();
    assert!(reader.detail().read_only && !keep(&reader, 1_000_000, 10));
    check(&reader, flushed);
    for _ in 0..60 {
        writer.go(1);
        let flushed = writer.flushed();
        check(&reader, flushed);
    }
    assert_eq!(DiskTier::clear(dir.path()).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(DiskTier::mend(dir.path()).unwrap_err().kind(), ErrorKind::Unavailable);
    drop(writer);
    assert!(!DiskTier::open(dir.path(), ROOM).unwrap().detail().read_only);
}
