//! Datasets: open, look inside, read one sample for a closer look.

use crate::error::raise;
use crate::runtime::{Owned, block_on};
use bytes::Bytes;
use forebay_core::plan::mix::MixPart;
use forebay_core::{Error, SampleId};
use forebay_engine::source::{
    self, FieldValue, JoinOptions, MissingPartner, OpenOptions, Progress, SourceKind,
};
use forebay_engine::source::{DataSpec, SyntheticPayload, SyntheticSpec};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// A versioned set of samples that can be read.
#[pyclass(frozen, module = "forebay._native")]
pub(crate) struct Dataset(Owned<source::Dataset>);

/// Opens a dataset. `progress` is called with objects done, objects in all, samples and bytes found.
#[pyfunction]
#[pyo3(signature = (spec, *, labels = None, kind = None, manifest_dir = None, rebuild = false, extensions = None,
    storage_options = None, local = None, follow = false, tokens = None, progress = None))]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
pub(crate) fn open(
    py: Python<'_>,
    spec: Vec<String>,
    labels: Option<PathBuf>,
    kind: Option<&str>,
    manifest_dir: Option<PathBuf>,
    rebuild: bool,
    extensions: Option<Vec<String>>,
    storage_options: Option<BTreeMap<String, String>>,
    local: Option<PathBuf>,
    follow: bool,
    tokens: Option<&str>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Dataset> {
    let kind = kind.map(|name| {
        SourceKind::from_name(name).ok_or_else(|| {
            let error = Error::invalid_config(format!("open dataset: kind is `{name}`"));
            raise(py, &error.with_hint(format!("known are {}", SourceKind::stored_names())))
        })
    });
    let tokens = tokens.map(|text| {
        serde_json::from_str(text).map_err(|cause| {
            let error = Error::invalid_config(format!("open dataset: tokens is {text}")).with_source(cause);
            raise(py, &error.with_hint("write `tokens={\"window\": 2048}`"))
        })
    });
    let raised: Arc<Mutex<Option<PyErr>>> = Arc::default();
    let mut options = OpenOptions {
        labels,
        kind: kind.transpose()?,
        manifest_dir,
        local,
        follow,
        rebuild,
        tokens: tokens.transpose()?,
        ..OpenOptions::default()
    };
    if let Some(extensions) = extensions {
        options.extensions = extensions;
    }
    options.storage_options = storage_options.unwrap_or_default();
    if let Some(progress) = progress {
        let raised = Arc::clone(&raised);
        options.progress = Some(Arc::new(move |at: Progress| {
            let numbers = (at.objects_done, at.objects_total, at.samples, at.bytes);
            let called = Python::try_attach(|py| progress.call1(py, numbers).map(drop));
            if let Some(Err(problem)) = called {
                raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(problem);
            }
        }));
    }
    let opened = block_on(py, || source::open(&spec, &options));
    match raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(problem) => Err(problem),
        None => Ok(Dataset(Owned::new(opened?))),
    }
}

/// Makes a dataset whose payloads are noise of `bytes` bytes, or drawn from `templates`.
#[pyfunction]
#[pyo3(signature = (samples, *, bytes, templates = None, field = "bin", classes = 10, shards = 1, seed = 0))]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
pub(crate) fn synthetic(
    py: Python<'_>,
    samples: u64,
    bytes: u64,
    templates: Option<Vec<Vec<u8>>>,
    field: &str,
    classes: u64,
    shards: u32,
    seed: u64,
) -> PyResult<Dataset> {
    let payload = match templates {
        Some(templates) => SyntheticPayload::Templates(templates.into_iter().map(Bytes::from).collect()),
        None => SyntheticPayload::Noise { bytes },
    };
    let spec = SyntheticSpec { samples, field: field.to_owned(), payload, classes, shards, seed };
    let made = py.detach(|| source::synthetic(spec)).map_err(|error| raise(py, &error))?;
    Ok(Dataset(Owned::new(made)))
}

/// One dataset out of several, each with its weight.
#[pyfunction]
pub(crate) fn mix(py: Python<'_>, parts: Vec<(PyRef<'_, Dataset>, f64)>) -> PyResult<Dataset> {
    let parts = parts
        .iter()
        .map(|(part, weight)| Ok((part.get(py)?.clone(), *weight)))
        .collect::<PyResult<Vec<_>>>()?;
    let mixed = py.detach(|| source::mix(&parts)).map_err(|error| raise(py, &error))?;
    Ok(Dataset(Owned::new(mixed)))
}

/// One dataset whose samples have the fields of all parts, found by their keys.
#[pyfunction]
#[pyo3(signature = (parts, *, missing = "refuse", any_order = false))]
pub(crate) fn join(
    py: Python<'_>,
    parts: Vec<PyRef<'_, Dataset>>,
    missing: &str,
    any_order: bool,
) -> PyResult<Dataset> {
    let missing = match missing {
        "refuse" => MissingPartner::Refuse,
        "skip" => MissingPartner::Skip,
        "keep" => MissingPartner::Keep,
        other => {
            let error = Error::invalid_config(format!("join datasets: missing is `{other}`"));
            return Err(raise(py, &error.with_hint("known are `refuse`, `skip` and `keep`")));
        }
    };
    let parts = parts.iter().map(|part| Ok(part.get(py)?.clone())).collect::<PyResult<Vec<_>>>()?;
    let options = JoinOptions { missing, any_order };
    let joined = py.detach(|| source::join(&parts, options)).map_err(|error| raise(py, &error))?;
    Ok(Dataset(Owned::new(joined)))
}

impl Dataset {
    /// The dataset, unless this process was forked from the one that opened it.
    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<&source::Dataset> {
        self.0.get().ok_or_else(|| {
            let error = Error::unsupported("use dataset: it was opened before this process was forked");
            raise(py, &error.with_hint("open it again in the child"))
        })
    }
}

#[pymethods]
impl Dataset {
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.get(py)?.manifest().len() as usize)
    }

    /// Names of the fields and whether each is an integer kept in the manifest.
    fn fields(&self, py: Python<'_>) -> PyResult<Vec<(String, bool)>> {
        self.get(py)?.fields().map_err(|error| raise(py, &error))
    }

    /// Names of the classes, when the source has names.
    fn class_names(&self, py: Python<'_>) -> PyResult<Option<Vec<String>>> {
        Ok(self.get(py)?.class_names().map(<[String]>::to_vec))
    }

    /// The version: equal for equal content.
    fn version(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.get(py)?.manifest().version().to_owned())
    }

    /// The spec as given.
    fn url(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.get(py)?.url().to_owned())
    }

    /// How it is stored.
    fn kind(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(self.get(py)?.kind().name())
    }

    /// How another process can open it, as JSON that a recipe may hold.
    fn spec_for_recipe(&self, py: Python<'_>) -> PyResult<String> {
        let dataset = self.get(py)?;
        let spec = dataset.origin().ok_or_else(|| {
            let why = format!("name `{}` in a recipe: it was not opened from a spec", dataset.url());
            Error::unsupported(why).with_hint("open a dataset that is stored")
        });
        let spec = spec.and_then(DataSpec::for_recipe).map_err(|error| raise(py, &error))?;
        Ok(spec.to_string())
    }

    /// What happened while opening.
    fn notes(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.get(py)?.notes().to_vec())
    }

    /// Bytes of all payloads.
    fn total_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.get(py)?.manifest().total_bytes())
    }

    /// Whether samples are read one by one, in whatever order: each is an object of its own, or the order is a mix.
    fn is_read_one_by_one(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(matches!(self.get(py)?.kind(), SourceKind::Tree | SourceKind::Table | SourceKind::Mix))
    }

    /// A weight for every part of a mix, from weights of these or of the datasets that it was made of.
    fn mix_weights(&self, py: Python<'_>, weights: Vec<f64>) -> PyResult<Vec<f64>> {
        Ok(self.get(py)?.mix_weights(&weights))
    }

    /// Number of samples and weight of every dataset of a mix, in the order of their sample ids.
    fn mix(&self, py: Python<'_>) -> PyResult<Option<Vec<(u64, f64)>>> {
        let run = |part: &MixPart| (part.samples.end - part.samples.start, part.weight);
        Ok(self.get(py)?.mix().map(|parts| parts.iter().map(run).collect()))
    }

    /// Calls of the system that read files of this dataset so far, and the bytes they gave; `None` for other stores.
    fn read_calls(&self, py: Python<'_>) -> PyResult<Option<(u64, u64)>> {
        Ok(self.get(py)?.store().local_stats().map(|stats| (stats.syscalls, stats.bytes)))
    }

    /// The key of a sample.
    fn key(&self, py: Python<'_>, sample_id: u64) -> PyResult<String> {
        Ok(self.get(py)?.manifest().key(SampleId(sample_id)))
    }

    /// Every field of one sample, read through the store that loaders use.
    fn sample<'py>(&self, py: Python<'py>, sample_id: u64) -> PyResult<Bound<'py, PyDict>> {
        let dataset = self.get(py)?;
        let values = block_on(py, || dataset.read_sample(SampleId(sample_id)))?;
        let sample = PyDict::new(py);
        for (name, value) in values {
            match value {
                FieldValue::Int(number) => sample.set_item(name, number)?,
                FieldValue::Payload(bytes) | FieldValue::Record(bytes) => {
                    sample.set_item(name, PyBytes::new(py, &bytes))?;
                }
            }
        }
        Ok(sample)
    }
}
