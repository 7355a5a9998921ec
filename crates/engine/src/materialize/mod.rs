//! Saves the prepared samples of one epoch as a dataset of tar shards that opens like any other.
//!
//! The epoch is cut into chunks, each a fixed run of positions and one shard (`core::materialize`). A loader makes the
//! batches, here or elsewhere, and their rows become members of the shard (`members`). A shard appears under its name
//! whole or not at all (`place`), and the names that are there say what is done: a run that was cut off goes on with
//! what is missing, and several runs share the rest. The card says what the shards hold (`card`). What is read back by
//! the recipe beside them are the bytes that the loader would have handed over.

mod card;
mod members;
mod place;
mod process;
mod writing;

pub use card::{CARD, Card, MAX_CARD_BYTES};
pub use writing::run;

use crate::config::{DeliveryOrder, LoaderConfig};
use crate::feed::OrderSpec;
use crate::loader::Loader;
use forebay_core::materialize::Chunks;
use forebay_core::portion::{Consumer, LastBatch};
use forebay_core::recipe::{Op, Recipe};
use forebay_core::{Error, Result};
use forebay_store::StoreOptions;
use members::Members;
use place::Place;
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_128;

/// Samples of a chunk when nothing else is said, rounded up to whole batches.
pub const DEFAULT_CHUNK_SAMPLES: u64 = 1024;

/// Where samples are saved, and how.
#[derive(Clone, Debug)]
pub struct MaterializeOptions {
    /// A folder, or a URL of a store that can be listed and written.
    pub out: String,
    /// What that store is told.
    pub storage_options: StoreOptions,
    /// The epoch that is saved.
    pub epoch: u64,
    /// Samples of one shard: a multiple of the batch size. `None` takes what is there already, or 1024 rounded up.
    pub chunk_samples: Option<u64>,
    /// How long a writer may be silent before others make its chunk.
    pub claim_timeout: Duration,
}

impl MaterializeOptions {
    /// Epoch 0 into `out`.
    pub fn new(out: impl Into<String>) -> Self {
        Self {
            out: out.into(),
            storage_options: StoreOptions::new(),
            epoch: 0,
            chunk_samples: None,
            claim_timeout: Duration::from_secs(60),
        }
    }
}

/// What a run has to do.
pub struct MaterializePlan {
    place: Place,
    members: Members,
    card: Card,
    chunks: Chunks,
    /// Chunks whose shards are there.
    committed: Vec<u64>,
    claim_timeout: Duration,
    /// Names of the ops whose draws are saved with everything else, so that they are the same in every epoch.
    pub random_ops: Vec<&'static str>,
}

/// How far a run is, or what it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Materialized {
    /// Shards of the dataset.
    pub shards: u64,
    /// Shards that were there when the run began.
    pub found: u64,
    /// Shards that this run made.
    pub made: u64,
    /// Shards that others made meanwhile.
    pub made_by_others: u64,
    /// Samples of the epoch.
    pub samples: u64,
    /// Samples that this run saved, and samples of the shard in the making.
    pub saved: u64,
    /// Bytes of the shards that this run made.
    pub bytes: u64,
    /// Bad samples that were left out of what this run saved, or replaced.
    pub bad: u64,
}

/// The settings of a loader whose batches are to be saved: one rank, in plan order, every position, that epoch alone.
pub fn config(config: LoaderConfig, epoch: u64) -> Result<LoaderConfig> {
    if config.size_classes.is_some() && config.consumer.world_size != 1 {
        return Err(Error::invalid_config(
            "materialize: with size_classes the order depends on the number of ranks, and samples are saved for one",
        )
        .with_hint("set world_size to 1, or leave size_classes to the reader"));
    }
    if config.batching.is_some() {
        return Err(Error::invalid_config(
            "materialize: chunks are whole batches of so many samples, these are cut by length",
        )
        .with_hint("leave bucket and batch_bytes to the reader"));
    }
    Ok(LoaderConfig {
        consumer: Consumer { rank: 0, world_size: 1, last_batch: LastBatch::Partial, ..config.consumer },
        order: DeliveryOrder::Plan,
        epochs: Some(epoch.saturating_add(1)),
        ..config
    })
}

/// Looks at what is there and says what is to be done. Writes nothing.
pub fn plan(loader: &Loader, options: &MaterializeOptions) -> Result<MaterializePlan> {
    let config = loader.config();
    let batch_size = config.consumer.batch_size;
    let whole = Consumer { rank: 0, world_size: 1, batch_size, last_batch: LastBatch::Partial };
    if config.consumer != whole || config.order != DeliveryOrder::Plan || config.turn.of != 1 {
        return Err(Error::internal("materialize: the loader reads a part, or in another order"));
    }
    let place = Place::open(&options.out, &options.storage_options)?;
    let there = match place.card()? {
        // Another writer may have begun in between, and the card is the first that it writes.
        None if !place.is_empty()? => Some(place.card()?.ok_or_else(|| {
            Error::invalid_config(format!("materialize to `{}`: it holds other files", options.out))
                .with_hint("name a place that is empty or does not exist")
        })?),
        there => there,
    };
    let chunk_samples = match (options.chunk_samples, &there) {
        (Some(given), _) => given,
        (None, Some(card)) => card.chunk_samples,
        (None, None) => DEFAULT_CHUNK_SAMPLES.max(batch_size).next_multiple_of(batch_size),
    };
    if chunk_samples == 0 || !chunk_samples.is_multiple_of(batch_size) {
        return Err(Error::invalid_config(format!(
            "materialize to `{}`: {chunk_samples} samples of a chunk are not whole batches of {batch_size}",
            options.out
        ))
        .with_hint(format!("take {}", chunk_samples.max(1).next_multiple_of(batch_size))));
    }
    let members = Members::of(loader.recipe())?;
    let card = card(loader, options.epoch, chunk_samples);
    let committed = place.committed()?;
    if let Some(there) = &there {
        there.check_same(&card, &options.out)?;
    }
    let chunks = card.chunks()?;
    let committed = committed.into_iter().filter(|chunk| *chunk < chunks.count()).collect();
    let random_ops = random_ops(loader.recipe());
    let claim_timeout = options.claim_timeout;
    Ok(MaterializePlan { place, members, card, chunks, committed, claim_timeout, random_ops })
}

impl MaterializePlan {
    /// What is to be done: nothing is made yet.
    pub fn outset(&self) -> Materialized {
        Materialized {
            shards: self.chunks.count(),
            found: self.committed.len() as u64,
            samples: self.chunks.positions(),
            ..Materialized::default()
        }
    }

    /// Samples of one shard.
    pub fn chunk_samples(&self) -> u64 {
        self.card.chunk_samples
    }

    /// Samples of the shards that are missing.
    pub fn missing_samples(&self) -> u64 {
        let there: u64 = self
            .committed
            .iter()
            .map(|chunk| self.chunks.span(*chunk))
            .map(|span| span.end - span.start)
            .sum();
        self.chunks.positions() - there
    }

    /// What reads the saved samples back as the loader would hand them over.
    pub fn recipe(&self) -> Recipe {
        self.members.recipe()
    }
}

fn card(loader: &Loader, epoch: u64, chunk_samples: u64) -> Card {
    let (dataset, recipe) = (loader.manifest().version().to_owned(), loader.recipe().fingerprint());
    let config = loader.config();
    let text = serde_json::json!({
        "dataset": dataset,
        "recipe": recipe,
        "order": OrderSpec::of(config),
        "on_error": config.on_error,
    });
    let feed = format!("{:032x}", xxh3_128(text.to_string().as_bytes()));
    Card::of(feed, dataset, recipe, [config.seed, epoch, loader.epoch_samples(), chunk_samples])
}

fn random_ops(recipe: &Recipe) -> Vec<&'static str> {
    let ops = recipe.fields.iter().flat_map(|field| &field.ops);
    let mut names: Vec<&'static str> = ops.filter(|op| op.is_random()).map(Op::name).collect();
    names.dedup();
    names
}
