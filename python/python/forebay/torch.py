"""A loader for torch: as a `torch.utils.data.IterableDataset`, for code that insists on a `DataLoader`, and on devices.

    loader = fb.Loader(data, recipe, batch_size=256, output="torch")
    batches = DataLoader(fb.torch.dataset(loader), batch_size=None, num_workers=0)

The loader has its own threads, so `num_workers=0` is all it needs. With more, every DataLoader process makes the
batches it will be asked for: the loop gets the same batches in the same order, but each is copied from one process to
another, and it says so once. Importing this module imports torch; `import forebay` does not.

Batches on a device, copied while the loop works on those before them:

    with fb.torch.to_device(loader, "cuda", ahead=2) as batches:
        for batch in batches:
            ...
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch
import torch.utils.data

from forebay import _native
from forebay._device import DeviceBatches, lane_of
from forebay._turns import Turns
from forebay.batch import Batch
from forebay.errors import InvalidConfigError, UnsupportedError
from forebay.loader import Loader

__all__ = ["DeviceBatches", "IterableDataset", "dataset", "to_device"]


class IterableDataset(torch.utils.data.IterableDataset[Batch]):
    """The batches of a loader. `set_epoch`, `state_dict` and `load_state_dict` are the loader's.

    In the processes of a `DataLoader`, process k of n makes the batches k, k + n and so on of this rank. An iteration
    is the next epoch there too, whether processes stay (`persistent_workers`) or not. What only the loop knows is which
    batches it received: there is no `state_dict` then, but `state_after(batch)`.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self._turns = Turns()
        self._turns.seek(loader.state_dict()["cursor"])
        loader._followers.add(self._turns)
        self._own: Loader | None = None
        self._iterations = 0

    def __iter__(self) -> Iterator[Batch]:
        process = torch.utils.data.get_worker_info()
        if process is None:
            return self._iterate_here()
        # One number for all processes of one iteration: those that stay are asked again and again.
        self._iterations += 1
        start = self._turns.begin(process.seed - process.id + self._iterations, process.id)
        if start.is_first:
            warnings.warn(
                f"{process.num_workers} DataLoader processes make the batches: they are the same, but each is copied "
                "to the training process; num_workers=0 is faster, the loader has threads of its own",
                RuntimeWarning,
                stacklevel=2,
            )
        if self._own is None:
            self._own = self.loader._in_turn(process.id, process.num_workers)
        if start.cursor is None:
            self._own._live_native().seek_epoch(start.epoch)
        else:
            self._own._live_native().seek(start.cursor)
        return _numbered(iter(self._own), process.id, process.num_workers)

    def _iterate_here(self) -> Iterator[Batch]:
        elsewhere = self._turns.begun()
        if elsewhere is not None:
            self.loader.set_epoch(elsewhere.epoch + 1)
        batches = iter(self.loader)
        # Should processes go on, they do so after this epoch.
        self._turns.seek(_native.start_of(self.loader.epoch + 1))
        return batches

    def __len__(self) -> int:
        elsewhere = self._turns.begun()
        if elsewhere is None:
            return len(self.loader)
        return self.loader._live_native().steps(_native.start_of(elsewhere.epoch))

    def set_epoch(self, epoch: int) -> None:
        """See `Loader.set_epoch`. Processes that were started already follow with their next iteration."""
        self.loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """See `Loader.state_dict`. An error while DataLoader processes make the batches: see `state_after`."""
        if torch.utils.data.get_worker_info() is not None or self._turns.begun() is not None:
            raise UnsupportedError(
                "read state: DataLoader processes make the batches, and only the loop knows which it received",
                hint="take `state_after(batch)` of the batch that it received last, or give DataLoader num_workers=0",
            )
        return self.loader.state_dict()

    def state_after(self, batch: Batch) -> dict[str, Any]:
        """The state of a loop that received `batch` last. See `Loader.state_after`."""
        return self.loader.state_after(batch)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """See `Loader.load_state_dict`."""
        self.loader.load_state_dict(state_dict)


def dataset(loader: Loader) -> IterableDataset:
    """The loader as an `IterableDataset`, to be used with `batch_size=None`, and best with `num_workers=0`."""
    return IterableDataset(loader)


def to_device(loader: Loader, device: torch.device | str | int, *, ahead: int = 2) -> DeviceBatches:
    """The loader's batches with their tensors on `device`, of which `ahead` are copied before the loop asks for them.

    On CUDA copies go through pinned memory that is used again, on a stream of its own. Tensors are found in columns,
    `Ragged` columns, and whatever dicts, lists and tuples `collate` makes; all else stays as it is, `ids` and
    `padding` too. `state_dict` is of what the loop received. The loader makes tensors of torch (`output="torch"`), and
    `pin_memory` is of no use to it.
    """
    if not 1 <= ahead <= 64:
        raise InvalidConfigError(f"copy batches to `{device}`: ahead is {ahead}", hint="give 1 to 64 batches")
    if loader._output_name != "torch":
        raise InvalidConfigError(
            f"copy batches to `{device}`: the loader makes arrays of {loader._output_name}",
            hint='make it with `output="torch"`',
        )
    place = torch.device(device)
    if place.type == "cuda" and place.index is None:
        place = torch.device("cuda", torch.cuda.current_device())
    return DeviceBatches(loader, place, ahead, lane_of(place))


def _numbered(batches: Iterator[Batch], first: int, of: int) -> Iterator[Batch]:
    """Batches with the step that they have in the training loop."""
    for batch in batches:
        batch.step = batch.step * of + first
        yield batch
