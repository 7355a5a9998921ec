//! The `[loader]` part: every setting with its check and its default, under the names that Python uses.

use super::read::{Table, bytes, text, truth, whole, word};
use forebay_core::feed::MAX_ROWS;
use forebay_core::plan::batching::{Batching, Bucket, Oversize};
use forebay_core::plan::mix::schedule::MixChange;
use forebay_core::plan::mix::stop::Stop;
use forebay_core::plan::parts::{MAX_PARTS, Sharding};
use forebay_core::plan::rounds::{ClassBounds, MAX_CLASSES, SizeClasses};
use forebay_core::plan::{BlockShuffle, Shuffle};
use forebay_core::portion::{Consumer, LastBatch};
use forebay_engine::cache::CacheConfig;
use forebay_engine::source::Dataset;
use forebay_engine::{DeliveryOrder, EpochSamples, LoaderConfig, MAX_ARRIVAL_WINDOW, MaxErrors, OnError};
use forebay_net::service::ViaConfig;
use forebay_store::RetryOptions;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// By how many places a sample may be late when the order is by arrival and no window is given.
const DEFAULT_WINDOW: u64 = 1024;

/// How samples are ordered, before the dataset is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Stored,
    /// Whatever suits the dataset.
    Shuffled,
    Full,
    Block,
    Resample,
}

impl Order {
    /// Good enough for checking other settings against it.
    fn before_the_dataset_is_known(self, block: BlockShuffle) -> Shuffle {
        match self {
            Self::Stored => Shuffle::Sequential,
            Self::Shuffled | Self::Full => Shuffle::Full,
            Self::Block => Shuffle::Block(block),
            Self::Resample => Shuffle::Resample { epoch_samples: None },
        }
    }
}

/// The loader's settings with units and defaults.
#[derive(Clone)]
pub(crate) struct LoaderSettings {
    config: LoaderConfig,
    order: Order,
    block: BlockShuffle,
    epoch_samples: Option<EpochSamples>,
    mix_changes: Vec<MixChange>,
    cache: Option<CacheConfig>,
    via: Option<ViaConfig>,
    ledger: Option<String>,
    given: BTreeSet<String>,
}

/// One setting for people.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) value: Value,
    /// Whether it was typed; otherwise it is the default.
    pub(crate) given: bool,
}

impl LoaderSettings {
    /// Reads the table; `mixed` says whether the dataset is a mix of several.
    pub(super) fn resolve(values: Map<String, Value>, mixed: bool, faults: &mut Vec<String>) -> Self {
        let given = values.keys().cloned().collect();
        let defaults = LoaderConfig::default();
        let before = faults.len();
        let mut table = Table::new("loader", values, faults);
        let batch_size = table.take("batch_size", whole(1, 1 << 40));
        let order = table.take("shuffle", read_order).unwrap_or(Order::Stored);
        let epoch_samples = table.take_or("none", "epoch_samples", read_epoch_samples);
        let mix_changes = table.take_or("none", "mix_schedule", read_changes).unwrap_or_default();
        if !(mixed || mix_changes.is_empty()) {
            table.fault("mix_schedule", "this is one dataset, which has no weights");
        }
        let block = BlockShuffle {
            block_bytes: table
                .take_or("auto", "block_bytes", bytes)
                .unwrap_or(BlockShuffle::default().block_bytes),
            group_blocks: table
                .take_or("auto", "group_blocks", whole(1, 1 << 32))
                .unwrap_or(BlockShuffle::default().group_blocks),
        };
        let (sharding, size_classes) = (read_sharding(&mut table), read_size_classes(&mut table));
        let batching = read_batching(&mut table);
        // Bytes alone bound a batch, when they do.
        let bounded = batching.as_ref().is_some_and(|batching| batching.batch_bytes.is_some());
        let batch_size = batch_size.unwrap_or(if bounded { MAX_ROWS } else { 1 });
        let seed = table.take("seed", whole(0, u64::MAX)).unwrap_or(0);
        let drop_last = table.take("drop_last", truth);
        let last_batch = table.take("last_batch", word(&LAST_BATCH));
        if drop_last.is_some() && last_batch.is_some() {
            table.fault("drop_last", "`last_batch` is given too: leave one of them out");
        }
        let last_batch = last_batch.unwrap_or(match drop_last {
            Some(true) => LastBatch::Drop,
            _ => LastBatch::default(),
        });
        let threads =
            table.take_or("auto", "num_workers", whole(0, 1024)).map(|threads| (threads as usize).max(1));
        let prefetch = table.take_or("auto", "prefetch_batches", whole(1, 4096)).map(|n| n as usize);
        let memory_bytes = table.take_or("auto", "memory", bytes);
        let cache = table.take_or("none", "cache", |value| {
            CacheConfig::from_json(value).map_err(|error| error.message().to_owned())
        });
        let via = table.take_or("none", "via", |value| {
            ViaConfig::from_json(value).map_err(|error| error.message().to_owned())
        });
        let in_flight = table.take_or("auto", "inflight", whole(1, 65_536)).map(|n| n as usize);
        let request_bytes = table.take_or("auto", "request_bytes", bytes);
        let tries = table.take_or("auto", "request_tries", whole(1, 1000));
        let request_timeout = table.take_or("auto", "request_timeout", read_timeout).flatten();
        let deadline = table.take_or("auto", "request_deadline", read_timeout).flatten();
        let hedge = table.take("hedge", truth).unwrap_or(defaults.hedge);
        let slow_start = table.take_or("none", "slow_start", whole(1, 1 << 20));
        let in_order = table.take("in_order", truth).unwrap_or(true);
        let window = table.take_or("auto", "window", whole(0, MAX_ARRIVAL_WINDOW));
        if in_order && window.is_some_and(|window| window > 0) {
            table.fault("window", "the order is by plan: add `in_order = false`");
        }
        let timeout = table.take("timeout", read_timeout).unwrap_or(defaults.timeout);
        let rank = table.take("rank", whole(0, 1 << 32)).unwrap_or(0);
        let world_size = table.take("world_size", whole(1, 1 << 32)).unwrap_or(1);
        let on_error = table.take("on_error", word(&ON_ERROR)).unwrap_or_default();
        let max_errors = table.take_or("none", "max_errors", read_max_errors).unwrap_or(MaxErrors::Unlimited);
        let ledger = table.take_or("none", "ledger", text);
        let epochs = table.take_or("none", "epochs", whole(1, u64::MAX));
        table.end();
        let config = LoaderConfig {
            consumer: Consumer { rank, world_size, batch_size, last_batch },
            shuffle: order.before_the_dataset_is_known(block),
            // Only whether there is one is known before the datasets are.
            mix: mixed.then(Vec::new),
            epoch_samples: epoch_samples.and_then(EpochSamples::count),
            sharding,
            size_classes,
            batching,
            seed,
            threads: threads.unwrap_or(defaults.threads),
            more_threads: threads.is_none(),
            prefetch_batches: prefetch,
            memory_bytes,
            order: if in_order {
                DeliveryOrder::Plan
            } else {
                DeliveryOrder::Arrival { window: window.unwrap_or(DEFAULT_WINDOW) }
            },
            on_error,
            max_errors,
            timeout,
            requests_in_flight: in_flight,
            request_bytes,
            retry: RetryOptions {
                tries: tries.map_or(defaults.retry.tries, |tries| tries as u32),
                request_timeout: request_timeout.unwrap_or(defaults.retry.request_timeout),
                deadline: deadline.unwrap_or(defaults.retry.deadline),
                seed,
                ..defaults.retry
            },
            hedge,
            slow_start,
            epochs,
            ..defaults
        };
        // What one value alone cannot tell; values already at fault would only be named twice.
        if faults.len() == before
            && let Err(error) = config.check()
        {
            faults.extend(error.message().lines().map(|fault| format!("loader: {fault}")));
        }
        Self { config, order, block, epoch_samples, mix_changes, cache, via, ledger, given }
    }

    /// What the engine is told for this dataset.
    pub(crate) fn config(&self, dataset: &Dataset) -> forebay_core::Result<LoaderConfig> {
        let manifest = dataset.manifest();
        let object_per_sample = u64::from(manifest.object_count()) == manifest.len();
        let shuffle = match self.order {
            Order::Stored => Shuffle::Sequential,
            Order::Full => Shuffle::Full,
            Order::Shuffled if object_per_sample || dataset.mix().is_some() => Shuffle::Full,
            Order::Block | Order::Shuffled => Shuffle::Block(self.block),
            Order::Resample => Shuffle::Resample { epoch_samples: None },
        };
        let config = LoaderConfig { shuffle, ..self.config.clone() };
        config.mixing(dataset, self.epoch_samples, &self.mix_changes)
    }

    /// What is kept near, when anything is.
    pub(crate) fn cache(&self) -> Option<&CacheConfig> {
        self.cache.as_ref()
    }

    /// Who makes the batches, when not this process alone.
    pub(crate) fn via(&self) -> Option<&ViaConfig> {
        self.via.as_ref()
    }

    /// The folder in which training writes down what it received. Commands only look at it: none of them trains.
    pub(crate) fn ledger(&self) -> Option<&str> {
        self.ledger.as_deref()
    }

    /// Every setting with its value, in the order of the documentation.
    pub(crate) fn settings(&self) -> Vec<Setting> {
        let config = &self.config;
        let order = match self.order {
            Order::Stored => json!(false),
            Order::Shuffled => json!(true),
            Order::Full => json!("full"),
            Order::Block => json!("block"),
            Order::Resample => json!("resample"),
        };
        let auto = |value: Option<Value>| value.unwrap_or_else(|| json!("auto"));
        let window = match config.order {
            DeliveryOrder::Plan => 0,
            DeliveryOrder::Arrival { window } => window,
        };
        let max_errors = match config.max_errors {
            MaxErrors::Unlimited => json!("none"),
            MaxErrors::Count(count) => json!(count),
            MaxErrors::Rate(rate) => json!(rate),
        };
        let size_field = config.size_classes.as_ref().and_then(|classes| classes.field.as_deref());
        let batching = config.batching.as_ref();
        let named = |name: &'static str, value: Value| Setting {
            name,
            value,
            given: self.given.contains(name) || (name == "last_batch" && self.given.contains("drop_last")),
        };
        vec![
            named("batch_size", json!(config.consumer.batch_size)),
            named("shuffle", order),
            named("epoch_samples", self.epoch_samples.map_or(json!("none"), |length| json!(length))),
            named(
                "mix_schedule",
                if self.mix_changes.is_empty() { json!("none") } else { json!(self.mix_changes) },
            ),
            named("block_bytes", json!(self.block.block_bytes)),
            named("group_blocks", json!(self.block.group_blocks)),
            named("sharding", config.sharding.as_ref().map_or(json!("none"), |s| json!(s.policy))),
            named("parts", config.sharding.as_ref().map_or(json!("none"), |s| json!(s.parts))),
            named("size_classes", config.size_classes.as_ref().map_or(json!("none"), class_bounds)),
            named("size_field", json!(size_field.unwrap_or("none"))),
            named("bucket", batching.and_then(|b| b.bucket.as_ref()).map_or(json!("none"), bucket_value)),
            named("batch_bytes", batching.and_then(|b| b.batch_bytes).map_or(json!("none"), Value::from)),
            named(
                "oversize",
                batching.filter(|b| b.batch_bytes.is_some()).map_or(json!("none"), |b| json!(b.oversize)),
            ),
            named(
                "length_field",
                batching.and_then(|b| b.length_field.as_deref()).map_or(json!("none"), Value::from),
            ),
            named("seed", json!(config.seed)),
            named("last_batch", json!(config.consumer.last_batch)),
            named("num_workers", json!(config.threads)),
            named("prefetch_batches", auto(config.prefetch_batches.map(Value::from))),
            named("memory", auto(config.memory_bytes.map(Value::from))),
            named("cache", self.cache.as_ref().map_or(json!("none"), CacheConfig::to_json)),
            named("via", self.via.as_ref().map_or(json!("none"), ViaConfig::to_json)),
            named("inflight", auto(config.requests_in_flight.map(Value::from))),
            named("request_bytes", auto(config.request_bytes.map(Value::from))),
            named("request_tries", json!(config.retry.tries)),
            named("request_timeout", json!(config.retry.request_timeout.as_secs_f64())),
            named("request_deadline", json!(config.retry.deadline.as_secs_f64())),
            named("hedge", json!(config.hedge)),
            named("slow_start", config.slow_start.map_or(json!("none"), Value::from)),
            named("in_order", json!(config.order == DeliveryOrder::Plan)),
            named("window", json!(window)),
            named("timeout", config.timeout.map_or(json!("none"), |timeout| json!(timeout.as_secs_f64()))),
            named("rank", json!(config.consumer.rank)),
            named("world_size", json!(config.consumer.world_size)),
            named("on_error", json!(word_of(&ON_ERROR, config.on_error))),
            named("max_errors", max_errors),
            named("ledger", json!(self.ledger().unwrap_or("none"))),
            named("epochs", config.epochs.map_or(json!("none"), Value::from)),
        ]
    }
}

impl std::fmt::Debug for LoaderSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.settings()).finish()
    }
}

const LAST_BATCH: [(&str, LastBatch); 4] = [
    ("partial", LastBatch::Partial),
    ("drop", LastBatch::Drop),
    ("pad", LastBatch::Pad),
    ("wrap", LastBatch::Wrap),
];

const ON_ERROR: [(&str, OnError); 3] =
    [("raise", OnError::Raise), ("skip", OnError::Skip), ("substitute", OnError::Substitute)];

fn word_of<T: Copy + PartialEq>(words: &[(&'static str, T)], meaning: T) -> &'static str {
    words.iter().find(|(_, known)| *known == meaning).map_or("", |(word, _)| word)
}

fn read_order(value: &Value) -> Result<Order, String> {
    match value {
        Value::Bool(false) => Ok(Order::Stored),
        Value::Bool(true) => Ok(Order::Shuffled),
        Value::String(word) if word == "full" => Ok(Order::Full),
        Value::String(word) if word == "block" => Ok(Order::Block),
        Value::String(word) if word == "resample" => Ok(Order::Resample),
        _ => Err(format!("{value} is not one of true, false, \"full\", \"block\", \"resample\"")),
    }
}

/// A number, or what ends an epoch of a mix.
fn read_epoch_samples(value: &Value) -> Result<EpochSamples, String> {
    match value {
        Value::String(_) => {
            word(&[("first", Stop::First), ("all", Stop::All)])(value).map(EpochSamples::Stop)
        }
        value => whole(1, 1 << 48)(value).map(EpochSamples::Count),
    }
}

/// Tables with `epoch`, `position` and `weights`.
fn read_changes(value: &Value) -> Result<Vec<MixChange>, String> {
    let Value::Array(changes) = value else {
        return Err(format!("{value} is not a list of tables, each with `epoch` and `weights`"));
    };
    let read = |change: &Value| {
        serde_json::from_value(change.clone()).map_err(|error| {
            format!("{change} is not a table with `epoch`, `position` and `weights`: {error}")
        })
    };
    changes.iter().map(read).collect()
}

fn read_sharding(table: &mut Table<'_>) -> Option<Sharding> {
    let before = table.fault_count();
    let policy = table.take_or("none", "sharding", |value| {
        let words = "off, dynamic, file, data, file_or_data, hint:FIELD";
        text(value)?.parse().map_err(|_| format!("{value} is not one of {words}"))
    });
    let parts = table.take_or("none", "parts", whole(1, MAX_PARTS.into())).map(|parts| parts as u32);
    if table.fault_count() > before {
        return None;
    }
    Sharding::from_settings(policy, parts).unwrap_or_else(|error| {
        table.fault("sharding", error.message());
        None
    })
}

fn read_size_classes(table: &mut Table<'_>) -> Option<SizeClasses> {
    let before = table.fault_count();
    let bounds = table.take_or("none", "size_classes", |value| match value {
        Value::Array(bounds) => Ok(ClassBounds::Bytes(bounds.iter().map(bytes).collect::<Result<_, _>>()?)),
        value => whole(1, MAX_CLASSES.into())(value).map(|count| ClassBounds::Count(count as u32)),
    });
    let field = table.take_or("none", "size_field", text);
    if table.fault_count() > before {
        return None;
    }
    SizeClasses::from_settings(bounds, field).unwrap_or_else(|error| {
        table.fault("size_classes", error.message());
        None
    })
}

const OVERSIZE: [(&str, Oversize); 2] = [("alone", Oversize::Alone), ("drop", Oversize::Drop)];

fn read_batching(table: &mut Table<'_>) -> Option<Batching> {
    let before = table.fault_count();
    let bucket = table.take_or("none", "bucket", |value| match value {
        Value::Array(bounds) => Ok(Bucket::Bounds(bounds.iter().map(bytes).collect::<Result<_, _>>()?)),
        value => {
            value.as_f64().map(Bucket::Ratio).ok_or_else(|| format!("{value} is not a ratio such as 1.25"))
        }
    });
    let batch_bytes = table.take_or("none", "batch_bytes", bytes);
    let oversize = table.take_or("none", "oversize", word(&OVERSIZE));
    let length_field = table.take_or("none", "length_field", text);
    if table.fault_count() > before {
        return None;
    }
    Batching::from_settings(bucket, batch_bytes, oversize, length_field).unwrap_or_else(|error| {
        table.fault("bucket", error.message());
        None
    })
}

fn bucket_value(bucket: &Bucket) -> Value {
    match bucket {
        Bucket::Ratio(ratio) => json!(ratio),
        Bucket::Bounds(bounds) => json!(bounds),
    }
}

fn class_bounds(classes: &SizeClasses) -> Value {
    match &classes.bounds {
        ClassBounds::Count(count) => json!(count),
        ClassBounds::Bytes(bounds) => json!(bounds),
    }
}

fn read_timeout(value: &Value) -> Result<Option<Duration>, String> {
    if value == "none" {
        return Ok(None);
    }
    let seconds = value.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let seconds = seconds.ok_or_else(|| format!("{value} is not a number of seconds; 0 is no limit"))?;
    Ok((!seconds.is_zero()).then_some(seconds))
}

fn read_max_errors(value: &Value) -> Result<MaxErrors, String> {
    match (value.as_u64(), value.as_f64()) {
        (Some(count), _) => Ok(MaxErrors::Count(count)),
        (None, Some(rate)) if (0.0..=1.0).contains(&rate) => Ok(MaxErrors::Rate(rate)),
        _ => Err(format!("{value} is neither a count nor a share between 0.0 and 1.0")),
    }
}
