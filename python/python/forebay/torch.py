"""A loader as a `torch.utils.data.IterableDataset`, for code that insists on a `DataLoader`.

    loader = fb.Loader(data, recipe, batch_size=256, output="torch")
    batches = DataLoader(fb.torch.dataset(loader), batch_size=None, num_workers=0)

The loader has its own threads. Worker processes would only copy what is ready, and each of them would read all of the
data, so more than zero of them is an error. Importing this module imports torch; `import forebay` does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch.utils.data

from forebay.batch import Batch
from forebay.errors import UnsupportedError
from forebay.loader import Loader

__all__ = ["IterableDataset", "dataset"]


class IterableDataset(torch.utils.data.IterableDataset[Batch]):
    """The batches of a loader. `set_epoch`, `state_dict` and `load_state_dict` are the loader's."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Batch]:
        worker = torch.utils.data.get_worker_info()
        if worker is not None:
            raise UnsupportedError(
                f"iterate in DataLoader process {worker.id} of {worker.num_workers}: each would read all of the data",
                hint="give DataLoader num_workers=0; the loader has threads of its own, see its num_workers",
            )
        return iter(self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        """See `Loader.set_epoch`."""
        self.loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """See `Loader.state_dict`."""
        return self.loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """See `Loader.load_state_dict`."""
        self.loader.load_state_dict(state_dict)


def dataset(loader: Loader) -> IterableDataset:
    """The loader as an `IterableDataset`, to be used with `batch_size=None, num_workers=0`."""
    return IterableDataset(loader)
