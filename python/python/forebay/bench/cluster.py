"""``forebay bench cluster``: what it costs to let Ray run a service, and how long jobs wait when part of it dies.

The same work through two workers that were started by hand, and through two that are actors of Ray; workers and
dispatchers that are killed while a job reads; and the number of workers changed. Needs ``ray``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from . import _made
from ._harness import Bench, Figures, bar


class ClusterBench(Bench):
    """A service on Ray beside one that was started by hand; failures; scaling."""

    name: ClassVar[str] = "cluster"
    subjects: ClassVar[tuple[str, ...]] = (
        *("images_by_hand", "images_on_ray"),
        *("kill_worker", "kill_dispatcher", "scale"),
    )
    packages: ClassVar[tuple[str, ...]] = ("forebay", "numpy", "ray")
    default_samples: ClassVar[int] = 4096
    module: ClassVar[str] = "forebay.bench._cluster_subjects"
    # By hand it needs no Ray, but figures of two interpreters are no pair.
    needs: ClassVar[dict[str, tuple[str, ...]]] = {subject: ("ray",) for subject in subjects}

    def make(self, folder: Path) -> dict[str, Any]:
        """Shards of photographs."""
        if not any(subject.startswith("images") for subject in self.measured):
            return {}
        return {"images": _made.images(folder, self.samples)}

    def settings(self, folder: Path) -> dict[str, Any]:
        """Workers have a thread each; as many as there are processors."""
        return {
            "path_shards": str(folder / "shards"),
            "path_manifests": str(folder / "manifests"),
            "batch_size": 128,
            "size": 224,
            "seconds": 15.0,
            "workers": max(2, len(os.sched_getaffinity(0))),
            "staging_bytes": 1 << 30,
            "first_batches": 8,
            "step_seconds": 0.01,
            "most_workers": 4,
        }

    def bars(self, medians: dict[str, Figures]) -> list[dict[str, Any]]:
        """The goals."""
        found = []
        hand, ray = medians.get("images_by_hand"), medians.get("images_on_ray")
        if hand and ray:
            more = 1 - ray["images_per_second"] / hand["images_per_second"]
            found.append(bar("a service on Ray against one by hand, images/s", more * 100, "<= 3", "% less"))
        if worker := medians.get("kill_worker"):
            found.append(bar("a job waits when a worker dies", worker["wait_seconds"], "<= 5", "s"))
        if dispatcher := medians.get("kill_dispatcher"):
            found.append(bar("a job waits when a dispatcher dies", dispatcher["wait_seconds"], "<= 5", "s"))
        return found
