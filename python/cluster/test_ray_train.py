"""A Ray Train loop reads through a service on Ray: the example of the guide, run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import forebay.ray
from rows import SAMPLES, assert_exact

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "deploy" / "ray"))


def test_ranks_of_a_ray_train_loop_get_every_sample_once(nodes: Path, tmp_path: Path) -> None:
    import train

    with forebay.ray.start(workers=2, num_cpus=0.1, threads=1) as cluster:
        told: list[dict[str, Any]] = train.run(cluster, samples=SAMPLES, ranks=2, folder=tmp_path)
    assert sorted(one["rank"] for one in told) == [0, 1], "ranks were found, not given"
    assert {one["steps"] for one in told} == {len(told[0]["ids"]) // train.BATCH}, "equal steps"
    assert_exact([i for one in told for i in one["ids"]])
