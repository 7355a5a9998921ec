//! `forebay bench`: hands over to Python and takes its exit code.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::harness::Harness;
use std::os::unix::fs::PermissionsExt;

/// A stand-in for Python that answers the probe with `probe` and otherwise says what it was asked.
fn stand_in(harness: &Harness, probe: u8) {
    let script = format!("#!/bin/sh\nif [ \"$1\" = -c ]; then exit {probe}; fi\necho \"$@\"\nexit 7\n");
    harness.write("python", script);
    std::fs::set_permissions(harness.path("python"), std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn arguments_and_exit_code_are_passed_on() {
    let harness = Harness::new();
    stand_in(&harness, 0);
    let mut command = harness.command(&["bench", "images", "--json", "out.json", "--help"]);
    let said = harness.said(&command.env("FOREBAY_PYTHON", harness.path("python")).output().unwrap());
    assert_eq!(said.code, 7, "{}", said.stderr);
    assert_eq!(said.stdout, "-m forebay.bench images --json out.json --help\n");
}

#[test]
fn a_python_without_the_package_is_named() {
    let harness = Harness::new();
    stand_in(&harness, 1);
    let mut command = harness.command(&["bench"]);
    let said = harness.said(&command.env("FOREBAY_PYTHON", harness.path("python")).output().unwrap());
    assert_eq!(said.code, 3);
    said.warns(&["<folder>/python` does not have `forebay.bench`", "hint: `pip install forebay`"]);
    let mut command = harness.command(&["bench"]);
    let said = harness.said(&command.env("FOREBAY_PYTHON", harness.path("none")).output().unwrap());
    assert_eq!(said.code, 3);
    said.warns(&["run `<folder>/none`", "hint: set `FOREBAY_PYTHON`"]);
}
