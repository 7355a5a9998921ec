//! The `forebay` command as a library, so that the Python package can offer the same command.
//!
//! [`run`] takes the arguments and returns the exit code; it never ends the process.

/// Runs the command. `args[0]` is the program's name. Returns the exit code.
pub fn run(args: Vec<String>) -> i32 {
    drop(args);
    0
}
