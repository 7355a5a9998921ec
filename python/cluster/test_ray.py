"""`forebay.ray` on a real Ray cluster: placement, restarts, lost nodes, scaling, and leaving nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import forebay as fb
import forebay.ray
import psutil
import pytest
import ray
from conftest import HEAD, SECOND, THIRD, Node, alive, eventually
from rows import BATCH, SAMPLES, assert_exact, train

LIGHT: dict[str, Any] = {"num_cpus": 0.1, "threads": 1}


def hosts(cluster: forebay.ray.Cluster) -> list[str]:
    """Of workers that take spans."""
    workers = cluster.status()["workers"]
    return sorted(worker["address"].rsplit(":", 1)[0] for worker in workers if not worker.get("draining"))


def commands(*words: str) -> list[psutil.Process]:
    """Processes of a service in this space."""
    found = []
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
        except psutil.Error:
            continue
        if "forebay._supervised" in line and all(word in line for word in words):
            found.append(process)
    return found


class Job(threading.Thread):
    """A job of the driver that goes on while the test does something to the service.

    It waits in the middle of its epoch until `end`, so that nothing comes too late, however slow the machine is.
    """

    def __init__(self, via: Any, **settings: Any) -> None:
        super().__init__(daemon=True)
        self.ids: list[int] = []
        self._via, self._settings = via, settings
        self.problem: BaseException | None = None
        self._may_end = threading.Event()
        self.start()

    def run(self) -> None:
        try:
            data = fb.synthetic(SAMPLES, bytes=64, shards=3)
            recipe = [fb.raw("bin"), fb.label("cls")]
            loader = fb.Loader(
                data, recipe, batch_size=BATCH, shuffle=True, epochs=1, via=self._via, **self._settings
            )
            with loader:
                for batch in loader:
                    self.ids.extend(batch.ids.tolist())
                    time.sleep(0.01)
                    if len(self.ids) >= SAMPLES // 2:
                        self._may_end.wait()
        except BaseException as problem:
            self.problem = problem

    def reach(self, share: float) -> None:
        wanted = f"{share} of the epoch"
        eventually(lambda: self.problem or len(self.ids) >= share * SAMPLES, wanted)

    def end(self) -> list[int]:
        self._may_end.set()
        self.join(120)
        assert not self.is_alive(), f"the epoch does not end: {len(self.ids)} of {SAMPLES}"
        if self.problem is not None:
            raise self.problem
        return self.ids


def test_two_jobs_train_through_workers_on_both_nodes_and_strangers_are_refused(nodes: Path) -> None:
    with forebay.ray.start(workers=2, **LIGHT) as cluster:
        assert hosts(cluster) == [HEAD, SECOND], "spread over the nodes"
        assert cluster.workers == 2
        jobs = [
            ray.remote(train)
            .options(num_cpus=0.1, resources={f"node:{where}": 0.001})
            .remote(cluster, seed=seed)
            for seed, where in enumerate([HEAD, SECOND])
        ]
        for ids in [*ray.get(jobs), train(cluster)]:
            assert_exact(ids)
        # Between nodes everything is encrypted, and who was not given the credentials is not let in.
        assert (Path(cluster.via["credentials"]) / "key.pem").stat().st_mode & 0o777 == 0o600
        with pytest.raises(fb.ForebayError):
            train(cluster.url, timeout=5)
    eventually(lambda: not commands(), "no process of the service is left")
    assert not list(Path(tempfile.gettempdir()).glob("forebay-ray-*/state"))


def test_a_node_that_dies_in_the_middle_of_an_epoch_costs_no_sample(nodes: Path) -> None:
    third = Node(nodes, THIRD)
    try:
        eventually(lambda: THIRD in alive(), "the third node is there")
        with forebay.ray.start(workers=3, **LIGHT) as cluster:
            assert hosts(cluster) == [HEAD, SECOND, THIRD]
            job = Job(cluster)
            job.reach(0.2)
            third.kill()
            job.reach(0.25)
            assert_exact(job.end())
            # Ray has the lost worker again, elsewhere.
            eventually(
                lambda: len(hosts(cluster)) == 3 and THIRD not in hosts(cluster), "three workers again"
            )
            assert_exact(train(cluster, seed=1))
    finally:
        third.kill()


def test_a_dispatcher_that_dies_comes_back_where_it_was(nodes: Path) -> None:
    with forebay.ray.start(workers=2, **LIGHT) as cluster:
        job = Job(cluster)
        job.reach(0.2)
        [before] = commands("dispatcher")
        before.kill()
        eventually(lambda: [p for p in commands("dispatcher") if p.pid != before.pid], "Ray starts it again")
        eventually(lambda: len(cluster.status(wait=30)["workers"]) == 2, "workers register again")
        assert_exact(job.end())
        # A worker's process, and its whole actor.
        for whole in (False, True):
            job = Job(cluster, seed=2)
            job.reach(0.1)
            victim = commands("worker")[0]
            actor = victim.parent()
            assert actor is not None
            (actor if whole else victim).kill()
            eventually(lambda gone=victim: gone not in commands("worker"), "it is gone")
            assert_exact(job.end())
            eventually(lambda: len(commands("worker")) == 2, "Ray starts it again")


def test_the_number_of_workers_changes_in_the_middle_of_an_epoch(nodes: Path) -> None:
    with forebay.ray.start(workers=1, **LIGHT) as cluster:
        job = Job(cluster)
        job.reach(0.1)
        cluster.scale(4)
        eventually(lambda: len(hosts(cluster)) == 4, "four workers")
        job.reach(0.2)
        cluster.scale(1)
        assert cluster.workers == 1
        eventually(lambda: len(commands("worker")) == 1, "those that were too many have left")
        assert_exact(job.end())
        assert len(hosts(cluster)) == 1
        for number in (0, True, "2"):
            with pytest.raises(fb.InvalidConfigError):
                cluster.scale(number)  # type: ignore[arg-type]


def test_workers_run_near_a_tag_and_what_ray_cannot_give_is_said(nodes: Path) -> None:
    for near in ("near_store", {"part": "near_store"}):
        with forebay.ray.start(workers=2, near=near, **LIGHT) as cluster:  # type: ignore[arg-type]
            assert hosts(cluster) == [SECOND, SECOND], near
    with pytest.raises(fb.ExhaustedError, match="start 1 workers on Ray") as problem:
        forebay.ray.start(workers=1, near="nowhere", timeout=8, **LIGHT)
    assert "CPU" in str(problem.value.hint)
    with pytest.raises(fb.UnavailableError, match=r"start 1 workers on Ray.*--staging"):
        forebay.ray.start(workers=1, options={"staging": "much"}, **LIGHT)
    eventually(lambda: not commands(), "no process of the service is left")


def test_a_driver_that_is_killed_leaves_no_process(nodes: Path) -> None:
    script = (
        "import forebay.ray, ray, time\n"
        f"ray.init(address='{HEAD}:6399', log_to_driver=False)\n"
        "cluster = forebay.ray.start(workers=2, num_cpus=0.1)\n"
        "print(cluster.url, flush=True)\ntime.sleep(600)\n"
    )
    driver = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=dict(os.environ))
    assert driver.stdout is not None
    assert driver.stdout.readline().startswith(b"forebay://")
    assert len(commands()) == 3
    driver.kill()
    driver.communicate()
    eventually(lambda: not commands(), "no process of the service is left")
