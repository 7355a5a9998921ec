//! The arguments of `forebay analyze`, and what they mean.

use super::Data;
use crate::pipeline::{LoaderSettings, RawPipeline};
use clap::Args;
use forebay_core::recipe::Recipe;
use forebay_core::{Error, Result};
use forebay_engine::cache::CacheConfig;
use std::path::PathBuf;

/// `forebay analyze`.
#[derive(Debug, Args)]
pub(crate) struct AnalyzeArgs {
    /// The pipeline: a TOML file with data, recipe and loader settings.
    #[arg(value_name = "PIPELINE")]
    pipeline: PathBuf,
    /// Seconds that the training loop works on a batch. Without it the loop takes all it can get.
    #[arg(long, value_name = "SECONDS")]
    step: Option<f64>,
    /// Seconds to measure each rate for.
    #[arg(long, default_value_t = 5.0, value_name = "SECONDS")]
    seconds: f64,
    /// What would be if: `cache=64GiB` or `cache=50%`, `cores=16`, `bandwidth=2GB` (a second), `rtt=0.03`, `step=0.1` (both in
    /// seconds), separated by commas. Each also as a factor, such as `cores=x2`.
    #[arg(long, value_name = "CHANGES")]
    what_if: Option<String>,
    /// Write a report with plots to this file; it needs nothing else to be looked at.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// What `analyze` does.
#[derive(Debug)]
pub(crate) struct AnalyzePlan {
    pub(crate) data: Data,
    pub(crate) recipe: Recipe,
    pub(crate) loader: LoaderSettings,
    pub(crate) cache_bytes: u64,
    pub(crate) step: Option<f64>,
    pub(crate) seconds: f64,
    pub(crate) what_if: Option<String>,
    pub(crate) html: Option<PathBuf>,
}

impl AnalyzeArgs {
    pub(crate) fn resolve(self) -> Result<AnalyzePlan> {
        let name = self.pipeline.display().to_string();
        let pipeline = RawPipeline::read(&self.pipeline)?.resolve()?;
        let missing = |what: &str, hint: &str| {
            Error::invalid_config(format!("analyze `{name}`: the pipeline {what}")).with_hint(hint.to_owned())
        };
        let data = pipeline.data.ok_or_else(|| missing("names no dataset", "add `url` under `[data]`"))?;
        let recipe = pipeline.recipe.ok_or_else(|| missing("has no recipe", "add `[[recipe]]` to it"))?;
        for (flag, value) in [("--seconds", Some(self.seconds)), ("--step", self.step)] {
            if value.is_some_and(|value| !(value.is_finite() && value > 0.0 && value <= 1e6)) {
                return Err(Error::invalid_config(format!("read `{flag}`: it is no time above 0")));
            }
        }
        let capacity = pipeline.loader.cache().map(CacheConfig::capacity);
        let cache_bytes = capacity.map_or(0, |capacity| capacity.memory.saturating_add(capacity.disk));
        let Self { step, seconds, what_if, html, .. } = self;
        Ok(AnalyzePlan { data, recipe, loader: pipeline.loader, cache_bytes, step, seconds, what_if, html })
    }
}
