//! The arguments of `order`, as typed and as meant.

use super::Data;
use super::data::HowArgs;
use crate::pipeline::{LoaderSettings, RawPipeline};
use clap::Args;
use forebay_core::{Error, Result};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// `forebay order`.
#[derive(Debug, Args)]
pub(crate) struct OrderArgs {
    /// The dataset: anything `info` understands; may be left out when the pipeline names it.
    #[arg(value_name = "SPEC", required_unless_present = "pipeline")]
    pub(crate) spec: Vec<String>,
    /// A pipeline file with data and loader settings; flags win over it.
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) pipeline: Option<PathBuf>,
    /// The order: `true` is `block` for shards and `full` for one file per sample. [default: true, or the pipeline's]
    #[arg(long, value_name = "true|false|full|block|resample", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) shuffle: Option<String>,
    /// Samples of one batch and rank. [default: 256, or the pipeline's]
    #[arg(long, value_name = "B")]
    pub(crate) batch_size: Option<u64>,
    /// Size of a block under block shuffle, such as `1MiB`.
    #[arg(long, value_name = "SIZE")]
    pub(crate) block_bytes: Option<String>,
    /// Blocks that are mixed under block shuffle. [default: 32]
    #[arg(long, value_name = "N")]
    pub(crate) group_blocks: Option<u64>,
    /// Seed of the order. [default: 0]
    #[arg(long, value_name = "S")]
    pub(crate) seed: Option<u64>,
    /// The epoch, counted from 0.
    #[arg(long, default_value_t = 0, value_name = "E")]
    pub(crate) epoch: u64,
    /// The field of classes. [default: cls, when its values are numbers in the manifest]
    #[arg(long, value_name = "FIELD")]
    pub(crate) by: Option<String>,
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

/// What `order` does.
#[derive(Debug)]
pub(crate) struct OrderPlan {
    pub(crate) data: Data,
    pub(crate) loader: LoaderSettings,
    pub(crate) epoch: u64,
    pub(crate) by: Option<String>,
}

impl OrderArgs {
    pub(crate) fn resolve(&self) -> Result<OrderPlan> {
        let mut raw = if let Some(path) = &self.pipeline {
            RawPipeline::read(path)?
        } else {
            let mut raw = RawPipeline::default();
            let usual = [("batch_size", Value::from(256)), ("shuffle", Value::from(true))];
            raw.override_loader(usual.map(|(name, value)| (name.to_owned(), value)).into_iter().collect());
            raw
        };
        raw.override_loader(self.loader_flags());
        let pipeline = raw.resolve()?;
        let data = match (self.spec.as_slice(), pipeline.data) {
            ([], Some(data)) => data,
            ([], None) => {
                return Err(Error::invalid_config("look at an order: the pipeline names no dataset")
                    .with_hint("add `url` under `[data]`, or give a SPEC"));
            }
            (spec, _) => self.how.resolve(spec.to_vec())?,
        };
        Ok(OrderPlan { data, loader: pipeline.loader, epoch: self.epoch, by: self.by.clone() })
    }

    /// The flags as they would stand in a pipeline file.
    fn loader_flags(&self) -> Map<String, Value> {
        let shuffle = self.shuffle.as_deref().map(|word| match word {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            other => Value::from(other),
        });
        let flags = [
            ("batch_size", self.batch_size.map(Value::from)),
            ("seed", self.seed.map(Value::from)),
            ("shuffle", shuffle),
            ("block_bytes", self.block_bytes.clone().map(Value::from)),
            ("group_blocks", self.group_blocks.map(Value::from)),
        ];
        flags.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}
