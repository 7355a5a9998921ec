//! `forebay analyze`: what it says of a pipeline whose recipe sleeps, and what it refuses.

mod harness;

use harness::Harness;

/// One thread that sleeps 10 ms a sample: at most 100 samples a second, and a source that gives any number.
const PIPELINE: &str = r#"
[data]
url = "synthetic://?samples=4000&bytes=1000"

[[recipe]]
field = "bin"
decode = "bytes"
ops = [{ op = "delay", seconds = 0.01 }]

[loader]
batch_size = 4
num_workers = 1
"#;

fn harness() -> Harness {
    let harness = Harness::new();
    harness.write("pipeline.toml", PIPELINE);
    harness
}

#[test]
fn a_recipe_that_sleeps_is_the_bottleneck_and_more_cores_are_the_remedy() {
    let harness = harness();
    let words = ["analyze", "pipeline.toml", "--step", "0.01", "--seconds", "0.3", "--what-if", "cores=x2"];
    let said = harness.json(&words);
    assert_eq!(said["prediction"]["later"]["bottleneck"], "prep");
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let prep = &said["rates"]["prep"];
    // Sleeping longer than asked for is what a busy machine does; shorter it cannot.
    assert!(number(&prep["per_second"]) <= 101.0, "{prep}");
    assert!(number(&prep["low"]) <= number(&prep["per_second"]));
    assert_eq!(number(&said["rates"]["ingest"]["per_second"]), 400.0);
    assert!(number(&said["rates"]["fetch"]["per_second"]) > 400.0);
    assert_eq!(said["remedies"][0]["change"], "cores");
    let (now, then) = (&said["prediction"]["later"], &said["what_if"]["prediction"]["later"]);
    assert!((number(&then["rate"]) / number(&now["rate"]) - 2.0).abs() < 0.01);
    assert_eq!(number(&said["facts"]["sample_bytes"]), 1000.0);
    harness.ok(&words).has(&["prep rate", "bottleneck", "preparing", "what would help", "with cores=x2"]);
}

#[test]
fn what_cannot_be_analyzed_is_refused() {
    let harness = harness();
    harness.write("empty.toml", "[loader]\nbatch_size = 4\n");
    for (words, part) in [
        (vec!["analyze", "empty.toml"], "names no dataset"),
        (vec!["analyze", "pipeline.toml", "--step", "0"], "--step"),
        (vec!["analyze", "pipeline.toml", "--seconds", "0.05", "--what-if", "colour=red"], "colour"),
        (vec!["analyze", "missing.toml"], "missing.toml"),
    ] {
        let said = harness.run(&words);
        assert_ne!(said.code, 0, "{}", said.stdout);
        said.warns(&[part]);
    }
}
