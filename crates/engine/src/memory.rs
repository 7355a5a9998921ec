//! How the memory budget is split between batches in the making and payloads on their way.
//!
//! The bound is exact because everything it counts is known before the first fetch: bytes of the batch's fixed
//! columns, the largest payload of the dataset, and how many batches may be open. Batches already handed to the user
//! are the user's.

use crate::config::LoaderConfig;
use forebay_core::manifest::Manifest;
use forebay_core::plan::Shuffle;
use forebay_core::plan::batching::Batching;
use forebay_core::plan::rounds::Lengths;
use forebay_core::portion::LastBatch;
use forebay_core::size::format_bytes;
use forebay_core::{Error, Result, SampleId};
use forebay_ops::{BatchBuilder, Output, OutputKind};

/// Ready batches that are kept ahead when the user does not say: as many as fit in this, at least one.
const AUTO_READY_BYTES: u64 = 128 << 20;

/// The same when the loop was seen to wait for batches that come in bursts.
const MOST_READY_BYTES: u64 = 512 << 20;

/// Most ready batches that are kept ahead when the user does not say how many.
const MOST_READY: u64 = 32;

/// Least memory for payloads when the user does not say.
const AUTO_PAYLOAD_BYTES: u64 = 48 << 20;

/// Decoded pixels per encoded byte that are assumed for images whose size is known only after decoding.
const ASSUMED_EXPANSION: u64 = 16;

/// The split of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Batches that may be open: the one being made and those ready to be taken.
    pub open_batches: usize,
    /// To how many that may be raised while the loader runs; the same when the user set it.
    pub most_open_batches: usize,
    /// Most bytes one batch takes before it is handed over.
    pub batch_bytes: u64,
    /// Bytes for payloads that are being fetched or wait to be prepared.
    pub payload_bytes: u64,
    /// Whether both share a limit that the user set: then one more batch is that much less for payloads.
    is_shared: bool,
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
        let rows = most_rows(config, manifest, epoch_samples);
        let batch_bytes = batch_bound(rows, config, manifest, outputs);
        let largest = manifest.largest_sample_bytes();
        let ready = config
            .prefetch_batches
            .map_or_else(|| (AUTO_READY_BYTES / batch_bytes.max(1)).clamp(1, 8), |batches| batches as u64);
        let Some(limit) = config.memory_bytes else {
            let payload_bytes = wanted_payload_bytes(config, manifest, rows).max(largest);
            let most = match config.prefetch_batches {
                Some(_) => ready,
                None => (MOST_READY_BYTES / batch_bytes.max(1)).clamp(ready, MOST_READY),
            };
            return Ok(Self {
                open_batches: ready as usize + 1,
                most_open_batches: most as usize + 1,
                batch_bytes,
                payload_bytes,
                is_shared: false,
            });
        };
        let least = batch_bytes.saturating_add(largest);
        if limit < least {
            return Err(Error::exhausted(format!(
                "plan memory: {} was allowed, but one batch of {} samples takes up to {} and the largest sample {}",
                format_bytes(limit),
                rows,
                format_bytes(batch_bytes),
                format_bytes(largest),
            ))
            .with_hint(format!("give memory of at least {} or a smaller batch_size", format_bytes(least))));
        }
        // Payloads get at least a quarter: without them batches cannot be made, however many may be open.
        let for_batches = (limit - largest.max(limit / 4).min(limit - batch_bytes)) / batch_bytes.max(1);
        let open_batches = for_batches.clamp(1, ready + 1);
        let payload_bytes = limit - open_batches * batch_bytes;
        // No less than half of what there is now: fetching gathers what it may hold at once by that.
        let least = largest.max(limit / 4).max(payload_bytes.div_ceil(2));
        let most = match config.prefetch_batches {
            Some(_) => open_batches,
            None => (limit.saturating_sub(least) / batch_bytes.max(1)).clamp(open_batches, MOST_READY + 1),
        };
        Ok(Self {
            open_batches: open_batches as usize,
            most_open_batches: most.max(open_batches) as usize,
            batch_bytes,
            payload_bytes,
            is_shared: true,
        })
    }

    /// The split with so many open batches, at most as many as there may be.
    #[must_use]
    pub fn with_open_batches(&self, open_batches: usize) -> Self {
        let open_batches = open_batches.clamp(self.open_batches, self.most_open_batches);
        let more = (open_batches - self.open_batches) as u64;
        let taken = if self.is_shared { more.saturating_mul(self.batch_bytes) } else { 0 };
        Self { open_batches, payload_bytes: self.payload_bytes.saturating_sub(taken), ..*self }
    }

    /// Whether the bytes that payloads hold now leave room for all open batches. When that is not so yet, it will be:
    /// the budget for payloads has been lowered before.
    pub(crate) fn leaves_room(&self, payloads_held: u64) -> bool {
        !self.is_shared || payloads_held <= self.payload_bytes
    }

    /// Most bytes held at any moment, when no sample is larger than the payload share.
    pub fn total_bytes(&self) -> u64 {
        self.batch_bytes.saturating_mul(self.open_batches as u64).saturating_add(self.payload_bytes)
    }
}

/// Most rows of a batch: an epoch shorter than a batch makes smaller ones, unless they are filled up.
fn most_rows(config: &LoaderConfig, manifest: &Manifest, epoch_samples: u64) -> u64 {
    if let Some(Batching { batch_bytes: Some(limit), length_field, .. }) = &config.batching
        && let Ok(lengths) = Lengths::counted(manifest, length_field.as_deref())
    {
        let least = (0..manifest.len()).map(|sample| lengths.of(SampleId(sample))).min();
        let fitting = limit.checked_div(least.unwrap_or(0)).unwrap_or(u64::MAX).max(1);
        return fitting.min(config.consumer.batch_size).min(epoch_samples.max(1));
    }
    match config.consumer.last_batch {
        LastBatch::Drop | LastBatch::Partial => config.consumer.batch_size.min(epoch_samples.max(1)),
        LastBatch::Pad | LastBatch::Wrap => config.consumer.batch_size,
    }
}

/// Rows of most batches: as many as were asked for, or as many of mean length as bytes allow.
pub(crate) fn usual_rows(config: &LoaderConfig, manifest: &Manifest) -> u64 {
    let batch_size = config.consumer.batch_size;
    if let Some(packing) = config.batching.as_ref().and_then(|batching| batching.pack.as_ref()) {
        let tokens = (manifest.total_bytes() / manifest.len().max(1) / packing.token_bytes).max(1);
        return (packing.rows * packing.length / tokens).clamp(1, batch_size);
    }
    let Some(Batching { batch_bytes: Some(limit), length_field, .. }) = &config.batching else {
        return batch_size;
    };
    let Ok(lengths) = Lengths::counted(manifest, length_field.as_deref()) else { return batch_size };
    let total: u128 = (0..manifest.len()).map(|sample| u128::from(lengths.of(SampleId(sample)))).sum();
    let mean = (total / u128::from(manifest.len().max(1))).max(1) as u64;
    (limit / mean).clamp(1, batch_size)
}

/// Most bytes one undelivered batch can take.
fn batch_bound(rows: u64, config: &LoaderConfig, manifest: &Manifest, outputs: &[Output]) -> u64 {
    let fixed = BatchBuilder::bytes(outputs, rows as usize) as u64;
    let expansion: u64 = outputs
        .iter()
        .map(|output| match output.kind {
            OutputKind::Tensor(_) => 0,
            OutputKind::Bytes | OutputKind::Text | OutputKind::Json => 1,
            OutputKind::Tensors
            | OutputKind::Padded(_)
            | OutputKind::Ragged(_)
            | OutputKind::Tokens(_)
            | OutputKind::Any => ASSUMED_EXPANSION,
        })
        .max()
        .unwrap_or(0);
    let largest = manifest.largest_sample_bytes();
    let payloads = match &config.batching {
        // Documents of a batch are no larger than its rows, but for one that is larger alone.
        Some(Batching { pack: Some(packing), .. }) => {
            let room = packing.rows.saturating_mul(packing.length).saturating_mul(packing.token_bytes);
            largest.saturating_mul(rows).min(largest.max(room))
        }
        // A sample that is larger than a batch may be is one.
        Some(Batching { batch_bytes: Some(limit), length_field: None, .. }) => {
            largest.saturating_mul(rows).min(largest.max(*limit))
        }
        _ => largest.saturating_mul(rows),
    };
    fixed.saturating_add(payloads.saturating_mul(expansion))
}

/// Two batches' worth of payloads, or one group of blocks and a half: one being used up, the next on its way.
fn wanted_payload_bytes(config: &LoaderConfig, manifest: &Manifest, rows: u64) -> u64 {
    let mean = manifest.total_bytes() / manifest.len().max(1);
    let batch = mean.saturating_mul(rows);
    let batch = match &config.batching {
        Some(Batching { batch_bytes: Some(limit), length_field: None, .. }) => batch.min(*limit),
        _ => batch,
    };
    let batches = batch.saturating_mul(2);
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
