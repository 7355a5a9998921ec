//! A dataset on a store: where samples are found, how their manifest is built, kept and found to be stale.
//!
//! [`open`] turns a spec (`data/train`, `shards/train-{000..146}.tar`, `a.fbm`) into a [`Dataset`]. The kinds have a
//! file each: [`shards`](self) of tar members, [`records`](self) of other formats, rows of [`csv`](self) files with what they name, a [`tree`](self) of class folders, a [`table`](self) of files with
//! labels, [`rows`](open_rows) of a table, [`synthetic`] bytes, a [`mix()`] of several, a [`join()`] of several by key. Finding what a spec means is `locate`, the cache of manifests is `kept`, checking
//! every byte is [`verify`]. Fetching for a plan is not here: the engine reads locations from the manifest.

mod csv;
mod dataset;
mod decodable;
#[cfg(feature = "cassandra")]
pub mod ingest;
mod inventory;
mod join;
mod kept;
mod labels;
mod locate;
mod manifest_file;
mod materialized;
mod mix;
mod open;
mod opening;
mod options;
mod origin;
mod parquet;
mod reading;
mod records;
#[cfg(feature = "cassandra")]
mod rows;
pub(crate) mod select;
mod shards;
pub mod synthetic;
mod table;
mod tree;
pub mod verify;
mod whole;

pub use dataset::{Dataset, FieldValue};
pub use decodable::decodable;
pub use join::{JoinOptions, MissingPartner, join};
pub use mix::mix;
pub use open::{open, open_with_store};
pub use options::{Environment, OpenOptions, Progress, ProgressFn, SourceKind};
pub use origin::DataSpec;
pub(crate) use reading::local as local_store;
pub use records::{TokenDocuments, TokenOptions, TokenTail};
#[cfg(feature = "cassandra")]
pub use rows::open_rows;
pub use synthetic::{SyntheticPayload, SyntheticSpec, synthetic};

/// Runs `work`, which blocks, on a thread of its own, so that the caller's executor goes on.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> forebay_core::Result<T> {
    let (sender, receiver) = futures::channel::oneshot::channel();
    std::thread::Builder::new()
        .name("forebay-source".into())
        .spawn(move || {
            // The receiver is gone when the caller lost interest; then nobody misses the answer.
            let _ = sender.send(work());
        })
        .map_err(|error| forebay_core::Error::io("start a thread", error))?;
    receiver
        .await
        .map_err(|_| forebay_core::Error::internal("work on a source's thread ended without an answer"))
}
