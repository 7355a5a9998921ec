//! The manifest: which samples a dataset has and where each field of each sample lies.
//!
//! One immutable run of bytes, memory-mapped or in memory, read in place: opening costs a header check and one
//! checksum pass, never a copy per sample. Columns have a fixed width chosen per column, keys are front-coded.
//! The byte layout is drawn in `docs/design/manifest.md`. Building happens in [`ManifestBuilder`]; finding samples
//! in folders and shards is the engine's business (`engine::source`).
