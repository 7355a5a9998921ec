"""``forebay bench images``: decode, RandomResizedCrop(224), flip, normalise, batches of 256."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from . import _made
from ._harness import Bench, Figures, bar


class ImagesBench(Bench):
    """Forebay beside a plain DataLoader on the same files and beside WebDataset on the same shards."""

    name: ClassVar[str] = "images"
    subjects: ClassVar[tuple[str, ...]] = ("forebay", "dataloader", "webdataset")
    packages: ClassVar[tuple[str, ...]] = ("forebay", "numpy", "torch", "torchvision", "webdataset", "pillow")
    needs: ClassVar[dict[str, tuple[str, ...]]] = {
        "dataloader": ("torch", "torchvision"),
        "webdataset": ("torch", "torchvision", "webdataset"),
    }
    default_samples: ClassVar[int] = 2048

    def make(self, folder: Path) -> dict[str, Any]:
        return _made.images(folder, self.samples)

    def settings(self, folder: Path) -> dict[str, Any]:
        return {
            "path_tree": str(folder / "tree"),
            "path_shards": str(folder / "shards"),
            "path_manifests": str(folder / "manifests"),
            "batch_size": 256,
            "size": 224,
            "workers": len(os.sched_getaffinity(0)),
            "epochs": 2,
            "output": "f32 CHW, normalised",
            "page_cache": "warm",
        }

    def bars(self, medians: dict[str, Figures]) -> list[dict[str, Any]]:
        mine = medians.get("forebay")
        if mine is None:
            return []
        bars = [
            bar("first batch", mine["first_batch_seconds"], "<= 0.3", "s"),
            bar("peak memory of the process", mine["peak_rss_bytes"] / 1e6, "<= 600", "MB"),
        ]
        for peer in ("dataloader", "webdataset"):
            if peer in medians:
                ratio = mine["images_per_second"] / medians[peer]["images_per_second"]
                bars.append(bar(f"images/s against {peer}", ratio, ">= 2.0", "x"))
        return bars
