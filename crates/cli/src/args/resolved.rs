//! What the commands need: typed words with units read, files loaded and checks done.

#[cfg(feature = "cassandra")]
use super::IngestPlan;
use super::{Data, DemoArgs, InfoArgs, PackArgs, ShowArgs};
use crate::pipeline::{LoaderSettings, Pipeline, RawPipeline};
use forebay_core::recipe::Recipe;
use forebay_core::size::parse_bytes;
use forebay_core::{Error, Result};
use forebay_engine::shard::ShardWriterOptions;
#[cfg(feature = "cassandra")]
use forebay_engine::source::ingest::IngestOptions;
use forebay_store::StoreOptions;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::time::Duration;

impl InfoArgs {
    pub(crate) fn resolve(&self) -> Result<Data> {
        let Some(path) = &self.pipeline else { return self.how.resolve(self.spec.clone()) };
        RawPipeline::read(path)?.resolve_data()?.ok_or_else(|| {
            Error::invalid_config(format!("look at the data of `{}`: it names no dataset", path.display()))
                .with_hint("add `url` under `[data]`, or give a SPEC")
        })
    }
}

/// What `pack` does.
#[derive(Debug)]
pub(crate) struct PackPlan {
    pub(crate) data: Data,
    /// The folder; means nothing when shards go to a store.
    pub(crate) out: PathBuf,
    pub(crate) to: Option<PackTo>,
    pub(crate) prefix: String,
    pub(crate) shards: ShardWriterOptions,
    /// The seed of the order; as stored when there is none.
    pub(crate) shuffle: Option<u64>,
}

/// The store that shards are packed to.
#[derive(Debug)]
pub(crate) struct PackTo {
    pub(crate) url: String,
    pub(crate) options: StoreOptions,
}

impl PackArgs {
    pub(crate) fn resolve(&self) -> Result<PackPlan> {
        let max_bytes = parse_bytes(&self.max_bytes)
            .map_err(|error| Error::invalid_config(format!("--max-bytes: {}", error.message())))?;
        let prefix_is_name = !self.prefix.is_empty() && !self.prefix.contains(['/', '%', '{', '\0']);
        if !prefix_is_name || self.prefix.starts_with('.') {
            let message = format!("--prefix `{}`: it is not the beginning of a file name", self.prefix);
            return Err(Error::invalid_config(message).with_hint("write a word such as `train`"));
        }
        if self.max_count == 0 || max_bytes == 0 {
            return Err(Error::invalid_config("--max-count and --max-bytes must be at least 1"));
        }
        let folder = self.out.clone().unwrap_or_default();
        let out = folder.to_str().filter(|out| !out.contains(['%', '{'])).ok_or_else(|| {
            Error::invalid_config(format!(
                "write shards into `{}`: `%`, `{{` and what is not UTF-8 cannot stand in the folder's name",
                folder.display()
            ))
        })?;
        let pattern = Path::new(out).join(format!("{}-%06d.tar", self.prefix));
        Ok(PackPlan {
            out: folder.clone(),
            data: self.how.resolve(vec![self.from.clone()])?,
            to: self.to.clone().map(|url| PackTo { url, options: self.to_option.iter().cloned().collect() }),
            prefix: self.prefix.clone(),
            shards: ShardWriterOptions {
                max_samples: self.max_count,
                max_bytes,
                overwrite: self.overwrite,
                ..ShardWriterOptions::new(pattern.to_string_lossy())
            },
            shuffle: self.shuffle.then_some(self.seed),
        })
    }
}

#[cfg(feature = "cassandra")]
impl PackPlan {
    /// Whether samples are to become rows.
    pub(crate) fn is_for_table(&self) -> bool {
        self.to.as_ref().is_some_and(|to| to.url.starts_with("cassandra://"))
    }

    /// The same samples as rows of the table.
    pub(crate) fn into_rows(self) -> IngestPlan {
        let to = self.to.map_or_else(|| (String::new(), StoreOptions::new()), |to| (to.url, to.options));
        let options = IngestOptions { overwrite: self.shards.overwrite, ..IngestOptions::default() };
        IngestPlan { data: self.data, to: to.0.trim_end_matches('/').to_owned(), store: to.1, options }
    }
}

/// What `show` does.
#[derive(Debug)]
pub(crate) struct ShowPlan {
    pub(crate) data: Data,
    pub(crate) recipe: Recipe,
    pub(crate) loader: LoaderSettings,
    pub(crate) epoch: u64,
    pub(crate) batch: u64,
    pub(crate) out: Option<PathBuf>,
}

impl ShowArgs {
    pub(crate) fn resolve(&self) -> Result<ShowPlan> {
        let mut raw = match &self.pipeline {
            Some(path) => RawPipeline::read(path)?,
            None => RawPipeline::default(),
        };
        raw.override_loader(self.loader_flags());
        let pipeline: Pipeline = raw.resolve()?;
        let recipe = match (&self.recipe, pipeline.recipe) {
            (Some(path), _) => read_recipe(path)?,
            (None, Some(recipe)) => recipe,
            (None, None) => {
                return Err(Error::invalid_config("show a batch: the pipeline has no recipe")
                    .with_hint("add `[[recipe]]` to it, or name a file with `--recipe`"));
            }
        };
        let data = match (self.spec.as_slice(), pipeline.data) {
            ([], Some(data)) => data,
            ([], None) => {
                return Err(Error::invalid_config("show a batch: the pipeline names no dataset")
                    .with_hint("add `url` under `[data]`, or give a SPEC"));
            }
            (spec, _) => self.how.resolve(spec.to_vec())?,
        };
        let loader = pipeline.loader;
        Ok(ShowPlan { data, recipe, loader, epoch: self.epoch, batch: self.batch, out: self.out.clone() })
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
            ("epoch_samples", self.epoch_samples.map(Value::from)),
            ("last_batch", self.last_batch.clone().map(Value::from)),
            ("rank", self.rank.map(Value::from)),
            ("world_size", self.world_size.map(Value::from)),
        ];
        flags.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

/// What `demo` does.
#[derive(Debug)]
pub(crate) struct DemoPlan {
    pub(crate) samples: u64,
    pub(crate) step: Duration,
    pub(crate) epochs: u64,
    pub(crate) batch_size: u64,
    pub(crate) dir: Option<PathBuf>,
    pub(crate) keep: bool,
    pub(crate) ledger: Option<PathBuf>,
}

impl DemoArgs {
    pub(crate) fn resolve(&self) -> Result<DemoPlan> {
        if !(0.0..=60_000.0).contains(&self.step_ms) {
            let message = format!("--step-ms {}: give 0 to 60000 milliseconds", self.step_ms);
            return Err(Error::invalid_config(message));
        }
        Ok(DemoPlan {
            samples: self.samples,
            step: Duration::from_secs_f64(self.step_ms / 1000.0),
            epochs: self.epochs,
            batch_size: self.batch_size,
            dir: self.dir.clone(),
            keep: self.keep,
            ledger: self.ledger.clone(),
        })
    }
}

/// A recipe file: JSON by its ending, TOML otherwise. A pipeline file is a recipe file too.
fn read_recipe(path: &Path) -> Result<Recipe> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Error::io(format!("read recipe `{}`", path.display()), error))?;
    let json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    let recipe = if json { Recipe::from_json(&text) } else { Recipe::from_toml(&text) };
    recipe.map_err(|error| error.while_doing(format_args!("`{}`", path.display())))
}
