//! `forebay plan`: the example whose headroom is hidden, a catalog of one's own, and runs by the model.

use crate::harness::Harness;
use serde_json::json;

const GUIDE: &str = include_str!("../../../../docs/guide/capacity.md");
const EXAMPLE: [&str; 7] = ["plan", "--dataset", "100TB", "--accelerators", "16", "--rate", "200MB"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&EXAMPLE, more].concat()
}

#[test]
fn p072_the_hundred_terabyte_example_is_reproduced_and_its_missing_headroom_flagged() {
    let harness = Harness::new();
    let said = harness.json(&with(&["--have", "hdd-8tb=16"]));
    assert_eq!(said["demand"]["bytes_per_second"], 3.2e9);
    let have = &said["have"];
    assert_eq!((&have["bytes_per_second"], &have["headroom"]), (&json!(3.2e9), &json!(0.0)));
    assert_eq!((&have["verdict"], &have["limit"]), (&json!("no_headroom"), &json!("bandwidth")));
    let warnings = said["warnings"].to_string();
    for part in ["16 x `hdd-8tb`", "0 % headroom", "20 give 25 %", "320 MB/s", "1.6 of 16 accelerators"] {
        assert!(warnings.contains(part), "{part} is missing from {warnings}");
    }
    let drive =
        |name: &str| said["drives"].as_array().unwrap().iter().find(|one| one["drive"] == name).unwrap();
    assert_eq!((&drive("hdd-8tb")["count"], &drive("hdd-8tb")["headroom"]), (&json!(20), &json!(0.25)));
    let flash = drive("nvme-1tb");
    assert_eq!((&flash["count"], &flash["limit"]), (&json!(100), &json!("capacity")));
    assert_eq!(flash["bytes_per_second"], 300e9);
    // For people: the same figures, and the warning beside them.
    let said = harness.ok(&with(&["--have", "hdd-8tb=16", "--samples", "1000000000"]));
    said.has(&[
        "3.2 GB/s for 16 accelerators",
        "8 h 41 min",
        "have",
        "hdd-8tb",
        "3.2 GB/s",
        "0 %",
        "bandwidth",
    ]);
    said.warns(&["warning", "0 % headroom"]);
    // Whoever asks for no headroom gets sixteen drives, and is told.
    let said = harness.json(&with(&["--headroom", "0", "--drive", "hdd-8tb"]));
    assert_eq!(
        (&said["drives"][0]["count"], &said["drives"][0]["verdict"]),
        (&json!(16), &json!("no_headroom"))
    );
    assert!(said["warnings"].to_string().contains("0 % headroom"));
}

#[test]
fn p072_drives_of_ones_own_are_counted_and_priced() {
    let harness = Harness::new();
    harness.write(
        "mine.toml",
        "[[drive]]\nname = 'mine'\ncapacity_bytes = '10TB'\nread_bytes_per_second = '500MB'\nreads_per_second = 100\n\
         price = 100.0\n[[instance]]\nname = 'box'\nslots = 4\nlink_bytes_per_second = '10GB'\nprice = 1000.0\n",
    );
    let args = ["--catalog", "mine.toml", "--drive", "mine", "--server", "box"];
    let choice = &harness.json(&with(&args))["drives"][0];
    assert_eq!((&choice["count"], &choice["limit"]), (&json!(10), &json!("capacity")));
    assert_eq!((&choice["servers"]["count"], &choice["price"]), (&json!(3), &json!(4000.0)));
    let files = &harness.json(&with(&[&args[..], &["--access", "files"]].concat()))["drives"][0];
    assert_eq!((&files["count"], &files["limit"]), (&json!(384), &json!("requests")));
}

#[test]
fn runs_are_simulated_for_every_cache_node_and_round_trip() {
    let harness = Harness::new();
    let more = ["--cache", "0,50TB,100TB", "--rtt-ms", "0,50", "--nodes", "1,2", "--store-rate", "1.6GB"];
    let said = harness.json(&with(&more));
    let runs = said["simulated"].as_array().unwrap();
    assert_eq!(runs.len(), 12);
    // Half the rate from the store doubles the epoch; half a cache makes up for it, from the second epoch on.
    let (cold, half, full) = (&runs[0], &runs[2], &runs[4]);
    assert_eq!(
        (&cold["later"]["bottleneck"], &cold["later"]["seconds"]),
        (&json!("fetch"), &json!(62_500.0))
    );
    assert_eq!(cold["cache_needed_bytes"], 50e12);
    assert_eq!(cold["remedies"][0]["change"], "cache_bytes");
    assert_eq!((&half["first"]["seconds"], &half["later"]["seconds"]), (&json!(62_500.0), &json!(31_250.0)));
    assert_eq!(full["later"]["fetch_rate"], serde_json::Value::Null, "nothing limits what is at hand");
    let far = &runs[1]["later"];
    assert!(far["rate"].as_f64() <= cold["later"]["rate"].as_f64());
    let said = harness.ok(&with(&["--cache", "0", "--store-rate", "1.6GB", "--epochs", "3"]));
    said.has(&[
        "1 node",
        "50 % of the time: 50 % fetch, 0 % prep",
        "bytes a second of the store",
        "50 TB",
        "remedy",
    ]);
    let prep = harness.json(&with(&["--prep-rate", "500", "--cores", "32"]));
    assert_eq!(prep["simulated"][0]["later"]["bottleneck"], "prep");
    let link = harness.json(&with(&["--node-link", "10gbe", "--nodes", "1"]));
    assert_eq!(link["simulated"][0]["later"]["fetch_limit"], "node_link");
}

#[test]
fn the_catalog_of_the_guide_is_read_and_its_warnings_are_what_is_said() {
    let harness = Harness::new();
    let block = GUIDE.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    harness.write("mine.toml", block);
    let args =
        ["--catalog", "mine.toml", "--server", "rented", "--drive", "hdd-16tb", "--node-link", "fabric"];
    assert_eq!(harness.json(&with(&args))["drives"][0]["drive"], "hdd-16tb");
    let said = harness.ok(&with(&["--have", "hdd-8tb=16"]));
    assert!(GUIDE.contains(said.stderr.trim()), "the guide shows other warnings than\n{}", said.stderr);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let harness = Harness::new();
    harness.write("bad.toml", "[[drive]]\nname = 'a'\n");
    let many = vec!["1"; 1001].join(",");
    for (more, code, part) in [
        (vec!["--have", "hdd-8tb"], 2, "hdd-8tb=16"),
        (vec!["--have", "floppy=3"], 3, "hdd-8tb"),
        (vec!["--headroom=-1"], 2, "headroom"),
        (vec!["--samples", "0"], 2, "samples"),
        (vec!["--catalog", "none.toml"], 3, "none.toml"),
        (vec!["--catalog", "bad.toml"], 2, "capacity_bytes"),
        (vec!["--nodes", "0"], 2, "nodes"),
        (vec!["--rtt-ms", "NaN"], 2, "round_trip_seconds"),
        (vec!["--node-link", "wet string"], 3, "10gbe"),
        (vec!["--rtt-ms", &many], 2, "1000"),
    ] {
        let said = harness.run(&with(&more));
        assert_eq!(said.code, code, "{more:?}\n{}{}", said.stdout, said.stderr);
        assert!(said.stderr.contains(part), "{part} is missing from {}", said.stderr);
    }
}
