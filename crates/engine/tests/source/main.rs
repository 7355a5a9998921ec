//! Sources and writers of shards, one file each.

#[path = "../common/mod.rs"]
mod common;
mod csv;
mod described;
mod folder;
mod hostile;
mod listing;
mod parquet;
mod records;
mod tar;
mod verify;
mod writer;
