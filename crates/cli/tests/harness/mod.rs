//! A fresh folder and a command for every test. Paths in the output are shortened to `<folder>`.
#![allow(dead_code, reason = "every test file uses a part of it")]
#![expect(clippy::unwrap_used, reason = "a test whose surroundings are broken may panic")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder of its own with a place for manifests that no other test sees.
pub(crate) struct Harness {
    folder: tempfile::TempDir,
}

/// What a command said and how it ended.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Harness {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// The command, not yet started.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(args).current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("XDG_CACHE_HOME", self.path("cache")).env("TMPDIR", self.folder.path());
        command.env_remove("NO_COLOR").env_remove("FOREBAY_PYTHON");
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Said {
        self.said(&self.command(args).output().unwrap())
    }

    /// Runs and expects exit code 0.
    pub(crate) fn ok(&self, args: &[&str]) -> Said {
        let said = self.run(args);
        assert_eq!(said.code, 0, "forebay {}\n{}{}", args.join(" "), said.stdout, said.stderr);
        said
    }

    /// Runs with `--json`, expects exit code 0 and nothing on standard error, and reads the object.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let said = self.ok(&[args, &["--json"]].concat());
        assert_eq!(said.stderr, "", "--json says everything in its object");
        said.object()
    }

    pub(crate) fn said(&self, output: &Output) -> Said {
        let folder = self.folder.path().display().to_string();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap().replace(&folder, "<folder>");
        Said {
            code: output.status.code().unwrap_or(-1),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }
}

impl Said {
    pub(crate) fn object(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in:\n{}", self.stdout))
    }

    /// Standard output has all these parts, in this order.
    pub(crate) fn has(&self, parts: &[&str]) -> &Self {
        in_order(&self.stdout, parts);
        self
    }

    /// Standard error has all these parts, in this order.
    pub(crate) fn warns(&self, parts: &[&str]) -> &Self {
        in_order(&self.stderr, parts);
        self
    }
}

fn in_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let at =
            rest.find(part).unwrap_or_else(|| panic!("`{part}` is missing, in its order, from:\n{text}"));
        rest = &rest[at + part.len()..];
    }
}

/// All files of a folder with their bytes, by name.
pub(crate) fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
        .collect();
    found.sort();
    found
}
