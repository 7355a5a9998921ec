"""`kill -9` of workers, of the dispatcher and of jobs, at points that a printed seed decides."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import forebay as fb
import pytest
import served

RECIPE = [fb.raw("bin"), fb.label("cls")]
SAMPLES, BATCH = 900, 10


class Job:
    """The ranks of a job, started together, and started again from what all of them had received."""

    def __init__(self, folder: Path, via: dict[str, str], seed: int) -> None:
        self._folder, self._via, self._seed = folder, via, seed
        self._starts = 0
        self._ranks: list[subprocess.Popen[bytes]] = []
        self._logs: list[Path] = []
        self._state: dict[str, Any] | None = None
        self.kept: list[int] = []

    def start(self, world_size: int) -> None:
        self._starts += 1
        self._logs = [self._folder / f"start-{self._starts}-rank-{rank}" for rank in range(world_size)]
        for rank, log in enumerate(self._logs):
            log.touch()
            told = {
                "log": str(log), "samples": SAMPLES, "seed": self._seed, "rank": rank, "world_size": world_size,
                "via": self._via, "state": self._state, "step_seconds": 0.02 * world_size,
            }  # fmt: skip
            script = str(Path(__file__).with_name("served_job.py"))
            self._ranks.append(subprocess.Popen([sys.executable, script, json.dumps(told)]))

    def _steps(self) -> list[list[dict[str, Any]]]:
        """What each rank said; a line that was cut off by a kill does not count."""
        whole = [log.read_bytes().rpartition(b"\n")[0].splitlines() for log in self._logs]
        return [[json.loads(line) for line in lines] for lines in whole]

    @property
    def received(self) -> int:
        """Batches, over all starts."""
        return len(self.kept) // BATCH + sum(log.read_bytes().count(b"\n") for log in self._logs)

    @property
    def is_over(self) -> bool:
        """Whether every rank has come to the end of the epoch."""
        codes = [rank.poll() for rank in self._ranks]
        assert all(code in (None, 0) for code in codes), f"a rank ended with {codes}"
        return all(code == 0 for code in codes)

    def end(self) -> None:
        for rank in self._ranks:
            rank.kill()
        for rank in self._ranks:
            rank.wait()
        self._ranks = []

    def kill(self) -> None:
        """All ranks, as a launcher does when one is gone. What all had received is in the checkpoint, no more."""
        self.end()
        self._keep(min((len(steps) for steps in self._steps()), default=0))

    @property
    def has_all(self) -> bool:
        """Whether the last checkpoint is that of a whole epoch."""
        return len(self.kept) >= SAMPLES

    def finish(self) -> None:
        if not self._logs:
            return
        steps = {len(steps) for steps in self._steps()}
        assert len(steps) == 1, f"every rank has the same number of steps, not {steps}"
        self._keep(steps.pop())

    def _keep(self, steps: int) -> None:
        for said in self._steps():
            self.kept.extend(i for step in said[:steps] for i in step["ids"])
        if steps:
            self._state = self._steps()[0][steps - 1]["state"]
        self._logs = []


def run(seed: int, folder: Path) -> None:
    """One epoch during which each of the three is killed, in an order and at points that the seed decides."""
    draw = random.Random(seed)
    print(f"seed {seed}; `-k {seed}` replays it")
    victims = draw.sample(["worker", "dispatcher", "job"], 3)
    points = sorted(draw.uniform(0.02, 0.9) for _ in victims)
    head = served.dispatcher(folder / "state")
    port = int(head.said["url"].rsplit(":", 1)[1])
    url = str(head.said["url"])
    workers = [served.worker(url) for _ in range(2)]
    job = Job(folder, {"url": url, "job": "kills"}, seed)
    try:
        job.start(draw.randint(1, 3))
        until = time.monotonic() + served.DEADLINE
        for victim, point in zip(victims, points, strict=True):
            while job.received < point * SAMPLES / BATCH and not job.is_over:
                assert time.monotonic() < until, (
                    f"seed {seed}: not at {point} of the epoch before {victim} dies"
                )
                time.sleep(0.002)
            if job.is_over:
                break
            if victim == "worker":
                number = draw.randrange(2)
                workers[number].kill()
                workers[number] = served.worker(url)
            elif victim == "dispatcher":
                head.kill()
                head = served.dispatcher(folder / "state", port=port)
            else:
                job.kill()
                if not job.has_all:
                    job.start(draw.randint(1, 3))
        while not job.is_over:
            assert time.monotonic() < until, f"seed {seed}: the epoch does not end"
            time.sleep(0.01)
        job.finish()
    finally:
        job.end()
        for process in [*workers, head]:
            process.end()
    wrong = Counter(job.kept)
    wrong.subtract(range(SAMPLES))
    assert not [i for i, times in wrong.items() if times], f"seed {seed}: not every sample exactly once"


@pytest.mark.parametrize("seed", range(6))
def test_p056_p057_p059_whatever_is_killed_every_sample_comes_once(tmp_path: Path, seed: int) -> None:
    run(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_p056_p057_p059_a_hundred_runs_with_kills_are_exact(tmp_path: Path, seed: int) -> None:
    run(seed, tmp_path)


def test_p057_a_dispatcher_that_is_killed_at_twenty_points_loses_nothing(tmp_path: Path) -> None:
    seed = 57
    draw = random.Random(seed)
    steps = 400
    points = sorted(draw.sample(range(steps), 20))
    print(f"seed {seed}: killed after batches {points}")
    data = fb.synthetic(10 * steps, bytes=50, shards=4)
    head = served.dispatcher(tmp_path / "state")
    url = str(head.said["url"])
    port = int(url.rsplit(":", 1)[1])
    workers = [served.worker(url) for _ in range(2)]
    try:
        with fb.Loader(data, RECIPE, batch_size=10, shuffle=True, epochs=1, via=url) as loader:
            ids: list[int] = []
            for step, batch in enumerate(loader):
                ids.extend(batch.ids.tolist())
                if step in points:
                    head.kill()
                    head = served.dispatcher(tmp_path / "state", port=port)
        assert sorted(ids) == list(range(10 * steps))
    finally:
        for process in [*workers, head]:
            process.end()
