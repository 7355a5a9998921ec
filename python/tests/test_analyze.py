"""`fb.analyze`: known sleeps are found, and what follows from them is said."""

from __future__ import annotations

import time
from pathlib import Path

import forebay as fb
import pytest
from slow_store import SlowStore, serving


def test_p068_a_sleeping_step_and_a_sleeping_op_are_found() -> None:
    data = fb.synthetic(2000, bytes=1000)
    said = []
    for _ in range(3):
        with fb.Loader(data, [fb.raw("bin").delay(0.08)], batch_size=8, num_workers=8) as loader:
            analysis = fb.analyze(loader, lambda batch: time.sleep(0.04), seconds=1.5, what_if="cores=x2")
            assert loader.epoch == 0, "its place is not touched"
            assert loader.stats()["batches"] == 0
        rates, later = analysis["rates"], analysis["prediction"]["later"]
        ingest, prep = (rates[name]["per_second"] for name in ("ingest", "prep"))
        said.append((ingest, prep, later))
        # What does not depend on time.
        assert later["bottleneck"] == "prep"
        assert rates["fetch"]["per_second"] > 10 * prep
        assert analysis["remedies"][0]["change"] == "cores"
        for name in ("ingest", "prep"):
            assert rates[name]["low"] <= rates[name]["per_second"] <= rates[name]["high"]
        text = str(analysis)
        assert "bottleneck" in text
        assert "what would help" in text
        assert "with cores=x2" in text
        if ingest == pytest.approx(200, rel=0.1) and prep == pytest.approx(100, rel=0.1):
            assert analysis["what_if"]["prediction"]["later"]["rate"] > 1.5 * later["rate"]
            stall = later["prep_stall_seconds"] / later["seconds"]
            assert stall == pytest.approx(0.5, abs=0.05)
            return
    raise AssertionError(f"three times beside it: {said}")


def test_p068_three_known_rates_are_found_in_one_run_without_root(tmp_path: Path) -> None:
    said = []
    for attempt in range(3):
        # 50 samples a second from the store, 100 through an op of 80 ms on 8 threads, 200 in steps of 40 ms for 8.
        store = SlowStore(1000, 500, per_second=50)
        with serving(store) as options:
            kept = tmp_path / str(attempt)
            data = fb.open("s3://bucket/o/", storage_options=options, extensions=["bin"], manifest_dir=kept)
            recipe = [fb.raw("bin").delay(0.08)]
            with fb.Loader(data, recipe, batch_size=8, num_workers=8, inflight=8, hedge=False) as loader:
                analysis = fb.analyze(loader, lambda batch: time.sleep(0.04), seconds=3)
        rates, first = analysis["rates"], analysis["prediction"]["first"]
        found = [rates[name]["per_second"] for name in ("ingest", "prep", "fetch")]
        parts = ("step_seconds", "prep_stall_seconds", "fetch_stall_seconds")
        shares = [first[part] / first["seconds"] for part in parts]
        said.append((found, shares))
        if found == pytest.approx([200, 100, 50], rel=0.1) and shares == pytest.approx(
            [0.25, 0.25, 0.5], abs=0.05
        ):
            assert first["bottleneck"] == "fetch"
            return
    raise AssertionError(f"three times beside it: {said}")


def test_p069_more_threads_bring_what_was_predicted_from_one() -> None:
    data = fb.synthetic(2000, bytes=1000)
    recipe = [fb.raw("bin").delay(0.01)]

    def measured(threads: int) -> float:
        """Samples a second of a whole loader, after its queue is full."""
        with fb.Loader(data, recipe, batch_size=4, num_workers=threads) as loader:
            batches = iter(loader)
            for _ in range(10):
                next(batches)
            since, taken = time.perf_counter(), 0
            while time.perf_counter() - since < 0.6:
                taken += len(next(batches).ids)
            return taken / (time.perf_counter() - since)

    # One measurement of each number must be undisturbed; which one does not matter.
    said: dict[int, list[tuple[float, float]]] = {threads: [] for threads in (2, 4, 8)}
    for threads, found in said.items():
        for _ in range(4):
            with fb.Loader(data, recipe, batch_size=4, num_workers=1) as loader:
                analysis = fb.analyze(
                    loader, lambda batch: time.sleep(0.002), seconds=0.5, what_if=f"cores={threads}"
                )
            predicted = analysis["what_if"]["prediction"]["later"]["rate"]
            found.append((predicted, measured(threads)))
            if found[-1][0] == pytest.approx(found[-1][1], rel=0.1):
                break
        else:
            raise AssertionError(f"four times beside it with {threads} threads: {said}")


def test_what_makes_no_sense_is_refused() -> None:
    with fb.Loader(fb.synthetic(20, bytes=100), [fb.raw("bin")], batch_size=4) as loader:
        with pytest.raises(fb.InvalidConfigError, match="more than 0"):
            fb.analyze(loader, len, seconds=0)
        with pytest.raises(fb.InvalidConfigError, match="colour"):
            fb.analyze(loader, lambda batch: time.sleep(0.001), seconds=0.1, what_if="colour=red")
