"""``forebay bench files``: the same samples as files and as shards on this machine's disk, with a cold page cache."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from . import _made
from ._harness import Bench, Figures, bar


class FilesBench(Bench):
    """What one read of the disk brings, and how many samples a second come of it.

    Before every measurement all files are written out and dropped from the page cache, which needs no rights. How much
    really came from the device is among the figures: a file system in memory cannot be made cold.
    """

    name: ClassVar[str] = "files"
    subjects: ClassVar[tuple[str, ...]] = ("forebay_files", "forebay_shards", "read_files")
    default_samples: ClassVar[int] = 4096
    module: ClassVar[str] = "forebay.bench._files_subjects"

    def make(self, folder: Path) -> dict[str, Any]:
        sizes = _made.images(folder, self.samples)
        os.sync()
        return sizes

    def settings(self, folder: Path) -> dict[str, Any]:
        return {
            "path_tree": str(folder / "tree"),
            "path_shards": str(folder / "shards"),
            "path_manifests": str(folder / "manifests"),
            "batch_size": 256,
            "page_cache": "cold",
            "file_system": file_system(folder),
        }

    def bars(self, medians: dict[str, Figures]) -> list[dict[str, Any]]:
        """Only that it was cold: how much shards win depends on the disk. Row 22's 2 x is of a disk of 100 jumps/s."""
        return [
            bar(f"{subject}: bytes from the device", 100 * figures["device_share"], ">= 95", "%")
            for subject, figures in medians.items()
        ]


def evict(paths: Iterable[Path]) -> None:
    """Drops files from the page cache."""
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)


def file_system(folder: Path) -> str:
    """The kind of file system that a folder is on."""
    best, kind = "", "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        mount, found = line.split()[1:3]
        if len(mount) >= len(best) and folder.resolve().is_relative_to(mount):
            best, kind = mount, found
    return kind
