"""Fixtures: one folder of images and one set of shards for the whole run, manifests kept beside them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import forebay as fb
import made
import numpy as np
import pytest


@pytest.fixture(scope="session", autouse=True)
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kept manifests go to a folder of this run, in child processes too."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    return folder


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("FOREBAY_") or name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.write_tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    """1003 samples in 5 shards: an array, a label, a text, a JSON document."""
    samples = [
        {
            "npy": made.npy(np.full((2, 3), number, np.float32)),
            "cls": str(number % 10).encode(),
            "txt": f"sample {number} é".encode(),
            "json": json.dumps({"number": number}).encode(),
        }
        for number in range(1003)
    ]
    return made.write_shards(tmp_path_factory.mktemp("shards"), samples, 5)


@pytest.fixture(scope="session")
def numbers() -> fb.Dataset:
    """1003 synthetic samples of 100 bytes in 4 shards."""
    return fb.synthetic(1003, bytes=100, shards=4)
