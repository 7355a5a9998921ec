//! Memory that NumPy arrays and views of payloads look at, offered through the buffer protocol without a copy.
//!
//! The only unsafe code of the Python front. A batch's buffer goes back to the loader's pool when the last array that
//! looks at it is gone, a payload to where it came from when the last view is, whether the loader still lives or not.
#![expect(unsafe_code, reason = "the buffer protocol hands out raw pointers")]

use crate::runtime::Owned;
use bytes::Bytes;
use forebay_ops::Buffer;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// One block of memory: of a batch, writable and aligned to 4096 bytes, or a payload, which others may be reading too.
#[pyclass(frozen, module = "forebay._native")]
pub(crate) struct Memory {
    _held: Owned<Held>,
    start: usize,
    bytes: usize,
    writable: bool,
}

/// Who owns the memory.
enum Held {
    Buffer(#[expect(dead_code, reason = "held until it is dropped")] Buffer),
    Shared(#[expect(dead_code, reason = "held until it is dropped")] Arc<Buffer>),
    Payload(#[expect(dead_code, reason = "held until it is dropped")] Bytes),
}

impl Memory {
    pub(crate) fn new(buffer: Buffer) -> Self {
        let (start, bytes) = (buffer.as_ptr() as usize, buffer.len());
        Self { _held: Owned::new(Held::Buffer(buffer)), start, bytes, writable: true }
    }

    /// Memory that somebody else looks at too: offered read-only.
    pub(crate) fn shared(buffer: Arc<Buffer>) -> Self {
        let (start, bytes) = (buffer.as_ptr() as usize, buffer.len());
        Self { _held: Owned::new(Held::Shared(buffer)), start, bytes, writable: false }
    }

    /// A payload where it lies.
    pub(crate) fn of_payload(payload: Bytes) -> Self {
        let (start, bytes) = (payload.as_ptr() as usize, payload.len());
        Self { _held: Owned::new(Held::Payload(payload)), start, bytes, writable: false }
    }

    /// Memory with a copy of `bytes`.
    pub(crate) fn copy_of(bytes: impl ExactSizeIterator<Item = u8>) -> Self {
        let mut buffer = Buffer::alone(bytes.len());
        for (to, from) in buffer.as_mut_slice().iter_mut().zip(bytes) {
            *to = from;
        }
        Self::new(buffer)
    }
}

#[pymethods]
impl Memory {
    /// Address of the first byte.
    #[getter]
    fn address(&self) -> usize {
        self.start
    }

    fn __len__(&self) -> usize {
        self.bytes
    }

    fn __repr__(&self) -> String {
        format!("<forebay memory of {} bytes>", self.bytes)
    }

    /// Offers the memory as bytes.
    ///
    /// # Safety
    /// Called by the interpreter, with a view to be filled.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view was given"));
        }
        let memory = slf.get();
        // SAFETY: the interpreter gives a valid view. The memory stays where it is for as long as `slf` lives, and
        // the view keeps a reference to `slf`. In a forked child it is a private copy that is never freed. Rust makes
        // no reference into a batch after it was handed over, so Python may write; payloads are offered read-only.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                memory.start as *mut std::ffi::c_void,
                memory.bytes as ffi::Py_ssize_t,
                c_int::from(!memory.writable),
                flags,
            )
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// Copies a buffer of Python's without holding up the interpreter. Both must be equally long.
pub(crate) fn copy_unlocked(py: Python<'_>, from: &PyBuffer<u8>, to: &mut [u8]) {
    assert!(from.len_bytes() == to.len() && from.is_c_contiguous(), "a flat buffer of this length");
    let start = from.buf_ptr() as usize;
    // SAFETY: the buffer is exported until `from` is dropped, so its memory stays and is as long as was checked, and
    // `to` is ours alone. Whoever writes there meanwhile spoils the bytes of his own result.
    py.detach(|| unsafe { std::ptr::copy_nonoverlapping(start as *const u8, to.as_mut_ptr(), to.len()) });
}

/// Drops a value of [`Owned`], which never touches it again.
pub(crate) fn drop_now<T>(value: &mut ManuallyDrop<T>) {
    // SAFETY: called once, from the drop of the owner.
    unsafe { ManuallyDrop::drop(value) }
}
