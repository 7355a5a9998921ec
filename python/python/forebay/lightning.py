"""Phases of a Lightning training loop: `Trainer(callbacks=[forebay.lightning.Phases()])`."""

from __future__ import annotations

import time
from typing import Any

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback  # type: ignore[assignment]

from forebay.errors import InvalidConfigError
from forebay.loader import Loader

__all__ = ["Phases"]


class Phases(Callback):
    """Adds `forward`, `backward` and `update` of every training step to the loader's `stats()`.

    The loader is the trainer's own, when it is one of Forebay's; otherwise give it. What a device does after a call has
    returned is in the phase of the next call that waits for it.
    """

    def __init__(self, loader: Loader | None = None) -> None:
        self._given = loader
        self._loader: Loader | None = None
        self._phase: tuple[str, int] | None = None

    def _enter(self, name: str | None) -> None:
        """Ends the phase in hand and begins the next."""
        now = time.perf_counter_ns()
        if self._phase is not None and self._loader is not None:
            before, since = self._phase
            self._loader._live_native().add_phase(before, now - since)
        self._phase = None if name is None or self._loader is None else (name, now)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Finds the loader."""
        found = self._given if self._given is not None else trainer.train_dataloader
        if not isinstance(found, Loader):
            raise InvalidConfigError(
                f"time phases of training: the trainer reads from {type(found).__name__}, not from a forebay.Loader",
                hint="give the loader: Phases(loader)",
            )
        self._loader = found

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Forward begins."""
        self._enter("forward")

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        """Backward begins."""
        self._enter("backward")

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        """Update begins."""
        self._enter("update")

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """The step is over."""
        self._enter(None)
