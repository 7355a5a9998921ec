//! `forebay stage`: killed and gone on with, cut short by the disk, verified, dry, and read from by a pipeline.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::harness::Harness;
use forebay_testkit::made::Made;
use forebay_testkit::server::{Act, Fault, Objects, SlowServer, generated};
use serde_json::json;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// Waits, as long as a busy machine may take.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A command that is killed without notice, at the latest when its test ends.
struct Killed(Child);

impl Killed {
    fn spawn(harness: &Harness, args: &[&str]) -> Self {
        Self(harness.command(args).stdout(Stdio::null()).spawn().unwrap())
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        assert_eq!(self.0.wait().unwrap().signal(), Some(9), "it was killed at work");
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // Gone already when all went well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The server has sent so many bytes of objects; it may count them a moment after they were received.
fn sent(server: &SlowServer, bytes: u64) {
    until(&format!("{} bytes were sent, not {bytes}", server.counts().bytes), || {
        server.counts().bytes == bytes
    });
}

fn lines(path: &std::path::Path) -> usize {
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

/// `o/000000.bin` and so on, as the server makes them.
fn assert_copied(harness: &Harness, dir: &str, objects: u64, bytes: u64) {
    for n in 0..objects {
        let key = format!("o/{n:06}.bin");
        let found = std::fs::read(harness.path(dir).join(&key)).unwrap();
        assert!(found == generated(&key, 0, bytes as usize), "{key} differs");
    }
}

#[test]
fn p049_a_killed_run_loses_nothing_that_was_finished() {
    let (objects, bytes) = (8, 100_000);
    let server = SlowServer::start(Objects::new().many(objects, bytes)).unwrap();
    let harness = Harness::new();
    let url = format!("{}/o/{{000000..000007}}.bin", server.url());
    for kept in [0, 1, 4, 7] {
        // Objects behind the first `kept` are never answered.
        server.script(move |seen| {
            let number: u64 = seen.key[2..8].parse().unwrap();
            if seen.method == "GET" && number >= kept { Act::fault(Fault::Hang) } else { Act::default() }
        });
        let held = format!("o/{kept:06}.bin");
        let before = server.attempts(&held);
        let child = Killed::spawn(&harness, &["stage", &url, "copy", "--in-flight", "1"]);
        // Looked at once in the plan; then comes the request that hangs.
        until("the held object is asked for", || server.attempts(&held) >= before + 2);
        child.kill();
        sent(&server, kept * bytes);
    }
    server.script(|_| Act::default());
    let done = harness.json(&["stage", &url, "copy"]);
    assert_eq!((&done["here"], &done["copied"], &done["read_bytes"]), (&json!(7), &json!(1), &json!(bytes)));
    sent(&server, objects * bytes);
    assert_copied(&harness, "copy", objects, bytes);
}

#[test]
fn p049_a_large_object_goes_on_at_its_offset_after_a_kill() {
    let size = 20 * MIB;
    let server = SlowServer::start(Objects::new().generated("a.bin", size)).unwrap();
    server.script(|seen| {
        let late = seen.range.is_some_and(|(first, _)| first >= 8 * MIB);
        if late { Act::fault(Fault::Hang) } else { Act::default() }
    });
    let harness = Harness::new();
    let url = format!("{}/a.bin", server.url());
    let child = Killed::spawn(&harness, &["stage", &url, "copy"]);
    let pieces = || {
        let entries = std::fs::read_dir(harness.path("copy/.forebay-stage")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).find(|path| path.extension() == Some("pieces".as_ref()))
    };
    // A line about the object, and one about its first piece.
    until("the first piece is noted", || pieces().is_some_and(|path| lines(&path) == 2));
    child.kill();
    server.script(|_| Act::default());
    assert!(!harness.path("copy/a.bin").exists());
    let dry = harness.json(&["stage", &url, "copy", "--dry-run"]);
    assert_eq!(
        (&dry["missing_bytes"], &dry["to_copy"][0]["half_bytes"]),
        (&json!(12 * MIB), &json!(8 * MIB))
    );
    sent(&server, 8 * MIB);
    let done = harness.json(&["stage", &url, "copy"]);
    assert_eq!(done["read_bytes"], json!(12 * MIB));
    sent(&server, 20 * MIB);
    assert!(std::fs::read(harness.path("copy/a.bin")).unwrap() == generated("a.bin", 0, size as usize));
}

#[test]
fn p049_lists_prefixes_and_templates_of_a_bucket_and_passing_faults() {
    let objects = Objects::new().many(12, 1000).generated("p/x.bin", 10).generated("p/y.bin", 20);
    let server = SlowServer::start(objects).unwrap();
    // The first request for every object is refused.
    server.script(|seen| if seen.attempt == 1 && !seen.listing { Act::status(503) } else { Act::default() });
    let harness = Harness::new();
    let endpoint = format!("endpoint={}", server.url());
    let stage = |url: &str, dir: &str, more: &[&str]| {
        let told = ["--storage-option", &endpoint, "--storage-option", "anonymous=true"];
        harness.json(&[&["stage", url, dir], &told[..], more].concat())
    };
    let done = stage("s3://bucket/o/", "prefix", &["--prefix", "00001"]);
    assert_eq!((&done["objects"], &done["read_bytes"]), (&json!(2), &json!(2000)));
    harness.write("keys.txt", "x.bin\n\ns3://bucket/p/y.bin\n");
    let done = stage("s3://bucket/p", "list", &["--list", "keys.txt"]);
    assert_eq!((&done["objects"], &done["bytes"]), (&json!(2), &json!(30)));
    assert!(std::fs::read(harness.path("list/p/y.bin")).unwrap() == generated("p/y.bin", 0, 20));
    let done =
        stage("s3://bucket", "template", &["--template", "o/{000003..000005}.b*::s3://bucket/p/x.bin"]);
    assert_eq!(done["objects"], json!(4));
    let done = stage("s3://bucket/", "all", &["--limit-rate", "1TB"]);
    assert_eq!((&done["objects"], &done["bytes"]), (&json!(14), &json!(12030)));
    assert_copied(&harness, "all", 12, 1000);
}

#[test]
fn p049_a_dry_run_lists_bytes_and_touches_nothing_and_verify_finds_a_changed_byte() {
    let server = SlowServer::start(Objects::new().many(3, 5000)).unwrap();
    let harness = Harness::new();
    let url = format!("{}/o/{{000000..000002}}.bin", server.url());
    let said = harness.ok(&["stage", &url, "copy", "--dry-run"]);
    said.has(&["o/000000.bin: 5 KB", "o/000002.bin", "copy: would read 15 KB for 3 objects; 0 objects"]);
    let dry = harness.json(&["stage", &url, "copy", "--dry-run"]);
    assert_eq!((&dry["bytes"], &dry["missing_bytes"]), (&json!(15_000), &json!(15_000)));
    assert_eq!(dry["to_copy"][2], json!({ "key": "o/000002.bin", "bytes": 5000, "half_bytes": 0 }));
    assert!(!harness.path("copy").exists());
    assert_eq!(server.counts().bytes, 0);

    harness.ok(&["stage", &url, "copy"]).has(&["copy: copied 3 objects, 15 KB, in "]);
    let path = harness.path("copy/o/000001.bin");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4999] ^= 0x80;
    std::fs::write(&path, bytes).unwrap();
    harness.ok(&["stage", &url, "copy"]).has(&["copied 0 objects", "3 objects, 15 KB, there already"]);
    let said = harness.ok(&["stage", &url, "copy", "--verify"]);
    said.warns(&["warning: 1 object in the copy had wrong bytes"])
        .has(&["copied 1 object, 5 KB", "; 2 objects"]);
    sent(&server, 20_000);
    assert_copied(&harness, "copy", 3, 5000);
}

#[test]
fn p049_a_full_disk_is_said_and_what_is_done_stays() {
    let objects =
        Objects::new().generated("a.bin", 1000).generated("b.bin", 40 * MIB).generated("c.bin", 1000);
    let server = SlowServer::start(objects).unwrap();
    let harness = Harness::new();
    let url = format!("{}/{{a,b,c}}.bin", server.url());
    let limited = format!(
        "ulimit -f 2048 && trap '' XFSZ && exec '{}' stage '{url}' copy --in-flight 1",
        env!("CARGO_BIN_EXE_forebay")
    );
    let output = Command::new("sh").args(["-c", &limited]).current_dir(harness.path("")).output().unwrap();
    let said = harness.said(&output);
    assert_eq!(said.code, 4, "{}", said.stderr);
    said.warns(&["error: write `", "hint: make room and run it again: it goes on where it ended"]);
    assert!(harness.path("copy/a.bin").exists() && !harness.path("copy/b.bin").exists());
    let done = harness.json(&["stage", &url, "copy"]);
    assert_eq!((&done["here"], &done["copied"]), (&json!(1), &json!(2)));
}

#[test]
fn p049_senseless_and_impossible_requests_have_their_exit_codes() {
    let server = SlowServer::start(Objects::new().generated("a.bin", 10)).unwrap();
    server.script(|seen| if seen.key == "secret.bin" { Act::status(403) } else { Act::default() });
    let harness = Harness::new();
    harness.write("file", "x");
    let (there, missing) = (format!("{}/a.bin", server.url()), format!("{}/missing.bin", server.url()));
    let secret = format!("{}/secret.bin", server.url());
    harness.write("evil.txt", "../../evil\n");
    for (args, code, why) in [
        (&["synthetic://?samples=3", "copy"][..], 2, "synthetic"),
        (&["cassandra://127.0.0.1:1/k/t", "copy"], 4, "127.0.0.1:1"),
        (&[&there, "copy", "--limit-rate", "0"], 2, "--limit-rate"),
        (&[&there, "copy", "--limit-rate", "fast"], 2, "--limit-rate"),
        (&[&there, "copy", "--prefix", "a", "--list", "evil.txt"], 2, "cannot be used with"),
        (&[&server.url(), "copy", "--list", "evil.txt"], 2, "`..` part"),
        (&[&there, "file"], 2, "no folder"),
        // Not even the superuser may make a folder there.
        (&[&there, "/sys/forebay-copy"], 3, "a folder that you may write to"),
        (&[&missing, "copy"], 3, "missing.bin"),
        (&[&secret, "copy"], 3, "secret.bin"),
        (&["no/such/folder", "copy"], 3, "no/such"),
        (&[&there, "copy", "--list", "no-list.txt"], 3, "no-list.txt"),
    ] {
        let said = harness.run(&[&["stage"], args].concat());
        assert_eq!((said.code, said.stdout.as_str()), (code, ""), "{args:?}: {}", said.stderr);
        said.warns(&[why]);
        assert!(!harness.path("copy").exists(), "{args:?}");
    }
}

#[test]
fn p049_a_pipeline_reads_from_the_copy_and_gives_the_same_batch() {
    let harness = Harness::new();
    Made::default().shards(&harness.path("s"), 3);
    let server = SlowServer::start(Objects::new().folder(&harness.path("s"), None).unwrap()).unwrap();
    let url = format!("{}/train-{{000000..000002}}.tar", server.url());
    let pipeline = |local: &str| {
        format!(
            "[data]\nurl = '{url}'\n{local}\n[[recipe]]\nfield = 'jpg'\ndecode = 'image'\nops = [{{op = 'resize', \
             size = [8, 8]}}]\n[loader]\nbatch_size = 5\nshuffle = true\nseed = 3"
        )
    };
    harness.write("local.toml", pipeline("local = 'copy'"));
    harness.write("plain.toml", pipeline(""));
    let staged = harness.json(&["stage", &url, "copy"])["read_bytes"].as_u64().unwrap();
    let shown = harness.json(&["config", "show", "--pipeline", "local.toml"]);
    assert_eq!(shown["data"]["local"], "copy");
    let show = |file: &str| harness.json(&["show", "--pipeline", file, "--epoch", "1", "--batch", "2"]);
    let local = show("local.toml");
    // Indexed and read without a byte from the server.
    sent(&server, staged);
    assert_eq!(local, show("plain.toml"));
    until("the other one reads from the server", || server.counts().bytes > staged);
}
