//! Whole loaders on small datasets, one file for each thing that they promise. Those whose tests look at time, threads or
//! memory of their process are programs of their own.

mod batching;
#[path = "../common/mod.rs"]
mod common;
mod faults;
mod functions;
mod ledger;
mod maker;
mod materialize;
mod mix;
mod mix_schedule;
mod order;
mod parts;
mod ragged;
mod reshard;
mod reshard_records;
mod reshard_runs;
mod resume;
mod supply;
mod tokenize;
mod tokens;
