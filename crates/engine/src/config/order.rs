//! Orders that follow more than a shuffle: sharding policies, size classes and batches cut by length, their checks and
//! what they cost.

use super::{DeliveryOrder, LoaderConfig};
use forebay_core::Result;
use forebay_core::cursor::Cursor;
use forebay_core::manifest::Manifest;
use forebay_core::plan::batching::Batching;
use forebay_core::plan::parts::{Sharding, ShardingPolicy};
use forebay_core::plan::{Sampler, Shuffle};
use forebay_core::portion::Portion;

impl LoaderConfig {
    /// The rule for parts or size classes; `None` when neither is asked for.
    pub(super) fn special_sampler(&self, manifest: &Manifest) -> Option<Result<Sampler>> {
        if let Some(classes) = &self.size_classes {
            let round_positions = self.consumer.world_size.saturating_mul(self.consumer.batch_size);
            return Some(Sampler::rounds(manifest, classes, round_positions, self.seed));
        }
        let sharding = self.parts()?;
        Some(Sampler::sharded(manifest, sharding, self.consumer.batch_size, self.shuffle, self.seed))
    }

    /// What is read here of an epoch from `cursor` on.
    pub(crate) fn portion(&self, sampler: &Sampler, cursor: &Cursor) -> Result<Portion> {
        Ok(sampler.portion(self.consumer, cursor)?.in_turn(self.turn))
    }

    /// Whether payloads of whole groups of blocks are read ahead.
    pub(crate) fn reads_blocks(&self) -> bool {
        matches!(self.shuffle, Shuffle::Block(_)) && self.mix.is_none() && self.size_classes.is_none()
    }

    /// Groups of blocks that a rank is in the middle of: one, or one of each part that it meets.
    pub(crate) fn open_groups(&self) -> u64 {
        let Some(sharding) = self.parts() else { return 1 };
        let (mut parts, mut ranks) = (u64::from(sharding.parts), self.consumer.world_size);
        while ranks > 0 {
            (parts, ranks) = (ranks, parts % ranks);
        }
        u64::from(sharding.parts) / parts.max(1)
    }

    /// What is wrong with parts and size classes beside the other settings.
    pub(super) fn special_faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let checks = [
            self.sharding.as_ref().map(Sharding::check),
            self.size_classes.as_ref().map(forebay_core::plan::rounds::SizeClasses::check),
            self.batching.as_ref().map(Batching::check),
        ];
        faults.extend(checks.into_iter().flatten().filter_map(Result::err).map(|e| e.message().to_owned()));
        if self.turn.of > 1 && self.order != DeliveryOrder::Plan {
            faults.push("turn is set: batches made in turn are in plan order; set in_order".to_owned());
        }
        let resampled = matches!(self.shuffle, Shuffle::Resample { .. });
        if let Some(sharding) = self.parts() {
            let policy = &sharding.policy;
            if self.size_classes.is_some() {
                faults.push(format!("sharding is `{policy}` and size_classes are set: give one of them"));
            }
            if self.mix.is_some() {
                faults.push(format!("sharding is `{policy}`: a mix has no parts; leave sharding out"));
            }
            if resampled {
                faults.push(format!(
                    "sharding is `{policy}`: shuffle `resample` draws from the whole dataset; set shuffle to `full`"
                ));
            }
        }
        if let Some(batching) = &self.batching {
            let name = match batching {
                Batching { pack: Some(_), .. } => "pack",
                Batching { bucket: Some(_), .. } => "bucket",
                _ => "batch_bytes",
            };
            if self.size_classes.is_some() {
                faults.push(format!("{name} is set, and size_classes too: give one of them"));
            }
            if let Some(sharding) = self.parts() {
                let policy = &sharding.policy;
                faults.push(format!(
                    "{name} is set, but sharding `{policy}` reads parts by whole batches: leave one out"
                ));
            }
            // Samples that move between batches would be counted in another.
            if matches!(self.order, DeliveryOrder::Arrival { window } if window > 0) {
                faults.push(format!("{name} is set: order by arrival would mix batches; use plan order"));
            }
        }
        if self.size_classes.is_some() {
            if self.mix.is_some() {
                faults.push("size_classes are set: a mix has none; leave them out".to_owned());
            }
            if resampled || self.shuffle == Shuffle::Sequential {
                faults.push("size_classes are set: they permute samples; set shuffle to `full`".to_owned());
            }
            // Samples that move between batches would move between classes.
            if matches!(self.order, DeliveryOrder::Arrival { window } if window > 0) {
                faults
                    .push("size_classes are set: order by arrival would mix them; use plan order".to_owned());
            }
        }
        faults
    }

    /// Sharding, when there are parts.
    fn parts(&self) -> Option<&Sharding> {
        self.sharding.as_ref().filter(|sharding| sharding.policy != ShardingPolicy::Dynamic)
    }
}
