//! How the memory budget is split between batches in the making and payloads on their way.
//!
//! The bound is exact because everything it counts is known before the first fetch: bytes of the batch's fixed
//! columns, the largest payload of the dataset, and how many batches may be open. Batches already handed to the user
//! are the user's.

use crate::config::LoaderConfig;
use forebay_core::manifest::Manifest;
use forebay_core::plan::Shuffle;
use forebay_core::portion::LastBatch;
use forebay_core::size::format_bytes;
use forebay_core::{Error, Result};
use forebay_ops::{BatchBuilder, Output, OutputKind};

/// Ready batches that are kept ahead when the user does not say: as many as fit in this, at least one.
const AUTO_READY_BYTES: u64 = 128 << 20;

/// Least memory for payloads when the user does not say.
const AUTO_PAYLOAD_BYTES: u64 = 48 << 20;

/// Decoded pixels per encoded byte that are assumed for images whose size is known only after decoding.
const ASSUMED_EXPANSION: u64 = 16;

/// The split of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Batches that may be open: the one being made and those ready to be taken.
    pub open_batches: usize,
    /// Most bytes one batch takes before it is handed over.
    pub batch_bytes: u64,
    /// Bytes for payloads that are being fetched or wait to be prepared.
    pub payload_bytes: u64,
}

impl MemoryPlan {
    /// Splits `config.memory_bytes`, or chooses a size that keeps the threads busy.
    /// `epoch_samples` is the number of positions in an epoch.
    pub fn new(
        config: &LoaderConfig,
        manifest: &Manifest,
        epoch_samples: u64,
        outputs: &[Output],
    ) -> Result<Self> {
        let rows = most_rows(config, epoch_samples);
        let batch_bytes = batch_bound(rows, manifest, outputs);
        let largest = manifest.largest_sample_bytes();
        let ready = config
            .prefetch_batches
            .map_or_else(|| (AUTO_READY_BYTES / batch_bytes.max(1)).clamp(1, 8), |batches| batches as u64);
        let Some(limit) = config.memory_bytes else {
            let payload_bytes = wanted_payload_bytes(config, manifest).max(largest);
            return Ok(Self { open_batches: ready as usize + 1, batch_bytes, payload_bytes });
        };
        let least = batch_bytes.saturating_add(largest);
        if limit < least {
            return Err(Error::exhausted(format!(
                "plan memory: {} was allowed, but one batch of {} samples takes up to {} and the largest sample {}",
                format_bytes(limit),
                config.consumer.batch_size,
                format_bytes(batch_bytes),
                format_bytes(largest),
            ))
            .with_hint(format!("give memory of at least {} or a smaller batch_size", format_bytes(least))));
        }
        // Payloads get at least a quarter: without them batches cannot be made, however many may be open.
        let for_batches = (limit - largest.max(limit / 4).min(limit - batch_bytes)) / batch_bytes.max(1);
        let open_batches = for_batches.clamp(1, ready + 1);
        Ok(Self {
            open_batches: open_batches as usize,
            batch_bytes,
            payload_bytes: limit - open_batches * batch_bytes,
        })
    }

    /// Most bytes held at any moment, when no sample is larger than the payload share.
    pub fn total_bytes(&self) -> u64 {
        self.batch_bytes.saturating_mul(self.open_batches as u64).saturating_add(self.payload_bytes)
    }
}

/// Most rows of a batch: an epoch shorter than a batch makes smaller ones, unless they are filled up.
fn most_rows(config: &LoaderConfig, epoch_samples: u64) -> u64 {
    match config.consumer.last_batch {
        LastBatch::Drop | LastBatch::Partial => config.consumer.batch_size.min(epoch_samples.max(1)),
        LastBatch::Pad | LastBatch::Wrap => config.consumer.batch_size,
    }
}

/// Most bytes one undelivered batch can take.
fn batch_bound(rows: u64, manifest: &Manifest, outputs: &[Output]) -> u64 {
    let fixed = BatchBuilder::bytes(outputs, rows as usize) as u64;
    let per_row: u64 = outputs
        .iter()
        .map(|output| match output.kind {
            OutputKind::Tensor(_) => 0,
            OutputKind::Bytes | OutputKind::Text | OutputKind::Json => manifest.largest_sample_bytes(),
            OutputKind::Tensors => manifest.largest_sample_bytes().saturating_mul(ASSUMED_EXPANSION),
        })
        .max()
        .unwrap_or(0);
    fixed.saturating_add(per_row.saturating_mul(rows))
}

/// Two batches' worth of payloads, or one group of blocks and a half: one being used up, the next on its way.
fn wanted_payload_bytes(config: &LoaderConfig, manifest: &Manifest) -> u64 {
    let mean = manifest.total_bytes() / manifest.len().max(1);
    let batches = mean.saturating_mul(config.consumer.batch_size).saturating_mul(2);
    let groups = match config.shuffle {
        Shuffle::Block(block) if config.reads_blocks() => {
            let group = block.block_bytes.saturating_mul(block.group_blocks);
            group.saturating_mul(config.open_groups()).saturating_mul(3) / 2
        }
        _ => 0,
    };
    batches.max(groups).max(AUTO_PAYLOAD_BYTES).min(manifest.total_bytes().saturating_mul(2).max(1 << 20))
}

/// Memory that could be taken without pushing anything out, as the kernel estimates it.
pub(crate) fn available_memory_bytes() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}
