"""What jobs of these tests read, in the driver and in Ray's own processes."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import forebay as fb

RECIPE = [fb.raw("bin"), fb.label("cls")]
SAMPLES, BATCH = 3000, 10


def train(via: Any, *, step_seconds: float = 0.0, **settings: Any) -> list[int]:
    """One epoch of a made-up job; the ids that it received."""
    data = fb.synthetic(SAMPLES, bytes=64, shards=3)
    ids: list[int] = []
    with fb.Loader(data, RECIPE, batch_size=BATCH, shuffle=True, epochs=1, via=via, **settings) as loader:
        for batch in loader:
            ids.extend(batch.ids.tolist())
            time.sleep(step_seconds)
    return ids


def assert_exact(ids: list[int], samples: int = SAMPLES) -> None:
    wrong = Counter(ids)
    wrong.subtract(range(samples))
    assert not [i for i, times in wrong.items() if times], "not every sample exactly once"
