//! Dev only: made datasets that several rooms test with, and a far, slow or broken server to read them from.
//!
//! [`tar`] draws archives byte by byte, good ones and broken ones, without any code of the product, so that it is an
//! independent check. [`made`] makes folders and shards of small images; [`image`] makes the pixels. [`server`]
//! is an object server that can be slow and wrong on purpose, [`wan`] the long line in front of it. [`skip`] is for tests that need a
//! real server. Nothing here knows
//! the store or the engine: their own tests use this crate.
#![expect(clippy::missing_panics_doc, reason = "test helpers panic when the test's surroundings are broken")]

pub mod image;
pub mod made;
pub mod program;
pub mod server;
pub mod skip;
pub mod tar;
pub mod wan;
