//! Dev only: made datasets that several rooms test with.
//!
//! [`tar`] draws archives byte by byte, good ones and broken ones, without any code of the product, so that it is an
//! independent check. [`made`] makes folders and shards of small images; [`image`] makes the pixels. Nothing here
//! knows the engine: the engine's own tests use this crate.
#![expect(clippy::missing_panics_doc, reason = "test helpers panic when the test's surroundings are broken")]

pub mod image;
pub mod made;
pub mod tar;
