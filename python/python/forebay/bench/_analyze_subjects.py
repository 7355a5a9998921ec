"""What ``forebay bench analyze`` measures, one thing in a process of its own:
``python -m forebay.bench._analyze_subjects SUBJECT SETTINGS``, the figures as one JSON object.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import forebay as fb

from ._analyze_cases import PARTS, Pipeline, known, pipeline_of
from ._harness import Figures
from ._known_store import serving

PAYLOAD_BYTES = 512
OBJECTS = 4000
"""Of a store: more than are read in the longest measurement, so that none is asked for twice."""
FILLED = 320
"""Objects of a store behind a cache: all of them are read once to fill it."""
SKIPPED = 20
"""Batches that do not count: some were made while nothing was measured."""


@contextmanager
def loader_of(pipeline: Pipeline, objects: int) -> Iterator[fb.Loader]:
    """A loader of the pipeline on a store of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="forebay-bench-") as kept,
        serving(objects, PAYLOAD_BYTES, pipeline.fetch) as options,
    ):
        data = fb.open("s3://bucket/o/", storage_options=options, extensions=["bin"], manifest_dir=kept)
        cache = round(pipeline.cached * objects * PAYLOAD_BYTES)
        with fb.Loader(
            data,
            [fb.raw("bin").delay(pipeline.op_seconds)],
            batch_size=pipeline.batch,
            num_workers=pipeline.threads,
            inflight=8,
            # A request waits for those before it, which looks like a slow one.
            hedge=False,
            cache=cache or None,
        ) as loader:
            yield loader


def analyzed(pipeline: Pipeline, seconds: float, what_if: str | None = None) -> fb.Analysis:
    """What is found out of it."""
    with loader_of(pipeline, OBJECTS) as loader:
        return fb.analyze(
            loader, lambda batch: time.sleep(pipeline.step_seconds), seconds=seconds, what_if=what_if
        )


def rates(settings: dict[str, Any]) -> Figures:
    """Rates, shares and bottleneck as they are found, beside those that the pipeline was made with."""
    pipeline = pipeline_of(settings["pipeline"])
    analysis = analyzed(pipeline, settings["seconds"])
    figures: Figures = {}
    errors = []
    for part in PARTS:
        found, truth = analysis["rates"][part]["per_second"], getattr(pipeline, part)
        figures[f"{part}_per_second"] = found
        errors.append(abs(found / truth - 1))
    off, right = [], []
    for name, hits in (("first", 0.0), ("later", pipeline.cached)):
        epoch, truth = analysis["prediction"][name], known(pipeline, hits)
        right.append(epoch["bottleneck"] == truth.bottleneck)
        for part, share in zip(("step", "prep_stall", "fetch_stall"), truth.shares, strict=True):
            found = epoch[f"{part}_seconds"] / epoch["seconds"]
            figures[f"{name}_{part}_share"] = found
            off.append(abs(found - share))
    return {
        **figures,
        "rate_error_share": max(errors),
        "share_error_share": max(off),
        "bottleneck_right_share": float(all(right)),
    }


def what_if(settings: dict[str, Any]) -> Figures:
    """Samples a second as predicted from the pipeline as it is, and as measured with the change made."""
    base, then = pipeline_of(settings["pipeline"]), pipeline_of(settings["then"])
    analysis = analyzed(base, settings["seconds"], settings["change"])
    predicted = analysis["what_if"]["prediction"]["later"]["rate"]
    measured = rate_of(then, 2 * settings["seconds"])
    return {
        "predicted_per_second": predicted,
        "measured_per_second": measured,
        "error_share": abs(predicted / measured - 1),
    }


def rate_of(pipeline: Pipeline, seconds: float) -> float:
    """Samples a second of a real loop, in an epoch that finds the cache filled if there is one."""
    with loader_of(pipeline, FILLED if pipeline.cached else OBJECTS) as loader:
        if pipeline.cached:
            for _ in loader:
                pass
        taken, began = 0, 0.0
        for number, batch in enumerate(loader):
            if number == SKIPPED:
                taken, began = 0, time.perf_counter()
            taken += len(batch.ids)
            time.sleep(pipeline.step_seconds)
            # Where a cache gives some samples and a store others, the whole epoch has them in the right shares.
            ended = not pipeline.cached and time.perf_counter() - began >= seconds
            if number > 2 * SKIPPED and ended:
                break
        return taken / (time.perf_counter() - began)


def metering(settings: dict[str, Any]) -> Figures:
    """How much longer epochs take that are metered than others in turn with them."""
    make, samples = LOADS[settings["load"]]
    samples = max(2 * BATCH, round(samples * settings["share"]))
    data, recipe = make(samples)
    epoch(data, recipe, metered=True)
    taken: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for pair in range(settings["pairs"]):
        first = pair % 2 == 0
        for metered in (first, not first):
            taken[metered].append(epoch(data, recipe, metered=metered))
    ours, plain = undisturbed(taken[True]), undisturbed(taken[False])
    return {
        "cost_share": ours[0] / plain[0] - 1,
        "cpu_cost_share": ours[1] / plain[1] - 1,
        "samples_per_second": (samples - BATCH) / ours[0],
    }


def undisturbed(taken: list[tuple[float, float]]) -> tuple[float, float]:
    """What an epoch takes that nothing else on the machine held up: the lower quartile, since others only add."""
    wall, processor = (sorted(column) for column in zip(*taken, strict=True))
    return wall[len(wall) // 4], processor[len(processor) // 4]


BATCH = 256


def epoch(data: fb.Dataset, recipe: Any, *, metered: bool) -> tuple[float, float]:
    """Seconds and processor seconds of an epoch from its second batch on: starting is not what is measured.

    Settings are given, so that what metering finds out changes none.
    """
    with fb.Loader(data, recipe, batch_size=BATCH, num_workers=2, prefetch_batches=4, epochs=1) as loader:
        loader._settings["metering"] = metered
        loader._start(used=False)
        batches = iter(loader)
        next(batches)
        began, processor = time.perf_counter(), time.process_time()
        for _ in batches:
            pass
        return time.perf_counter() - began, time.process_time() - processor


def payloads(samples: int) -> tuple[fb.Dataset, list[Any]]:
    """1 KB handed on as they are: nothing else is paid for."""
    return fb.synthetic(samples, bytes=1024), [fb.raw("bin")]


def arrays(samples: int) -> tuple[fb.Dataset, list[Any]]:
    """64 KB that threads copy into batches."""
    buffer = io.BytesIO()
    np.save(buffer, np.arange(65536, dtype=np.uint8))
    data = fb.synthetic(samples, templates=[buffer.getvalue()])
    return data, [fb.npy("bin", shape=(65536,), dtype="u8"), fb.label("cls")]


LOADS = {"payloads": (payloads, 100_000), "arrays": (arrays, 8_000)}
"""What is metered, and samples of an epoch that takes some tenths of a second."""
SUBJECTS = {subject.__name__: subject for subject in (rates, what_if, metering)}


def main() -> None:
    """Runs one subject and prints its figures."""
    kind = sys.argv[1].partition("/")[0]
    print(json.dumps(SUBJECTS[kind](json.loads(sys.argv[2]))))


if __name__ == "__main__":
    main()
