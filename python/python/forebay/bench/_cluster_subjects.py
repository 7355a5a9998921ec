"""What ``forebay bench cluster`` measures, one subject a process. Prints one JSON object, as the other subjects do.

Ray has one node, this machine, without its dashboard. Time begins when everything runs: how long Ray takes to start
is not what is compared.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from . import _service_processes as processes
from ._service_subjects import image_figures, images

Settings = dict[str, Any]
Figures = dict[str, float]

SOON_SECONDS = 60.0
"""Until something that must happen counts as not happening."""


@contextmanager
def _ray_cluster(settings: Settings, workers: int | tuple[int, int]) -> Iterator[Any]:
    """A service on a Ray of one node, which is made for it."""
    # Ray reads it when it is imported. Whoever has no token would get one, as a file at home that all later clusters
    # must know.
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    import ray

    import forebay.ray

    with tempfile.TemporaryDirectory(prefix="fr-") as folder:
        ray.init(
            num_cpus=16,
            include_dashboard=False,
            object_store_memory=80_000_000,
            log_to_driver=False,
            logging_level="ERROR",
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
        )
        try:
            options = {"staging": str(settings["staging_bytes"])}
            with forebay.ray.start(workers, num_cpus=0.1, threads=1, tls=False, options=options) as cluster:
                yield cluster
        finally:
            ray.shutdown()


def images_by_hand(settings: Settings) -> Figures:
    """Photographs through workers that were started as processes of this one."""
    with ExitStack() as stack:
        dispatcher = stack.enter_context(processes.dispatcher())
        workers = [
            stack.enter_context(processes.worker(dispatcher, 1, "memory", settings["staging_bytes"]))
            for _ in range(settings["workers"])
        ]
        via = f"forebay://{dispatcher.address.removeprefix('forebay://')}"
        loader = stack.enter_context(images(settings, via=via))
        return image_figures(loader, settings, [dispatcher, *workers])


def images_on_ray(settings: Settings) -> Figures:
    """The same through actors. Processor time is that of all of Ray's processes, too."""
    with (
        _ray_cluster(settings, settings["workers"]) as cluster,
        images(settings, via=cluster) as loader,
    ):
        return image_figures(loader, settings, [processes.Descendants()])


class _Job(threading.Thread):
    """A job of short steps; notes when each batch came."""

    def __init__(self, settings: Settings, via: Any) -> None:
        super().__init__(daemon=True)
        import forebay as fb

        data = fb.synthetic(1_000_000, bytes=64, shards=4)
        self._loader = fb.Loader(data, [fb.raw("bin")], batch_size=8, shuffle=True, via=via)
        self._step_seconds = settings["step_seconds"]
        self._over = threading.Event()
        self.came: list[float] = []
        self.problem: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            with self._loader as loader:
                for _ in loader:
                    self.came.append(time.monotonic())
                    if self._over.wait(self._step_seconds):
                        return
        except BaseException as problem:
            self.problem = problem

    def begin(self) -> None:
        """Waits until it reads as fast as it will."""
        _until(lambda: len(self.came) > 100 or self.problem is not None, "read the first batches")

    def end(self) -> None:
        self._over.set()
        self.join(SOON_SECONDS)
        if self.problem is not None:
            raise self.problem


def longest_wait(came: Sequence[float], since: float, step_seconds: float) -> float:
    """The longest time from one batch to the next that came after `since`, without the step."""
    later = [at for at in came if at >= since]
    before = max((at for at in came if at < since), default=since)
    gaps = [late - early for early, late in zip([before, *later], later, strict=False)]
    return max(0.0, max(gaps, default=SOON_SECONDS) - step_seconds)


def _until(what: Callable[[], bool], doing: str) -> float:
    """Seconds until it is so."""
    began = time.monotonic()
    while not what():
        if time.monotonic() - began > SOON_SECONDS:
            raise RuntimeError(f"{doing}: not within {SOON_SECONDS:.0f} s")
        time.sleep(0.02)
    return time.monotonic() - began


def _registered(cluster: Any) -> set[str]:
    """Addresses of workers that take spans."""
    workers = cluster.status(wait=SOON_SECONDS)["workers"]
    return {worker["address"] for worker in workers if not worker.get("draining")}


def _kill(word: str) -> None:
    """As a machine would take it: one process of the service, which Ray starts again."""
    for pid in processes.descendants():
        line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"forebay._supervised" in line and word.encode() in line:
            os.kill(pid, signal.SIGKILL)
            return
    raise RuntimeError(f"kill a {word}: none is running")


def kill_worker(settings: Settings) -> Figures:
    """How long a job waits when one of two workers is killed, and when there are two again."""
    with _ray_cluster(settings, 2) as cluster:
        before = _registered(cluster)
        job = _Job(settings, cluster)
        job.begin()
        at = time.monotonic()
        _kill("worker")
        again = _until(lambda: len(_registered(cluster) - before) == 1, "wait for another worker")
        time.sleep(2)
        job.end()
        return {"wait_seconds": longest_wait(job.came, at, settings["step_seconds"]), "again_seconds": again}


def kill_dispatcher(settings: Settings) -> Figures:
    """How long a job waits when the dispatcher is killed, and when both workers are back at it."""
    with _ray_cluster(settings, 2) as cluster:
        job = _Job(settings, cluster)
        job.begin()
        at = time.monotonic()
        _kill("dispatcher")
        time.sleep(0.2)
        again = 0.2 + _until(lambda: len(_registered(cluster)) == 2, "wait for the dispatcher")
        time.sleep(2)
        job.end()
        return {"wait_seconds": longest_wait(job.came, at, settings["step_seconds"]), "again_seconds": again}


def scale(settings: Settings) -> Figures:
    """How long until workers that were asked for take spans, and until those that were not are gone."""
    with _ray_cluster(settings, 1) as cluster:
        job = _Job(settings, cluster)
        job.begin()
        cluster.scale(settings["most_workers"])
        up = _until(lambda: len(_registered(cluster)) == settings["most_workers"], "scale up")
        at = time.monotonic()
        cluster.scale(1)
        down = _until(lambda: len(cluster.status()["workers"]) == 1, "scale down")
        time.sleep(1)
        job.end()
        return {
            "up_seconds": up,
            "down_seconds": down,
            "wait_seconds": longest_wait(job.came, at, settings["step_seconds"]),
        }


SUBJECTS: dict[str, Callable[[Settings], Figures]] = {
    subject.__name__: subject
    for subject in (images_by_hand, images_on_ray, kill_worker, kill_dispatcher, scale)
}


def main() -> None:
    """Runs one subject and prints its figures."""
    print(json.dumps(SUBJECTS[sys.argv[1]](json.loads(sys.argv[2]))))


if __name__ == "__main__":
    main()
