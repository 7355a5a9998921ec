//! Errors of the engine as Python exceptions: the classes of `forebay.errors`, looked up once.

use crate::function::Raised;
use forebay_core::{Error, ErrorKind};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use std::collections::HashMap;

type Classes = HashMap<&'static str, Py<PyType>>;

static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();

/// The exception for an error, with its facts as attributes. Causes are part of the message.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    match exception(py, error) {
        Ok(exception) => PyErr::from_value(exception),
        // Only a broken installation comes here; the message must not be lost with it.
        Err(problem) => PyRuntimeError::new_err(format!("{error:?} (and {problem})")),
    }
}

/// As [`raise`], as an object.
pub(crate) fn exception<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    let classes = CLASSES.get_or_try_init(py, || look_up(py))?;
    let facts = error.facts();
    let fields = PyDict::new(py);
    fields.set_item("hint", error.hint())?;
    fields.set_item("sample_id", facts.sample_id.map(|id| id.0))?;
    fields.set_item("key", facts.key.as_deref())?;
    fields.set_item("object", facts.object.as_deref())?;
    fields.set_item("offset", facts.offset)?;
    fields.set_item("op", facts.op.as_deref())?;
    fields.set_item("field", facts.field.as_deref())?;
    fields.set_item("epoch", facts.epoch)?;
    let made = classes[error.kind().python_class()].bind(py).call((message(error),), Some(&fields))?;
    if let Some(raised) = raised_in(error) {
        made.setattr("__cause__", &raised.exception)?;
    }
    Ok(made)
}

/// The message and its causes on one line; the hint is a field.
fn message(error: &Error) -> String {
    let mut text = error.message().to_owned();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

/// What a function of the user's raised, somewhere below the error.
fn raised_in(error: &Error) -> Option<&Raised> {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if let Some(raised) = inner.downcast_ref::<Raised>() {
            return Some(raised);
        }
        cause = inner.source();
    }
    None
}

fn look_up(py: Python<'_>) -> PyResult<Classes> {
    let module = py.import("forebay.errors")?;
    let class = |kind: ErrorKind| {
        let name = kind.python_class();
        Ok((name, module.getattr(name)?.cast_into::<PyType>()?.unbind()))
    };
    ErrorKind::ALL.into_iter().map(class).collect()
}
