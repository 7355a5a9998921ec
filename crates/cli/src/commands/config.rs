//! `forebay config show`: a pipeline as it will run.

use super::{Context, Done, size};
use crate::args::{ConfigShowArgs, Data};
use crate::pipeline::{RawPipeline, Setting};
use crate::report::Report;
use forebay_core::Result;
use forebay_engine::source::SourceKind;
use serde_json::{Map, Value, json};

pub(super) fn show(args: &ConfigShowArgs, context: &Context) -> Result<Done> {
    let pipeline = RawPipeline::read(&args.pipeline)?.resolve()?;
    let report = &context.report;
    let settings = pipeline.loader.settings();
    if let Some(data) = &pipeline.data {
        if data.parts.is_empty() {
            report.line("[data]");
            data_lines(data, report);
        }
        for (part, weight) in &data.parts {
            report.line("[[data.mix]]");
            report.line(format_args!("weight = {weight}"));
            data_lines(part, report);
        }
    }
    report.line("[loader]");
    for setting in &settings {
        report.line(line(setting));
    }
    if let Some(recipe) = &pipeline.recipe {
        report.line(format_args!("\n# fingerprint {}", recipe.fingerprint()));
        report.line(recipe.to_toml()?.trim_end());
    }
    let data = pipeline.data.as_ref().map(data_object);
    let loader: Map<String, Value> =
        settings.iter().map(|setting| (setting.name.to_owned(), setting.value.clone())).collect();
    let defaults: Vec<&str> =
        settings.iter().filter(|setting| !setting.given).map(|setting| setting.name).collect();
    let recipe = pipeline.recipe.as_ref();
    Ok(Done::with(json!({
        "data": data,
        "loader": loader,
        "defaults": defaults,
        "recipe": recipe,
        "fingerprint": recipe.map(forebay_core::recipe::Recipe::fingerprint),
    })))
}

fn data_lines(data: &Data, report: &Report) {
    report.line(format_args!("url = {}", json!(data.spec)));
    if let Some(kind) = data.options.kind {
        report.line(format_args!("kind = {}", json!(kind.name())));
    }
    if let Some(labels) = &data.options.labels {
        report.line(format_args!("labels = {}", json!(labels)));
    }
    if let Some(local) = &data.options.local {
        report.line(format_args!("local = {}", json!(local)));
    }
    if let Some(tokens) = &data.options.tokens {
        let given = json!(tokens);
        let given = given.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        let given = given.map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join(", ");
        report.line(format_args!("tokens = {{ {given} }}"));
    }
    report.line(format_args!("extensions = {}", json!(data.options.extensions)));
    report.line("");
}

fn data_object(data: &Data) -> Value {
    if !data.parts.is_empty() {
        let part = |(data, weight): &(Data, f64)| json!({ "weight": weight, "data": data_object(data) });
        return json!({ "mix": data.parts.iter().map(part).collect::<Vec<_>>() });
    }
    json!({
        "url": data.spec,
        "kind": data.options.kind.map(SourceKind::name),
        "labels": data.options.labels,
        "local": data.options.local,
        "extensions": data.options.extensions,
    })
}

/// `name = value`, with what the number means and whether it is the default.
fn line(setting: &Setting) -> String {
    // Lists of tables are not written as JSON writes them.
    let tables = setting.value.as_array().is_some_and(|list| list.iter().any(Value::is_object));
    let value = toml::Value::try_from(&setting.value).ok().filter(|_| tables);
    let value = value.map_or_else(|| setting.value.to_string(), |value| value.to_string());
    let mut text = format!("{} = {value}", setting.name);
    let bytes = matches!(setting.name, "memory" | "block_bytes").then(|| setting.value.as_u64()).flatten();
    let mut remarks = Vec::new();
    remarks.extend(bytes.map(size));
    if setting.name == "timeout" && setting.value.is_number() {
        remarks.push("seconds".to_owned());
    }
    if !setting.given {
        remarks.push("default".to_owned());
    }
    if !remarks.is_empty() {
        text = format!("{text:<28} # {}", remarks.join(", "));
    }
    text
}
