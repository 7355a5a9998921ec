"""Values of different lengths, one behind the other: a column that is neither padded nor a list.

The recipe asks for it with `ragged()`. Nothing here computes; arrays look at the batch's memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

__all__ = ["Ragged"]


class Ragged:
    """The values of a batch in one array, and where each begins: sample `i` is `values[offsets[i]:offsets[i + 1]]`.

    Both are what the loader's `output` says: NumPy arrays, tensors of torch, arrays of JAX. `len` counts samples,
    `column[i]` and iterating give them one by one, as views where the framework has views.
    """

    __slots__ = ("axis", "offsets", "values")

    values: Any
    """All values, one behind the other along `axis`."""
    offsets: Any
    """Where each begins, and where the last one ends: one integer more than there are samples, beginning with 0. This
    is what attention kernels call `cu_seqlens`."""
    axis: int
    """The axis of `values` along which samples follow each other: the first, or that of time of a waveform."""

    def __init__(self, values: Any, offsets: Any, axis: int = 0) -> None:
        self.values = values
        self.offsets = offsets
        self.axis = axis

    @property
    def lengths(self) -> Any:
        """How long each sample is along `axis`."""
        return self.offsets[1:] - self.offsets[:-1]

    def nested(self) -> Any:
        """The column as a nested tensor of torch (`layout=torch.jagged`), which looks at the same memory."""
        import torch

        return torch.nested.nested_tensor_from_jagged(self.values, self.offsets, jagged_dim=self.axis + 1)

    def to(self, device: Any, *, non_blocking: bool = False) -> Ragged:
        """The same column with both tensors on `device`, as `torch.Tensor.to` moves one."""
        values, offsets = (part.to(device, non_blocking=non_blocking) for part in (self.values, self.offsets))
        return Ragged(values, offsets, self.axis)

    def pin_memory(self) -> Ragged:
        """The same column in pinned memory, as `torch.Tensor.pin_memory`."""
        return Ragged(self.values.pin_memory(), self.offsets.pin_memory(), self.axis)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Any:
        rows = len(self)
        if not -rows <= row < rows:
            raise IndexError(f"row {row} of a ragged column with {rows}")
        row %= rows
        part = slice(int(self.offsets[row]), int(self.offsets[row + 1]))
        return self.values[(slice(None),) * self.axis + (part,)]

    def __iter__(self) -> Iterator[Any]:
        # One look at the offsets, which may lie on a device.
        bounds = self.offsets.tolist()
        before = (slice(None),) * self.axis
        return (self.values[(*before, slice(*pair))] for pair in pairwise(bounds))

    def __repr__(self) -> str:
        return (
            f"<forebay.Ragged of {len(self)}: {self.values.dtype}{list(self.values.shape)}, axis {self.axis}>"
        )
