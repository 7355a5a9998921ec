"""Two Ray nodes with addresses of their own, in a network and process space that `scripts/cluster/ray-test.sh` makes.

The addresses are on the loopback interface and yet not loopback addresses, so what may not leave a machine without
credentials is refused here as it would be between machines.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

DEADLINE = 90.0
"""Seconds until something that must happen counts as not happening."""

HERE = Path(__file__).resolve().parent

RAY = {
    # What the tests send to Ray's processes by name is found there, too.
    "PYTHONPATH": f"{HERE}{os.pathsep}{HERE.parents[1] / 'deploy' / 'ray'}",
    # Whoever else is on the machine may use its memory.
    "RAY_memory_monitor_refresh_ms": "0",
    # A dead node is noticed after some seconds of silence.
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_failure_threshold": "5",
    # Processes are started when they are needed, not in advance.
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_TRAIN_ENABLE_STATE_TRACKING": "0",
}

HEAD, SECOND, THIRD = "10.77.0.1", "10.77.0.2", "10.77.0.3"


def eventually(what: Callable[[], object], wanted: str, seconds: float = DEADLINE) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, f"not within {seconds} s: {wanted}"
        time.sleep(0.1)


class Node:
    """One Ray node: every process that it started, and those that they started."""

    def __init__(self, folder: Path, address: str, *, tag: str | None = None) -> None:
        self.address = address
        ray = str(Path(sys.executable).with_name("ray"))
        where = (
            ["--head", "--port", "6399", "--include-dashboard=false", "--temp-dir", str(folder)]
            if address == HEAD
            else ["--address", f"{HEAD}:6399"]
        )
        # Ports that are not given are waited for, and a busy machine gives up on that after half a minute.
        first = 20_000 + 100 * int(address.rsplit(".", 1)[1])
        agents = ["--dashboard-agent-grpc-port", "--dashboard-agent-listen-port", "--metrics-export-port"]
        ports = [word for at, name in enumerate(agents) for word in (name, str(first + at))]
        ports += ["--runtime-env-agent-port", str(first + 9)]
        tags = [] if tag is None else ["--resources", json.dumps({tag: 1}), "--labels", f"part={tag}"]
        self._log = open(folder / f"node-{address}.log", "w")  # noqa: SIM115
        self._process = subprocess.Popen(
            [
                *(ray, "start", *where, "--node-ip-address", address, "--num-cpus", "2", *tags, *ports),
                *("--object-store-memory", "80000000", "--disable-usage-stats", "--block"),
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def said(self) -> str:
        """Its log, for who waits for it in vain."""
        return Path(self._log.name).read_text()

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    def processes(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self._process.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def kill(self) -> None:
        """As a machine that loses power."""
        processes = self.processes()
        # Nobody may start somebody meanwhile.
        for signal in (psutil.Process.suspend, psutil.Process.kill):
            for process in processes:
                try:
                    signal(process)
                except psutil.NoSuchProcess:
                    continue
        self._process.wait()
        self._log.close()


def alive() -> set[str]:
    import ray

    return {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}


@pytest.fixture(scope="session")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Ray with two nodes, initialised here; the second has the tag `near_store`."""
    import ray

    # Paths of Ray's sockets have a length that the system limits.
    folder = Path(tempfile.mkdtemp(prefix="r-"))
    os.environ.update(RAY)
    started = [Node(folder, HEAD)]
    try:
        until = time.monotonic() + DEADLINE
        while True:
            try:
                ray.init(address=f"{HEAD}:6399", logging_level="WARNING", log_to_driver=False)
                break
            except Exception:
                assert time.monotonic() < until, started[0].said()
                assert not started[0].is_over, started[0].said()
                time.sleep(0.5)
        started.append(Node(folder, SECOND, tag="near_store"))
        eventually(lambda: {HEAD, SECOND} <= alive(), "both nodes are there")
        yield folder
        ray.shutdown()
    finally:
        for node in reversed(started):
            node.kill()
