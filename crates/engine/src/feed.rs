//! What makes batches out of positions, as plain data that another process can act on.
//!
//! A [`FeedSpec`] says where the dataset lies, which version of it is meant, what is done to each sample and in which
//! order positions follow. Two specs with one [`FeedSpec::id`] give the same bytes for the same
//! [`BatchName`](forebay_core::feed::BatchName). How the store is read and what is kept near does not enter the id:
//! it changes how long a batch takes, never what it is.

use crate::config::{LoaderConfig, OnError};
use crate::memory::usual_rows;
use crate::source::{DataSpec, Dataset};
use forebay_core::feed::FeedId;
use forebay_core::plan::Shuffle;
use forebay_core::plan::batching::Batching;
use forebay_core::plan::mix::MixPart;
use forebay_core::plan::mix::schedule::MixChange;
use forebay_core::plan::parts::Sharding;
use forebay_core::plan::rounds::SizeClasses;
use forebay_core::portion::{Consumer, LastBatch};
use forebay_core::quarantine::Quarantine;
use forebay_core::recipe::Recipe;
use forebay_core::{Error, Result};
use forebay_store::RetryOptions;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Raised when an older reader could misunderstand a newer spec.
const FORMAT: u32 = 1;

/// Largest spec that is read from outside, as JSON.
pub const MAX_SPEC_BYTES: usize = 4 << 20;

/// Everything another process needs to make the batches of a feed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeedSpec {
    format: u32,
    /// How the dataset is opened.
    pub data: DataSpec,
    /// Its version: who opens another one must not go on.
    pub dataset: String,
    /// The recipe, as JSON.
    pub recipe: serde_json::Value,
    /// The order.
    pub order: OrderSpec,
    /// What a bad sample does.
    pub on_error: OnError,
    /// Rows of most batches; decides how much memory is planned, not what is in them.
    pub batch_size: u64,
    /// Samples that are not read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quarantine: Vec<u64>,
    /// How the store is read.
    pub fetch: FetchSpec,
    /// What is kept near, as JSON; `None` leaves it to the process that makes the batches.
    #[serde(default)]
    pub cache: Option<serde_json::Value>,
}

/// What decides which sample stands at which position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderSpec {
    /// Seed of order and of all random ops.
    pub seed: u64,
    /// Order of each epoch.
    pub shuffle: Shuffle,
    /// Runs of samples mixed by weight.
    #[serde(default)]
    pub mix: Option<Vec<MixPart>>,
    /// Other weights of the mix from a place on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mix_changes: Vec<MixChange>,
    /// Positions of an epoch of a mix or of resampling.
    #[serde(default)]
    pub epoch_samples: Option<u64>,
    /// Parts that are read in turn.
    #[serde(default)]
    pub sharding: Option<Sharding>,
    /// Classes of size that steps are made of.
    #[serde(default)]
    pub size_classes: Option<SizeClasses>,
    /// How batches are cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batching: Option<Batching>,
    /// Samples of a batch and ranks, where they are part of the order.
    #[serde(default)]
    pub step: Option<(u64, u64)>,
}

/// How the store is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FetchSpec {
    /// Requests in flight; `None` finds out.
    pub inflight: Option<usize>,
    /// Bytes of one range request; `None` follows the link.
    pub request_bytes: Option<u64>,
    /// Most tries of one request.
    pub tries: u32,
    /// Seconds of one try.
    pub request_timeout: f64,
    /// Seconds of all tries.
    pub request_deadline: f64,
    /// Whether slow requests get a second one.
    pub hedge: bool,
}

impl OrderSpec {
    /// The order that these settings ask for.
    pub(crate) fn of(config: &LoaderConfig) -> Self {
        Self {
            seed: config.seed,
            shuffle: config.shuffle,
            mix: config.mix.clone(),
            mix_changes: config.mix_changes.clone(),
            epoch_samples: config.epoch_samples,
            sharding: config.sharding.clone(),
            size_classes: config.size_classes.clone(),
            batching: config.batching.clone(),
            step: match config.batching {
                // Batches that are cut are the same for any number of ranks.
                Some(_) => Some((config.consumer.batch_size, 1)),
                None => (config.sharding.is_some() || config.size_classes.is_some())
                    .then_some((config.consumer.batch_size, config.consumer.world_size)),
            },
        }
    }
}

impl OrderSpec {
    /// Settings that give this order; `batch_size` counts where it is no part of the order.
    pub(crate) fn config(&self, batch_size: u64) -> LoaderConfig {
        let (batch_size, world_size) = self.step.unwrap_or((batch_size, 1));
        LoaderConfig {
            consumer: Consumer { rank: 0, world_size, batch_size, last_batch: LastBatch::Partial },
            shuffle: self.shuffle,
            mix: self.mix.clone(),
            mix_changes: self.mix_changes.clone(),
            epoch_samples: self.epoch_samples,
            sharding: self.sharding.clone(),
            size_classes: self.size_classes.clone(),
            batching: self.batching.clone(),
            seed: self.seed,
            ..LoaderConfig::default()
        }
    }
}

impl FeedSpec {
    /// The feed that a loader with these parts reads. Datasets that were not opened from a spec have none.
    pub fn new(dataset: &Dataset, recipe: &Recipe, config: &LoaderConfig) -> Result<Self> {
        let Some(data) = dataset.origin() else {
            let why = format!("read `{}` through another process: it exists only in this one", dataset.url());
            return Err(Error::unsupported(why).with_hint("write it to files first, or leave `via` out"));
        };
        if config.thread_init.is_some() {
            return Err(Error::unsupported("read through another process: `worker_init_fn` runs only here")
                .with_hint("leave `worker_init_fn` or `via` out"));
        }
        if config.turn.of > 1 {
            return Err(Error::unsupported(
                "read through another process inside several DataLoader processes: it makes the batches already",
            )
            .with_hint("give DataLoader num_workers=0"));
        }
        let config = &config.clone().packed(recipe, dataset.manifest())?;
        let recipe = serde_json::from_str(&recipe.to_json())
            .map_err(|cause| Error::internal("write recipe").with_source(cause))?;
        let retry = &config.retry;
        Ok(Self {
            format: FORMAT,
            data: data.clone(),
            dataset: dataset.manifest().version().to_owned(),
            recipe,
            order: OrderSpec::of(config),
            on_error: config.on_error,
            quarantine: config.quarantine.ids().to_vec(),
            batch_size: usual_rows(config, dataset.manifest()),
            fetch: FetchSpec {
                inflight: config.requests_in_flight,
                request_bytes: config.request_bytes,
                tries: retry.tries,
                request_timeout: retry.request_timeout.as_secs_f64(),
                request_deadline: retry.deadline.as_secs_f64(),
                hedge: config.hedge,
            },
            cache: None,
        })
    }

    /// Equal for feeds whose batches are equal.
    pub fn id(&self) -> FeedId {
        // JSON objects are sorted by key, so equal values have equal texts.
        let mut text = serde_json::json!({
            "format": self.format,
            "dataset": self.dataset,
            "recipe": self.recipe,
            "order": self.order,
            "on_error": self.on_error,
        });
        if !self.quarantine.is_empty() {
            text["quarantine"] = self.quarantine.clone().into();
        }
        FeedId(xxhash_rust::xxh3::xxh3_128(text.to_string().as_bytes()))
    }

    /// Reads a spec that came from outside.
    pub fn from_json(text: &str) -> Result<Self> {
        let fail = |why: &str| Error::invalid_config(format!("read feed: {why}"));
        if text.len() > MAX_SPEC_BYTES {
            return Err(fail("it is larger than 4 MiB"));
        }
        let spec: Self = serde_json::from_str(text).map_err(|cause| fail("it is none").with_source(cause))?;
        if spec.format != FORMAT {
            let why = format!("read feed: its format is {}, this release reads {FORMAT}", spec.format);
            return Err(Error::unsupported(why).with_hint("run the same release of forebay everywhere"));
        }
        Ok(spec)
    }

    /// The spec as JSON.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|cause| Error::internal("write feed").with_source(cause))
    }

    /// The recipe.
    pub fn recipe(&self) -> Result<Recipe> {
        Recipe::from_json(&self.recipe.to_string())
    }

    /// Settings of a maker of this feed; those that are not the feed's are taken from `own`.
    pub fn config(&self, own: &LoaderConfig) -> Result<LoaderConfig> {
        let seconds = |value: f64| {
            Duration::try_from_secs_f64(value)
                .map_err(|_| Error::invalid_config(format!("read feed: {value} is no number of seconds")))
        };
        let (batch_size, world_size) = self.order.step.unwrap_or((self.batch_size, 1));
        let config = LoaderConfig {
            consumer: Consumer { rank: 0, world_size, batch_size, last_batch: LastBatch::Partial },
            shuffle: self.order.shuffle,
            mix: self.order.mix.clone(),
            mix_changes: self.order.mix_changes.clone(),
            epoch_samples: self.order.epoch_samples,
            sharding: self.order.sharding.clone(),
            size_classes: self.order.size_classes.clone(),
            batching: self.order.batching.clone(),
            seed: self.order.seed,
            on_error: self.on_error,
            quarantine: Arc::new(Quarantine::new(self.quarantine.clone())),
            requests_in_flight: self.fetch.inflight,
            request_bytes: self.fetch.request_bytes,
            hedge: self.fetch.hedge,
            retry: RetryOptions {
                tries: self.fetch.tries,
                request_timeout: seconds(self.fetch.request_timeout)?,
                deadline: seconds(self.fetch.request_deadline)?,
                seed: self.order.seed,
                ..own.retry
            },
            ..own.clone()
        };
        config.check()?;
        Ok(config)
    }
}
