//! Pipeline files: data, recipe and loader settings as TOML, as typed and as they will run.
//!
//! ```toml
//! [data]
//! url = "shards/train-{000000..000146}.tar"
//!
//! [[recipe]]
//! field = "jpg"
//! decode = "image"
//!
//! [loader]
//! batch_size = 256
//! memory = "1GiB"
//! ```
//!
//! The settings have the names of the arguments of Python's `Loader`. Resolving reads units, fills in defaults and
//! reports all faults of all parts at once.

mod read;
mod settings;

pub(crate) use settings::{LoaderSettings, Setting};

use crate::args::Data;
use forebay_core::recipe::Recipe;
use forebay_core::{Error, Result};
use forebay_engine::source::{OpenOptions, SourceKind};
use read::{Table, list_of_text, text};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A pipeline as typed.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawPipeline {
    name: String,
    values: Map<String, Value>,
}

/// A pipeline as it will run.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) data: Option<Data>,
    pub(crate) recipe: Option<Recipe>,
    pub(crate) loader: LoaderSettings,
}

impl RawPipeline {
    /// Reads a file. Only its grammar is checked.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::io(format!("read pipeline `{name}`"), error))?;
        Self::parse(name, &text)
    }

    fn parse(name: String, text: &str) -> Result<Self> {
        let values = toml::from_str(text).map_err(|error| {
            let message = format!("read pipeline `{name}`: the text is not TOML");
            Error::invalid_config(message).with_source(error)
        })?;
        Ok(Self { name, values })
    }

    /// Settings that win over those of the file.
    pub(crate) fn override_loader(&mut self, settings: Map<String, Value>) {
        let loader = self.values.entry("loader").or_insert_with(|| Value::Object(Map::new()));
        // Something else than a table is a fault that resolving reports.
        if let Value::Object(loader) = loader {
            loader.extend(settings);
        }
    }

    /// Reads units, fills in defaults and reports every fault.
    pub(crate) fn resolve(mut self) -> Result<Pipeline> {
        let mut faults = Vec::new();
        let recipe = self.values.remove("recipe").and_then(|value| match Recipe::from_value(value) {
            Ok(recipe) => Some(recipe),
            Err(error) => {
                faults.push(error.message().trim_start_matches("read recipe: ").to_owned());
                None
            }
        });
        let mut table = |name: &'static str| match self.values.remove(name) {
            None => Map::new(),
            Some(Value::Object(table)) => table,
            Some(_) => {
                faults.push(format!("{name}: it is not a table"));
                Map::new()
            }
        };
        let (data, loader) = (table("data"), table("loader"));
        for name in self.values.keys() {
            faults.push(format!("{name}: there is no such part; known are data, recipe, loader"));
        }
        let data = if data.is_empty() { None } else { resolve_data(data, &mut faults) };
        let loader = LoaderSettings::resolve(loader, &mut faults);
        if faults.is_empty() {
            return Ok(Pipeline { data, recipe, loader });
        }
        let whose =
            if self.name.is_empty() { String::new() } else { format!("read pipeline `{}`: ", self.name) };
        let message = match faults.as_slice() {
            [only] => format!("{whose}{only}"),
            _ => format!("{whose}{} faults:\n  {}", faults.len(), faults.join("\n  ")),
        };
        Err(Error::invalid_config(message).with_hint(
            "settings are listed in `docs/guide/command-line.md`, ops in `docs/reference/recipe.md`",
        ))
    }
}

fn resolve_data(values: Map<String, Value>, faults: &mut Vec<String>) -> Option<Data> {
    let mut table = Table::new("data", values, faults);
    let spec = table.take("url", list_of_text);
    let kind = table.take("kind", |value| {
        let name = text(value)?;
        SourceKind::from_name(&name).ok_or_else(|| format!("`{name}` is not tar, tree or table"))
    });
    let labels = table.take("labels", text).map(PathBuf::from);
    let extensions = table.take("extensions", |value| {
        let typed = list_of_text(value)?;
        crate::args::extensions(&typed).map_err(|error| error.message().to_owned())
    });
    let storage_options = table.take("storage_options", options_of_store).unwrap_or_default();
    let local = table.take("local", text).map(PathBuf::from);
    table.end();
    let Some(spec) = spec else {
        faults.push("data.url: it is missing".to_owned());
        return None;
    };
    let mut options = OpenOptions { labels, kind, storage_options, local, ..OpenOptions::default() };
    if let Some(extensions) = extensions {
        options.extensions = extensions;
    }
    Some(Data { spec, options })
}

/// A table of texts, numbers and truths, all of them as text.
fn options_of_store(value: &Value) -> std::result::Result<BTreeMap<String, String>, String> {
    let Value::Object(options) = value else { return Err(format!("{value} is not a table")) };
    let plain = |(name, value): (&String, &Value)| match value {
        Value::String(text) => Ok((name.clone(), text.clone())),
        Value::Number(_) | Value::Bool(_) => Ok((name.clone(), value.to_string())),
        other => Err(format!("`{name}` is {other}: give text, a number, true or false")),
    };
    options.iter().map(plain).collect()
}

#[cfg(test)]
mod tests;
