"""Two hosts with two ranks each, as launchers start them: one copy a host, which one of its ranks serves to others."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

SAMPLES, BYTES = 200, 1000
HOSTS, LOCAL = 2, 2

_RANK = """
import json, sys
import forebay as fb
loader = fb.Loader(sys.argv[1], [fb.raw("jpg"), fb.label("cls")], batch_size=10, shuffle="full", seed=3,
                   cache=json.loads(sys.argv[2]))
while sys.stdin.readline():
    ids = []
    for batch in loader:
        ids += batch.ids.tolist()
    print(json.dumps({"ids": ids, **loader.stats()}), flush=True)
loader.close()
"""


class _Rank:
    """A process that reads its portion of an epoch when it is told to."""

    def __init__(self, tree: Path, cache: object, words: dict[str, str]) -> None:
        cleared = ("RANK", "WORLD_SIZE", "SLURM_", "FOREBAY_", "LOCAL_", "GROUP_")
        kept = {name: text for name, text in os.environ.items() if not name.startswith(cleared)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _RANK, str(tree), json.dumps(cache)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**kept, **words},
        )

    def begin(self) -> None:
        """Begins an epoch."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> dict[str, Any]:
        """What the epoch gave."""
        assert self._process.stdout is not None
        return dict(json.loads(self._process.stdout.readline()))

    def kill(self) -> None:
        """Ends it without a word."""
        self._process.kill()
        self._process.wait(timeout=120)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _torchrun(host: int, local: int, folder: Path) -> dict[str, str]:
    """torchrun tells numbers and no addresses."""
    addresses = json.loads((folder / "addresses").read_text())
    return {
        "RANK": str(host * LOCAL + local),
        "WORLD_SIZE": str(HOSTS * LOCAL),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(LOCAL),
        "GROUP_RANK": str(host),
        "FOREBAY_PEERS": ",".join(addresses),
    }


def _slurm(host: int, local: int, folder: Path) -> dict[str, str]:
    """Slurm names all hosts; they are addresses of this machine here."""
    del folder
    return {
        "SLURM_PROCID": str(host * LOCAL + local),
        "SLURM_NTASKS": str(HOSTS * LOCAL),
        "SLURM_NTASKS_PER_NODE": str(LOCAL),
        "SLURM_NODEID": str(host),
        "SLURM_JOB_NODELIST": "127.0.77.[2-3]",
    }


def _epoch(ranks: list[_Rank]) -> list[dict[str, Any]]:
    for rank in ranks:
        rank.begin()
    return [rank.end() for rank in ranks]


def _settled(ranks: list[_Rank], told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Epochs until one reads nothing from the store."""
    deadline = time.monotonic() + 120
    while True:
        before, told = told, _epoch(ranks)
        if sum(now["payloads"] - then["payloads"] for now, then in zip(told, before, strict=True)) == 0:
            return told
        assert time.monotonic() < deadline, "payloads do not settle with their owners"
        time.sleep(0.05)


@pytest.mark.parametrize("launcher", [_torchrun, _slurm], ids=["torchrun", "slurm"])
def test_p047_ranks_of_a_host_share_and_one_of_them_serves_the_other_hosts(
    tmp_path: Path, launcher: Any
) -> None:
    tree = tmp_path / "data"
    for number in range(SAMPLES):
        path = tree / ("even" if number % 2 == 0 else "odd") / f"{number:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(number.to_bytes(4, "big") * (BYTES // 4))
    addresses = []
    for host in range(HOSTS):
        with socket.socket() as listener:
            listener.bind((f"127.0.0.{host + 2}", 0))
            addresses.append("{}:{}".format(*listener.getsockname()))
    (tmp_path / "addresses").write_text(json.dumps(addresses))
    cache = {
        "memory": SAMPLES * BYTES * 65 // 100,
        "peers": "auto",
        "peer_token": "a token of the test's own",
        "peer_timeout_seconds": 10,
    }
    ranks: list[_Rank] = []
    try:
        for host in range(HOSTS):
            runtime = tmp_path / f"host{host}"
            runtime.mkdir(mode=0o700)
            for local in range(LOCAL):
                words = {"XDG_RUNTIME_DIR": str(runtime), **launcher(host, local, tmp_path)}
                ranks.append(_Rank(tree, cache, words))
        first = _epoch(ranks)
        assert sorted(sample for told in first for sample in told["ids"]) == list(range(SAMPLES))
        told = _settled(ranks, first)
        assert sorted(sample for rank in told for sample in rank["ids"]) == list(range(SAMPLES))
        assert all(rank["cache_members"] == HOSTS for rank in told)
        # Neither host holds everything, so each read from the other.
        for host in range(HOSTS):
            pair = told[host * LOCAL : (host + 1) * LOCAL]
            assert sum(rank["cache_peer_hits"] for rank in pair) > 0
            assert all(rank["cache_memory_limit_bytes"] == cache["memory"] for rank in pair)
            assert all(0 < rank["cache_memory_bytes"] <= cache["memory"] for rank in pair)
        # The first rank of the first host may be the one that served it: the other one takes over.
        ranks[0].kill()
        left = _settled(ranks[1:], told[1:])
        assert [sorted(rank["ids"]) != [] for rank in left] == [True] * 3
        assert sum(len(set(rank["ids"])) for rank in left) == sum(len(rank["ids"]) for rank in left)
    finally:
        for rank in ranks:
            rank.kill()
