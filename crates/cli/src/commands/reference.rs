//! `forebay reference`: the page `docs/reference/cli.md`, drawn from the definition of the flags.

use super::{Context, Done};
use crate::args::{Cli, ReferenceArgs};
use clap::{Arg, ArgAction, CommandFactory};
use forebay_core::{Error, Result};
use serde_json::json;

const HEAD: &str = "# The `forebay` command

<!-- Written by `forebay reference`; a test compares it with the command. -->

For tasks, see [the command line](../guide/command-line.md). Results go to standard output; notes, warnings, errors and
progress to standard error. `--json` prints one JSON object on standard output instead of text: the result, or
`{\"error\": {\"kind\", \"message\", \"hint\", \"facts\"}}`. A progress bar is drawn on a terminal, for work of more than a
second. A reader that goes away ends output quietly.

| Exit code | Means |
| --- | --- |
| 0 | done; `verify` found no fault |
| 2 | the request makes no sense, or is not offered (`invalid_config`, `unsupported`) |
| 3 | not there, not allowed, or bytes are not what they claim (`not_found`, `denied`, `corrupt`); `verify` found faults |
| 4 | later or elsewhere it may work (`unavailable`, `exhausted`, `stale`) |
| 70 | our fault (`internal`) |
| 130 | Ctrl-C (`cancelled`) |

The kinds are explained in [errors](errors.md). Sizes are written `4096`, `500MB` (10^6 bytes each) or `64GiB` (2^30).
";

pub(super) fn run(args: &ReferenceArgs, context: &Context) -> Result<Done> {
    let page = page();
    let Some(path) = &args.check else {
        context.report.line(page.trim_end());
        return Ok(Done::with(json!({ "page": page })));
    };
    let found = std::fs::read_to_string(path)
        .map_err(|error| Error::io(format!("read `{}`", path.display()), error))?;
    if found == page {
        return Ok(Done::with(json!({ "same": true })));
    }
    let line = found.lines().zip(page.lines()).take_while(|(found, page)| found == page).count() + 1;
    Err(Error::stale(format!("compare `{}` with the command: line {line} differs", path.display()))
        .with_hint(format!("`forebay reference > {}` writes it again", path.display())))
}

fn page() -> String {
    let mut page = vec![HEAD.to_owned()];
    let mut root = Cli::command();
    root.build();
    options(&mut page, root.get_arguments().filter(|arg| arg.is_global_set()), "\nEvery command takes:\n\n");
    for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
        describe(&mut page, command, "forebay");
    }
    page.concat()
}

fn describe(page: &mut Vec<String>, command: &clap::Command, parent: &str) {
    let name = format!("{parent} {}", command.get_name());
    if command.get_name() == "help" {
        return;
    }
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let about = format!("{}.", about.trim().trim_end_matches('.'));
    page.push(format!("\n## {name}\n\n{about}\n"));
    if command.has_subcommands() {
        for inner in command.get_subcommands() {
            describe(page, inner, &name);
        }
        return;
    }
    let usage = command.clone().render_usage().to_string();
    page.push(format!("\n```\n{}\n```\n", usage.trim_start_matches("Usage: ").trim()));
    let own = |arg: &&Arg| !arg.is_global_set() && !matches!(arg.get_id().as_str(), "help" | "version");
    options(page, command.get_arguments().filter(own), "\n");
    if let Some(examples) = command.get_after_help() {
        let examples = examples.to_string();
        let (heading, rest) = examples.split_once('\n').unwrap_or(("", &examples));
        let lines: Vec<&str> = rest.lines().map(str::trim).collect();
        let cut = lines.iter().position(|line| line.is_empty()).unwrap_or(lines.len());
        page.push(format!("\n{heading}\n\n```\n{}\n```\n", lines[..cut].join("\n")));
        let after = lines[cut..].join("\n");
        if !after.trim().is_empty() {
            page.push(format!("\n{}\n", after.trim()));
        }
    }
}

fn options<'a>(page: &mut Vec<String>, args: impl Iterator<Item = &'a Arg>, before: &str) {
    let rows: Vec<String> = args.filter(|arg| !arg.is_hide_set()).map(row).collect();
    if !rows.is_empty() {
        page.push(format!(
            "{before}| Argument | Meaning | Default |\n| --- | --- | --- |\n{}\n",
            rows.join("\n")
        ));
    }
}

fn row(arg: &Arg) -> String {
    let values: Vec<String> =
        arg.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect();
    let flag = matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::Help | ArgAction::Version);
    let name = match arg.get_long() {
        Some(long) if flag => format!("`--{long}`"),
        Some(long) => format!("`--{long} {}`", values.join(" ")),
        None => format!("`{}`", values.join(" ")),
    };
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    // Defaults that are not the flag's own are said in its help, in the words clap uses for the others.
    let (help, said) = match help.split_once(" [default: ") {
        Some((help, said)) => (help.to_owned(), said.trim_end_matches(']').to_owned()),
        None => (help, String::new()),
    };
    // clap takes the last stop away, because its own help has none.
    let help = if help.ends_with('.') { help } else { format!("{help}.") };
    let words: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|_| !flag)
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    let help = if words.is_empty() { help } else { format!("{help} One of {}.", words.join(", ")) };
    let own: Vec<String> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    let default = if flag {
        String::new()
    } else if own.is_empty() {
        said
    } else {
        own.join(",")
    };
    let default = if default.is_empty() { default } else { format!("`{default}`") };
    format!("| {} | {} | {default} |", escape(&name), escape(&help))
}

/// A bar inside a table's cell would end the cell.
fn escape(text: &str) -> String {
    text.replace('|', "\\|")
}
