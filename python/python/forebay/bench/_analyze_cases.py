"""Pipelines whose rates are known, what must be found of them, and changes that are predicted and then made.

A pipeline is known because all of its parts sleep: a step, an op and a store. What follows from three rates is written
down here once more, apart from the model of ``forebay_core::stall`` that it judges.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

PARTS = ("ingest", "prep", "fetch")


class Pipeline(NamedTuple):
    """Samples a second that each part can give alone, and the share of an epoch that a cache keeps."""

    ingest: float
    prep: float
    fetch: float
    batch: int = 8
    threads: int = 8
    cached: float = 0.0

    @property
    def step_seconds(self) -> float:
        """What the training step sleeps for a batch."""
        return self.batch / self.ingest

    @property
    def op_seconds(self) -> float:
        """What the op sleeps for a sample."""
        return self.threads / self.prep

    @property
    def name(self) -> str:
        """All of it, as part of a subject's name."""
        rates = "/".join(f"{part}{getattr(self, part):g}" for part in PARTS)
        return f"{rates}/batch{self.batch}/threads{self.threads}/cache{self.cached:.0%}"


class Known(NamedTuple):
    """What an epoch would be: its bottleneck, and the shares of step, prep stall and fetch stall."""

    bottleneck: str
    shares: tuple[float, float, float]


def known(pipeline: Pipeline, hits: float) -> Known:
    """An epoch in which this share of samples is resident."""
    ingest, prep = 1 / pipeline.ingest, 1 / pipeline.prep
    fetch = (1 - hits) / pipeline.fetch
    resident = max(ingest, prep)
    whole = max(resident, fetch)
    slowest = max(zip((ingest, prep, fetch), PARTS, strict=True))[1]
    return Known(slowest, (ingest / whole, (resident - ingest) / whole, (whole - resident) / whole))


class Point(NamedTuple):
    """A change of a pipeline as ``what_if`` names it, and the pipeline to which it is made."""

    base: Pipeline
    change: str
    then: Pipeline

    @property
    def name(self) -> str:
        """The change and what is changed, as part of a subject's name."""
        return f"{self.change}/{self.base.name}"


# No two rates of a case are nearer than a quarter, with and without its cache: there means say who is the slowest.
CASES: tuple[Pipeline, ...] = (
    *(Pipeline(i, p, f) for i, p, f in itertools.permutations((50, 100, 200, 400), 3)),
    *(Pipeline(i, p, f, batch=4, threads=4) for i, p, f in itertools.permutations((40, 100, 250))),
    *(Pipeline(i, p, f, cached=0.5) for i, p, f in itertools.permutations((40, 100, 250))),
)

_FAR = Pipeline(ingest=400, prep=250, fetch=100, batch=4)
_SLOW = Pipeline(ingest=300, prep=25, fetch=400, batch=4, threads=1)
_PAIR = Pipeline(ingest=300, prep=50, fetch=400, batch=4, threads=2)
_BUSY = Pipeline(ingest=100, prep=400, fetch=400, batch=4)


def _more_threads(base: Pipeline, threads: int) -> Pipeline:
    return base._replace(threads=threads, prep=base.prep * threads / base.threads)


POINTS: tuple[Point, ...] = (
    *(
        Point(_FAR, f"cache={percent}%", _FAR._replace(cached=percent / 100))
        for percent in (0, 25, 50, 75, 100)
    ),
    *(Point(_SLOW, f"cores={threads}", _more_threads(_SLOW, threads)) for threads in (1, 2, 4, 8)),
    Point(_PAIR, "cores=x0.5", _more_threads(_PAIR, 1)),
    Point(_BUSY, "cores=4", _more_threads(_BUSY, 4)),
    *(
        Point(base, f"bandwidth=x{factor:g}", base._replace(fetch=base.fetch * factor))
        for base in (_FAR, _BUSY)
        for factor in (0.5, 2)
    ),
    *(
        Point(base, f"step=x{factor:g}", base._replace(ingest=base.ingest / factor))
        for base in (_FAR, _BUSY)
        for factor in (0.5, 2)
    ),
)


def pipeline_of(told: list[Any]) -> Pipeline:
    """A pipeline that crossed to another process as JSON."""
    return Pipeline(*told)
