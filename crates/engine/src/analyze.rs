//! Measuring what a pipeline can do: the fetch rate with nothing resident, the prep rate with everything resident.
//!
//! Both are rates of whole loaders, so that what is measured is what a job would get. Fetching: the same order, window and
//! payloads, handed on as they are, read past the page cache where the store can. Preparing: the same recipe and threads on
//! a part of the samples that was put into memory before. What follows from the rates
//! is [`forebay_core::stall::analyze`]'s to say.

use crate::cache::{CacheAt, CacheSettings, Keeper, LocalKeeper, Owners};
use crate::config::LoaderConfig;
use crate::inputs::{Inputs, stored_names};
use crate::loader::{Loader, Next};
use crate::source::Dataset;
use forebay_core::cache::Capacity;
use forebay_core::manifest::{Manifest, ManifestBuilder, Value};
use forebay_core::plan::Shuffle;
use forebay_core::portion::{Consumer, LastBatch};
use forebay_core::recipe::Recipe;
use forebay_core::stall::{Rate, RunFacts};
use forebay_core::{Error, Result, SampleId};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most samples that are kept in memory for measuring preparation.
const KEPT_SAMPLES: u64 = 4096;
/// Most bytes of them.
const KEPT_BYTES: u64 = 512 << 20;
/// Share of the time in which queues and windows fill, and nothing counts.
const WARM_UP: f64 = 0.3;
/// Fewer batches than these say nothing about a rate.
const LEAST_BATCHES: usize = 12;
/// However slow it is, no phase takes more than so many times what was asked for...
const LONGEST: f64 = 6.0;
/// ...but two batches are waited for this long, in seconds, even by one who asked for less.
const PATIENCE: f64 = 10.0;
/// How long a wait lasts before the caller is asked whether to go on.
const SLICE: Duration = Duration::from_millis(50);

/// What was measured of a pipeline.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Samples a second that are prepared when every payload is resident.
    pub prep: Rate,
    /// Samples a second that are fetched when nothing is; `None` when the recipe reads no payload.
    pub fetch: Option<Rate>,
    /// Whether files were read past the page cache, or come from elsewhere: otherwise they may be faster than they are cold.
    pub cold: bool,
    /// What else is known.
    pub facts: RunFacts,
}

/// Measures both rates, each for about `seconds`. `go_on` is asked every moment and may end it.
pub fn measure(
    dataset: &Dataset,
    recipe: &Recipe,
    config: &LoaderConfig,
    seconds: f64,
    go_on: &mut dyn FnMut() -> Result<()>,
) -> Result<Measured> {
    let manifest = dataset.manifest();
    let config = LoaderConfig { epochs: None, metering: true, more_threads: false, ..config.clone() };
    let inputs = Inputs::new(manifest, recipe)?;
    let portion = config.portion(&config.sampler(manifest)?, &forebay_core::cursor::Cursor::start_of(0))?;
    let samples = portion.local().len().max(1);
    let mut facts = RunFacts {
        samples,
        // Where batches are cut by length their mean is what a step takes.
        batch_size: match config.batching {
            Some(_) => samples.div_ceil(portion.steps().max(1)),
            None => config.consumer.batch_size,
        },
        threads: config.threads as u64,
        ..RunFacts::default()
    };
    let remote = dataset.store().is_remote();
    let cold_store = dataset.store().cold();
    let cold = remote || cold_store.is_some();
    let mut fetch = None;
    if let Some(payloads) = payload_recipe(manifest, recipe)? {
        let store = cold_store.unwrap_or_else(|| Arc::clone(dataset.store()));
        let mut loader = Loader::new(manifest, store, &payloads, config.clone())?;
        let rate =
            rate_of(&mut loader, seconds, go_on).map_err(|error| error.while_doing("measure fetching"))?;
        let stats = loader.stats();
        facts.request_bytes = stats.payload_bytes as f64 / stats.requests.max(1) as f64;
        if remote {
            facts.window_requests = stats.window_requests as f64;
            facts.round_trip_seconds = stats.link_delay_seconds;
        }
        loader.close();
        fetch = Some(rate);
    }
    let consumer = Consumer { batch_size: facts.batch_size, ..config.consumer };
    let config = LoaderConfig { consumer, batching: None, ..config };
    let count = kept_samples(&inputs, &config, manifest.len(), fetch, seconds);
    let bytes: u64 = (0..count).map(|sample| inputs.payload_bytes(SampleId(sample))).sum();
    facts.sample_bytes = bytes as f64 / count as f64;
    let prep = prep_rate(dataset, recipe, &config, count, seconds, go_on)
        .map_err(|error| error.while_doing("measure preparing"))?;
    Ok(Measured { prep, fetch, cold, facts })
}

/// The fields that a recipe reads, as they are; `None` when no payload is among them.
fn payload_recipe(manifest: &Manifest, recipe: &Recipe) -> Result<Option<Recipe>> {
    let columns = stored_names(manifest, recipe)?;
    if columns.iter().all(|(_, is_payload)| !is_payload) {
        return Ok(None);
    }
    // Numbers are read along, so that the cache sees the same fields.
    let columns = columns.iter().enumerate().map(|(number, (field, is_payload))| {
        let kind = if *is_payload { "bytes" } else { "label" };
        serde_json::json!({"field": field, "name": number.to_string(), "decode": {"kind": kind}})
    });
    Recipe::from_value(columns.collect::<Vec<_>>().into()).map(Some)
}

/// How many samples are kept: what is fetched in about the time that is measured, at least three batches, within memory.
fn kept_samples(
    inputs: &Inputs,
    config: &LoaderConfig,
    samples: u64,
    fetch: Option<Rate>,
    seconds: f64,
) -> u64 {
    let batch = config.consumer.batch_size;
    let wanted = fetch.map_or(KEPT_SAMPLES as f64, |fetch| fetch.per_second * seconds) as u64;
    let wanted = wanted.clamp(3 * batch, KEPT_SAMPLES.max(3 * batch)).min(samples);
    let mut bytes = 0;
    let fits = (0..wanted).take_while(|sample| {
        bytes += inputs.payload_bytes(SampleId(*sample));
        bytes <= KEPT_BYTES
    });
    (fits.count() as u64).max(batch.min(samples)).max(1)
}

/// Samples a second of the whole recipe, over the first `count` samples, which are in memory before it begins.
fn prep_rate(
    dataset: &Dataset,
    recipe: &Recipe,
    config: &LoaderConfig,
    count: u64,
    seconds: f64,
    go_on: &mut dyn FnMut() -> Result<()>,
) -> Result<Rate> {
    let keeper = Arc::new(LocalKeeper::new(u64::MAX / 4, None));
    let kept = Arc::clone(&keeper);
    let settings = CacheSettings {
        capacity: Capacity { memory: u64::MAX / 4, disk: 0 },
        seed: 0,
        owners: Owners::alone(),
        at: CacheAt::Bytes,
        open: Arc::new(move || Ok(Arc::clone(&kept) as Arc<dyn Keeper>)),
    };
    // Alone, and whole batches only, so that every epoch is alike.
    let batch_size = config.consumer.batch_size.min(count);
    let consumer = Consumer { rank: 0, world_size: 1, batch_size, last_batch: LastBatch::Drop };
    let config = LoaderConfig {
        consumer,
        shuffle: Shuffle::Sequential,
        mix: None,
        sharding: None,
        size_classes: None,
        epoch_samples: None,
        slow_start: None,
        ..config.clone()
    };
    let part = first_samples(dataset.manifest(), count)?;
    let loader = |recipe: &Recipe, config| {
        let loader = Loader::new(&part, Arc::clone(dataset.store()), recipe, config)?;
        Ok::<_, Error>(loader.with_cache(settings.clone()))
    };
    // Without the recipe's work: filling memory takes as long as fetching does, however slow the recipe is.
    let mut filling = match payload_recipe(&part, recipe)? {
        Some(payloads) => Some(loader(&payloads, LoaderConfig { epochs: Some(1), ..config.clone() })?),
        None => None,
    };
    if let Some(filling) = &mut filling {
        filling.begin()?;
        while !matches!(filling.next(SLICE)?, Next::End) {
            go_on()?;
        }
        // The last samples are handed over before they are kept.
        while keeper.view().coming > 0 {
            go_on()?;
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let mut loader = loader(recipe, config)?;
    let rate = rate_of(&mut loader, seconds, go_on);
    loader.close();
    drop(filling);
    rate
}

/// Samples a second that a loop gets which does nothing with them.
fn rate_of(loader: &mut Loader, seconds: f64, go_on: &mut dyn FnMut() -> Result<()>) -> Result<Rate> {
    let mut taken: Vec<(f64, u64)> = Vec::new();
    let began = Instant::now();
    loader.begin()?;
    loop {
        go_on()?;
        let elapsed = began.elapsed().as_secs_f64();
        if (elapsed >= seconds && taken.len() >= LEAST_BATCHES) || elapsed >= LONGEST * seconds {
            let last = taken.last().map_or(0.0, |(at, _)| *at);
            if let Some(rate) = Rate::of_batches(&taken, WARM_UP * last) {
                return Ok(rate);
            }
            if elapsed >= PATIENCE.max(LONGEST * seconds) {
                let error = Error::unavailable(format!("fewer than two batches came in {elapsed:.1} s"));
                return Err(error.with_hint("measure for longer, or with smaller batches"));
            }
        }
        match loader.next(SLICE)? {
            Next::Batch(batch) => taken.push((began.elapsed().as_secs_f64(), batch.len() as u64)),
            Next::Waiting => {}
            Next::End => loader.begin()?,
        }
    }
}

/// A dataset of the first samples alone, at their places.
fn first_samples(manifest: &Manifest, count: u64) -> Result<Manifest> {
    let mut builder = ManifestBuilder::new(manifest.fields().to_vec(), manifest.meta().clone());
    let mut objects = std::collections::HashMap::new();
    for sample in (0..count).map(SampleId) {
        let mut values = Vec::new();
        for field in 0..manifest.fields().len() {
            if let Some(location) = manifest.location(sample, field) {
                let object = if let Some(object) = objects.get(&location.object) {
                    *object
                } else {
                    let info = manifest.object(location.object);
                    let added = builder.add_object(&info.key, info.size, info.stamp)?;
                    *objects.entry(location.object).or_insert(added)
                };
                let (offset, length) = (location.offset, location.length);
                values.push((field, Value::Payload { object: Some(object), offset, length }));
            } else if let Some(number) = manifest.int(sample, field) {
                values.push((field, Value::Int(number)));
            }
        }
        builder.add_sample(&manifest.key(sample), &values)?;
    }
    Manifest::open(builder.finish()?)
}
