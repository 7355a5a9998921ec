//! Functions of a recipe as the engine calls them: values become Python objects, the interpreter is held for as long as
//! the function runs, and what it gives is copied to where it stays while others run.
//!
//! What a function raises travels inside of the engine's error and is the cause of the exception that the loop sees.

use crate::batch;
use crate::buffer::{Memory, copy_unlocked};
use bytes::Bytes;
use forebay_core::recipe::{Offsets, Recipe};
use forebay_core::tensor::{Dtype, TensorSpec};
use forebay_core::{Error, ErrorKind, Result, SampleId};
use forebay_ops::{
    Buffer, BufferPool, Call, Column, Function, Interpreter, Named, Ragged, Slot, Tensor, Value,
};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use std::fmt;
use std::sync::{Arc, LazyLock};

/// Unused memory kept for results that have no row of a batch.
static POOL: LazyLock<BufferPool> = LazyLock::new(|| BufferPool::new(64 << 20));

/// What stands behind one function: `forebay._functions.Local`, or one that asks another process.
pub(crate) struct PythonFunction(Py<PyAny>);

impl PythonFunction {
    /// As the engine takes it.
    pub(crate) fn shared(called: Py<PyAny>) -> Arc<dyn Function> {
        Arc::new(Self(called))
    }
}

/// What a function raised.
pub(crate) struct Raised {
    line: String,
    /// The exception as it was raised.
    pub(crate) exception: Py<PyAny>,
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl fmt::Debug for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl std::error::Error for Raised {}

/// What comes back for one value: `forebay._functions.Result`.
type Answer<'py> = (String, Bound<'py, PyAny>, String, Vec<usize>);

impl Function for PythonFunction {
    fn map(&self, call: &Call<'_>, values: Vec<Value>, slots: &mut [Slot<'_>]) -> Result<()> {
        attached(|py| {
            let values = to_python(py, values)?;
            let names = (!call.bare).then_some(call.inputs);
            let dtype = call.spec.map(|spec| spec.dtype.name());
            let given = (values, call.key, names, call.outputs, dtype);
            let answers: Vec<Answer<'_>> = self.0.bind(py).call_method1("map", given)?.extract()?;
            if answers.len() != slots.len() {
                return Ok(Err(Error::internal("a function gave another number of values than asked for")));
            }
            for (answer, slot) in answers.into_iter().zip(slots) {
                if let Err(error) = place(py, answer, call.spec, slot)? {
                    return Ok(Err(error));
                }
            }
            Ok(Ok(()))
        })
    }

    fn keep(&self, call: &Call<'_>, values: Vec<Value>) -> Result<(bool, Vec<Value>)> {
        let shared: Vec<Shared> = values.into_iter().map(Shared::new).collect();
        let stays = attached(|py| {
            let list = PyList::empty(py);
            for value in &shared {
                list.append(value.to_python(py)?)?;
            }
            let names = (!call.bare).then_some(call.inputs);
            let answer = self.0.bind(py).call_method1("keep", (list, call.key, names))?;
            Ok(Ok(answer.extract()?))
        })?;
        Ok((stays, shared.into_iter().map(Shared::take_back).collect()))
    }

    fn map_batch(&self, call: &Call<'_>, ids: &[SampleId], columns: Named) -> Result<Named> {
        let rows = ids.len();
        let ids: Vec<u64> = ids.iter().map(|id| id.0).collect();
        attached(|py| {
            let columns = batch::columns_to_python(py, columns)?;
            let answer = self.0.bind(py).call_method1("map_batch", (ids, columns, call.key))?;
            let given: Vec<(String, String, Vec<Answer<'_>>)> = answer.extract()?;
            let mut columns = Vec::with_capacity(given.len());
            for (name, kind, answers) in given {
                let column = match column(py, &kind, answers)? {
                    Ok(column) if column.rows() == rows => column,
                    Ok(column) => {
                        let why =
                            format!("column `{name}` of it has {} rows, the batch {rows}", column.rows());
                        return Ok(Err(Error::function(why)));
                    }
                    Err(why) => return Ok(Err(Error::function(format!("column `{name}` of it {why}")))),
                };
                columns.push((name, column));
            }
            Ok(Ok(columns))
        })
    }
}

/// Finds functions by importing them.
pub(crate) struct Imports;

impl Interpreter for Imports {
    fn find(&self, recipe: &Recipe) -> Result<Vec<Arc<dyn Function>>> {
        attached(|py| {
            let found = py.import("forebay._functions")?.call_method1("find", (recipe.to_json(),))?;
            let found: Vec<Py<PyAny>> = found.extract()?;
            Ok(Ok(found.into_iter().map(PythonFunction::shared).collect()))
        })
    }
}

/// Calls Python; what it raises becomes an error.
fn attached<T>(call: impl for<'py> FnOnce(Python<'py>) -> PyResult<Result<T>>) -> Result<T> {
    let called = Python::try_attach(|py| call(py).unwrap_or_else(|problem| Err(raised(py, problem))));
    called.unwrap_or_else(|| Err(Error::cancelled("call a function: Python is ending")))
}

/// The error for what was raised: its own kind when it is one of ours, a failed function otherwise.
pub(crate) fn raised(py: Python<'_>, problem: PyErr) -> Error {
    // Taken whole: the value alone has no traceback yet in older interpreters.
    let exception = problem.clone_ref(py).into_value(py).into_bound(py).into_any();
    let attribute =
        |name: &str| exception.getattr(name).ok().and_then(|value| value.extract::<String>().ok());
    let errors = py.import("forebay.errors").and_then(|errors| errors.getattr("ForebayError"));
    let ours = errors.and_then(|class| exception.is_instance(&class)).unwrap_or(false);
    let kind = attribute("kind").filter(|_| ours).and_then(|kind| ErrorKind::from_name(&kind));
    if let Some(kind) = kind {
        let error = Error::new(kind, exception.to_string());
        return match attribute("hint") {
            Some(hint) => error.with_hint(hint),
            None => error,
        };
    }
    let is_told = exception.get_type().name().is_ok_and(|name| name == "Raised");
    let cause = is_told.then(|| problem.cause(py)).flatten();
    let (line, exception) = match cause {
        Some(cause) => (exception.to_string(), cause.into_value(py).into_any()),
        None => (describe(py, &exception), exception.unbind()),
    };
    Error::function("the function raised").with_source(Raised { line, exception })
}

fn describe(py: Python<'_>, exception: &Bound<'_, PyAny>) -> String {
    let described =
        py.import("forebay._functions").and_then(|module| module.call_method1("describe", (exception,)));
    described.map_or_else(|_| exception.to_string(), |line| line.to_string())
}

fn to_python(py: Python<'_>, values: Vec<Value>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for value in values {
        list.append(match value {
            Value::Tensor(Tensor { spec, data }) => tensor(py, &spec, Memory::new(data))?,
            other => plain(py, &other)?,
        })?;
    }
    Ok(list)
}

fn tensor<'py>(py: Python<'py>, spec: &TensorSpec, memory: Memory) -> PyResult<Bound<'py, PyTuple>> {
    let shape = PyTuple::new(py, &spec.shape)?;
    ("tensor", (memory, spec.dtype.name(), shape)).into_pyobject(py)
}

fn plain<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyTuple>> {
    match value {
        Value::Bytes(payload) => ("bytes", PyBytes::new(py, payload)).into_pyobject(py),
        Value::Text(text) => ("text", text).into_pyobject(py),
        Value::Json(text) => ("json", text).into_pyobject(py),
        Value::Tensor(_) => ("tensor", py.None()).into_pyobject(py),
    }
}

/// A value that Python looks at and gives back.
enum Shared {
    Tensor(TensorSpec, Arc<Buffer>),
    Plain(Value),
}

impl Shared {
    fn new(value: Value) -> Self {
        match value {
            Value::Tensor(Tensor { spec, data }) => Self::Tensor(spec, Arc::new(data)),
            other => Self::Plain(other),
        }
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        match self {
            Self::Tensor(spec, data) => tensor(py, spec, Memory::shared(Arc::clone(data))),
            Self::Plain(value) => plain(py, value),
        }
    }

    fn take_back(self) -> Value {
        match self {
            Self::Tensor(spec, data) => {
                // A function that kept the array has the first one; it is not written to any more.
                let data = Arc::try_unwrap(data).unwrap_or_else(|kept| copy_of(kept.as_slice()));
                Value::Tensor(Tensor { spec, data })
            }
            Self::Plain(value) => value,
        }
    }
}

fn copy_of(bytes: &[u8]) -> Buffer {
    let mut copy = POOL.take(bytes.len());
    copy.as_mut_slice().copy_from_slice(bytes);
    copy
}

/// Puts what a function gave where it goes, if it is what was said.
fn place(
    py: Python<'_>,
    answer: Answer<'_>,
    spec: Option<&TensorSpec>,
    slot: &mut Slot<'_>,
) -> PyResult<Result<()>> {
    if let Some(spec) = spec {
        let (kind, _, dtype, shape) = &answer;
        if kind != "tensor" || *dtype != spec.dtype.name() || *shape != spec.shape {
            let said = format!("{}{:?}", spec.dtype.name(), spec.shape);
            let found = if kind == "tensor" { format!("{dtype}{shape:?}") } else { kind.clone() };
            return Ok(Err(Error::function(format!("it gave {found}, the recipe says {said}"))));
        }
    }
    match slot {
        Slot::Row(row) => {
            let buffer = PyBuffer::<u8>::get(&answer.1)?;
            if buffer.len_bytes() != row.len() {
                return Ok(Err(Error::internal("a function's result does not fit its row")));
            }
            copy_unlocked(py, &buffer, row);
        }
        Slot::Value(free) => match value(py, answer)? {
            Ok(value) => **free = Some(value),
            Err(why) => return Ok(Err(Error::function(why))),
        },
    }
    Ok(Ok(()))
}

fn value(py: Python<'_>, (kind, data, dtype, shape): Answer<'_>) -> PyResult<Result<Value, String>> {
    Ok(Ok(match kind.as_str() {
        "tensor" => {
            let Some(dtype) = dtype_named(&dtype) else {
                return Ok(Err(format!("it gave an array of `{dtype}`")));
            };
            let buffer = PyBuffer::<u8>::get(&data)?;
            let mut copy = POOL.take(buffer.len_bytes());
            copy_unlocked(py, &buffer, copy.as_mut_slice());
            Value::Tensor(Tensor { spec: TensorSpec { dtype, shape }, data: copy })
        }
        "bytes" => Value::Bytes(Bytes::copy_from_slice(data.extract::<&[u8]>()?)),
        "text" => Value::Text(data.cast::<PyString>()?.to_cow()?.into_owned()),
        _ => Value::Json(data.cast::<PyString>()?.to_cow()?.into_owned()),
    }))
}

/// A column of what a function of batches gave for it.
fn column(py: Python<'_>, kind: &str, answers: Vec<Answer<'_>>) -> PyResult<Result<Column, String>> {
    let mut values = Vec::with_capacity(answers.len());
    for answer in answers {
        match value(py, answer)? {
            Ok(value) => values.push(value),
            Err(why) => return Ok(Err(why)),
        }
    }
    if kind == "ragged" {
        return Ok(ragged(values));
    }
    if kind != "tensor" {
        return Ok(Column::of(values, &POOL));
    }
    let Some(Value::Tensor(Tensor { mut spec, data })) = values.pop() else {
        return Ok(Err("is no array".into()));
    };
    if spec.shape.is_empty() {
        return Ok(Err("is a number: give an array with one row per sample".into()));
    }
    let rows = spec.shape.remove(0);
    Ok(Ok(Column::Tensor { spec, rows, data }))
}

/// A ragged column of values, offsets and axis.
fn ragged(parts: Vec<Value>) -> Result<Column, String> {
    let [Value::Tensor(values), Value::Tensor(offsets), Value::Tensor(axis)] =
        <[Value; 3]>::try_from(parts).map_err(|_| "has not three parts")?
    else {
        return Err("is not made of arrays".into());
    };
    let counted = match offsets.spec.dtype {
        Dtype::I32 => Offsets::I32,
        Dtype::I64 => Offsets::I64,
        other => return Err(format!("has offsets of {}: give i32 or i64", other.name())),
    };
    let numbers = |tensor: &Tensor| -> Result<Vec<u64>, String> {
        let elements = tensor.data.as_slice().chunks_exact(tensor.spec.dtype.size());
        let number = |element: &[u8]| match *element {
            [a, b, c, d] => i64::from(i32::from_ne_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => i64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            _ => -1,
        };
        elements
            .map(|element| u64::try_from(number(element)).map_err(|_| "has offsets below 0".into()))
            .collect()
    };
    let axis = numbers(&axis)?.first().and_then(|axis| usize::try_from(*axis).ok());
    let axis = axis.ok_or("has no axis")?;
    let checked = Ragged::checked(values, axis, numbers(&offsets)?, counted);
    checked.map(Column::Ragged).map_err(|why| format!("is not ragged: {why}"))
}

fn dtype_named(name: &str) -> Option<Dtype> {
    serde_json::from_value(name.into()).ok()
}
