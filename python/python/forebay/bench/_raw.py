"""``forebay bench raw``: tar shards read without decoding, beside plain ``read()`` of the same files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from . import _made
from ._harness import Bench, Figures, bar


class RawBench(Bench):
    """How much of a plain sequential read is left when every sample comes out as an object of its own."""

    name: ClassVar[str] = "raw"
    subjects: ClassVar[tuple[str, ...]] = ("forebay_raw", "read", "read_reused", "webdataset_raw")
    packages: ClassVar[tuple[str, ...]] = ("forebay", "numpy", "webdataset")
    needs: ClassVar[dict[str, tuple[str, ...]]] = {"webdataset_raw": ("webdataset",)}
    default_samples: ClassVar[int] = 8192

    def make(self, folder: Path) -> dict[str, Any]:
        return _made.images(folder, self.samples)

    def settings(self, folder: Path) -> dict[str, Any]:
        return {
            "path_shards": str(folder / "shards"),
            "path_manifests": str(folder / "manifests"),
            "batch_size": 256,
            "epochs": 3,
            "page_cache": "warm",
        }

    def bars(self, medians: dict[str, Figures]) -> list[dict[str, Any]]:
        if not {"forebay_raw", "read"} <= medians.keys():
            return []
        share = medians["forebay_raw"]["bytes_per_second"] / medians["read"]["bytes_per_second"]
        return [bar("raw bytes/s against read()", share * 100, ">= 80", "%")]
