"""Where a loop's time goes: the table, the timeline, the user's phases, and that all of it adds up."""

from __future__ import annotations

import time

import forebay as fb
import pytest

PARTS = ("step", "fetch_stall", "prep_stall", "queue", "transfer")


def seconds(split: dict[str, float]) -> float:
    return sum(split[f"{part}_seconds"] for part in PARTS)


def looped() -> tuple[float, fb.Stats, list[dict[str, float]], list[dict[str, float]]]:
    """Seconds of a loop of two epochs by the test's own clock, and what the loader says of it."""
    data = fb.synthetic(96, bytes=1000)
    with fb.Loader(data, [fb.raw("bin").delay(0.004)], batch_size=8, num_workers=2) as loader:
        wall = 0.0
        for _ in range(2):
            since = time.perf_counter()
            for _ in loader:
                time.sleep(0.01)
            wall += time.perf_counter() - since
            # What is done between two epochs is not the loop's.
            time.sleep(0.05)
        return wall, loader.stats(), loader.timeline("epoch"), loader.timeline()


def test_p070_the_parts_add_up_to_the_time_of_the_loop() -> None:
    # A machine that does something else between the two clocks is no fault of the sum: one run of three must agree.
    walls = []
    for _ in range(3):
        wall, stats, epochs, steps = looped()
        assert seconds(stats) == pytest.approx(stats["wall_seconds"], rel=0.02)
        assert stats["stall_seconds"] == pytest.approx(
            stats["fetch_stall_seconds"] + stats["prep_stall_seconds"]
        )
        assert stats["step_seconds"] >= 24 * 0.01
        assert [epoch["epoch"] for epoch in epochs] == [0, 1]
        assert [epoch["batches"] for epoch in epochs] == [12, 12]
        assert [(step["epoch"], step["step"]) for step in steps] == [
            (e, s) for e in (0, 1) for s in range(12)
        ]
        for splits in (epochs, steps):
            assert sum(map(seconds, splits)) == pytest.approx(seconds(stats))
            assert sum(split["samples"] for split in splits) == 192
        walls.append((wall, seconds(stats)))
        if walls[-1][1] == pytest.approx(wall, rel=0.02):
            return
    pytest.fail(f"seconds of the loop, and of its parts: {walls}")


def test_percentiles_are_in_order_and_of_the_right_size() -> None:
    with fb.Loader(fb.synthetic(80, bytes=100), [fb.raw("bin")], batch_size=8) as loader:
        for _ in loader:
            time.sleep(0.01)
        stats = loader.stats()
    for part in (*PARTS, "stall", "request"):
        p50, p95, p99 = (stats[f"{part}_seconds_p{p}"] for p in (50, 95, 99))
        assert 0 <= p50 <= p95 <= p99, part
    assert stats["step_seconds_p50"] >= 0.0094


def test_phases_stand_in_the_table_with_what_they_took() -> None:
    with fb.Loader(fb.synthetic(40, bytes=100), [fb.raw("bin")], batch_size=8) as loader:
        assert loader.stats()["phases"] == {}
        backward = loader.phase("backward <1>")
        for _ in loader:
            with loader.phase("forward"):
                time.sleep(0.004)
            with backward:
                pass
        with pytest.raises(KeyError), loader.phase("forward"):
            raise KeyError("the time of a phase that fails counts too")
        stats = loader.stats()
    assert stats["phases"]["forward"]["count"] == 6
    assert stats["phases"]["forward"]["seconds"] >= 0.02
    assert stats["phases"]["backward <1>"]["count"] == 5
    table = str(stats)
    assert "fetch stall" in table
    assert "  forward" in table
    assert "p99" in table
    assert "backward &lt;1>" in stats._repr_html_()


def test_phases_have_a_bound() -> None:
    with fb.Loader(fb.synthetic(8, bytes=100), [fb.raw("bin")]) as loader:
        for number in range(32):
            with loader.phase(f"step {number}"):
                pass
        with pytest.raises(fb.ExhaustedError, match="same name in every step"), loader.phase("one more"):
            pass
        assert len(loader.stats()["phases"]) == 32
        with pytest.raises(fb.InvalidConfigError, match="`step` or `epoch`"):
            loader.timeline("batch")  # type: ignore[arg-type]


def test_figures_survive_close_and_the_next_loop_adds_to_them() -> None:
    with fb.Loader(fb.synthetic(16, bytes=100), [fb.raw("bin")], batch_size=8) as loader:
        list(loader)
        loader.close()
        first = loader.stats()["wall_seconds"]
        list(loader)
        assert loader.stats()["batches"] == 4
        assert loader.stats()["wall_seconds"] > first > 0
