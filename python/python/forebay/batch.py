"""Batches as they are handed over, and how native memory becomes arrays: without a copy, whatever the framework."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from forebay import _native
from forebay._native import Payloads
from forebay.ragged import Ragged

__all__ = ["DTYPES", "Batch", "Payloads", "array_of", "bfloat16", "samples_of", "wrap", "wrap_columns"]


class Batch(dict[str, Any]):
    """Prepared samples, collated: a `dict` from column to values, with the samples' provenance beside it.

    A column of tensors is one array with the batch axis first; tensors of different shapes are a list of arrays, or
    with `ragged()` one `Ragged`; texts are a list of `str`, JSON documents a list of objects, payloads `Payloads`, a
    sequence of `bytes`. As with any dict, `len` counts columns; `size` counts samples. Arrays are yours: writable, and
    valid after the loader moved on or was closed.
    """

    ids: npt.NDArray[np.uint64]
    """The sample in each row. Empty in a batch that a framework made anew, for example on another device."""
    padding: npt.NDArray[np.bool_]
    """Rows that repeat a sample only to fill the batch."""
    epoch: int
    """The epoch that all samples belong to; -1 when that is not known."""
    step: int
    """Number of the batch in this iteration, from 0; -1 when that is not known."""

    # Frameworks that move a batch to a device make a new one with `type(batch)(columns)`: provenance is optional.
    def __init__(
        self,
        columns: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        *,
        ids: npt.NDArray[np.uint64] | None = None,
        padding: npt.NDArray[np.bool_] | None = None,
        epoch: int = -1,
        step: int = -1,
    ) -> None:
        super().__init__(columns)
        self.ids = np.empty(0, np.uint64) if ids is None else ids
        self.padding = np.zeros(len(self.ids), np.bool_) if padding is None else padding
        self.epoch = epoch
        self.step = step

    @property
    def size(self) -> int:
        """Number of samples, padding included."""
        return len(self.ids) or len(next(iter(self.values()), ()))

    def __repr__(self) -> str:
        columns = ", ".join(f"{name}: {_describe(value)}" for name, value in self.items())
        return f"<forebay.Batch of {self.size}, epoch {self.epoch}, step {self.step}: {columns}>"


def wrap(native: tuple[Any, ...], output: Output, *, single: bool = False) -> Batch:
    """A batch from what the native loader gave; with `single`, its only sample without the batch axis."""
    epoch, step, rows, ids, padding, columns, _ = native
    batch = Batch(
        wrap_columns(columns, output),
        ids=np.ndarray((rows,), np.uint64, memoryview(ids)),
        padding=np.ndarray((rows,), np.bool_, memoryview(padding)),
        epoch=epoch,
        step=step,
    )
    if single:
        for name, values in batch.items():
            batch[name] = values[0]
    return batch


def wrap_columns(columns: Iterable[tuple[str, str, Any]], output: Output | None = None) -> dict[str, Any]:
    """Columns as Python has them, from what the native side gave."""
    made: dict[str, Any] = {}
    convert = output or (lambda array, _dtype: array)
    for name, kind, value in columns:
        if kind == "tensor":
            made[name] = convert(array_of(*value), value[1])
        elif kind == "tensors":
            made[name] = [convert(array_of(*one), one[1]) for one in value]
        elif kind == "ragged":
            values, offsets = (convert(array_of(*part), part[1]) for part in value[:2])
            made[name] = Ragged(values, offsets, value[2])
        elif kind == "json":
            made[name] = [json.loads(text) for text in value]
        else:
            made[name] = value
    return made


def samples_of(batch: Batch) -> list[dict[str, Any]]:
    """The samples of a batch one by one, as dicts; arrays are views of the batch's memory."""
    columns = [(name, list(values)) for name, values in batch.items()]
    return [{name: values[row] for name, values in columns} for row in range(len(batch.ids))]


Output = Callable[[npt.NDArray[Any], str], Any]
"""Turns an array and the name of its element type into what the framework calls a tensor."""


def output_named(name: str, *, pin_memory: bool = False) -> Output:
    """The output called `name`. Imports the framework it is for."""
    if name == "torch":
        return _torch_output(pin_memory)
    if name == "jax":
        return _jax_output()
    # NumPy arrays speak DLPack themselves.
    return lambda array, _dtype: array


def _torch_output(pin_memory: bool) -> Output:
    import torch

    pin = pin_memory and torch.cuda.is_available()

    def convert(array: npt.NDArray[Any], dtype: str) -> Any:
        if dtype == "bf16":
            tensor = torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
        else:
            tensor = torch.from_numpy(array)
        return tensor.pin_memory() if pin else tensor

    return convert


def _jax_output() -> Output:
    import jax

    _register_with_jax()
    # `jnp.asarray` always copies. The array is not touched by us any more, so it may be looked at.
    return lambda array, _dtype: jax.device_put(array, may_alias=True)


@functools.cache
def _register_with_jax() -> None:
    import jax

    # So that `jax.tree.map`, `device_put` and `jit` look into the column. The axis is not traced.
    jax.tree_util.register_pytree_node(
        Ragged,
        lambda column: ((column.values, column.offsets), column.axis),
        lambda axis, parts: Ragged(*parts, axis),
    )


DTYPES: dict[str, np.dtype[Any]] = {
    "bool": np.dtype(np.bool_),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}


def array_of(memory: _native.Memory, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """An array over native memory, without a copy."""
    return np.ndarray(shape, DTYPES.get(dtype) or bfloat16(), memoryview(memory))


def bfloat16() -> np.dtype[Any]:
    """NumPy has no bfloat16: the one of `ml_dtypes` when that is installed, as with JAX, else its bits as `uint16`."""
    if "bf16" not in DTYPES:
        try:
            import ml_dtypes
        except ImportError:
            DTYPES["bf16"] = np.dtype(np.uint16)
        else:
            DTYPES["bf16"] = np.dtype(ml_dtypes.bfloat16)
    return DTYPES["bf16"]


def _describe(value: Any) -> str:
    if isinstance(value, Ragged):
        return f"ragged {value.values.dtype}{list(value.values.shape)}"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}{list(value.shape)}"
    return f"{len(value)} values" if isinstance(value, list | Payloads) else type(value).__name__
