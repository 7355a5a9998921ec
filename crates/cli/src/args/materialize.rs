//! `forebay materialize`: what is typed, and what it means.

use super::Data;
use super::data::option_pair;
use crate::pipeline::{LoaderSettings, RawPipeline};
use clap::Args;
use forebay_core::recipe::Recipe;
use forebay_core::{Error, Result};
use forebay_engine::materialize::MaterializeOptions;
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::time::Duration;

/// `forebay materialize`.
#[derive(Debug, Args)]
pub(crate) struct MaterializeArgs {
    /// The pipeline: a TOML file with data, recipe and loader settings.
    #[arg(value_name = "PIPELINE")]
    pipeline: PathBuf,
    /// The folder for the shards, or a store such as `s3://bucket/prepared`; made when it is missing.
    #[arg(value_name = "OUT")]
    out: String,
    /// The epoch whose draws and order are saved, counted from 0.
    #[arg(long, default_value_t = 0, value_name = "E")]
    epoch: u64,
    /// Samples of one shard, whole batches. [default: 1024, rounded up; what is there already decides]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    chunk_samples: Option<u64>,
    /// Who prepares the samples, as `via` under `[loader]`: `forebay://host:port`, `auto`, or a table as JSON.
    #[arg(long, value_name = "URL")]
    via: Option<String>,
    /// Say what would be made, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Seconds of silence after which the shard of another run that writes here is made by this one.
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS")]
    claim_timeout: f64,
    /// What the store of OUT is told, such as `endpoint=http://127.0.0.1:9000`; may be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = option_pair)]
    to_option: Vec<(String, String)>,
}

/// What `materialize` does.
#[derive(Debug)]
pub(crate) struct MaterializeJob {
    pub(crate) data: Data,
    pub(crate) recipe: Recipe,
    pub(crate) loader: LoaderSettings,
    pub(crate) options: MaterializeOptions,
    pub(crate) dry_run: bool,
}

impl MaterializeArgs {
    pub(crate) fn resolve(self) -> Result<MaterializeJob> {
        let name = self.pipeline.display().to_string();
        let mut raw = RawPipeline::read(&self.pipeline)?;
        if let Some(via) = &self.via {
            raw.override_loader(Map::from_iter([("via".to_owned(), via_value(via)?)]));
        }
        let pipeline = raw.resolve()?;
        let missing = |what: &str, hint: &str| {
            Error::invalid_config(format!("materialize `{name}`: the pipeline {what}"))
                .with_hint(hint.to_owned())
        };
        let data = pipeline.data.ok_or_else(|| missing("names no dataset", "add `url` under `[data]`"))?;
        let recipe = pipeline.recipe.ok_or_else(|| missing("has no recipe", "add `[[recipe]]` to it"))?;
        let claim_timeout = Duration::try_from_secs_f64(self.claim_timeout)
            .ok()
            .filter(|timeout| *timeout >= Duration::from_secs(1))
            .ok_or_else(|| Error::invalid_config("read `--claim-timeout`: give at least 1 second"))?;
        let options = MaterializeOptions {
            storage_options: self.to_option.into_iter().collect(),
            epoch: self.epoch,
            chunk_samples: self.chunk_samples,
            claim_timeout,
            ..MaterializeOptions::new(self.out)
        };
        Ok(MaterializeJob { data, recipe, loader: pipeline.loader, options, dry_run: self.dry_run })
    }
}

/// A URL, or a table as JSON.
fn via_value(text: &str) -> Result<Value> {
    if !text.trim_start().starts_with('{') {
        return Ok(Value::String(text.to_owned()));
    }
    serde_json::from_str(text)
        .map_err(|error| Error::invalid_config("read `--via`: it is no JSON").with_source(error))
}
