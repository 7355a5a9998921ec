//! What all commands share: help, exit codes, JSON errors, color, broken pipes, Ctrl-C. Not for one command's own.

use crate::harness::Harness;
use forebay_testkit::made::Made;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

const COMMANDS: [&[&str]; 13] = [
    &["info"],
    &["verify"],
    &["index"],
    &["pack"],
    &["tokenize"],
    &["stage"],
    &["show"],
    &["demo"],
    &["plan"],
    &["config"],
    &["config", "show"],
    &["bench"],
    &["version"],
];

#[test]
fn help_of_every_command_has_an_example() {
    let harness = Harness::new();
    for command in COMMANDS {
        let said = harness.ok(&[command, &["--help"]].concat());
        let called = format!("forebay {}", command.join(" "));
        said.has(&["Usage:", "Example", &called]);
        assert_eq!(said.stderr, "");
    }
    let root = harness.ok(&["--help"]);
    for command in COMMANDS {
        assert!(root.stdout.contains(&format!("\n  {}", command[0])), "{}", root.stdout);
    }
}

#[test]
fn an_unknown_flag_or_command_exits_with_2() {
    let harness = Harness::new();
    for args in [&["info", "x", "--nonsense"][..], &["frobnicate"], &["pack", "only-one"], &[]] {
        let said = harness.run(args);
        assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{args:?}: {}", said.stderr);
        assert!(!said.stderr.is_empty());
    }
    let said = harness.run(&["info", "x", "--nonsense", "--json"]);
    assert_eq!((said.code, said.stderr.as_str()), (2, ""));
    assert_eq!(said.object()["error"]["kind"], "invalid_config");
}

#[test]
fn a_missing_path_exits_with_3_and_a_hint() {
    let harness = Harness::new();
    harness.write("data/other.tar", forebay_testkit::tar::tar_with(&[("a.txt", b"x")]));
    for command in ["info", "verify", "index"] {
        let said = harness.run(&[command, "data/train-*.tar"]);
        assert_eq!((said.code, said.stdout.as_str()), (3, ""), "{}", said.stderr);
        said.warns(&["error: ", "train-*.tar", "\n\nhint: ", "other.tar"]);
    }
    let said = harness.run(&["info", "data/train-*.tar", "--json"]);
    let error = &said.object()["error"];
    assert_eq!((said.code, error["kind"].as_str()), (3, Some("not_found")));
    assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("other.tar")));
    assert!(error["facts"].is_object());
    for command in ["info", "verify"] {
        let said = harness.run(&[command, "data/none.tar"]);
        assert_eq!(said.code, 3);
        said.warns(&["none.tar", "hint: check the path: `data` is there and holds `other.tar`"]);
        let said = harness.run(&[command, "no/such/folder"]);
        assert_eq!(said.code, 3);
        said.warns(&["hint: check the path: `.` is there and holds ", "`data`"]);
    }
}

#[test]
fn color_is_for_terminals_and_on_demand() {
    let harness = Harness::new();
    Made::default().shards(&harness.path("shards"), 1);
    assert!(!harness.ok(&["info", "shards"]).stdout.contains('\x1b'), "a pipe is no terminal");
    assert!(harness.ok(&["info", "shards", "--color", "always"]).stdout.contains("\x1b[1m"));
    let mut command = harness.command(&["info", "missing"]);
    let said = harness.said(&command.env("NO_COLOR", "1").output().unwrap());
    assert!(!said.stderr.contains('\x1b'), "{}", said.stderr);
    assert!(harness.run(&["info", "missing", "--color", "always"]).stderr.contains("\x1b["));
}

#[test]
fn a_reader_that_goes_away_ends_output_quietly() {
    let harness = Harness::new();
    Made { samples: 3000, width: 8, height: 8, ..Made::default() }.shards(&harness.path("shards"), 1);
    for extra in [&[][..], &["--json"]] {
        let args = [&["info", "shards", "--keys", "3000"], extra].concat();
        let mut child = harness.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }
}

#[test]
fn a_full_disk_under_the_output_is_no_success() {
    let harness = Harness::new();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = harness.command(&["version"]).stdout(full).output().unwrap();
    let said = harness.said(&output);
    assert_eq!(said.code, 4);
    said.warns(&["error: write to standard output"]);
}

#[test]
fn p077_ctrl_c_ends_a_command_at_once_with_130_and_leaves_nothing() {
    let harness = Harness::new();
    std::fs::create_dir(harness.path("here")).unwrap();
    let args = ["demo", "--samples", "64", "--step-ms", "60000", "--dir", "here"];
    let mut child = harness.command(&args).stdout(Stdio::piped()).spawn().unwrap();
    // The first line is said when the dataset is made and training begins.
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    assert!(line.starts_with("made 64 JPEGs"), "{line}");
    let begun = std::time::Instant::now();
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let status = child.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(130), None));
    assert!(begun.elapsed().as_secs() < 2, "{:?}", begun.elapsed());
    assert_eq!(std::fs::read_dir(harness.path("here")).unwrap().count(), 0, "the dataset is gone");
}

#[test]
fn version_is_said_by_command_and_flag() {
    let harness = Harness::new();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(harness.ok(&["version"]).stdout, format!("forebay {version}\n"));
    assert_eq!(harness.ok(&["--version"]).stdout, format!("forebay {version}\n"));
    assert_eq!(harness.json(&["version"])["version"], version);
}

#[test]
fn the_reference_page_is_what_the_command_says() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md");
    Harness::new().ok(&["reference", "--check", page]);
    let harness = Harness::new();
    harness.write("old.md", "# Something else\n");
    let said = harness.run(&["reference", "--check", "old.md"]);
    assert_eq!(said.code, 4);
    said.warns(&["line 1 differs", "hint: "]);
}
