//! The disk tier of the cache: what is held, for how long, and within which bytes.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

mod crash;
mod keep;
mod made;
mod model;

use forebay_core::ErrorKind;
use forebay_core::cache::PayloadId;
use forebay_engine::cache::disk::{DiskOptions, DiskTier};
use made::*;
use std::path::Path;

const LIMIT: u64 = 1 << 20;
