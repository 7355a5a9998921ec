"""The bench of a service on Ray: what it makes of figures, and how it measures a wait."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from forebay.bench import _cluster_subjects as subjects
from forebay.bench import _service_processes as processes
from forebay.bench.cluster import ClusterBench


def test_every_subject_needs_ray_and_is_there() -> None:
    bench = ClusterBench(rounds=1)
    assert set(bench.needs) == set(bench.subjects) == set(subjects.SUBJECTS)
    assert set(bench.needs.values()) == {("ray",)}


def test_bars_compare_medians_and_only_what_was_measured() -> None:
    bench = ClusterBench(rounds=1)
    assert bench.bars({}) == []
    medians = {
        "images_by_hand": {"images_per_second": 1000.0},
        "images_on_ray": {"images_per_second": 965.0},
        "kill_worker": {"wait_seconds": 0.2},
        "kill_dispatcher": {"wait_seconds": 5.1},
    }
    found = [(bar["value"], bar["holds"]) for bar in bench.bars(medians)]
    assert found == [(3.5, False), (0.2, True), (5.1, False)]


def test_a_wait_is_the_longest_time_between_two_batches_but_for_the_step() -> None:
    came = [0.0, 0.1, 0.2, 0.8, 0.9]
    assert subjects.longest_wait(came, since=0.0, step_seconds=0.1) == pytest.approx(0.5)
    assert subjects.longest_wait(came, since=0.7, step_seconds=0.1) == pytest.approx(0.5), (
        "it had begun before"
    )
    assert subjects.longest_wait(came, since=0.85, step_seconds=0.1) == pytest.approx(0.0)
    assert subjects.longest_wait(came, since=2.0, step_seconds=0.1) > 10, "nothing came again"


def test_processes_of_processes_count() -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as parent:
        until = time.monotonic() + 20
        while len(processes.descendants()) < 2:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert parent.pid in processes.descendants()
        assert processes.Descendants().cpu_seconds() >= 0
        parent.communicate(b"\n")
