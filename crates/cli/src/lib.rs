//! The `forebay` command.
