//! Tar shards: many samples in one stored object, read by offset and never extracted.
//!
//! [`header`] understands one 512-byte header, [`tar`] walks from header to header over any store, [`group`] joins
//! neighbouring members into samples by WebDataset's rules, [`writer`] makes shards that are the same bytes on every
//! run ([`encode`] draws their headers). What a dataset of shards is, and when its manifest is stale, lives in
//! [`crate::source`].

pub mod encode;
pub mod group;
pub mod header;
pub mod tar;
pub mod writer;

pub use group::{GroupedField, GroupedSample, Grouper};
pub use tar::{HeaderReads, Limits, Member, WalkEnd, Walker, walk, walk_object};
pub use writer::{ShardInfo, ShardWriter, ShardWriterOptions};
