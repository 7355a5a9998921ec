//! Where makers of batches come from: the real ones, and made-up ones in tests.

use crate::open::{Surroundings, cache_settings};
use forebay_core::Result;
use forebay_engine::cache::CacheConfig;
use forebay_engine::feed::FeedSpec;
use forebay_engine::{Make, Maker, MakerOptions};
use forebay_ops::{BufferPool, Functions};
use std::sync::Arc;

/// Opens makers of feeds. A version of the dataset other than the spec's is an error that names both.
pub trait Makers: Send + Sync {
    /// A maker for a feed. May take long; called on a thread of the first connection that wants it.
    fn open(&self, spec: &FeedSpec) -> Result<Arc<dyn Make>>;
}

impl<F: Fn(&FeedSpec) -> Result<Arc<dyn Make>> + Send + Sync> Makers for F {
    fn open(&self, spec: &FeedSpec) -> Result<Arc<dyn Make>> {
        self(spec)
    }
}

/// Makers that read the dataset and run the recipe.
pub struct RealMakers {
    /// Preparing threads of each feed; `None` is one per processor.
    pub threads: Option<usize>,
    /// Bytes of payloads and batches in the making, of each feed; `None` chooses.
    pub memory_bytes: Option<u64>,
    /// What is kept near. `None` does what the feed says.
    pub cache: Option<CacheConfig>,
    /// Program and first arguments of `forebay cache-host`, for caches that a host shares.
    pub command: Vec<std::ffi::OsString>,
    /// Memory for batches.
    pub pool: BufferPool,
    /// What recipes may call.
    pub functions: Functions,
}

impl Makers for RealMakers {
    fn open(&self, spec: &FeedSpec) -> Result<Arc<dyn Make>> {
        let config = match (&self.cache, &spec.cache) {
            (Some(own), _) => Some(own.clone()),
            (None, Some(feed)) => Some(CacheConfig::from_json(feed)?),
            (None, None) => None,
        };
        let surroundings = || Surroundings { local_ranks: 1, command: self.command.clone() };
        let cache = config.map(|config| cache_settings(config, surroundings())).transpose()?;
        let options = MakerOptions {
            threads: self.threads,
            memory_bytes: self.memory_bytes,
            cache,
            pool: Some(self.pool.clone()),
            functions: self.functions.clone(),
        };
        Ok(Arc::new(Maker::open(spec, &options)?))
    }
}
