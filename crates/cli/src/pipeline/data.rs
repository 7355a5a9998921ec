//! The `[data]` part: one dataset, or `[[data.mix]]`, several of them by weight.

use super::read::{Table, list_of_text, positive, text};
use crate::args::Data;
use forebay_engine::source::{OpenOptions, SourceKind};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The dataset that a table describes; its faults are noted.
pub(super) fn resolve(mut values: Map<String, Value>, faults: &mut Vec<String>) -> Option<Data> {
    let Some(mix) = values.remove("mix") else {
        let mut table = Table::new("data", values, faults);
        let data = one(&mut table);
        table.end();
        return data;
    };
    if !values.is_empty() {
        let names = values.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        faults.push(format!("data.{names}: there is a mix: say it of each dataset, under `[[data.mix]]`"));
    }
    let Some(parts) = mix.as_array().filter(|parts| !parts.is_empty()) else {
        faults.push("data.mix: it is not a list of tables, each with `url` and `weight`".to_owned());
        return None;
    };
    let parts = parts.iter().map(|part| {
        let Value::Object(values) = part else {
            faults.push(format!("data.mix: {part} is not a table with `url` and `weight`"));
            return None;
        };
        let mut table = Table::new("data.mix", values.clone(), faults);
        let data = one(&mut table);
        let before = table.fault_count();
        let weight = table.take("weight", positive);
        if weight.is_none() && table.fault_count() == before {
            table.fault("weight", "it is missing: give each dataset its share, such as 0.5");
        }
        table.end();
        data.zip(weight)
    });
    // Every part is looked at, so that all faults are told.
    let parts: Vec<Option<(Data, f64)>> = parts.collect();
    Some(Data { parts: parts.into_iter().collect::<Option<_>>()?, ..Data::default() })
}

fn one(table: &mut Table<'_>) -> Option<Data> {
    let before = table.fault_count();
    let spec = table.take("url", list_of_text);
    if spec.is_none() && table.fault_count() == before {
        table.fault("url", "it is missing");
    }
    let kind = table.take("kind", |value| {
        let name = text(value)?;
        SourceKind::from_name(&name).ok_or_else(|| format!("`{name}` is not {}", SourceKind::stored_names()))
    });
    let labels = table.take("labels", text).map(PathBuf::from);
    let extensions = table.take("extensions", |value| {
        let typed = list_of_text(value)?;
        crate::args::extensions(&typed).map_err(|error| error.message().to_owned())
    });
    let storage_options = table.take("storage_options", options_of_store).unwrap_or_default();
    let local = table.take("local", text).map(PathBuf::from);
    let tokens = table.take("tokens", |value| {
        serde_json::from_value(value.clone()).map_err(|error| format!("{value}: {error}"))
    });
    let mut options = OpenOptions { labels, kind, storage_options, local, tokens, ..OpenOptions::default() };
    if let Some(extensions) = extensions {
        options.extensions = extensions;
    }
    Some(Data { spec: spec?, options, parts: Vec::new() })
}

/// A table of texts, numbers and truths, all of them as text.
fn options_of_store(value: &Value) -> Result<BTreeMap<String, String>, String> {
    let Value::Object(options) = value else { return Err(format!("{value} is not a table")) };
    let plain = |(name, value): (&String, &Value)| match value {
        Value::String(text) => Ok((name.clone(), text.clone())),
        Value::Number(_) | Value::Bool(_) => Ok((name.clone(), value.to_string())),
        other => Err(format!("`{name}` is {other}: give text, a number, true or false")),
    };
    options.iter().map(plain).collect()
}
