//! A service as `forebay.ray` looks after it: what its dispatcher knows, and credentials for its processes.

use crate::error::raise;
use crate::settings::read_json;
use forebay_core::dispatcher::{Command, Reply};
use forebay_core::{Error, Result};
use forebay_net::dispatcher::{Control, ControlOptions};
use forebay_net::service::{ViaConfig, ViaUrl};
use forebay_net::{MadeCredentials, Threads};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::time::Duration;

/// A connection to a dispatcher; `via` is the loader's setting, as JSON.
#[pyclass(frozen)]
pub(crate) struct Dispatcher(Control);

#[pymethods]
impl Dispatcher {
    #[new]
    fn new(py: Python<'_>, via: &str) -> PyResult<Self> {
        py.detach(|| connect(via)).map(Self).map_err(|error| raise(py, &error))
    }

    /// What `forebay status --json` prints. Waits for so many seconds while it is away.
    fn status(&self, py: Python<'_>, wait: f64) -> PyResult<String> {
        py.detach(|| status(&self.0, wait)).map_err(|error| raise(py, &error))
    }
}

/// Texts by the names of the files that `forebay credentials` writes.
#[pyfunction]
pub(crate) fn make_credentials(py: Python<'_>, days: u32) -> PyResult<HashMap<String, String>> {
    let made = py.detach(|| MadeCredentials::new(&[], days)).map_err(|error| raise(py, &error))?;
    Ok(made.files().map(|(name, text)| (name.to_owned(), text.to_owned())).into())
}

fn connect(via: &str) -> Result<Control> {
    let via = ViaConfig::from_json(&read_json("via", via)?)?;
    let ViaUrl::Service(address) = &via.url else {
        return Err(Error::invalid_config("ask a dispatcher: `via` names no service"));
    };
    let options = ControlOptions { address: address.clone(), credentials: via.credentials()? };
    Control::new(&options, Threads::shared()?)
}

fn status(control: &Control, wait: f64) -> Result<String> {
    let wait = Duration::try_from_secs_f64(wait)
        .map_err(|error| Error::invalid_config("ask a dispatcher: that is no time").with_source(error))?;
    match control.call(&Command::View, wait)? {
        Reply::View(view) => serde_json::to_string(&view)
            .map_err(|error| Error::internal("write the view as JSON").with_source(error)),
        _ => Err(Error::internal("the dispatcher answered something else")),
    }
}
