//! A batch of the engine as Python objects: memory to look at, texts, payloads. The Python side makes arrays of it.

use crate::buffer::Memory;
use crate::payloads::Payloads;
use forebay_core::tensor::TensorSpec;
use forebay_engine::Batch;
use forebay_ops::{Buffer, Column};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

/// `(epoch, step, rows, ids, padding, columns, object)`. The object is what a collating function made of the batch. A column is `(name, kind, value)`, where a tensor's value is
/// `(memory, dtype, shape)`, batch axis included, and that of a ragged one two such and the axis.
pub(crate) fn to_python(py: Python<'_>, batch: Batch) -> PyResult<Bound<'_, PyTuple>> {
    let rows = batch.len();
    let ids = batch.ids.iter().flat_map(|id| id.0.to_ne_bytes()).collect::<Vec<u8>>();
    let ids = Memory::copy_of(ids.into_iter());
    let padding = Memory::copy_of(batch.padding.iter().map(|padding| u8::from(*padding)));
    let columns = columns_to_python(py, batch.columns)?;
    let object = batch.object.and_then(|object| object.downcast::<Py<PyAny>>().ok());
    (batch.epoch, batch.step, rows, ids, padding, columns, object.map(|object| *object)).into_pyobject(py)
}

/// `(name, kind, value)` each.
pub(crate) fn columns_to_python(py: Python<'_>, given: Vec<(String, Column)>) -> PyResult<Bound<'_, PyList>> {
    let columns = PyList::empty(py);
    for (name, column) in given {
        let (kind, value) = match column {
            Column::Tensor { spec, rows, data } => {
                ("tensor", tensor(py, &spec, Some(rows), data)?.into_any())
            }
            Column::Tensors(tensors) => {
                let list = PyList::empty(py);
                for one in tensors {
                    list.append(tensor(py, &one.spec, None, one.data)?)?;
                }
                ("tensors", list.into_any())
            }
            Column::Ragged(ragged) => {
                let offsets = ragged.offset_bytes();
                let spec = TensorSpec { dtype: ragged.counted.dtype(), shape: vec![ragged.offsets.len()] };
                let offsets =
                    (Memory::copy_of(offsets.into_iter()), spec.dtype.name(), PyTuple::new(py, &spec.shape)?);
                let values = tensor(py, &ragged.values.spec, None, ragged.values.data)?;
                ("ragged", (values, offsets, ragged.axis).into_pyobject(py)?.into_any())
            }
            Column::Bytes(values) => ("bytes", Bound::new(py, Payloads::new(values))?.into_any()),
            Column::Text(values) => ("text", PyList::new(py, values)?.into_any()),
            Column::Json(values) => ("json", PyList::new(py, values)?.into_any()),
        };
        columns.append((name, kind, value))?;
    }
    Ok(columns)
}

fn tensor<'py>(
    py: Python<'py>,
    spec: &TensorSpec,
    rows: Option<usize>,
    data: Buffer,
) -> PyResult<Bound<'py, PyTuple>> {
    let shape: Vec<usize> = rows.into_iter().chain(spec.shape.iter().copied()).collect();
    (Memory::new(data), spec.dtype.name(), PyTuple::new(py, shape)?).into_pyobject(py)
}
