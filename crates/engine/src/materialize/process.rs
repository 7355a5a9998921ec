//! Which process a writer is, so that others on its machine can tell that it has ended without waiting for it.
//!
//! Only Linux tells. Elsewhere, and across machines, a writer that fell silent is given up by time alone.

use forebay_core::materialize::Notice;
use std::fs;

/// This machine in its present run, and the name space in which process numbers mean something.
fn host() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let space = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), space.display()))
}

/// A process, told from later ones that get its number by when it started; `None` when it has ended.
fn process(number: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // The name of the program stands in parentheses and may hold anything.
    let (_, behind) = stat.rsplit_once(')')?;
    let mut fields = behind.split_ascii_whitespace();
    let state = fields.next()?;
    let started = fields.nth(18)?;
    (!matches!(state, "Z" | "X")).then(|| format!("{number} {started}"))
}

/// The notice with who we are.
pub(super) fn signed(notice: Notice) -> Notice {
    let (host, process) = (host().unwrap_or_default(), process(std::process::id()).unwrap_or_default());
    Notice { host, process, ..notice }
}

/// Whether the writer of a notice was a process of this machine and has ended.
pub(super) fn has_ended(notice: &Notice) -> bool {
    if notice.process.is_empty() || host().is_none_or(|host| host != notice.host) {
        return false;
    }
    let number = notice.process.split(' ').next().and_then(|number| number.parse().ok());
    number.is_some_and(|number| process(number).as_deref() != Some(notice.process.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_that_ended_is_known_and_one_that_lives_is_too() {
        let mine = signed(Notice::default());
        assert!(!mine.process.is_empty() && !has_ended(&mine));
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let theirs = Notice { process: process(child.id()).unwrap(), ..mine.clone() };
        assert!(!has_ended(&theirs));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(has_ended(&theirs));
        let number = mine.process.split(' ').next().unwrap().to_owned();
        assert!(has_ended(&Notice { process: format!("{number} 1"), ..mine.clone() }), "a number used again");
        assert!(!has_ended(&Notice { host: "elsewhere".into(), ..theirs }), "of others nothing is known");
        assert!(!has_ended(&Notice::default()));
    }
}
