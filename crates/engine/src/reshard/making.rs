//! New shards in the making: samples go straight to their shard when it is their turn, and wait in a bucket otherwise.
//!
//! One shard is in hand: its samples are written as they come, for as long as they come in order. In stored order that is
//! every sample of every shard, so that nothing waits. Blocking: call it from a thread that may wait.

use super::held::Held;
use super::layout::Layout;
use super::spill::Buckets;
use crate::shard::{ShardInfo, ShardWriter, ShardWriterOptions};
use forebay_core::{Error, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// All shards that are not whole yet.
#[derive(Debug)]
pub(super) struct Making {
    options: ShardWriterOptions,
    layout: Arc<Layout>,
    /// For every shard how many of its samples have not come.
    missing: Vec<u64>,
    hand: Option<Hand>,
    buckets: Buckets,
}

/// The shard that samples are written to as they come.
#[derive(Debug)]
struct Hand {
    shard: u64,
    /// The position that comes next in it.
    next: u64,
    writer: ShardWriter,
}

/// A shard of which every sample has come.
#[derive(Debug)]
pub(super) struct Complete {
    shard: u64,
    /// Where its first samples are already.
    writer: Option<ShardWriter>,
}

impl Making {
    /// Nothing yet. At most `limit` bytes wait in memory, the rest in a temporary file in `folder`.
    pub(super) fn new(
        options: &ShardWriterOptions,
        layout: Arc<Layout>,
        folder: PathBuf,
        limit: u64,
    ) -> Self {
        // Where shards end is settled.
        let options = ShardWriterOptions { max_samples: u64::MAX, max_bytes: u64::MAX, ..options.clone() };
        let missing = (0..layout.shards()).map(|shard| layout.samples(shard)).collect();
        Self { options, layout, missing, hand: None, buckets: Buckets::new(folder, limit) }
    }

    /// Puts samples where they belong, and says which shards they complete.
    pub(super) fn put(mut self, samples: Vec<Held>) -> Result<(Self, Vec<Complete>)> {
        let mut complete = Vec::new();
        for held in samples {
            let shard = self.layout.shard_of(held.position);
            if self.hand.is_none() && held.position == self.layout.first(shard) {
                self.hand = Some(Hand { shard, next: held.position, writer: self.writer(shard)? });
            }
            match &mut self.hand {
                Some(hand) if (hand.shard, hand.next) == (shard, held.position) => {
                    held.write(&mut hand.writer)?;
                    hand.next += 1;
                }
                _ => self.buckets.put(shard, self.layout.samples(shard), &held)?,
            }
            let missing = &mut self.missing[shard as usize];
            *missing -= 1;
            if *missing == 0 {
                let hand = self.hand.take_if(|hand| hand.shard == shard);
                complete.push(Complete { shard, writer: hand.map(|hand| hand.writer) });
            }
        }
        Ok((self, complete))
    }

    /// Writes what waits for a shard, and gives the shard its name.
    pub(super) fn finish(mut self, complete: Complete) -> Result<(Self, u64, ShardInfo)> {
        let Complete { shard, writer } = complete;
        let mut writer = writer.map_or_else(|| self.writer(shard), Ok)?;
        self.buckets.take(shard, |held| held.write(&mut writer))?;
        let written = writer.finish()?.pop();
        let written = written.ok_or_else(|| Error::internal("a shard without samples was planned"))?;
        Ok((self, shard, written))
    }

    /// The most bytes that waited, or were read back, since this was asked the last time.
    pub(super) fn take_peak(&mut self) -> u64 {
        self.buckets.take_peak()
    }

    pub(super) fn spilled_bytes(&self) -> u64 {
        self.buckets.spilled_bytes()
    }

    fn writer(&self, shard: u64) -> Result<ShardWriter> {
        ShardWriter::new(ShardWriterOptions { first: self.options.first + shard, ..self.options.clone() })
    }
}
