//! A process of this very program in another role, spoken to by lines.

use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub(crate) const ROLE: &str = "FOREBAY_TEST_ROLE";
pub(crate) const SETTING: &str = "FOREBAY_TEST_SETTING";
/// Tells our lines from those of the test harness.
const MARK: &str = "answer ";

/// A running process; it is killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Runs this program behind `before`, such as `ip netns exec NAME`.
    pub(crate) fn start(before: &[String], role: &str, setting: &Value) -> Self {
        let program = std::env::current_exe().unwrap();
        let words = before.iter().map(std::convert::Into::into).chain([program.into_os_string()]);
        let words: Vec<std::ffi::OsString> = words.collect();
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .args(["role", "--exact", "--nocapture"])
            .env(ROLE, role)
            .env(SETTING, setting.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    pub(crate) fn order(&mut self, order: &Value) {
        writeln!(self.input, "{order}").unwrap();
    }

    /// The next answer.
    pub(crate) fn hear(&mut self) -> Value {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the process ended without an answer");
            // The harness writes its own words before ours on the same line.
            if let Some((_, text)) = line.split_once(MARK) {
                return serde_json::from_str(text).unwrap();
            }
        }
    }

    pub(crate) fn ask(&mut self, order: &Value) -> Value {
        self.order(order);
        self.hear()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, signal).unwrap();
    }
}

impl Process {
    /// Stops all of its threads, and waits until they have: one that runs at that moment may still answer.
    pub(crate) fn stop(&self) {
        self.signal(rustix::process::Signal::STOP);
        let tasks = format!("/proc/{}/task", self.child.id());
        let stopped = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('T'))
        };
        while !std::fs::read_dir(&tasks).unwrap().all(|task| stopped(task.unwrap())) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lines from whoever started us, until there are no more.
pub(crate) fn orders() -> impl Iterator<Item = Value> {
    std::iter::from_fn(|| {
        let mut line = String::new();
        let read = std::io::stdin().read_line(&mut line).unwrap();
        (read > 0).then(|| serde_json::from_str(&line).unwrap())
    })
}

pub(crate) fn answer(value: &Value) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{MARK}{value}").unwrap();
    out.flush().unwrap();
}
