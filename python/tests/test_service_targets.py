"""Which workers of a service make a loader's batches: any, the one in its own process first, or that one alone."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import forebay as fb
import psutil
import pytest
import served
from forebay.errors import InvalidConfigError

RECIPE = [fb.raw("bin"), fb.label("cls")]
ARGUMENTS: dict[str, Any] = {"batch_size": 10, "shuffle": True, "seed": 3, "epochs": 1}


def _sockets() -> int:
    """Sockets of a network that this process has open; an executor's own pair of pipes is none."""
    return len(psutil.Process().net_connections(kind="inet"))


@contextmanager
def _counted_connections() -> Iterator[tuple[int, list[int]]]:
    """A port, and a list that grows by one with everybody who connects there."""
    seen: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        server.settimeout(0.05)
        stop = threading.Event()

        def accept() -> None:
            while not stop.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                seen.append(1)
                connection.close()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield port, seen
        finally:
            stop.set()
            thread.join()


def _ids(loader: fb.Loader, step_seconds: float = 0.0) -> list[list[int]]:
    found = []
    for batch in loader:
        found.append(batch.ids.tolist())
        time.sleep(step_seconds)
    return found


@pytest.fixture(scope="module")
def wanted() -> list[list[int]]:
    with fb.Loader(_data(), RECIPE, **ARGUMENTS) as loader:
        return _ids(loader)


def _data() -> fb.Dataset:
    return fb.synthetic(1000, bytes=100, shards=3)


def test_p063_local_never_opens_a_socket(wanted: list[list[int]]) -> None:
    with _counted_connections() as (port, seen):
        before = _sockets()
        via = {"url": f"forebay://127.0.0.1:{port}", "target": "local"}
        with fb.Loader(_data(), RECIPE, via=via, **ARGUMENTS) as loader:
            found = []
            for batch in loader:
                found.append(batch.ids.tolist())
                assert _sockets() <= before
    assert found == wanted
    assert seen == []


def _made(url: str) -> list[int]:
    """Batches that each worker of a service has made so far."""
    return [int(worker["load"]["made_batches"]) for worker in served.status(url)["workers"]]


def test_p063_auto_takes_from_its_own_process_while_that_keeps_up(
    tmp_path: Path, wanted: list[list[int]]
) -> None:
    with served.service(tmp_path) as (url, _, _):
        via = {"url": url, "target": "auto"}
        with fb.Loader(_data(), RECIPE, via=via, **ARGUMENTS) as loader:
            # A step is far longer than a batch takes, so it keeps up.
            assert _ids(loader, step_seconds=0.02) == wanted
            assert loader.stats()["batches"] == 100
        time.sleep(1.1)  # Workers report once a second.
        assert sum(_made(url)) < 5, "more than 95 of 100 are its own"


def test_p063_any_takes_from_all_workers_and_none_from_its_own_process(
    tmp_path: Path, wanted: list[list[int]]
) -> None:
    with served.service(tmp_path) as (url, _, _):
        with fb.Loader(_data(), RECIPE, via={"url": url, "target": "any"}, **ARGUMENTS) as loader:
            assert _ids(loader) == wanted
            assert loader.stats()["workers"] == 2
        served.eventually(lambda: sum(_made(url)) >= 100, "workers have reported")
        assert all(made > 0 for made in _made(url))


def test_p063_auto_goes_on_when_the_service_dies(tmp_path: Path, wanted: list[list[int]]) -> None:
    with served.service(tmp_path) as (url, head, workers):
        via = {"url": url, "target": "auto"}
        with fb.Loader(_data(), RECIPE, via=via, **ARGUMENTS) as loader:
            loop = iter(loader)
            found = [next(loop).ids.tolist() for _ in range(20)]
            for process in [*workers, head]:
                process.kill()
            found += [batch.ids.tolist() for batch in loop]
    assert found == wanted


def test_p063_auto_works_where_no_service_answers(wanted: list[list[int]]) -> None:
    with fb.Loader(
        _data(), RECIPE, via={"url": "forebay://127.0.0.1:1", "target": "auto"}, **ARGUMENTS
    ) as loader:
        assert _ids(loader) == wanted


def test_a_target_is_of_a_service() -> None:
    for bad in ({"url": "auto", "target": "local"}, {"url": "forebay://h:1", "target": "near"}):
        with pytest.raises(InvalidConfigError, match="target"):
            fb.Loader(_data(), RECIPE, via=bad)
