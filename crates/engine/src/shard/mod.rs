//! Shards: many samples in one stored object. Tar is read by offset here and never extracted; how other formats are read is
//! in [`crate::source`].
//!
//! [`header`] understands one 512-byte header, [`tar`] walks from header to header over any store, [`group`] joins
//! neighbouring members into samples by WebDataset's rules, [`writer`] makes shards that are the same bytes on every
//! run ([`encode`] draws their headers). What a dataset of shards is, and when its manifest is stale, lives in
//! [`crate::source`].

pub mod encode;
mod form;
pub mod group;
pub mod header;
mod pattern;
pub mod tar;
mod window;
pub mod writer;

pub use form::{Cell, KEY_FEATURE};
pub use group::{GroupedField, GroupedSample, Grouper};
pub use tar::{Limits, Member, WalkEnd, Walker, walk, walk_object};
pub(crate) use window::HeadWindow;
pub use window::HeaderReads;
pub use writer::{ShardInfo, ShardWriter, ShardWriterOptions};
