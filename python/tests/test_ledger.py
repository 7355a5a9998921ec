"""What a loop received can be proved afterwards: over a kill, a restart on other ranks, and in arrival order."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import forebay as fb
import made
import pytest

RECIPE = [fb.raw("bin")]
SAMPLES = 240


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    samples = [{"bin": b"%d" % n * 50} for n in range(SAMPLES)]
    return made.write_shards(tmp_path_factory.mktemp("shards"), samples, 3)


def asked(*words: str, code: int = 0) -> Any:
    command = [sys.executable, "-m", "forebay", "ledger", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def rank(shards: str, folder: Path, number: int, of: int, **arguments: Any) -> fb.Loader:
    settings: dict[str, Any] = {"batch_size": 10, "shuffle": True, "seed": 3, **arguments}
    return fb.Loader(shards, RECIPE, rank=number, world_size=of, ledger=folder, **settings)


KILLED = """
import json, os, signal, sys
import forebay as fb
loader = fb.Loader(sys.argv[1], [fb.raw("bin")], batch_size=10, shuffle=True, seed=3, rank=0, world_size=1)
for number, batch in enumerate(loader):
    if number == 4:
        with open(sys.argv[2], "w") as file:
            json.dump(loader.state_dict(), file)
    if number == 8:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_run_that_was_killed_and_went_on_is_exact(
    shards: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, state = tmp_path / "ledger", tmp_path / "state"
    monkeypatch.setenv("FOREBAY_LEDGER", str(folder))
    done = subprocess.run([sys.executable, "-c", KILLED, shards, str(state)], timeout=100)
    assert done.returncode == -9
    saved = json.loads(state.read_text())
    # Two ranks go on from the checkpoint, in step.
    loaders = [rank(shards, folder, number, 2) for number in range(2)]
    for loader in loaders:
        loader.load_state_dict(saved)
    for _ in zip(*loaders, strict=True):
        pass
    said = asked("check", str(folder), shards)
    epoch = said["streams"][0]["epochs"][0]
    assert said["exact"]
    assert (epoch["state"], epoch["received"]) == ("exact", SAMPLES)
    # Nine batches were handed over and five of them were in the checkpoint.
    assert epoch["superseded"] == 40
    assert [run["first_step"] for run in said["streams"][0]["runs"]] == [0, 5]
    [seen] = [
        seen["at"] for seen in asked("where", "17", str(folder), shards)["seen"] if seen["at"]["counts"]
    ]
    assert seen["epoch"] == 0


@pytest.mark.parametrize("arguments", [{"in_order": False, "window": 16}, {"drop_last": True}, {"seed": 8}])
def test_every_order_is_exact_and_a_lost_file_is_named(
    shards: str, tmp_path: Path, arguments: dict[str, Any]
) -> None:
    loaders = [rank(shards, tmp_path, number, 3, **arguments) for number in range(3)]
    for _ in range(2):
        for _ in zip(*loaders, strict=True):
            pass
    assert asked("check", str(tmp_path), shards)["exact"]
    assert asked("check", str(tmp_path))["exact"]
    lost = next(path for path in tmp_path.iterdir() if path.name.startswith("rank-00001"))
    lost.unlink()
    said = asked("check", str(tmp_path), shards, code=3)
    epoch = said["streams"][0]["epochs"][0]
    assert epoch["gaps"] == 80
    assert {seen["rank"] for fault in epoch["faults"] for seen in fault["seen"]} == {1}


def test_dataloader_processes_cannot_write_one(shards: str, tmp_path: Path) -> None:
    loader = rank(shards, tmp_path, 0, 1)
    with pytest.raises(fb.UnsupportedError, match="write a ledger inside several DataLoader processes"):
        loader._in_turn(0, 2)
