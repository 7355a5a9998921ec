"""Functions for recipes of tests, in a module that other processes can import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

SCALE = 2.0


def double(value: Any) -> Any:
    return value * SCALE


def noisy(value: Any, rng: np.random.Generator) -> Any:
    return value + rng.normal(size=value.shape).astype(np.float32)


def even(value: Any) -> bool:
    return int(value) % 2 == 0


def raises_for_13(value: Any) -> Any:
    if int(np.asarray(value).reshape(-1)[0]) == 13:
        raise ValueError("thirteen is bad luck")
    return value


def with_process(sample: dict[str, Any]) -> dict[str, Any]:
    return {"npy": sample["npy"], "pid": os.getpid()}


def dies_once(value: Any) -> Any:
    """Ends the process that first meets sample 13; the next one finds the mark."""
    mark = Path(os.environ["CALLED_MARK"])
    if int(value.reshape(-1)[0]) == 13 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return value


def dies(value: Any) -> Any:
    if int(value.reshape(-1)[0]) == 13:
        os._exit(7)
    return value


def slow(value: Any) -> Any:
    time.sleep(600)
    return value


def mirrored(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "npy": np.concatenate([batch["npy"], batch["npy"]], 2), "words": batch["txt"]}


def swapped(batch: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    order = rng.permutation(len(batch["npy"]))
    return {"npy": batch["npy"], "other": batch["npy"][order]}
