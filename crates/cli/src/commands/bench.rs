//! `forebay bench`: hands over to the Python package, because it compares with other Python loaders.

use super::Done;
use forebay_core::{Error, Result};
use std::process::{Command, Stdio};

/// Whether Python finds the package's bench. Anything else than success means no.
const PROBE: &str = "import importlib.util as u, sys; sys.exit(0 if u.find_spec('forebay.bench') else 1)";

/// What stands behind `bench`, when that is the command and not its help.
pub(crate) fn passed_on(args: &[String]) -> Option<&[String]> {
    match args {
        [_, command, passed @ ..] if command == "bench" => match passed {
            [only] if only == "--help" || only == "-h" => None,
            _ => Some(passed),
        },
        _ => None,
    }
}

/// Runs the bench and takes over its exit code.
pub(crate) fn run(passed: &[String]) -> Result<Done> {
    let python = std::env::var("FOREBAY_PYTHON").ok().filter(|python| !python.is_empty());
    let python = python.as_deref().unwrap_or("python3");
    let start = |error| {
        Error::io(format!("run `{python}`"), error)
            .with_hint("set `FOREBAY_PYTHON` to a Python that has the package `forebay`")
    };
    let probe = Command::new(python)
        .args(["-c", PROBE])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(start)?;
    if !probe.success() {
        return Err(Error::not_found(format!("run the bench: `{python}` does not have `forebay.bench`"))
            .with_hint("`pip install forebay`, or set `FOREBAY_PYTHON` to a Python that has it"));
    }
    let status = Command::new(python).args(["-m", "forebay.bench"]).args(passed).status().map_err(start)?;
    // A process that a signal ended has no code of its own; shells count such ends from 128.
    let signal = std::os::unix::process::ExitStatusExt::signal(&status).unwrap_or(0);
    Ok(Done { object: None, code: status.code().unwrap_or(128 + signal) })
}

#[cfg(test)]
mod tests {
    use super::passed_on;

    #[test]
    fn everything_behind_bench_is_passed_on_but_its_help() {
        let args = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let passed = |text: &str| passed_on(&args(text)).map(<[String]>::to_vec);
        assert_eq!(passed("forebay bench images --json x"), Some(args("images --json x")));
        assert_eq!(passed("forebay bench"), Some(Vec::new()));
        assert_eq!(passed("forebay bench --help"), None);
        assert_eq!(passed("forebay info bench"), None);
    }
}
