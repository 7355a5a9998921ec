"""The cache through the package: exact hits, sizes that change, a restart that finds what was kept."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forebay as fb
import pytest
from forebay.errors import InvalidConfigError

SAMPLES, BYTES = 200, 1000
RECIPE = [fb.raw("jpg"), fb.label("cls")]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """One file per sample, all of one length, in two classes."""
    for number in range(SAMPLES):
        path = tmp_path / "data" / ("even" if number % 2 == 0 else "odd") / f"{number:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(number.to_bytes(4, "big") * (BYTES // 4))
    return tmp_path / "data"


def _epoch(loader: fb.Loader) -> Iterator[tuple[int, bytes]]:
    for batch in loader:
        yield from zip(batch.ids.tolist(), (bytes(payload) for payload in batch["jpg"]), strict=True)


def test_later_epochs_read_exactly_what_does_not_fit(tree: Path) -> None:
    room = BYTES * SAMPLES * 35 // 100
    with fb.Loader(tree, RECIPE, batch_size=16, shuffle="full", epochs=3, cache=room) as loader:
        first = sorted(_epoch(loader))
        assert [sample for sample, _ in first] == list(range(SAMPLES))
        assert sorted(_epoch(loader)) == first
        assert sorted(_epoch(loader)) == first
        stats = loader.stats()
    resident = SAMPLES * 35 // 100
    assert stats["cache_memory_hits"] == 2 * resident
    assert stats["cache_misses"] == stats["payloads"] == SAMPLES + 2 * (SAMPLES - resident)
    assert stats["cache_memory_bytes"] == resident * BYTES


def test_the_cache_can_be_resized_while_the_loader_lives(tree: Path) -> None:
    with fb.Loader(tree, RECIPE, batch_size=20, epochs=2, cache={"memory": "1MB"}) as loader:
        list(_epoch(loader))
        loader.resize_cache("50kB")
        assert loader.stats()["cache_memory_bytes"] <= 50_000
        assert loader.stats()["cache_memory_limit_bytes"] == 50_000
        assert len(list(_epoch(loader))) == SAMPLES
        assert loader.stats()["cache_memory_bytes"] <= 50_000
    with fb.Loader(tree, RECIPE) as loader, pytest.raises(InvalidConfigError, match="has none"):
        loader.resize_cache("1GiB")


def test_the_environment_says_it_too_and_faults_are_named(
    tree: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FOREBAY_CACHE", f'{{"memory": "1MB", "disk": "{tmp_path}/kept:10MB"}}')
    with fb.Loader(tree, RECIPE, batch_size=50, epochs=1) as loader:
        list(_epoch(loader))
        stats = loader.stats()
        assert (stats["cache_memory_limit_bytes"], stats["cache_disk_limit_bytes"]) == (10**6, 10**7)
    for wrong in ("lots", {"memory": "1GB", "speed": 1}, {"disk": "/nvme"}, {}, 1.5):
        with pytest.raises(InvalidConfigError, match="cache"):
            fb.Loader(tree, RECIPE, cache=wrong)  # type: ignore[arg-type]


_KILLED = """
import os, signal, sys, time
import forebay as fb
loader = fb.Loader(sys.argv[1], [fb.raw("jpg"), fb.label("cls")], batch_size=10, shuffle="full",
                   cache={"disk": sys.argv[2] + ":10MB"})
for epoch in range(2):
    for batch in loader:
        pass
stats = loader.stats()
# What was still on its way to the disk is a hit from memory.
print(stats["cache_disk_hits"] + stats["cache_memory_hits"], flush=True)
# Payloads are written by a thread, and a line of 64 bytes in the index comes after each.
while os.stat(sys.argv[2] + "/index.fbi").st_size < 64 * len(loader.dataset):
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_p044_a_killed_process_leaves_a_cache_that_hits_from_the_first_epoch(
    tree: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    run = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tree), str(kept)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "FOREBAY_LOG": "warn"},
        check=False,
    )
    assert run.returncode == -signal.SIGKILL, run.stderr
    # The second epoch found all.
    assert int(run.stdout) >= SAMPLES
    with fb.Loader(tree, RECIPE, batch_size=10, epochs=1, cache={"disk": f"{kept}:10MB"}) as loader:
        assert len(list(_epoch(loader))) == SAMPLES
        stats = loader.stats()
    assert (stats["cache_disk_hits"], stats["cache_misses"], stats["payloads"]) == (SAMPLES, 0, 0)


def test_p044_a_damaged_payload_is_found_and_fetched_again(tree: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    settings = {"batch_size": 10, "epochs": 1, "cache": {"disk": f"{kept}:10MB"}}
    with fb.Loader(tree, RECIPE, **settings) as loader:
        whole = list(_epoch(loader))
        # The last samples are handed over before they are kept.
        deadline = time.monotonic() + 60
        while loader.stats()["cache_disk_bytes"] < SAMPLES * BYTES:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    damaged = 0
    for path in sorted(kept.rglob("*")):
        text = path.read_bytes() if path.is_file() else b""
        where = text.find((7).to_bytes(4, "big") * 100)
        if where >= 0:
            path.write_bytes(text[: where + 50] + b"\xff" + text[where + 51 :])
            damaged += 1
    assert damaged == 1
    with fb.Loader(tree, RECIPE, **settings) as loader:
        assert list(_epoch(loader)) == whole
        stats = loader.stats()
    assert (stats["cache_damaged"], stats["cache_misses"], stats["cache_disk_hits"]) == (1, 1, SAMPLES - 1)


_RANK = """
import json, sys
import forebay as fb
tree, cache = sys.argv[1], json.loads(sys.argv[2])
epochs, rank, ranks = map(int, sys.argv[3:])
loader = fb.Loader(tree, [fb.raw("jpg"), fb.label("cls")], batch_size=10, shuffle="full", seed=3, cache=cache,
                   rank=rank, world_size=ranks, epochs=epochs)
for epoch in range(epochs):
    ids = []
    for batch in loader:
        ids += batch.ids.tolist()
    print(json.dumps({"ids": ids, **loader.stats()}), flush=True)
    sys.stdin.readline()
loader.close()
"""


class _Rank:
    """A process that reads its portion, epoch after epoch, when it is told to."""

    def __init__(self, tree: Path, cache: object, epochs: int, rank: int, ranks: int, runtime: Path) -> None:
        arguments = [str(tree), json.dumps(cache), str(epochs), str(rank), str(ranks)]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _RANK, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)},
        )

    def epoch(self) -> dict[str, Any]:
        """What the epoch gave; it is over then."""
        assert self._process.stdout is not None
        return dict(json.loads(self._process.stdout.readline()))

    def go_on(self) -> None:
        """Lets the next epoch be begun."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """Ends it without a word."""
        self._process.kill()

    def end(self) -> None:
        """Waits for its end."""
        self._process.communicate(timeout=120)


def test_p045_processes_of_a_host_read_every_sample_once_in_all(tree: Path, tmp_path: Path) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    cache = {"memory": "10MB", "share": "host"}
    # Four jobs, each of which reads everything, at the same time.
    jobs = [_Rank(tree, cache, 1, 0, 1, runtime) for _ in range(4)]
    epochs = [job.epoch() for job in jobs]
    for job in jobs:
        job.go_on()
        job.end()
    for epoch in epochs:
        assert sorted(epoch["ids"]) == list(range(SAMPLES))
    assert sum(epoch["payloads"] for epoch in epochs) == SAMPLES
    assert sum(epoch["cache_memory_hits"] for epoch in epochs) == 3 * SAMPLES


def _since(now: dict[str, Any], then: dict[str, Any]) -> dict[str, float]:
    return {name: now[name] - then[name] for name in ("payloads", "cache_memory_hits", "cache_peer_hits")}


def _free_ports(hosts: list[str]) -> list[str]:
    """An address on each host that nobody listens at."""
    sockets = []
    for host in hosts:
        listener = socket.socket()
        listener.bind((host, 0))
        sockets.append(listener)
    addresses = [f"{host}:{listener.getsockname()[1]}" for host, listener in zip(hosts, sockets, strict=True)]
    for listener in sockets:
        listener.close()
    return addresses


def test_nodes_divide_the_cache_until_the_store_is_not_asked_and_survive_the_loss_of_one(
    tree: Path, tmp_path: Path
) -> None:
    members = _free_ports(["127.0.0.1", "127.0.0.2", "127.0.0.3"])
    cache = {
        "memory": SAMPLES * BYTES * 45 // 100,
        "peers": members,
        "peer_token": "a token of the test's own",
    }
    most = 10_000
    nodes = [
        _Rank(tree, {**cache, "peer_address": address}, most, rank, 3, tmp_path)
        for rank, address in enumerate(members)
    ]
    try:
        deadline = time.monotonic() + 120
        before: list[dict[str, Any]] = []
        while True:
            told = [node.epoch() for node in nodes]
            assert sorted(sample for node in told for sample in node["ids"]) == list(range(SAMPLES))
            since = [_since(node, then) for node, then in zip(told, before, strict=False)]
            if sum(node["payloads"] for node in since) > 0 or not before:
                before = told
            elif sum(node["cache_memory_hits"] + node["cache_peer_hits"] for node in since) > 3 * SAMPLES:
                break
            assert time.monotonic() < deadline, "payloads do not settle with their owners"
            # Nodes start one after the other, and what is given to an owner takes its time.
            time.sleep(0.02)
            for node in nodes:
                node.go_on()
        # Three epochs without the store. Nobody holds more than 45 %, so the rest came from the others.
        assert all(node["cache_peer_hits"] > 0 for node in since)
        nodes[0].kill()
        portions = [len(node["ids"]) for node in told]
        for node in nodes[1:]:
            node.go_on()
        # What the lost node kept comes from the store: the others' portions stay whole.
        for rank, node in enumerate(nodes[1:], start=1):
            assert len(set(node.epoch()["ids"])) == portions[rank]
    finally:
        for node in nodes:
            node.kill()
            node.end()
