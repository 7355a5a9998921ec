//! The maker: batches of one feed by name, made by the same threads and fetches as a loader's own.

use crate::cache::{Cache, CacheSettings};
use crate::config::LoaderConfig;
use crate::feed::FeedSpec;
use crate::fetch::Names;
use crate::make::{Made, Make};
use crate::meter::Meter;
use crate::session::{Definition, Session, Walk};
use crate::source::Dataset;
use crate::stats::Stats;
use crate::supply::Supply;
use forebay_core::feed::BatchName;
use forebay_core::stall::Making;
use forebay_core::{Error, Result};
use forebay_ops::{BufferPool, Functions};
use std::sync::Arc;
use std::time::Duration;

/// What the process that makes batches decides by itself.
#[derive(Clone, Default)]
pub struct MakerOptions {
    /// Preparing threads; `None` is one per processor.
    pub threads: Option<usize>,
    /// Bytes that payloads and batches in the making may take; `None` chooses.
    pub memory_bytes: Option<u64>,
    /// What is kept near.
    pub cache: Option<CacheSettings>,
    /// Memory for batches; `None` is memory of this process alone.
    pub pool: Option<BufferPool>,
    /// What recipes may call.
    pub functions: Functions,
}

/// Makes the batches of one feed.
pub struct Maker {
    session: Session,
    names: Arc<Names>,
    meter: Arc<Meter>,
    epoch_samples: u64,
    batch_bytes: u64,
    threads: u64,
    /// After the session, so that nothing comes in any more when it is closed.
    cache: Kept,
}

/// Closes the cache when the maker goes.
struct Kept(Option<Arc<Cache>>);

impl Maker {
    /// Opens the dataset that the feed speaks of and starts the threads. Another version than the feed's is an error.
    pub fn open(spec: &FeedSpec, options: &MakerOptions) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|cause| Error::exhausted("start an executor").with_source(cause))?;
        let dataset = runtime.block_on(spec.data.open())?;
        runtime.shutdown_background();
        Self::new(&dataset, spec, options)
    }

    /// Starts making batches of a dataset that is open.
    pub fn new(dataset: &Dataset, spec: &FeedSpec, options: &MakerOptions) -> Result<Self> {
        let manifest = dataset.manifest();
        if manifest.version() != spec.dataset {
            let message = format!(
                "make batches of `{}`: version {} is wanted, version {} is here",
                dataset.url(),
                spec.dataset,
                manifest.version()
            );
            return Err(Error::stale(message).with_hint(
                "the dataset changed, or this process sees another one under that name: open it again",
            ));
        }
        let own = LoaderConfig {
            threads: options.threads.unwrap_or_else(crate::available_threads),
            memory_bytes: options.memory_bytes,
            functions: options.functions.clone(),
            ..LoaderConfig::default()
        };
        let config = spec.config(&own)?;
        let threads = config.threads as u64;
        let recipe = spec.recipe()?;
        let mut definition = Definition::new(manifest, Arc::clone(dataset.store()), &recipe, config)?;
        if let Some(pool) = &options.pool {
            definition.pool = pool.clone();
        }
        let meter = Arc::<Meter>::default();
        let cache = match &options.cache {
            Some(settings) => Some(definition.open_cache(settings, manifest, &recipe, &meter)?),
            None => None,
        };
        let names = Arc::<Names>::default();
        let walk = Walk::Named(Arc::clone(&names));
        let session = Session::start(&definition, cache.clone(), walk, &meter)?;
        Ok(Self {
            session,
            names,
            meter,
            epoch_samples: definition.sampler.samples(),
            batch_bytes: definition.memory.batch_bytes,
            threads,
            cache: Kept(cache),
        })
    }
}

impl Make for Maker {
    fn prepare(&self, names: &[BatchName]) {
        self.names.want(names);
    }

    fn take(&self, wait: Duration) -> Result<Option<Made>> {
        let taken = self.session.take(wait);
        let (batch, making, done_at) = match taken {
            Ok(None) => return Ok(None),
            Ok(Some(taken)) => {
                let missing = || Error::internal("a session left a batch out");
                (taken.batch.ok_or_else(missing), taken.making, taken.done_at)
            }
            Err(error) if self.session.is_stopped() => return Err(error),
            Err(error) => (Err(error), Making::default(), None),
        };
        let Some((name, since)) = self.names.finish() else {
            return Err(Error::internal("a batch was made that nobody asked for"));
        };
        let took =
            done_at.map_or_else(|| since.elapsed(), |at| at.into_std().saturating_duration_since(since));
        let prep = making.alone();
        Ok(Some(Made { name, batch, fetch: making.fetch_limit.min(took.saturating_sub(prep)), prep }))
    }

    fn epoch_samples(&self) -> u64 {
        self.epoch_samples
    }

    fn batch_bytes(&self) -> u64 {
        self.batch_bytes
    }

    fn stats(&self) -> Stats {
        let cache = self.cache.0.as_ref().map(|cache| cache.view()).unwrap_or_default();
        Stats { threads: self.threads, ..self.meter.stats() }.with(self.session.view()).with_cache(&cache)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(cache) = self.0.take() {
            cache.close();
        }
    }
}
