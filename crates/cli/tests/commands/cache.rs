//! `forebay cache`: what a cache on disk holds, what is damaged, and clearing it.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::harness::Harness;
use forebay_core::cache::{PayloadId, Rank};
use forebay_engine::cache::Payload;
use forebay_engine::cache::disk::DiskTier;
use std::os::unix::fs::FileExt;

/// A cache of ten payloads of two datasets.
fn made(harness: &Harness) -> DiskTier {
    let tier = DiskTier::open(&harness.path("kept"), 1 << 20).unwrap();
    for n in 0..10u8 {
        let payload = Payload {
            id: PayloadId(u128::from(n) + 1),
            rank: Rank(n.into()),
            length: 1000,
            group: u64::from(n % 2),
        };
        assert!(futures::executor::block_on(tier.keep(payload, &vec![n; 1000].into())));
    }
    assert!(tier.flush());
    tier
}

/// Changes a byte of the fourth payload.
fn damage(harness: &Harness, tier: &DiskTier) -> u64 {
    let stored = tier.stored()[3].clone();
    let file = std::fs::File::options().write(true).open(harness.path("kept").join(&stored.file)).unwrap();
    file.write_all_at(b"!", stored.offset + 500).unwrap();
    stored.offset
}

#[test]
fn show_says_what_is_held() {
    let harness = Harness::new();
    drop(made(&harness));
    let said = harness.ok(&["cache", "show", "kept"]);
    said.has(&[
        "cache",
        "kept",
        "limit",
        "1 MB",
        "payloads",
        "10, ",
        "datasets",
        "2",
        "files",
        "1 segment",
        "ago",
    ]);
    let object = harness.json(&["cache", "show", "kept"]);
    assert_eq!((&object["limit"], &object["bytes"]), (&(1 << 20).into(), &10_000.into()));
    assert_eq!((&object["payloads"], &object["groups"]), (&10.into(), &2.into()));
    assert_eq!(object["hits"], 0);
    assert!(object["file_bytes"].as_u64().unwrap() > 10_000 && object["sound_index"] == true);
    assert!(object["oldest_seconds"].as_u64().unwrap() >= object["newest_seconds"].as_u64().unwrap());
}

#[test]
fn show_adds_up_the_hits_of_processes_that_have_ended() {
    let harness = Harness::new();
    drop(made(&harness));
    for ended in 1..3u64 {
        // The second one only reads: the first process that opens a cache is the one that writes to it.
        let tiers = [(); 2].map(|()| DiskTier::open(&harness.path("kept"), 1 << 20).unwrap());
        for tier in &tiers {
            let ids: Vec<PayloadId> = (1..4).map(PayloadId).collect();
            futures::executor::block_on(tier.read_many(&ids));
            assert_eq!(tier.view().hits, 3);
        }
        drop(tiers);
        assert_eq!(harness.json(&["cache", "show", "kept"])["hits"], 6 * ended);
    }
    harness.ok(&["cache", "clear", "kept", "--yes"]);
    assert_eq!(std::fs::read_dir(harness.path("kept")).unwrap().count(), 0);
}

#[test]
fn verify_names_what_is_damaged_and_repair_takes_it_out() {
    let harness = Harness::new();
    let tier = made(&harness);
    harness.ok(&["cache", "verify", "kept"]).has(&["sound: 10 payloads, ", "0 damaged"]);
    let offset = damage(&harness, &tier);
    let said = harness.run(&["cache", "verify", "kept"]);
    assert_eq!(said.code, 3, "{}{}", said.stdout, said.stderr);
    let place = format!("byte {offset}");
    said.has(&["error: damaged (kept/segment-00000001.fbs", &place, "faulty: 10 payloads", "1 damaged"]);
    let said = harness.run(&["cache", "verify", "kept", "--repair"]);
    assert_eq!(said.code, 4, "a process writes to it: {}{}", said.stdout, said.stderr);
    drop(tier);
    let said = harness.run(&["cache", "verify", "kept", "--repair", "--json"]);
    assert_eq!((said.code, said.stderr.as_str()), (3, ""));
    let object = said.object();
    assert_eq!((&object["damaged"], &object["repaired"]), (&1.into(), &true.into()));
    assert_eq!(object["findings"][0]["offset"], offset);
    let object = harness.json(&["cache", "verify", "kept"]);
    assert_eq!((&object["sound"], &object["payloads"]), (&true.into(), &9.into()));
}

#[test]
fn a_lost_index_is_told_and_made_again_by_repair() {
    let harness = Harness::new();
    drop(made(&harness));
    std::fs::remove_file(harness.path("kept/index.fbi")).unwrap();
    harness.ok(&["cache", "show", "kept"]).has(&["payloads", "10, ", "index", "missing or damaged"]);
    harness.ok(&["cache", "verify", "kept"]).has(&["warning: the index", "sound: 10 payloads"]);
    assert!(!harness.path("kept/index.fbi").exists(), "looking writes nothing");
    harness.ok(&["cache", "verify", "kept", "--repair"]);
    assert_eq!(harness.json(&["cache", "show", "kept"])["sound_index"], true);
}

#[test]
fn clear_removes_the_cache_and_nothing_else() {
    let harness = Harness::new();
    let tier = made(&harness);
    harness.write("kept/notes.txt", "mine");
    let said = harness.run(&["cache", "clear", "kept"]);
    assert_eq!(said.code, 2);
    said.warns(&["it holds 10 payloads", "hint: add `--yes`"]);
    let said = harness.run(&["cache", "clear", "kept", "--yes"]);
    assert_eq!(said.code, 4);
    said.warns(&["another process writes to it", "hint: "]);
    drop(tier);
    let object = harness.json(&["cache", "clear", "kept", "--yes"]);
    assert_eq!((&object["files"], &object["left"]), (&4.into(), &1.into()));
    assert_eq!(crate::harness::files(&harness.path("kept")), [("notes.txt".to_owned(), b"mine".to_vec())]);
    for command in ["show", "verify", "clear"] {
        let said = harness.run(&["cache", command, "kept"]);
        assert_eq!(said.code, 3, "{}", said.stderr);
        said.warns(&["no cache is there"]);
    }
}

#[test]
fn warm_reads_what_a_loader_would_keep_and_once() {
    let harness = Harness::new();
    for n in 0..20 {
        harness.write(&format!("data/class/{n:02}.jpg"), vec![n; 1000]);
    }
    let pipeline = |cache: &str| {
        format!(
            "[data]\nurl = \"data\"\n[loader]\n{cache}\n[[recipe]]\nfield = \"jpg\"\ndecode = \"bytes\"\n"
        )
    };
    harness.write("none.toml", pipeline("cache = \"1MB\""));
    let said = harness.run(&["cache", "warm", "none.toml"]);
    assert_eq!(said.code, 2);
    said.warns(&["it has no cache on disk", "hint: "]);
    harness.write("train.toml", pipeline("cache = { memory = \"1kB\", disk = \"kept:1MB\" }"));
    for (found, read) in [(0, 20), (20, 0)] {
        let object = harness.json(&["cache", "warm", "train.toml"]);
        assert_eq!((&object["found"], &object["read"]), (&found.into(), &read.into()));
        assert_eq!(object["read_bytes"], read * 1000);
    }
    assert_eq!(harness.json(&["cache", "show", "kept"])["payloads"], 20);
}
