"""``forebay bench cache``: what a hit costs in each tier, beside the plainest way to move the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from . import _cache_epochs, _cache_peers, _made
from ._harness import Bench, Figures, bar


class CacheBench(Bench):
    """Hits from memory, disk and a peer against memcpy, direct reads and framed TCP of the same payloads.

    Payloads are taken as views, which is how a hit is handed over; beside that, without a goal, each made a ``bytes``.
    """

    name: ClassVar[str] = "cache"
    subjects: ClassVar[tuple[str, ...]] = (
        *("cache_memory", "cache_memory_bytes", "memcpy"),
        *("cache_disk", "cache_disk_bytes", "direct_reads"),
        *_cache_peers.MOVES,
        *_cache_peers.FIGURES,
        *_cache_epochs.SUBJECTS,
    )
    packages: ClassVar[tuple[str, ...]] = ("forebay", "numpy", "mosaicml-streaming", "litdata")
    default_samples: ClassVar[int] = 8192
    module: ClassVar[str] = "forebay.bench._cache_subjects"
    needs: ClassVar[dict[str, tuple[str, ...]]] = {
        subject: (module,)
        for subject in _cache_epochs.SUBJECTS
        for module in ("streaming", "litdata")
        if module in subject
    }

    def make(self, folder: Path) -> dict[str, Any]:
        """Shards of images, read without decoding."""
        return _made.images(folder, self.samples)

    def settings(self, folder: Path) -> dict[str, Any]:
        """Batches of payloads as they are; the first epoch fills the cache and is not measured."""
        return {
            "path_shards": str(folder / "shards"),
            "path_manifests": str(folder / "manifests"),
            "path_kept": str(folder / "kept"),
            "batch_size": 256,
            "epochs": 4,
            "reads_in_flight": 32,
        }

    def bars(self, medians: dict[str, Figures]) -> list[dict[str, Any]]:
        """The goals."""
        found = []
        for ours, plain, goal in (
            ("cache_memory", "memcpy", 80),
            ("cache_disk", "direct_reads", 90),
            ("cache_peer", "framed_tcp", 80),
        ):
            if {ours, plain} <= medians.keys():
                share = medians[ours]["bytes_per_second"] / medians[plain]["bytes_per_second"]
                found.append(bar(f"{ours} against {plain}", share * 100, f">= {goal}", "%"))
        if "host_copies" in medians:
            copies = medians["host_copies"]["copies"]
            found.append(bar("copies that four processes of a host keep", copies, "<= 1.1", "copies"))
        for percent in (35, 65):
            if f"epoch2_forebay_{percent}" in medians:
                share = medians[f"epoch2_forebay_{percent}"]["fetched_share"]
                # A sample that does not fit into what is left of the room stays out.
                found.append(
                    bar(f"epoch 2 fetches with {percent} % room", share * 100, f"<= {100.1 - percent}", "%")
                )
        return found
