//! The commands as processes, one file each. Those whose tests look at rates or need servers are programs of their own.

mod bench;
mod cache;
mod cache_host;
mod capacity;
mod config;
mod convert;
mod demo;
mod dispatcher;
mod general;
#[path = "../harness/mod.rs"]
mod harness;
mod info;
mod ledger;
mod materialize;
mod order;
mod pack;
mod show;
mod split;
mod stage;
mod tokenize;
mod verify;
mod worker;
