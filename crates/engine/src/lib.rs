//! One process: sources, fetch, prepare, deliver, meter.
//!
//! A [`source`] turns folders and shards into a manifest and a store. A [`Loader`] then runs the data path: the
//! fetcher ([`fetch`](crate)) walks the plan ahead of the consumer and brings payloads within a byte [`budget`],
//! preparing threads write samples into rows of open batches, and the board hands over batches in order. Decisions
//! (order, portion, cursor, which reads) are `forebay-core`'s; sockets live in no module here.

mod analyze;
mod assets;
mod batch;
mod board;
pub mod budget;
pub mod cache;
mod config;
pub mod feed;
mod fetch;
mod inputs;
pub mod ledger;
mod loader;
mod make;
mod maker;
pub mod materialize;
pub mod memory;
mod meter;
mod metrics;
mod pacer;
mod prepare;
pub mod quarantine;
mod ranks;
pub mod reshard;
mod session;
pub mod shard;
mod skipped;
pub mod source;
pub mod stage;
mod stats;
mod supply;
mod sync;
pub mod tokenize;
mod tuning;

pub use analyze::{Measured, measure};
pub use batch::{Batch, Fault, FinishBatch};
pub use cache::CacheSettings;
pub use config::{
    DeliveryOrder, EpochSamples, LoaderConfig, MAX_ARRIVAL_WINDOW, MaxErrors, OnError, ThreadInit,
    available_threads,
};
pub use loader::{Loader, Next};
pub use make::{Made, Make};
pub use maker::{Maker, MakerOptions};
pub use meter::{Meter, Sum};
pub use pacer::Pacer;
pub use ranks::{RankChannel, RanksFolder};
pub use skipped::SkippedBatch;
pub use stats::{PhaseStats, Stats};
pub use supply::{Asked, Supplier, Supply, SupplyView, Taken};
