//! The one door to the terminal: results on standard output, everything else on standard error.
//!
//! With `--json` exactly one JSON object goes to standard output, the result or `{"error": ...}`, and text is left
//! out. A reader that went away (`forebay info | head -0`) is no fault; a full disk is.

use clap::builder::styling::{AnsiColor, Style};
use forebay_core::Error;
use serde_json::{Value, json};
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

/// When text is colored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Writes results, notes and errors.
#[derive(Debug)]
pub(crate) struct Report {
    json: bool,
    stdout_color: bool,
    stderr_color: bool,
    fault: Mutex<Option<io::Error>>,
}

impl Report {
    pub(crate) fn new(json: bool, color: ColorChoice) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let colored = |terminal: bool| match color {
            ColorChoice::Auto => terminal && !refused,
            ColorChoice::Always => true,
            ColorChoice::Never => false,
        };
        Self {
            json,
            stdout_color: colored(io::stdout().is_terminal()),
            stderr_color: colored(io::stderr().is_terminal()),
            fault: Mutex::new(None),
        }
    }

    /// Whether a progress bar may be drawn.
    pub(crate) fn may_draw(&self) -> bool {
        !self.json && io::stderr().is_terminal()
    }

    /// Whether the result may be drawn over and over again.
    pub(crate) fn draws(&self) -> bool {
        !self.json && io::stdout().is_terminal()
    }

    /// A line of the result for people.
    pub(crate) fn line(&self, text: impl Display) {
        if !self.json {
            self.put(&format!("{text}\n"));
        }
    }

    /// A named line of the result for people: the names stand in a column of their own.
    pub(crate) fn fact(&self, name: &str, value: impl Display) {
        let name = paint(&format!("{name:<12}"), Style::new().bold(), self.stdout_color);
        self.line(format_args!("{name} {value}"));
    }

    /// A finding of the result: a word in color and what it is about.
    pub(crate) fn finding(&self, is_warning: bool, text: impl Display) {
        let (word, color) =
            if is_warning { ("warning", AnsiColor::Yellow) } else { ("error", AnsiColor::Red) };
        let word = paint(word, color.on_default().bold(), self.stdout_color);
        self.line(format_args!("{word}: {text}"));
    }

    /// Something worth knowing that is no result.
    pub(crate) fn note(&self, text: impl Display) {
        self.aside("note", AnsiColor::Cyan, text);
    }

    /// Something that a person can act upon.
    pub(crate) fn warning(&self, text: impl Display) {
        self.aside("warning", AnsiColor::Yellow, text);
    }

    /// The result as JSON; left out without `--json`.
    pub(crate) fn object(&self, object: &Value) {
        if self.json {
            self.put(&format!("{object:#}\n"));
        }
    }

    /// The error, and the exit code that belongs to it.
    pub(crate) fn error(&self, error: &Error) -> i32 {
        if self.json {
            self.object(&json!({ "error": error_object(error) }));
        } else {
            let word = paint("error", AnsiColor::Red.on_default().bold(), self.stderr_color);
            let hint = paint("hint", AnsiColor::Green.on_default().bold(), self.stderr_color);
            let report = error.report();
            let text = match (error.hint(), report.split_once("\n\nhint: ")) {
                (Some(_), Some((text, said))) => format!("{word}: {text}\n\n{hint}: {said}\n"),
                _ => format!("{word}: {report}\n"),
            };
            put_aside(&text);
        }
        i32::from(error.kind().exit_code())
    }

    /// What clap has to say: help and version are results, the rest is a request that makes no sense.
    pub(crate) fn clap(&self, error: &clap::Error) -> i32 {
        if error.exit_code() == 0 {
            let text = error.render();
            self.put(&if self.stdout_color { text.ansi().to_string() } else { text.to_string() });
            return 0;
        }
        if self.json {
            let text = error.render().to_string();
            let text = text.trim().trim_start_matches("error: ");
            return self.error(&Error::invalid_config(text).with_hint("`forebay help` lists the commands"));
        }
        let text = error.render();
        put_aside(&if self.stderr_color { text.ansi().to_string() } else { text.to_string() });
        error.exit_code()
    }

    /// The first fault of standard output other than a reader that went away.
    pub(crate) fn take_fault(&self) -> Option<io::Error> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn aside(&self, word: &str, color: AnsiColor, text: impl Display) {
        if !self.json {
            let word = paint(word, color.on_default().bold(), self.stderr_color);
            put_aside(&format!("{word}: {text}\n"));
        }
    }

    fn put(&self, text: &str) {
        let mut stdout = io::stdout().lock();
        if let Err(error) = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }
}

fn put_aside(text: &str) {
    // There is nobody left to tell when standard error is gone.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// An error as `--json` shows it.
fn error_object(error: &Error) -> Value {
    let mut message = error.message().to_owned();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        message = format!("{message}: {inner}");
        cause = inner.source();
    }
    let facts = error.facts();
    json!({
        "kind": error.kind().name(),
        "message": message,
        "hint": error.hint(),
        "facts": {
            "sample_id": facts.sample_id,
            "key": facts.key,
            "object": facts.object,
            "offset": facts.offset,
            "op": facts.op,
            "field": facts.field,
            "epoch": facts.epoch,
        },
    })
}

fn paint(text: &str, style: Style, color: bool) -> String {
    if color { format!("{style}{text}{style:#}") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::{Facts, SampleId};

    #[test]
    fn an_error_as_json_has_kind_message_with_causes_hint_and_facts() {
        let facts = Facts { sample_id: Some(SampleId(7)), offset: Some(512), ..Facts::default() };
        let cause = io::Error::new(io::ErrorKind::NotFound, "no such file");
        let error = Error::io("open `a.tar`", cause).with_hint("look").with_facts(facts);
        let object = error_object(&error);
        assert_eq!(object["kind"], "not_found");
        assert_eq!(object["message"], "open `a.tar`: no such file");
        assert_eq!(object["hint"], "look");
        assert_eq!((&object["facts"]["sample_id"], &object["facts"]["offset"]), (&json!(7), &json!(512)));
        assert_eq!(object["facts"]["key"], Value::Null);
    }
}
