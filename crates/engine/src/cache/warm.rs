//! Filling a cache ahead of a run: what is to be resident and is not yet is read once, nothing else.

use super::{Cache, CacheSettings, Look, Preparing};
use crate::config::available_threads;
use crate::inputs::Inputs;
use crate::meter::Meter;
use crate::source::Dataset;
use forebay_core::manifest::Location;
use forebay_core::recipe::Recipe;
use forebay_core::request::{Request, RequestLimits, Want, plan_requests};
use forebay_core::{Result, SampleId};
use forebay_ops::Program;
use forebay_store::{ByteRange, RetryOptions, RetryStore, Store};
use futures::stream::{self, StreamExt, TryStreamExt};
use std::sync::Arc;

/// Samples looked at together: neighbours among them are read by one request.
const SAMPLES_TOGETHER: u64 = 2048;

/// Requests in flight.
const REQUESTS: usize = 32;

/// Bytes of one request, and holes it may read over.
const LIMITS: RequestLimits = RequestLimits { gap_bytes: 128 << 10, request_bytes: 8 << 20 };

/// How far warming is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Warmed {
    /// Samples of the dataset looked at.
    pub samples: u64,
    /// Payloads that were there already.
    pub found: u64,
    /// Payloads that were read from the store and kept.
    pub read: u64,
    /// Bytes of these.
    pub read_bytes: u64,
}

/// Reads what the cache of a loader over this dataset would keep on disk and has not. The recipe says which fields
/// are needed.
/// `progress` hears how far it is, and ends it by an error.
pub async fn warm(
    dataset: &Dataset,
    recipe: &Recipe,
    settings: &CacheSettings,
    mut progress: impl FnMut(Warmed) -> Result<()>,
) -> Result<Warmed> {
    let manifest = dataset.manifest();
    let inputs = Inputs::new(manifest, recipe)?;
    let store: Arc<dyn Store> = match dataset.store() {
        store if store.is_remote() => Arc::new(RetryStore::new(Arc::clone(store), RetryOptions::default())),
        store => Arc::clone(store),
    };
    let preparing = Preparing {
        program: Arc::new(Program::compile(&recipe.native())?),
        recipe: recipe.clone(),
        threads: available_threads(),
    };
    let meter = Arc::<Meter>::default();
    let cache = Cache::open(settings, inputs.clone(), manifest, Arc::clone(&store), meter, Some(&preparing))?;
    let mut warmed = Warmed::default();
    for first in (0..manifest.len()).step_by(SAMPLES_TOGETHER as usize) {
        let last = (first + SAMPLES_TOGETHER).min(manifest.len());
        let mut wanted = Vec::new();
        for sample in first..last {
            let (_, fields) = inputs.of(SampleId(sample));
            let rank = cache.rank(&fields);
            if cache.place(rank).await.disk {
                wanted.extend(fields.iter().map(|(_, location)| (*location, cache.payload(rank, *location))));
            }
        }
        let payloads: Vec<_> = wanted.iter().map(|(_, payload)| *payload).collect();
        let looks = cache.look(&payloads).await;
        let absent: Vec<_> = wanted
            .into_iter()
            .zip(looks)
            .filter(|(_, look)| matches!(look, Look::Absent))
            .map(|((location, payload), _)| (location, cache.claim(payload)))
            .collect();
        warmed.samples = last;
        warmed.found += (payloads.len() - absent.len()) as u64;
        let wants: Vec<Want> =
            absent.iter().enumerate().map(|(at, (location, _))| want(at, *location)).collect();
        let mut claims: Vec<_> = absent.into_iter().map(|(_, claim)| Some(claim)).collect();
        let requests = plan_requests(&wants, LIMITS);
        let mut answers = stream::iter(requests)
            .map(|request| read(store.as_ref(), &inputs, request))
            .buffer_unordered(REQUESTS);
        while let Some((request, parts)) = answers.try_next().await? {
            for (want, bytes) in request.wants.iter().zip(parts) {
                if let Some(claim) = claims[*want].take() {
                    warmed.read += 1;
                    warmed.read_bytes += bytes.len() as u64;
                    cache.keep(claim, &bytes).await;
                }
            }
            progress(warmed)?;
        }
        progress(warmed)?;
    }
    cache.flush().await;
    Ok(warmed)
}

fn want(order: usize, location: Location) -> Want {
    Want { order: order as u64, object: location.object, offset: location.offset, length: location.length }
}

async fn read(store: &dyn Store, inputs: &Inputs, request: Request) -> Result<(Request, Vec<bytes::Bytes>)> {
    let (key, size) = inputs.object(request.object);
    let parts = match &request.parts[..] {
        [part] if store.is_remote() => vec![store.read(&key, ByteRange::within(part.clone(), size)).await?],
        parts => store.read_parts(&key, parts).await?,
    };
    Ok((request, parts))
}
