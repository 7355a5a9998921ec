//! A column of payloads: bytes that stay where they came to lie until somebody asks for them.
//!
//! An element is a new `bytes`, which every library takes and which holds on to nothing else; a view is the memory
//! itself, read-only, and keeps what that is part of: the body of a request, a slab of the cache, a mapped batch.
//! Small payloads are put together in one piece first, so that a few kilobytes never keep megabytes.

use crate::buffer::Memory;
use crate::runtime::Owned;
use bytes::{Bytes, BytesMut};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyMemoryView, PySlice, PyTuple, PyType};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Smaller payloads are copied when the batch is handed over: that costs less than what they might hold.
const SHARED_BYTES: usize = 16 << 10;

/// The payloads of a batch, as a sequence that makes a `bytes` of each when it is asked for.
///
/// `payloads[3]`, iteration, slices, `len`, `in` and comparison with lists and tuples are those of a list of `bytes`;
/// it cannot be changed. `view(3)` and `views()` give the same payloads without a copy, read-only. A view may keep
/// more memory than its own, the request that brought it: to keep single payloads for long, keep `bytes`. It is no
/// `collections.abc.Sequence`, so that frameworks that walk through a batch, to move its tensors to a device, hand it on
/// as it is instead of walking through every byte.
#[pyclass(frozen, module = "forebay", name = "Payloads")]
pub(crate) struct Payloads {
    values: Owned<Vec<Bytes>>,
}

impl Payloads {
    pub(crate) fn new(mut values: Vec<Bytes>) -> Self {
        let small = |value: &&mut Bytes| (1..SHARED_BYTES).contains(&value.len());
        let mut copies =
            BytesMut::with_capacity(values.iter_mut().filter(small).map(|value| value.len()).sum());
        for value in values.iter_mut().filter(small) {
            copies.extend_from_slice(value);
            *value = copies.split().freeze();
        }
        Self { values: Owned::new(values) }
    }

    fn values(&self) -> &[Bytes] {
        self.values.memory()
    }

    fn at(&self, index: isize) -> PyResult<&Bytes> {
        let values = self.values();
        let from_start = if index < 0 { index.checked_add_unsigned(values.len()) } else { Some(index) };
        let found =
            from_start.and_then(|index| usize::try_from(index).ok()).and_then(|index| values.get(index));
        found.ok_or_else(|| PyIndexError::new_err("payload index out of range"))
    }

    /// Where a `bytes` lies among the payloads; what is no `bytes` is nowhere.
    fn positions<'a>(&'a self, value: &'a Bound<'_, PyAny>) -> impl Iterator<Item = usize> + 'a {
        let wanted = value.extract::<&[u8]>().ok();
        let is_wanted = move |payload: &Bytes| wanted.is_some_and(|wanted| wanted == payload);
        self.values().iter().enumerate().filter(move |(_, payload)| is_wanted(payload)).map(|(at, _)| at)
    }
}

#[pymethods]
impl Payloads {
    #[new]
    #[pyo3(signature = (payloads = None, /))]
    fn from_python(payloads: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let mut values = Vec::new();
        for value in payloads.map(PyAnyMethods::try_iter).transpose()?.into_iter().flatten() {
            values.push(Bytes::copy_from_slice(value?.extract()?));
        }
        Ok(Self { values: Owned::new(values) })
    }

    /// One payload without a copy: read-only bytes that stay valid for as long as the view is held.
    fn view<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyMemoryView>> {
        let memory = Bound::new(py, Memory::of_payload(self.at(index)?.clone()))?;
        PyMemoryView::from(memory.as_any())
    }

    /// A list of all payloads without a copy, as `view` gives them.
    fn views<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let views: PyResult<Vec<_>> = (0..self.values().len()).map(|at| self.view(py, at as isize)).collect();
        PyList::new(py, views?)
    }

    /// A list of the payloads' lengths in bytes.
    fn lengths(&self) -> Vec<usize> {
        self.values().iter().map(Bytes::len).collect()
    }

    /// Bytes of all payloads together.
    #[getter]
    fn nbytes(&self) -> usize {
        self.values().iter().map(Bytes::len).sum()
    }

    /// The first position of an equal payload; `ValueError` when there is none.
    fn index(&self, value: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.positions(value).next().ok_or_else(|| PyValueError::new_err("no such payload"))
    }

    /// How many payloads are equal.
    fn count(&self, value: &Bound<'_, PyAny>) -> usize {
        self.positions(value).count()
    }

    fn __contains__(&self, value: &Bound<'_, PyAny>) -> bool {
        self.positions(value).next().is_some()
    }

    fn __len__(&self) -> usize {
        self.values().len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let Ok(slice) = index.cast::<PySlice>() else {
            return Ok(PyBytes::new(py, self.at(index.extract()?)?).into_any());
        };
        let (values, indices) = (self.values(), slice.indices(self.values().len() as isize)?);
        let picked = (0..indices.slicelength).map(|at| indices.start + at as isize * indices.step);
        let picked = picked.filter_map(|at| values.get(at as usize).cloned()).collect();
        Ok(Bound::new(py, Self { values: Owned::new(picked) })?.into_any())
    }

    fn __iter__(slf: Bound<'_, Self>) -> PayloadsIterator {
        PayloadsIterator { payloads: slf.unbind(), next: AtomicUsize::new(0) }
    }

    fn __eq__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = other.py();
        let equal = if let Ok(other) = other.cast::<Self>() {
            self.values() == other.get().values()
        } else if other.is_instance_of::<PyList>() || other.is_instance_of::<PyTuple>() {
            let mut others = other.try_iter()?;
            other.len()? == self.values().len()
                && self.values().iter().all(|value| {
                    let other = others.next().and_then(Result::ok);
                    other.is_some_and(|other| other.extract::<&[u8]>().is_ok_and(|other| other == value))
                })
        } else {
            return Ok(py.NotImplemented().into_bound(py));
        };
        Ok(equal.into_pyobject(py)?.to_owned().into_any())
    }

    fn __add__<'py>(&self, py: Python<'py>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if other.is_instance_of::<Self>() || other.is_instance_of::<PyList>() {
            return self.to_list(py)?.as_any().add(other.try_iter()?.collect::<PyResult<Vec<_>>>()?);
        }
        Ok(py.NotImplemented().into_bound(py))
    }

    fn __radd__<'py>(&self, py: Python<'py>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if other.is_instance_of::<PyList>() {
            return other.add(self.to_list(py)?);
        }
        Ok(py.NotImplemented().into_bound(py))
    }

    /// Nothing in it changes: a copy would be the same.
    fn __copy__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __deepcopy__<'py>(slf: Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        slf
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyType>, (Bound<'py, PyList>,))> {
        Ok((py.get_type::<Self>(), (self.to_list(py)?,)))
    }

    fn __repr__(&self) -> String {
        format!("<forebay.Payloads: {} payloads, {} bytes>", self.values().len(), self.nbytes())
    }
}

impl Payloads {
    fn to_list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.values().iter().map(|value| PyBytes::new(py, value)))
    }
}

/// Goes through payloads from the first to the last.
#[pyclass(frozen, module = "forebay._native")]
pub(crate) struct PayloadsIterator {
    payloads: Py<Payloads>,
    next: AtomicUsize,
}

#[pymethods]
impl PayloadsIterator {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        let at = self.next.fetch_add(1, Relaxed);
        self.payloads.get().values().get(at).map(|value| PyBytes::new(py, value))
    }
}
