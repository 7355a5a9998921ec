"""Jobs that a launcher started: the batch script of the guide, run with a stand-in for Slurm's own commands."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import forebay as fb
import pytest
import served

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "slurm" / "train.sbatch"

# Runs what it is given on this machine, once; options of srun all begin with two dashes.
SRUN = """#!/usr/bin/env bash
while [[ "${1:-}" == --* ]]; do shift; done
exec env SLURM_NODEID=0 SLURM_PROCID=0 SLURM_NTASKS=1 "$@"
"""

TRAIN = """
import json, sys
import forebay as fb
data = fb.synthetic(500, bytes=64, shards=3)
with fb.Loader(data, [fb.raw("bin")], batch_size=10, shuffle=True, epochs=1) as loader:
    ids = [int(i) for batch in loader for i in batch.ids]
    workers = loader.stats()["workers"]
json.dump({"ids": ids, "workers": workers}, open(sys.argv[1], "w"))
"""


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_the_batch_script_for_slurm_trains_through_its_own_service_and_leaves_nothing(tmp_path: Path) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in {"srun": SRUN, "scontrol": "#!/bin/sh\necho localhost\n"}.items():
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    (tmp_path / "train.py").write_text(TRAIN)
    environment = {
        **os.environ,
        "PATH": f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "localhost",
        "FOREBAY_WORK": str(tmp_path / "job"),
        "FOREBAY_WORKER_CPUS": "1",
        # Port 7077 may be taken on the machine of a test.
        "FOREBAY_DISPATCHER": f"127.0.0.1:{free_port()}",
        "PYTHONWARNINGS": "ignore",
    }
    before = set(served.children())
    said = subprocess.run(
        ["bash", str(SCRIPT), str(tmp_path / "train.py"), str(tmp_path / "out.json")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert said.returncode == 0, said.stdout + said.stderr
    told = json.loads((tmp_path / "out.json").read_text())
    assert sorted(told["ids"]) == list(range(500))
    assert told["workers"] == 1
    assert (tmp_path / "job" / "credentials").stat().st_mode & 0o777 == 0o700
    assert set(served.children()) == before


@pytest.mark.parametrize(
    "words",
    [
        {"SLURM_JOB_NODELIST": "localhost"},
        {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "GROUP_RANK": "0"},
        {"FOREBAY_DISPATCHER": "localhost:1"},
    ],
)
def test_a_loader_without_a_launcher_is_told_so(
    monkeypatch: pytest.MonkeyPatch, words: dict[str, str]
) -> None:
    for name in ("SLURM_JOB_NODELIST", "MASTER_ADDR", "GROUP_RANK"):
        monkeypatch.delenv(name, raising=False)
    recipe = [fb.raw("bin")]
    data = fb.synthetic(10, bytes=8)
    with pytest.raises(fb.InvalidConfigError, match="no launcher says where it is"):
        fb.Loader(data, recipe, via="forebay://auto")
    for name, word in words.items():
        monkeypatch.setenv(name, word)
    fb.Loader(data, recipe, via="forebay://auto").close()
