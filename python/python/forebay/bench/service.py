"""``forebay bench service``: what it costs to get batches from another process, beside tf.data service.

Large batches that lie ready at one worker, over TCP, and the same with their preparation; photographs through one
worker against the same work at home; four jobs that share one preparation; hand-over as shared memory. Needs
``tensorflow-cpu`` for the rows of tf.data service.
"""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from . import _made
from ._harness import Bench, Figures, bar

SHAPE, ARRAYS, DISTINCT = (3, 224, 224), 2048, 32


class ServiceBench(Bench):
    """Batches through a worker and through a shared process, beside tf.data service and local preparation."""

    name: ClassVar[str] = "service"
    subjects: ClassVar[tuple[str, ...]] = (
        *("wire_forebay", "wire_prepared", "wire_tfdata"),
        *("images_local", "images_worker", "images_share", "handover_memfd"),
    )
    packages: ClassVar[tuple[str, ...]] = ("forebay", "numpy", "tensorflow-cpu")
    default_samples: ClassVar[int] = 4096
    module: ClassVar[str] = "forebay.bench._service_subjects"
    needs: ClassVar[dict[str, tuple[str, ...]]] = {"wire_tfdata": ("tensorflow",)}

    def make(self, folder: Path) -> dict[str, Any]:
        """Shards of photographs, and of arrays that need no decoding."""
        sizes: dict[str, Any] = {}
        if any(subject.startswith("images") for subject in self.measured):
            sizes["images"] = _made.images(folder, self.samples)
        if {"wire_forebay", "wire_prepared", "handover_memfd"} & set(self.measured):
            sizes["arrays"] = write_arrays(folder / "arrays")
        return sizes

    def settings(self, folder: Path) -> dict[str, Any]:
        """Batches of 38.5 MB when they are arrays of bytes."""
        return {
            "path_shards": str(folder / "shards"),
            "path_arrays": str(folder / "arrays"),
            "path_manifests": str(folder / "manifests"),
            "batch_size": 256,
            "shape": SHAPE,
            "size": 224,
            "seconds": 8.0,
            "threads": len(os.sched_getaffinity(0)),
            "jobs": 4,
            "staging_bytes": 3 << 30,
            "staged_batches": 64,
            "first_batches": 8,
        }

    def bars(self, medians: dict[str, Figures]) -> list[dict[str, Any]]:
        """The goals."""
        found = []
        mine, theirs = medians.get("wire_forebay"), medians.get("wire_tfdata")
        if mine and theirs:
            for figure, goal, unit in (
                ("bytes_per_second", 5, "GB/s"),
                ("bytes_per_cpu_second", 8, "GB per CPU-s"),
            ):
                times = mine[figure] / theirs[figure]
                found.append(
                    bar(f"one worker over TCP against tf.data service, {unit}", times, f">= {goal}", "x")
                )
        local = medians.get("images_local")
        if local and (worker := medians.get("images_worker")):
            share = worker["images_per_second"] / local["images_per_second"]
            found.append(bar("images through one worker against local", share * 100, ">= 95", "%"))
        if local and (shared := medians.get("images_share")):
            times = shared["images_per_second"] / local["images_per_second"]
            found.append(bar("four jobs that share against one", times, ">= 3.8", "x"))
        if handed := medians.get("handover_memfd"):
            found.append(bar("hand-over as shared memory", handed["bytes_per_second"] / 1e9, ">= 5", "GB/s"))
        return found


def write_arrays(folder: Path) -> dict[str, Any]:
    """Shards of arrays of noise, each as large as a cropped photograph; returns their sizes."""
    folder.mkdir()
    payloads = []
    for seed in range(DISTINCT):
        buffer = io.BytesIO()
        np.save(buffer, np.random.default_rng(seed).integers(0, 255, SHAPE, dtype=np.uint8))
        payloads.append(buffer.getvalue())
    shards = 4
    for shard in range(shards):
        with tarfile.open(folder / f"arrays-{shard}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for sample in range(shard * ARRAYS // shards, (shard + 1) * ARRAYS // shards):
                entry = tarfile.TarInfo(f"{sample:06}.npy")
                entry.size = len(payloads[sample % DISTINCT])
                tar.addfile(entry, io.BytesIO(payloads[sample % DISTINCT]))
    return {"samples": ARRAYS, "shards": shards, "payload_bytes": ARRAYS * len(payloads[0])}
