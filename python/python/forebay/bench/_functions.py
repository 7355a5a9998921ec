"""``forebay bench functions``: a Python function in a recipe, beside a bare thread pool that calls the same one."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ._harness import Bench, Figures, bar

SIDE = 64
ROUNDS = 24
"""Passes over the array, so that a call takes about a millisecond and lets the interpreter go for most of it."""


def work(payload: bytes) -> np.ndarray:
    """What is called: bytes in, an array out."""
    array = np.frombuffer(payload, np.uint8)[: SIDE * SIDE * 3].astype(np.float32)
    for _ in range(ROUNDS):
        array = np.sqrt(array * array + 1.0)
    return array.reshape(3, SIDE, SIDE)


class FunctionsBench(Bench):
    """Samples a second of a loader that calls a function, and of threads that do nothing else."""

    name: ClassVar[str] = "functions"
    subjects: ClassVar[tuple[str, ...]] = ("forebay", "forebay_processes", "thread_pool")
    default_samples: ClassVar[int] = 8192
    module: ClassVar[str] = "forebay.bench._functions"

    def make(self, folder: Path) -> dict[str, Any]:
        return {"samples": self.samples, "payload_bytes": SIDE * SIDE * 3, "result_bytes": SIDE * SIDE * 12}

    def settings(self, folder: Path) -> dict[str, Any]:
        import forebay as fb

        return {"samples": self.samples, "batch_size": 64, "threads": fb._native.available_threads()}

    def bars(self, medians: dict[str, Figures]) -> list[dict[str, Any]]:
        if not {"forebay", "thread_pool"} <= medians.keys():
            return []
        ratio = medians["forebay"]["samples_per_second"] / medians["thread_pool"]["samples_per_second"]
        return [bar("functions in threads, of a bare thread pool", ratio, ">= 0.95", "x")]


def forebay(settings: dict[str, Any], processes: int = 0) -> Iterator[int]:
    """A loader that calls the function, batch after batch."""
    import forebay as fb

    data = fb.synthetic(settings["samples"], bytes=SIDE * SIDE * 3)
    recipe = [fb.raw("bin").map("forebay.bench._functions:work", shape=(3, SIDE, SIDE), dtype="f32")]
    threads = settings["threads"]
    with fb.Loader(
        data, recipe, batch_size=settings["batch_size"], num_workers=threads, processes=processes
    ) as loader:
        for batch in loader:
            yield len(batch["bin"])


def forebay_processes(settings: dict[str, Any]) -> Iterator[int]:
    """The same in helper processes."""
    return forebay(settings, settings["threads"])


def thread_pool(settings: dict[str, Any]) -> Iterator[int]:
    """Threads that call the function on payloads that are there already, and put the results into batches."""
    payload = np.random.default_rng(0).integers(0, 256, SIDE * SIDE * 3, np.uint8).tobytes()
    size, waiting = settings["batch_size"], deque[Future[np.ndarray]]()
    with ThreadPoolExecutor(settings["threads"]) as pool:
        for first in range(0, settings["samples"], size):
            waiting.extend(pool.submit(work, payload) for _ in range(min(size, settings["samples"] - first)))
            # As many ahead as a loader keeps, so that no thread is ever without work.
            if first >= 4 * size:
                yield len(_stacked(waiting, size))
        while waiting:
            yield len(_stacked(waiting, size))


def _stacked(waiting: deque[Future[np.ndarray]], size: int) -> np.ndarray:
    return np.stack([waiting.popleft().result() for _ in range(min(size, len(waiting)))])


SUBJECTS: dict[str, Callable[[dict[str, Any]], Iterator[int]]] = {
    subject.__name__: subject for subject in (forebay, forebay_processes, thread_pool)
}


def main() -> None:
    """Runs one subject and prints its figures. What starting takes is not among them."""
    run = SUBJECTS[sys.argv[1]](json.loads(sys.argv[2]))
    next(run)
    began, processor = time.perf_counter(), time.process_time()
    samples = sum(run)
    seconds, used = time.perf_counter() - began, time.process_time() - processor
    print(json.dumps({"samples_per_second": samples / seconds, "cpu_seconds_per_sample": used / samples}))


if __name__ == "__main__":
    main()
