"""The cache through the package: exact hits, sizes that change, a restart that finds what was kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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
import os, signal, sys
import forebay as fb
loader = fb.Loader(sys.argv[1], [fb.raw("jpg"), fb.label("cls")], batch_size=10, shuffle="full",
                   cache={"disk": sys.argv[2] + ":10MB"})
for epoch in range(2):
    for batch in loader:
        pass
print(loader.stats()["cache_disk_hits"], flush=True)
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
    # The second epoch found all, so that all was on disk when the process was killed.
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
