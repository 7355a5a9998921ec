//! Measuring a loader's pipeline for `forebay.analyze`.

use crate::dataset::Dataset;
use crate::error::raise;
use crate::runtime::check_signals;
use crate::settings::{Raised, Settings};
use forebay_core::recipe::Recipe;
use forebay_core::stall::{self, Rate, Rates, RunFacts};
use forebay_core::{Error, Result};
use forebay_engine::measure;
use pyo3::prelude::*;

/// The analysis as JSON. `steps` are stretches of the training loop that were measured: seconds and samples of each.
#[pyfunction]
pub(crate) fn analyze(
    py: Python<'_>,
    dataset: &Dataset,
    recipe: &str,
    settings: Settings,
    seconds: f64,
    steps: Vec<(f64, f64)>,
    what_if: Option<&str>,
) -> PyResult<String> {
    let dataset = dataset.get(py)?;
    let mut interrupted = None;
    let outcome = py.detach(|| -> Result<String> {
        let cache_bytes = settings.cache_bytes()? as f64;
        // Built for its checks and its resolved settings; nothing is started.
        let loader = settings.build(dataset, recipe, &Raised::default())?;
        let ingest = Rate::of(&steps)
            .ok_or_else(|| Error::invalid_config("measure the training step: it took no time at all"))?;
        let mut go_on = || {
            check_signals().map_err(|signal| {
                interrupted = Some(signal);
                Error::cancelled("measure a pipeline: it was interrupted")
            })
        };
        let measured = measure(dataset, &Recipe::from_json(recipe)?, loader.config(), seconds, &mut go_on)?;
        let rates = Rates { ingest, prep: measured.prep, fetch: measured.fetch };
        let analysis = stall::analyze(rates, RunFacts { cache_bytes, ..measured.facts }, what_if)?;
        let mut object = serde_json::to_value(&analysis).unwrap_or_default();
        object["cold"] = measured.cold.into();
        Ok(object.to_string())
    });
    match (outcome, interrupted) {
        (_, Some(signal)) => Err(signal),
        (Ok(text), None) => Ok(text),
        (Err(error), None) => Err(raise(py, &error)),
    }
}
