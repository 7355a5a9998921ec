//! Words and decisions of Forebay.
//!
//! A batch is a pure function of (dataset version, recipe, seed, epoch, position). Everything that function needs
//! to *decide* lives here: which samples exist ([`manifest`]), in which order an epoch visits them ([`plan`]),
//! which part of the plan one rank reads and how it resumes ([`portion`], [`cursor`], [`arrival`]), which reads bring
//! it ([`request`]), how a long list of keys is read ([`listing`]), how much of it may be in flight on a link ([`window`]), what of it is kept near ([`cache`]), what is done to a sample
//! ([`recipe`]), what proves that it was received ([`ledger`]), what several jobs share of it ([`feed`]), which prepared batches wait for whom ([`staging`]), who prepares
//! it for whom ([`dispatcher`]), which of several dispatchers leads ([`election`]), how it is pulled from there ([`pull`]), who saves which part of it
//! ([`materialize`]) and the seeded chance used on the way ([`rng`],
//! [`permutation`]). What a run will be short of, and what to buy, is computed in [`stall`] and [`capacity`];
//! what is shown of all this while it runs, by which names, is in [`metrics`].
//!
//! What never enters: files, sockets, threads, clocks, an unseeded random number. Those live in `store`, `ops`
//! and `engine`, which ask this crate and then act.

pub mod arrival;
pub mod cache;
pub mod capacity;
pub mod cursor;
pub mod dispatcher;
pub mod election;
pub mod error;
pub mod feed;
pub mod ids;
pub mod ledger;
pub mod listing;
pub mod manifest;
pub mod materialize;
pub mod metrics;
pub mod permutation;
pub mod plan;
pub mod portion;
pub mod pull;
pub mod quarantine;
pub mod recipe;
pub mod request;
pub mod rng;
pub mod scale;
pub mod size;
pub mod spec;
pub mod split;
pub mod staging;
pub mod stall;
pub mod tensor;
pub mod tune;
pub mod window;

pub use error::{Error, ErrorKind, Facts, Result};
pub use ids::SampleId;
