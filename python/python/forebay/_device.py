"""Batches of a loader on a device, copied while the loop works on those before them. Imports torch.

A batch goes through memory that is pinned once and used again, on a stream of its own; the loop's stream waits for the
copy, not the loop. What a copy needs of a device is a `Lane`: CUDA has one, and everything else copies at once by the
same steps.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

import torch

from forebay.batch import Batch
from forebay.errors import InvalidConfigError
from forebay.loader import Loader
from forebay.ragged import Ragged

__all__ = ["DeviceBatches", "Lane", "lane_of"]

_ALIGN = 256
"""Where tensors begin in pinned memory, as CUDA aligns its own."""


class Lane(Protocol):
    """How tensors get to a device."""

    def pinned(self, size: int) -> torch.Tensor:
        """So many bytes of memory that the device reads from."""

    def copying(self) -> contextlib.AbstractContextManager[Any]:
        """Memory of the device that is taken and copies that are asked for inside belong to the lane."""

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Begins to copy memory that nobody changes before the copy is done."""

    def mark(self) -> Any:
        """A mark behind all copies that were begun."""

    def hand_over(self, mark: Any, tensors: Sequence[torch.Tensor]) -> None:
        """What the loop asks of the device from now on waits for the mark, and `tensors` live until it is done."""

    def wait(self, mark: Any) -> None:
        """Waits until the copies before the mark are done."""


class _AtOnce:
    """Copies that are done when they were asked for."""

    def pinned(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8)

    def copying(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        target.copy_(source)

    def mark(self) -> Any:
        return None

    def hand_over(self, mark: Any, tensors: Sequence[torch.Tensor]) -> None:
        pass

    def wait(self, mark: Any) -> None:
        pass


class _Cuda:
    """Copies on a stream beside the loop's."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def pinned(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def copying(self) -> contextlib.AbstractContextManager[Any]:
        return torch.cuda.stream(self._stream)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        target.copy_(source, non_blocking=True)

    def mark(self) -> Any:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self._stream)
        return event

    def hand_over(self, mark: Any, tensors: Sequence[torch.Tensor]) -> None:
        current = torch.cuda.current_stream(self._device)
        current.wait_event(mark)
        for tensor in tensors:
            # Taken on the lane's stream: without this its memory could be given away while the loop's still reads it.
            tensor.record_stream(current)

    def wait(self, mark: Any) -> None:
        mark.synchronize()


def lane_of(device: torch.device) -> Lane:
    """The lane to a device."""
    return _Cuda(device) if device.type == "cuda" else _AtOnce()


class _Staging:
    """Pinned memory for one batch, used again for another when its copies are done."""

    def __init__(self) -> None:
        self._memory: torch.Tensor | None = None
        self._mark: Any = None
        self._is_marked = False

    def send(self, lane: Lane, tensors: Sequence[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
        """Begins to copy tensors to the device."""
        self.wait(lane)
        starts, end = [], 0
        for tensor in tensors:
            starts.append(end)
            end += -(-_bytes(tensor) // _ALIGN) * _ALIGN
        if self._memory is None or len(self._memory) < end:
            # A little more than is needed: batches differ.
            self._memory = lane.pinned(end + end // 8)
        sent = []
        for tensor, start in zip(tensors, starts, strict=True):
            if not _is_dense(tensor):
                sent.append(tensor.to(device))
                continue
            staged = self._memory[start : start + _bytes(tensor)].view(tensor.dtype).view(tensor.shape)
            staged.copy_(tensor)
            with lane.copying():
                target = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
                lane.copy(target, staged)
            sent.append(target)
        self._mark, self._is_marked = lane.mark(), True
        return sent

    @property
    def mark(self) -> Any:
        return self._mark

    def wait(self, lane: Lane) -> None:
        if self._is_marked:
            lane.wait(self._mark)
            self._mark, self._is_marked = None, False


class _Sent(NamedTuple):
    """A batch on its way."""

    batch: Any
    tensors: list[torch.Tensor]
    staging: _Staging
    cursor: str
    """Where a loop stands that received it last."""


class DeviceBatches:
    """The batches of a loader on a device. Made by `to_device`.

    Iterating is the loader's: every `iter` is the next epoch, or the rest of one after a resume. States are of what the
    loop received; what is on its way counts as not received.
    """

    def __init__(self, loader: Loader, device: torch.device, ahead: int, lane: Lane) -> None:
        self._loader, self._device, self._lane = loader, device, lane
        self._stagings = [_Staging() for _ in range(ahead + 1)]
        self._coming: deque[_Sent] = deque()
        self._begun: str | None = None
        self._received: str | None = None
        self._iteration = 0

    def __iter__(self) -> Iterator[Any]:
        if self._received is None:
            # Nothing was received of what is on its way: it comes again.
            self._rewind()
        self._drop()
        batches = iter(self._loader)
        self._begun = self._loader._live_native().cursor()
        return _Iterator(self, batches, self._iteration)

    def __len__(self) -> int:
        """Batches of a whole epoch on this rank."""
        return len(self._loader)

    @property
    def loader(self) -> Loader:
        """The loader. Its own state runs ahead of the loop."""
        return self._loader

    def set_epoch(self, epoch: int) -> None:
        """See `Loader.set_epoch`."""
        self._rewind()
        self._loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the loop stands, by the batches that it received from here. See `Loader.state_dict`."""
        cursor = self._received if self._received is not None else self._begun
        if cursor is None:
            return self._loader.state_dict()
        return self._loader._state_at(cursor)

    def load_state_dict(
        self, state_dict: Mapping[str, Any] | Sequence[Mapping[str, Any]], strict: bool = True
    ) -> None:
        """See `Loader.load_state_dict`."""
        self._loader.load_state_dict(state_dict, strict)
        self._drop()

    def close(self) -> None:
        """Waits for what is on its way, and closes the loader. The place stays."""
        self._rewind()
        self._loader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _rewind(self) -> None:
        """Sends the loader back to where the loop stands."""
        cursor = self._received if self._received is not None else self._begun
        if self._coming and cursor is not None:
            self._loader._live_native().seek(cursor)
            self._loader._seeked(cursor)
        self._drop()

    def _drop(self) -> None:
        """Ends the present iteration, and waits for its copies."""
        for staging in self._stagings:
            staging.wait(self._lane)
        self._coming.clear()
        self._begun = self._received = None
        self._iteration += 1

    def _send(self, batch: Any, cursor: str, staging: _Staging) -> None:
        found: list[torch.Tensor] = []

        def find(tensor: torch.Tensor) -> torch.Tensor:
            found.append(tensor)
            return tensor

        _each(batch, find)
        sent = staging.send(self._lane, found, self._device)
        moved = iter(sent)
        copied = [tensor for tensor in sent if _is_dense(tensor)]
        self._coming.append(_Sent(_each(batch, lambda _: next(moved)), copied, staging, cursor))


class _Iterator(Iterator[Any]):
    """One pass over an epoch."""

    def __init__(self, owner: DeviceBatches, batches: Iterator[Any], iteration: int) -> None:
        self._owner, self._batches, self._iteration = owner, batches, iteration
        self._problem: BaseException | None = None
        self._sent = 0

    def __next__(self) -> Any:
        owner = self._owner
        if owner._iteration != self._iteration:
            raise InvalidConfigError(
                "take batch: a newer iterator, `close`, `set_epoch` or `load_state_dict` ended this one",
                hint="iterate again",
            )
        while self._problem is None and len(owner._coming) < len(owner._stagings):
            try:
                batch = next(self._batches)
                cursor = owner._loader._live_native().cursor()
                staging = owner._stagings[self._sent % len(owner._stagings)]
                owner._send(batch, cursor, staging)
                self._sent += 1
            except Exception as problem:
                # Told when the loop has received what came before, `StopIteration` too.
                self._problem = problem
        if not owner._coming:
            assert self._problem is not None
            raise self._problem
        sent = owner._coming.popleft()
        owner._lane.hand_over(sent.staging.mark, sent.tensors)
        owner._received = sent.cursor
        return sent.batch


def _is_dense(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_nested


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size() if _is_dense(tensor) else 0


def _each(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same structure with every tensor changed. What holds no tensors stays itself."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Ragged):
        return Ragged(_each(value.values, change), _each(value.offsets, change), value.axis)
    if isinstance(value, Batch):
        columns = {name: _each(column, change) for name, column in value.items()}
        return Batch(columns, ids=value.ids, padding=value.padding, epoch=value.epoch, step=value.step)
    if isinstance(value, dict):
        return {name: _each(part, change) for name, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_each(part, change) for part in value))
    if type(value) in (list, tuple):
        return type(value)(_each(part, change) for part in value)
    return value
