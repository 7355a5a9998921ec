//! The loader: what a training loop iterates over. Epoch after epoch, resumable at any step.
//!
//! Nothing runs before the first batch is asked for. The cursor moves when a batch is handed over, so a checkpoint
//! describes what the loop received; what was prefetched beyond that is made again. Running on into the next epoch
//! costs no restart: the session prefetches across the boundary.

mod reschedule;

use crate::batch::{Batch, Fault};
use crate::cache::{Cache, CacheSettings};
use crate::config::{DeliveryOrder, LoaderConfig};
use crate::feed::FeedSpec;
use crate::ledger::LedgerWriter;
use crate::memory::MemoryPlan;
use crate::meter::Meter;
use crate::quarantine::QuarantineWriter;
use crate::ranks::Ranks;
use crate::session::{Definition, Session, Walk};
use crate::skipped::{SkippedBatch, SkippedBatches};
use crate::stats::Stats;
use crate::supply::{Asked, Supplier, Supply, SupplyView};
use crate::tuning::Tuning;
use forebay_core::cache::Capacity;
use forebay_core::cursor::{Cursor, Remaining};
use forebay_core::manifest::Manifest;
use forebay_core::metrics::Exposition;
use forebay_core::plan::rounds::PaddingWaste;
use forebay_core::portion::{Place, Portion};
use forebay_core::recipe::Recipe;
use forebay_core::stall::{Making, ResidentRun, StallSplit, Took};
use forebay_core::{Error, Result};
use forebay_store::Store;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;

/// Bad samples kept for the report; later ones are only counted.
const MAX_REPORTED_FAULTS: usize = 10_000;

/// Samples that are looked at to say what padding wastes: a fraction of a second, whatever the dataset.
const WASTE_SAMPLES: u64 = 1 << 17;

/// Iterates over a dataset, batch by batch.
pub struct Loader {
    definition: Definition,
    manifest: Manifest,
    recipe: Recipe,
    meter: Arc<Meter>,
    cache_settings: Option<CacheSettings>,
    /// Opened with the first session; what it holds outlives sessions.
    cache: Option<Arc<Cache>>,
    /// Where the next iteration begins.
    cursor: Cursor,
    supply: Option<Box<dyn Supply>>,
    /// Who makes the batches when not this process, and what it is told.
    elsewhere: Option<(Arc<dyn Supplier>, FeedSpec)>,
    /// The cursor the supply will deliver next, when it runs.
    supply_cursor: Option<Cursor>,
    iteration: Option<Iteration>,
    faults: Vec<Fault>,
    skipped: SkippedBatches,
    /// Writes down which samples are bad, when that is asked for.
    quarantine: Option<QuarantineWriter>,
    /// Writes down what the loop received, when that is asked for.
    ledger: Option<LedgerWriter>,
    /// What the last supply knew.
    view: SupplyView,
    /// Worked out when first asked for.
    waste: OnceLock<PaddingWaste>,
    /// The run of the present supply as it would be with every payload resident; made with its first batch.
    resident: Option<ResidentRun>,
    /// When the last batch of the present supply was handed over.
    last_taken: Option<Instant>,
    /// Tells other ranks how this one goes, from the first iteration on.
    ranks: Option<Ranks>,
    /// Finds out what was not set by hand; not when others make the batches or no time is kept.
    tuning: Option<Tuning>,
    /// Whether somebody was told that packing cuts off what no batch has room for.
    told_of_cut_off: bool,
}

/// One pass of the user's loop over (the rest of) an epoch.
struct Iteration {
    epoch: u64,
    /// Where it began, or went on under another order.
    start: Cursor,
    /// Batches that the loop had before that.
    first_step: u64,
    portion: Portion,
    steps: u64,
    local: Remaining,
    faults: u64,
    waiting_since: Option<Instant>,
    /// When the batch that the loop works on became its own.
    handed_over: Option<Instant>,
    failed: Option<Error>,
}

/// What asking for a batch gave.
#[derive(Debug)]
pub enum Next {
    /// A batch.
    Batch(Box<Batch>),
    /// The epoch is over.
    End,
    /// Nothing yet; ask again.
    Waiting,
}

impl Loader {
    /// Checks everything that can be checked before the first sample. Starts nothing.
    pub fn new(
        manifest: &Manifest,
        store: Arc<dyn Store>,
        recipe: &Recipe,
        config: LoaderConfig,
    ) -> Result<Self> {
        let meter = if config.metering { Meter::default() } else { Meter::untimed() };
        let quarantine = config
            .quarantine_file
            .clone()
            .map(|path| QuarantineWriter::new(path, manifest.version().to_owned(), &config.quarantine));
        let definition = Definition::new(manifest, store, recipe, config)?;
        let Definition { config, sampler, .. } = &definition;
        let ledger = config.ledger.clone();
        let ledger = ledger.map(|folder| LedgerWriter::new(folder, manifest, recipe, sampler, config));
        let ledger = ledger.transpose()?;
        let tuning = meter.is_on().then(|| Tuning::new(&definition.config, &definition.memory));
        Ok(Self {
            definition,
            quarantine,
            ledger,
            manifest: manifest.clone(),
            recipe: recipe.clone(),
            meter: Arc::new(meter),
            cache_settings: None,
            cache: None,
            cursor: Cursor::start_of(0),
            supply: None,
            elsewhere: None,
            supply_cursor: None,
            iteration: None,
            faults: Vec::new(),
            skipped: SkippedBatches::default(),
            view: SupplyView::default(),
            waste: OnceLock::new(),
            resident: None,
            last_taken: None,
            ranks: None,
            tuning,
            told_of_cut_off: false,
        })
    }

    /// Keeps payloads near. Nothing is opened before the first batch is asked for.
    #[must_use]
    pub fn with_cache(mut self, settings: CacheSettings) -> Self {
        self.cache_settings = Some(settings);
        self
    }

    /// Lets others make the batches. What they are told is `feed`; nothing is connected before the first batch is asked
    /// for.
    #[must_use]
    pub fn with_supplier(mut self, supplier: Arc<dyn Supplier>, feed: FeedSpec) -> Self {
        self.elsewhere = Some((supplier, feed));
        self.tuning = None;
        self
    }

    /// Changes how much the cache may hold, at once. What is resident is chosen anew.
    pub fn resize_cache(&mut self, capacity: Capacity) -> Result<()> {
        let Some(settings) = &mut self.cache_settings else {
            return Err(Error::invalid_config("resize the cache: this loader has none")
                .with_hint("give `cache` when the loader is made"));
        };
        settings.capacity = capacity;
        match &self.cache {
            Some(cache) => cache.resize(capacity),
            None => Ok(()),
        }
    }

    fn open_cache(&mut self) -> Result<Option<Arc<Cache>>> {
        if let (None, Some(settings)) = (&self.cache, &self.cache_settings) {
            self.cache =
                Some(self.definition.open_cache(settings, &self.manifest, &self.recipe, &self.meter)?);
        }
        Ok(self.cache.clone())
    }

    /// Begins the next iteration: the rest of the epoch after a resume, otherwise the epoch after the last one begun.
    pub fn begin(&mut self) -> Result<()> {
        self.cursor = match self.iteration.take() {
            // A loop that was left early does not come back to the same epoch; one that took nothing does.
            Some(left) if left.first_step + left.steps > 0 || left.failed.is_some() => {
                Cursor::start_of(left.epoch + 1)
            }
            _ => self.cursor.clone(),
        };
        let portion = self.portion(&self.cursor)?;
        if portion.cut_off() > 0 && !std::mem::replace(&mut self.told_of_cut_off, true) {
            tracing::warn!(
                tokens = portion.cut_off(),
                "documents are longer than a packed batch: their ends are cut off"
            );
        }
        self.meter.paused();
        let LoaderConfig { rank_channel, consumer, .. } = &self.definition.config;
        if let (Some(channel), None) = (rank_channel, &self.ranks)
            && consumer.world_size > 1
        {
            self.ranks = Some(Ranks::start(channel, consumer.rank, consumer.world_size, &self.meter)?);
        }
        if self.supply_cursor.as_ref() != Some(&self.cursor) {
            self.stop_supply();
        }
        self.iteration = Some(Iteration {
            epoch: self.cursor.epoch,
            start: self.cursor.clone(),
            first_step: 0,
            steps: 0,
            local: portion.local().clone(),
            portion,
            faults: 0,
            waiting_since: None,
            handed_over: None,
            failed: None,
        });
        Ok(())
    }

    /// The next batch of the iteration, waiting at most `wait` for it. After an error the iteration stays failed.
    pub fn next(&mut self, wait: Duration) -> Result<Next> {
        let Some(iteration) = &mut self.iteration else {
            return Err(Error::invalid_config("take batch: no iteration was begun"));
        };
        if let Some(error) = &iteration.failed {
            return Err(error.duplicate());
        }
        if let Some(handed_over) = iteration.handed_over.take() {
            self.meter.worked(handed_over, Instant::now());
        }
        if iteration.steps >= iteration.portion.steps() {
            self.meter.paused();
            return Ok(Next::End);
        }
        let asked = *iteration.waiting_since.get_or_insert_with(|| self.meter.asked(Instant::now()));
        let result = self.take(wait, asked);
        if let (Err(error), Some(iteration)) = (&result, &mut self.iteration) {
            if let (Some(quarantine), Some(sample)) = (&mut self.quarantine, error.facts().sample_id) {
                // What went wrong with the sample matters more.
                if let Err(problem) = quarantine.add(sample, error) {
                    tracing::warn!("{}", problem.report());
                }
            }
            iteration.failed = Some(error.duplicate());
            self.stop_supply();
        }
        result
    }

    fn take(&mut self, wait: Duration, asked: Instant) -> Result<Next> {
        if self.supply.is_none() {
            let supply = self.start_supply()?;
            if let Some(tuning) = &mut self.tuning {
                tuning.started(supply.as_ref());
            }
            self.supply = Some(supply);
        }
        let Some(supply) = &self.supply else { return Ok(Next::Waiting) };
        let Some(taken) = supply.take(wait)? else {
            return match self.definition.config.timeout {
                Some(timeout) if asked.elapsed() >= timeout => Err(Error::unavailable(format!(
                    "wait for a batch: not ready after {:.1} s; {}",
                    timeout.as_secs_f64(),
                    supply.describe_wait()
                ))
                .with_hint("raise `timeout`, or look at `stats()` to see which stage is slow")),
                _ => Ok(Next::Waiting),
            };
        };
        let order = self.definition.config.order;
        let Some(mut batch) = taken.batch else {
            // Left out, and counted by whoever did: the loop is still waiting for its next batch.
            if let Some(iteration) = &mut self.iteration {
                if let Some(ledger) = &mut self.ledger {
                    let received = ledger.describe(&iteration.start, &taken.places, None);
                    ledger.write(&iteration.start, iteration.steps, received)?;
                }
                iteration.pass(order, &taken.places);
                self.supply_cursor = Some(iteration.cursor(order));
                let at = (iteration.epoch, iteration.first_step + iteration.steps - 1);
                self.skipped.add(&self.definition, at, &taken.places);
            }
            return Ok(Next::Waiting);
        };
        if let (Some(finish), true) = (&self.definition.config.finish_batch, self.elsewhere.is_some()) {
            batch = finish(batch)?;
        }
        let now = Instant::now();
        // What is done is handed over: the rest of the wait is the hand-over's own.
        let done = taken.done_at.map_or(now, |at| at.clamp(asked, now));
        let (stall, queue) = (done - asked, now - done);
        let split = self.split(asked, stall, &taken.making, taken.prep_since);
        self.last_taken = Some(now);
        self.meter.ready_at_take.add(taken.ready as u64);
        self.meter.ready_last.set(taken.ready as u64);
        let Some(iteration) = &mut self.iteration else { return Ok(Next::End) };
        let bad = batch.faults.len() as u64;
        iteration.faults += bad;
        let filtered = (taken.places.len() as u64).saturating_sub(batch.len() as u64);
        let substituted = batch.faults.iter().filter(|fault| fault.substitute.is_some()).count() as u64;
        self.meter.substituted.add(substituted);
        self.meter.skipped.add(bad - substituted);
        self.meter.filtered.add(filtered.saturating_sub(bad - substituted));
        if let Some(quarantine) = &mut self.quarantine {
            for fault in &batch.faults {
                quarantine.add(fault.sample_id, &fault.error)?;
            }
        }
        let received =
            self.ledger.as_mut().map(|ledger| ledger.describe(&iteration.start, &taken.places, Some(&batch)));
        let room = MAX_REPORTED_FAULTS.saturating_sub(self.faults.len());
        self.faults.extend(batch.faults.drain(..).take(room));
        let samples = iteration.portion.local().len().div_ceil(self.definition.config.turn.of);
        let allowed = self.definition.config.max_errors.allowed(samples);
        if iteration.faults > allowed {
            return Err(too_many(iteration.faults, allowed, samples, iteration.epoch, self.faults.last()));
        }
        if let (Some(ledger), Some(received)) = (&mut self.ledger, received) {
            ledger.write(&iteration.start, iteration.steps, received)?;
        }
        iteration.pass(order, &taken.places);
        iteration.waiting_since = None;
        iteration.handed_over = Some(now);
        self.supply_cursor = Some(iteration.cursor(order));
        let padding = batch.padding.iter().filter(|padding| **padding).count() as u64;
        self.meter.padding.add(padding);
        let samples = batch.len() as u64 - padding;
        let (epoch, step) = (iteration.epoch, iteration.first_step + iteration.steps - 1);
        batch.step += iteration.first_step;
        let bytes = batch.bytes();
        self.meter.took(&Took { epoch, step, samples, bytes, stall: split, queue }, now);
        if let (Some(tuning), Some(supply)) = (&mut self.tuning, &self.supply) {
            tuning.handed_over(&self.meter, supply.as_ref());
            if let Some(resident) = &mut self.resident {
                resident.set_ahead(tuning.knobs().open_batches);
            }
        }
        Ok(Next::Batch(Box::new(batch)))
    }

    /// Which part of a stall is fetching's, and which is preparing's.
    fn split(
        &mut self,
        asked: Instant,
        stall: Duration,
        making: &Making,
        prep_since: Option<Instant>,
    ) -> StallSplit {
        if !self.meter.is_on() {
            return StallSplit::default();
        }
        let away = self.last_taken.map_or(Duration::ZERO, |last| asked - last);
        let ahead = self.memory().open_batches;
        let run = self.resident.get_or_insert_with(|| {
            let start = prep_since.map_or(Duration::ZERO, |since| since.saturating_duration_since(asked));
            ResidentRun::new(ahead, start)
        });
        run.split(away, stall, making)
    }

    /// The batch that was handed over last is the framework's from now on: what passed since is its transfer.
    pub fn transferred(&mut self) {
        if let Some(handed_over) =
            self.iteration.as_mut().and_then(|iteration| iteration.handed_over.as_mut())
        {
            let now = Instant::now();
            self.meter.transferred(*handed_over, now);
            *handed_over = now;
        }
    }

    /// The split of memory as it is now.
    fn memory(&self) -> MemoryPlan {
        let memory = self.definition.memory;
        self.tuning.as_ref().map_or(memory, |tuning| memory.with_open_batches(tuning.knobs().open_batches))
    }

    /// What counts what this loader does, for those who look on from other threads.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    fn start_supply(&mut self) -> Result<Box<dyn Supply>> {
        let cursor = self.cursor.clone();
        let Some((supplier, feed)) = &self.elsewhere else {
            let cache = self.open_cache()?;
            let session = Session::start(&self.definition, cache, Walk::From(cursor), &self.meter)?;
            return Ok(Box::new(session));
        };
        let Definition { config, memory, pool, sampler, .. } = &self.definition;
        let asked = Asked {
            feed: feed.clone(),
            sampler: sampler.clone(),
            consumer: config.consumer,
            order: config.order,
            epochs: config.epochs,
            ready_batches: memory.open_batches,
            batch_bytes: memory.batch_bytes,
            pool: pool.clone(),
        };
        supplier.start(asked, cursor, &self.meter)
    }

    /// Where the user's loop stands.
    pub fn cursor(&self) -> Cursor {
        match &self.iteration {
            Some(iteration) => iteration.cursor(self.definition.config.order),
            None => self.cursor.clone(),
        }
    }

    /// Goes on from `cursor` at the next [`Self::begin`].
    pub fn seek(&mut self, cursor: Cursor) -> Result<()> {
        self.portion(&cursor)?;
        self.iteration = None;
        self.cursor = cursor;
        Ok(())
    }

    /// Batches the iteration in hand yields in all, or the next one would.
    pub fn steps(&self) -> Result<u64> {
        match &self.iteration {
            Some(iteration) if iteration.steps < iteration.portion.steps() => {
                Ok(iteration.first_step + iteration.portion.steps())
            }
            Some(iteration) => self.steps_from(&Cursor::start_of(iteration.epoch + 1)),
            None => self.steps_from(&self.cursor),
        }
    }

    fn steps_from(&self, cursor: &Cursor) -> Result<u64> {
        Ok(self.portion(cursor)?.steps())
    }

    /// What this rank reads of an epoch from `cursor` on.
    fn portion(&self, cursor: &Cursor) -> Result<Portion> {
        self.definition.config.portion(&self.definition.sampler, cursor)
    }

    /// All that the rank reads of an epoch from `cursor` on, by whichever processes asked in turn.
    pub fn rank_portion(&self, cursor: &Cursor) -> Result<Portion> {
        self.definition.sampler.portion(self.definition.config.consumer, cursor)
    }

    /// Positions in every epoch, over all ranks: what cursors of several ranks are merged with. The number of samples
    /// but for mixes, resampling and the sharding policy `off`.
    pub fn epoch_samples(&self) -> u64 {
        self.definition.sampler.samples()
    }

    /// The epoch the cursor stands in.
    pub fn epoch(&self) -> u64 {
        self.cursor().epoch
    }

    /// Bad samples so far, in the order in which their batches were handed over; at most ten thousand are kept.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Batches that were left out so far, in order: at most ten thousand, and no more once they have a million samples
    /// together. `skipped_batches` of [`Self::stats`] counts all.
    pub fn skipped(&self) -> &[SkippedBatch] {
        self.skipped.batches()
    }

    /// The dataset.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The recipe.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// The settings.
    pub fn config(&self) -> &LoaderConfig {
        &self.definition.config
    }

    /// Everything measured so far.
    pub fn stats(&self) -> Stats {
        let memory = self.memory();
        let threads =
            self.tuning.as_ref().map_or(self.definition.config.threads, |tuning| tuning.knobs().threads);
        let view = self.supply_view();
        let (cache_at, cache_at_why) = self.cache.as_ref().map(|cache| cache.kept_at()).unwrap_or_default();
        let cache = self.cache.as_ref().map(|cache| cache.view()).unwrap_or_default();
        let rounds = self.definition.sampler.round_counts();
        let waste = self.padding_waste();
        Stats {
            rounds: rounds.map_or(0, |counts| counts.rounds),
            mixed_rounds: rounds.map_or(0, |counts| counts.mixed),
            left_out: self.iteration.as_ref().map_or(0, |iteration| iteration.portion.left_out()),
            cut_off_tokens: self.iteration.as_ref().map_or(0, |iteration| iteration.portion.cut_off()),
            padding_waste: waste.map_or(0.0, |waste| waste.rounds),
            padding_waste_shuffled: waste.map_or(0.0, |waste| waste.shuffled),
            cache_at,
            cache_at_why,
            threads: threads as u64,
            open_batches: memory.open_batches as u64,
            memory_limit_bytes: memory.total_bytes(),
            tuned: self.tuning.as_ref().map(Tuning::choices).unwrap_or_default(),
            straggler: self.ranks.as_ref().and_then(Ranks::late),
            ..self.meter.stats()
        }
        .with(view)
        .with_cache(&cache)
    }

    /// Everything measured so far by the names of `forebay_core::metrics`.
    pub fn expose(&self, out: &mut Exposition) {
        let rank = self.definition.config.consumer.rank.to_string();
        let labels = [("rank", rank.as_str())];
        let stats = self.stats();
        stats.expose_delivery(&labels, out);
        stats.expose_making(&labels, out);
        self.meter.expose_times(&labels, out);
    }

    /// What padding wastes with size classes or buckets and without; `None` when there are none.
    fn padding_waste(&self) -> Option<PaddingWaste> {
        let Definition { sampler, config, .. } = &self.definition;
        let field = match (&config.size_classes, &config.batching) {
            (Some(classes), _) => classes.field.as_deref(),
            (None, Some(batching)) if batching.bucket.is_some() => batching.length_field.as_deref(),
            _ => return None,
        };
        if let Some(known) = self.waste.get() {
            return Some(*known);
        }
        let batch_size = config.consumer.batch_size;
        let waste = PaddingWaste::measure(sampler, &self.manifest, field, batch_size, WASTE_SAMPLES).ok()?;
        Some(*self.waste.get_or_init(|| waste))
    }

    /// Stops all threads and gives memory back, the cache's too; what belongs on disk is written first. The cursor
    /// stays; the next iteration starts anew from it.
    pub fn close(&mut self) {
        self.cursor = self.cursor();
        self.iteration = None;
        self.ranks = None;
        self.stop_supply();
        if let Some(cache) = self.cache.take() {
            cache.close();
        }
    }

    /// What the supply knows now, or the last one knew; peak and absences are those of all.
    fn supply_view(&self) -> SupplyView {
        let Some(supply) = &self.supply else { return self.view };
        let view = supply.view();
        SupplyView {
            payload_peak_bytes: view.payload_peak_bytes.max(self.view.payload_peak_bytes),
            store_away_seconds: view.store_away_seconds + self.view.store_away_seconds,
            ..view
        }
    }

    fn stop_supply(&mut self) {
        self.view = self.supply_view();
        (self.resident, self.last_taken) = (None, None);
        self.supply = None;
        self.supply_cursor = None;
    }
}

impl Iteration {
    /// One step is over, and used up these places.
    fn pass(&mut self, order: DeliveryOrder, places: &[Place]) {
        if matches!(order, DeliveryOrder::Arrival { .. }) {
            let locals: Vec<u64> = places.iter().map(|place| place.local).collect();
            self.local = self.local.without(&locals);
        }
        self.steps += 1;
    }

    fn cursor(&self, order: DeliveryOrder) -> Cursor {
        match order {
            DeliveryOrder::Plan => self.portion.cursor_after(self.epoch, self.steps),
            DeliveryOrder::Arrival { .. } => {
                self.portion.cursor_after_arrival(self.epoch, self.steps, &self.local)
            }
        }
    }
}

fn too_many(bad: u64, allowed: u64, samples: u64, epoch: u64, last: Option<&Fault>) -> Error {
    let last = last.map_or_else(String::new, |fault| format!("; the last: {}", fault.error.report()));
    Error::exhausted(format!(
        "read epoch {epoch}: {bad} bad samples of {samples}, max_errors allows {allowed}{last}"
    ))
    .with_hint("`errors()` lists them; `forebay verify` finds all of them at once")
}
