//! Saving a pipeline's prepared samples for `forebay.materialize`.

use crate::dataset::Dataset;
use crate::error::raise;
use crate::runtime::check_signals;
use crate::settings::{Raised, Settings};
use forebay_core::{Error, Result};
use forebay_engine::materialize::{MaterializeOptions, Materialized, plan, run};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

/// What was done, or would be, as JSON. `progress` is called with samples saved and samples that were missing.
#[pyfunction]
#[pyo3(signature = (dataset, recipe, settings, out, *, epoch, chunk_samples, storage_options, claim_timeout, dry_run,
    progress))]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
pub(crate) fn materialize(
    py: Python<'_>,
    dataset: &Dataset,
    recipe: &str,
    settings: Settings,
    out: String,
    epoch: u64,
    chunk_samples: Option<u64>,
    storage_options: BTreeMap<String, String>,
    claim_timeout: f64,
    dry_run: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let dataset = dataset.get(py)?;
    let mut interrupted = None;
    let outcome = py.detach(|| -> Result<String> {
        let claim_timeout = Duration::try_from_secs_f64(claim_timeout)
            .ok()
            .filter(|timeout| *timeout >= Duration::from_secs(1))
            .ok_or_else(|| Error::invalid_config("materialize: claim_timeout must be at least 1 second"))?;
        let mut loader = settings.build(dataset, recipe, &Raised::default())?;
        let options = MaterializeOptions {
            storage_options,
            epoch,
            chunk_samples,
            claim_timeout,
            ..MaterializeOptions::new(out)
        };
        let plan = plan(&loader, &options)?;
        let missing = plan.missing_samples();
        let mut told = u64::MAX;
        let mut watch = |now: &Materialized| {
            let called = if now.saved == told {
                check_signals()
            } else {
                told = now.saved;
                let call = |py: Python<'_>| match &progress {
                    Some(progress) => progress.call1(py, (now.saved, missing)).map(drop),
                    None => Ok(()),
                };
                check_signals().and_then(|()| Python::attach(call))
            };
            called.map_err(|signal| {
                interrupted = Some(signal);
                Error::cancelled("materialize: it was interrupted")
            })
        };
        let done = if dry_run { plan.outset() } else { run(&mut loader, &plan, &mut watch)? };
        let object = serde_json::json!({
            "out": options.out,
            "epoch": epoch,
            "chunk_samples": plan.chunk_samples(),
            "shards": done.shards,
            "found": done.found,
            "made": done.made,
            "made_by_others": done.made_by_others,
            "samples": done.samples,
            "saved": done.saved,
            "missing_samples": if dry_run { missing } else { 0 },
            "bytes": done.bytes,
            "bad": done.bad,
            "random_ops": plan.random_ops,
            "recipe": plan.recipe(),
        });
        Ok(object.to_string())
    });
    match (outcome, interrupted) {
        (_, Some(signal)) => Err(signal),
        (Ok(text), None) => Ok(text),
        (Err(error), None) => Err(raise(py, &error)),
    }
}
