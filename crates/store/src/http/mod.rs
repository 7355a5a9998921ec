//! Bytes over HTTP: our own client, and the store that reads with it.
//!
//! [`HttpClient`] sends a request and gives back the answer, [`HttpStore`] turns that into reads of ranges that
//! survive a cut connection. Other stores that speak HTTP (AIStore, S3) use the same client through
//! [`ProcessClient`], the same words for options ([`HttpOptions`], [`TlsOptions`]) and the same reading of statuses
//! ([`status`]).

mod body;
pub(crate) mod checksum;
pub(crate) mod client;
mod connection;
pub(crate) mod exchange;
pub(crate) mod fetch;
pub mod head;
mod message;
pub mod options;
pub(crate) mod parts;
mod place;
mod process;
pub mod status;
pub(crate) mod store;
pub(crate) mod tag;
pub(crate) mod text;
pub mod tls;
pub mod uri;

pub(crate) use body::chunked;
pub use checksum::Checksums;
pub use client::HttpClient;
#[cfg(feature = "s3")]
pub(crate) use client::Received;
#[cfg(feature = "s3")]
pub(crate) use exchange::Limits;
pub use head::Headers;
pub use message::{HttpAnswer, HttpRequest, Method};
pub use options::HttpOptions;
pub use process::ProcessClient;
pub use store::HttpStore;
pub use tls::TlsOptions;
