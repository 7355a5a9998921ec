//! `forebay demo`: nothing to install, nothing left behind.

use crate::harness::Harness;

#[test]
fn the_demo_trains_and_says_what_limits() {
    let harness = Harness::new();
    std::fs::create_dir(harness.path("here")).unwrap();
    let args = ["demo", "--samples", "40", "--step-ms", "1", "--batch-size", "8", "--dir", "here"];
    harness.ok(&args).has(&[
        "made 40 JPEGs of 256 x 256 pixels in 1 shard",
        "trained      2 epochs of 40 images, 10 steps of 8",
        "throughput ",
        " images/s",
        "first batch ",
        "stall ",
        "fetch ",
        "prep ",
        "bottleneck ",
    ]);
    assert_eq!(std::fs::read_dir(harness.path("here")).unwrap().count(), 0, "the dataset is gone");
    assert!(!harness.path("cache").exists(), "and so is its manifest");
}

#[test]
fn the_demo_as_json_has_the_stats_and_keeps_its_dataset_on_demand() {
    let harness = Harness::new();
    let args = [
        "demo",
        "--samples",
        "20",
        "--step-ms",
        "0",
        "--batch-size",
        "8",
        "--epochs",
        "1",
        "--dir",
        "here",
        "--keep",
    ];
    let object = harness.json(&args);
    assert_eq!(object["stats"]["samples"], 20);
    assert_eq!(object["stats"]["batches"], 3);
    assert!(["step", "prep", "fetch"].contains(&object["bottleneck"].as_str().unwrap()));
    let name = object["dataset"].as_str().unwrap().rsplit('/').next().unwrap();
    let kept = format!("here/{name}");
    assert_eq!(harness.json(&["info", &kept])["samples"], 20);
    harness.ok(&["verify", &kept, "--strict"]);
}

#[test]
fn senseless_numbers_are_refused() {
    let harness = Harness::new();
    for args in [["--samples", "0"], ["--step-ms", "-1"], ["--step-ms", "nan"], ["--batch-size", "0"]] {
        assert_eq!(harness.run(&[&["demo"][..], &args].concat()).code, 2, "{args:?}");
    }
}
