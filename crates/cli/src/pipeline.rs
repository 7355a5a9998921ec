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

mod data;
mod read;
mod settings;

pub(crate) use settings::{LoaderSettings, Setting};

use crate::args::Data;
use forebay_core::recipe::Recipe;
use forebay_core::{Error, Result};
use serde_json::{Map, Value};
use std::path::Path;

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

    /// The dataset alone, whatever is done with it; `None` when the file names none.
    pub(crate) fn resolve_data(mut self) -> Result<Option<Data>> {
        let mut faults = Vec::new();
        let data = match self.values.remove("data") {
            None => None,
            Some(Value::Object(table)) => data::resolve(table, &mut faults),
            Some(_) => {
                faults.push("data: it is not a table".to_owned());
                None
            }
        };
        if faults.is_empty() { Ok(data) } else { Err(fault_report(&self.name, &faults)) }
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
        let data = if data.is_empty() { None } else { data::resolve(data, &mut faults) };
        let mixed = data.as_ref().is_some_and(|data| !data.parts.is_empty());
        let loader = LoaderSettings::resolve(loader, mixed, &mut faults);
        if faults.is_empty() {
            return Ok(Pipeline { data, recipe, loader });
        }
        Err(fault_report(&self.name, &faults))
    }
}

fn fault_report(file: &str, faults: &[String]) -> Error {
    let whose = if file.is_empty() { String::new() } else { format!("read pipeline `{file}`: ") };
    let message = match faults {
        [only] => format!("{whose}{only}"),
        _ => format!("{whose}{} faults:\n  {}", faults.len(), faults.join("\n  ")),
    };
    Error::invalid_config(message)
        .with_hint("settings are listed in `docs/guide/command-line.md`, ops in `docs/reference/recipe.md`")
}

#[cfg(test)]
mod tests;
