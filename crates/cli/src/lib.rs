//! The `forebay` command as a library, so that the Python package offers the same command as the binary.
//!
//! [`run`] takes the arguments and returns the exit code; it never ends the process. `args` holds what can be typed
//! and what it means, `commands` has a file for each command, `pipeline` reads pipeline files, `dashboard` is the page, and `report` is the
//! only place that writes to the terminal. What would be worth using without a terminal lives in the engine.

mod args;
mod commands;
mod dashboard;
mod digest;
mod interrupt;
mod pipeline;
mod progress;
mod report;

use args::Cli;
use clap::Parser;
use forebay_core::Error;
use report::{ColorChoice, Report};

/// Exit code when we are at fault.
const INTERNAL: i32 = 70;

/// Runs the command. `args[0]` is the program's name. Returns the exit code.
pub fn run(args: Vec<String>) -> i32 {
    // Everything behind `bench` belongs to the Python package, also what looks like ours.
    if let Some(passed) = commands::bench::passed_on(&args) {
        let report = Report::new(false, ColorChoice::Auto);
        return conclude(&report, commands::bench::run(passed));
    }
    let json = args.iter().skip(1).take_while(|arg| *arg != "--").any(|arg| arg == "--json");
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => return Report::new(json, ColorChoice::Auto).clap(&error),
    };
    let report = Report::new(cli.json, cli.color);
    interrupt::guard(move |interrupt| {
        let context = commands::Context::new(report, interrupt);
        let outcome = commands::run(cli.command, &context);
        conclude(&context.report, outcome)
    })
}

/// Says how it ended and turns it into an exit code.
fn conclude(report: &Report, outcome: forebay_core::Result<commands::Done>) -> i32 {
    let code = match outcome {
        Ok(done) => {
            if let Some(object) = &done.object {
                report.object(object);
            }
            done.code
        }
        Err(error) => report.error(&error),
    };
    match report.take_fault() {
        None => code,
        Some(fault) => report.error(&Error::io("write to standard output", fault)),
    }
}
