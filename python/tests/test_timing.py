"""Promises that are times. Each has the numbers of its row; on a busy machine the best of three tries counts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import forebay as fb


def best_of_three(measure: Callable[[], float], goal: float) -> float:
    """The smallest of up to three measurements; stops at the first that is good enough."""
    best = float("inf")
    for _ in range(3):
        best = min(best, measure())
        if best <= goal:
            break
    return best


def waits(loader: fb.Loader, step: float = 0.0) -> list[float]:
    times = []
    iterator = iter(loader)
    while True:
        since = time.perf_counter()
        batch = next(iterator, None)
        times.append(time.perf_counter() - since)
        if batch is None:
            return times[:-1]
        time.sleep(step)


def test_p009_the_next_epoch_begins_without_a_gap() -> None:
    data = fb.synthetic(400, bytes=1000)

    def ratio() -> float:
        with fb.Loader(
            data, [fb.raw("bin").delay(0.002)], batch_size=10, num_workers=4, shuffle=True
        ) as loader:
            first, second = waits(loader), waits(loader)
        return second[0] / statistics.median(first[1:] + second[1:])

    assert best_of_three(ratio, 1.5) <= 1.5


def test_p036_all_threads_work_on_the_first_batch() -> None:
    data = fb.synthetic(1024, bytes=100)

    def first_batch() -> float:
        with fb.Loader(data, [fb.raw("bin").delay(0.005)], batch_size=256, num_workers=32) as loader:
            since = time.perf_counter()
            next(iter(loader))
            return time.perf_counter() - since

    assert best_of_three(first_batch, 0.15) <= 0.15


def test_p037_more_threads_do_not_make_the_first_batch_later() -> None:
    data = fb.synthetic(200, bytes=100)

    def first_batch(threads: int) -> float:
        with fb.Loader(data, [fb.raw("bin").delay(0.02)], batch_size=8, num_workers=threads) as loader:
            since = time.perf_counter()
            next(iter(loader))
            return time.perf_counter() - since

    assert best_of_three(lambda: first_batch(64) / first_batch(1), 1.2) <= 1.2


def test_p037_waits_have_no_peaks() -> None:
    data = fb.synthetic(800, bytes=100)

    def ratio() -> float:
        with fb.Loader(data, [fb.raw("bin").delay(0.01)], batch_size=16, num_workers=8) as loader:
            times = waits(loader)[3:]
        return max(times) / statistics.median(times)

    assert best_of_three(ratio, 3.0) <= 3.0


def test_p041_threads_start_side_by_side_and_once() -> None:
    data = fb.synthetic(640, bytes=100)
    starts: list[int] = []

    def init(number: int) -> None:
        starts.append(number)
        time.sleep(0.5)

    def ready() -> float:
        starts.clear()
        with fb.Loader(
            data, [fb.raw("bin").delay(0.001)], batch_size=64, num_workers=16, worker_init_fn=init
        ) as loader:
            since = time.perf_counter()
            iterator = iter(loader)
            next(iterator)
            while len(starts) < 16:
                time.sleep(0.001)
            elapsed = time.perf_counter() - since
            for _ in iterator:
                pass
            for _ in range(3):
                for _ in loader:
                    pass
        assert sorted(starts) == list(range(16)), "threads were started again"
        return elapsed

    assert best_of_three(ready, 1.5) < 1.5
