//! `forebay config show`: a pipeline as it will run, and all of its faults.

use crate::harness::Harness;
use serde_json::json;

const PIPELINE: &str = "
[data]
url = 'shards/train-{000..003}.tar'

[loader]
batch_size = 256
shuffle = true
memory = '1GiB'

[[recipe]]
field = 'jpg'
decode = 'image'
ops = [{op = 'resize', size = 8}]
";

#[test]
fn units_are_read_and_defaults_are_marked() {
    let harness = Harness::new();
    harness.write("p.toml", PIPELINE);
    harness.ok(&["config", "show", "--pipeline", "p.toml"]).has(&[
        "[data]\nurl = [\"shards/train-{000..003}.tar\"]\n",
        "[loader]\nbatch_size = 256\nshuffle = true\n",
        "block_bytes = 1048576        # 1 MB, default\n",
        "memory = 1073741824          # 1.1 GB\n",
        "timeout = 600.0              # seconds, default\n",
        "# fingerprint ",
        "[[recipe]]\nfield = \"jpg\"",
    ]);
    let object = harness.json(&["config", "show", "--pipeline", "p.toml"]);
    assert_eq!(object["loader"]["memory"], 1u64 << 30);
    assert_eq!(object["data"]["url"], json!(["shards/train-{000..003}.tar"]));
    let defaults = object["defaults"].as_array().unwrap();
    assert!(defaults.contains(&json!("seed")) && !defaults.contains(&json!("batch_size")));
    assert_eq!(object["fingerprint"].as_str().unwrap().len(), 32);
}

#[test]
fn what_is_shown_can_be_read_again_and_means_the_same() {
    let harness = Harness::new();
    harness.write("p.toml", PIPELINE);
    let object = harness.json(&["config", "show", "--pipeline", "p.toml"]);
    let shown = harness.ok(&["config", "show", "--pipeline", "p.toml"]).stdout;
    harness.write("again.toml", shown);
    let again = harness.json(&["config", "show", "--pipeline", "again.toml"]);
    for part in ["data", "loader", "recipe", "fingerprint"] {
        assert_eq!(object[part], again[part]);
    }
}

#[test]
fn all_faults_are_reported_at_once() {
    let harness = Harness::new();
    let text = PIPELINE.replace("256", "0").replace("1GiB", "lots").replace("resize", "resise");
    harness.write("p.toml", text);
    let said = harness.run(&["config", "show", "--pipeline", "p.toml"]);
    assert_eq!(said.code, 2);
    said.warns(&[
        "read pipeline `p.toml`: 3 faults:",
        "resise",
        "loader.batch_size",
        "loader.memory",
        "hint: ",
    ]);
    harness.write("broken.toml", "[data");
    assert_eq!(harness.run(&["config", "show", "--pipeline", "broken.toml"]).code, 2);
    assert_eq!(harness.run(&["config", "show", "--pipeline", "none.toml"]).code, 3);
}
