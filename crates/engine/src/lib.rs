//! One process: sources, fetch, prepare, deliver, meter.

pub mod shard;
