//! The `forebay` command from Python: the same code as the native binary.

use pyo3::prelude::*;

/// Runs the command; the first argument is the program's name. Returns the exit code.
#[pyfunction]
pub(crate) fn run_cli(py: Python<'_>, args: Vec<String>) -> i32 {
    py.detach(|| forebay_cli::run(args))
}
