"""The number of workers on Ray follows what a job needs, with real actors and real time."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import forebay as fb
import forebay.ray
import pytest
from conftest import eventually

WORKER_RATE = 25
SAMPLES = 4000


@pytest.fixture
def store() -> Iterator[str]:
    """Payloads take 40 ms: a worker that asks for one after the other prepares 25 samples a second."""
    script = str(Path(__file__).with_name("slow_store.py"))
    process = subprocess.Popen(
        [sys.executable, script, str(SAMPLES), str(1 / WORKER_RATE)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    process.kill()
    process.communicate()


class Training(threading.Thread):
    """A job with steps of a given length; a batch is one sample."""

    def __init__(self, data: fb.Dataset, cluster: forebay.ray.Cluster) -> None:
        super().__init__(daemon=True)
        self.step_seconds = 0.01
        self.steps = 0
        self.over = threading.Event()
        # Enough is asked for ahead that every worker has something to do.
        self._loader = fb.Loader(
            *(data, [fb.raw("bin")]),
            batch_size=1,
            shuffle=True,
            prefetch_batches=64,
            inflight=1,
            hedge=False,
            via=cluster,
        )
        self.start()

    def run(self) -> None:
        with self._loader as loader:
            while not self.over.is_set():
                for _ in loader:
                    self.steps += 1
                    time.sleep(self.step_seconds)
                    if self.over.is_set():
                        break


def test_p065_workers_on_ray_settle_at_4_for_steps_of_10_ms_and_go_down_to_2_for_20_ms(
    nodes: Path, store: str, tmp_path: Path
) -> None:
    options = {"endpoint": store, "anonymous": True}
    data = fb.open("s3://bucket/o/", storage_options=options, extensions=["bin"], manifest_dir=tmp_path)
    with forebay.ray.start(workers=(1, 8), num_cpus=0.1, threads=1) as cluster:
        with pytest.raises(fb.InvalidConfigError, match="it follows what jobs need"):
            cluster.scale(3)
        training = Training(data, cluster)
        history: list[tuple[float, int, str, float]] = []
        began = time.monotonic()

        def look() -> int:
            status = cluster.status()
            scale = status["scale"]
            serving = [worker for worker in status["workers"] if not worker.get("draining")]
            now = round(time.monotonic() - began, 1)
            history.append((now, len(serving), scale["why"], round(scale["worker_rate"], 1)))
            time.sleep(0.5)
            return len(serving)

        try:
            # Settled is: there, and still there after as long as it takes to conclude anything.
            since: list[float] = []

            def settled() -> bool:
                if 3 <= look() <= 5:
                    since.append(time.monotonic())
                else:
                    since.clear()
                return bool(since) and time.monotonic() - since[0] > 12

            eventually(settled, f"4 workers, one more or less: {history}", seconds=60)
            assert cluster.workers in (3, 4, 5)
            training.step_seconds = 0.02
            eventually(lambda: look() == 2, f"2 workers: {history}", seconds=60)
            eventually(lambda: cluster.workers == 2, "no more are started", seconds=5)
        finally:
            print(*history, sep="\n")
            training.over.set()
            training.join(30)
        assert training.steps > 0
