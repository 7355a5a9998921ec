"""``forebay bench formats``: each format read by Forebay, beside the reader that its own library brings.

Every format's data is written by that library, so both read the same files. What is measured is what a training loop
in Python gets: all payloads as ``bytes`` and all labels, in stored order, from the page cache.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from . import _peers
from ._functions import SIDE
from ._harness import Bench, Figures, SubjectError, bar, environment


class Format(NamedTuple):
    """A format and who else reads it."""

    peer: str
    """The subject that reads it by the reference reader."""
    modules: tuple[str, ...]
    """What that subject, and what writes the data, imports."""
    goal: str
    """Samples a second of Forebay, of those of the peer."""


FORMATS = {
    "tfrecord": Format("tfdata_tfrecord", ("tensorflow",), ">= 2.0"),
    "parquet": Format("pyarrow_parquet", ("pyarrow",), ">= 1.2"),
    "mds": Format("streaming_mds", ("streaming",), ">= 1.0"),
    "litdata": Format("litdata_litdata", ("litdata",), ">= 1.0"),
    "tar": Format("webdataset_tar", ("webdataset",), ">= 1.0"),
}


class FormatsBench(Bench):
    """Samples a second and processor time of a sample, for each format and for a Python function in a recipe."""

    name: ClassVar[str] = "formats"
    subjects: ClassVar[tuple[str, ...]] = (
        *(subject for name, how in FORMATS.items() for subject in (f"forebay_{name}", how.peer)),
        "forebay_function",
        "thread_pool",
    )
    packages: ClassVar[tuple[str, ...]] = (
        "forebay",
        "numpy",
        "tensorflow-cpu",
        "pyarrow",
        "mosaicml-streaming",
        "litdata",
        "webdataset",
    )
    needs: ClassVar[dict[str, tuple[str, ...]]] = {how.peer: how.modules for how in FORMATS.values()}
    default_samples: ClassVar[int] = 16384
    module: ClassVar[str] = "forebay.bench._formats_subjects"
    payload_bytes: ClassVar[int] = 8192
    epochs: ClassVar[int] = 4

    def run(self, progress: Callable[[str], None]) -> dict[str, Any]:
        self.tell = progress
        return super().run(progress)

    def make(self, folder: Path) -> dict[str, Any]:
        """The same samples in every format, each written by its own library."""
        sizes: dict[str, Any] = {"samples": self.samples, "payload_bytes": self.payload_bytes}
        for name, how in FORMATS.items():
            ours = f"forebay_{name}"
            if not {ours, how.peer} & set(self.measured):
                continue
            self.tell(f"{self.name}: writing {name}")
            try:
                _write(name, how, folder / name, self.samples, self.payload_bytes)
            except (_peers.MissingPeerError, SubjectError) as fault:
                for subject in (ours, how.peer):
                    if subject in self.measured:
                        self.skip(self.tell, subject, str(fault))
                        self.measured.remove(subject)
                continue
            files = [path for path in (folder / name).rglob("*") if path.is_file()]
            sizes[f"{name}_bytes"] = sum(path.stat().st_size for path in files)
        return sizes

    def settings(self, folder: Path) -> dict[str, Any]:
        import forebay as fb

        return {
            **{f"path_{name}": str(folder / name) for name in FORMATS},
            "path_manifests": str(folder / "manifests"),
            "samples": self.samples // 2,
            "function_payload_bytes": SIDE * SIDE * 3,
            "batch_size": 64,
            "epochs": self.epochs,
            "threads": fb._native.available_threads(),
            "page_cache": "warm",
        }

    def bars(self, medians: dict[str, Figures]) -> list[dict[str, Any]]:
        """Ahead of every reference reader, in samples a second; what it costs the processor stands beside it."""
        bars = []
        for name, how in FORMATS.items():
            if (ratio := _ratio(medians, f"forebay_{name}", how.peer)) is not None:
                bars.append(bar(f"{name}: samples/s against {how.peer}", ratio, how.goal, "x"))
        if (ratio := _ratio(medians, "forebay_function", "thread_pool")) is not None:
            bars.append(bar("Python function, of a bare thread pool", ratio, ">= 0.95", "x"))
        return bars


def _ratio(medians: dict[str, Figures], ours: str, theirs: str) -> float | None:
    if not {ours, theirs} <= medians.keys():
        return None
    return medians[ours]["samples_per_second"] / medians[theirs]["samples_per_second"]


def _write(name: str, how: Format, folder: Path, samples: int, payload_bytes: int) -> None:
    """Makes the data of a format where its library is."""
    python = _peers.interpreter(how.modules)
    settings = {"path": str(folder), "samples": samples, "payload_bytes": payload_bytes}
    command = [python, "-m", "forebay.bench._formats_made", name, json.dumps(settings)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()][-1:] or ["no message"]
        raise SubjectError(f"write {name}: it ended with code {done.returncode}: {said[0]}")
