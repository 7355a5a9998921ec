//! Stores and adapters, one file each. Those against real servers are programs of their own.

mod away;
mod checksums;
mod conformance;
mod listing;
mod local;
mod ranges;
