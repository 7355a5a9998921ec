"""The examples run as they are, on the processor alone."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "frameworks"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.mark.timeout(300)
def test_the_example_of_audio_learns_what_it_hears() -> None:
    script = FOLDER.parent / "audio" / "speech_commands.py"
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "the words are told apart" in done.stdout


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "needs", "launcher", "said"),
    [
        ("numpy_loop", "numpy", [], "saw 1000 samples, each once"),
        ("detection", "numpy", [], "boxes of 200 images followed their pixels in 2 epochs"),
        ("ddp", "torch", TORCHRUN, "2 ranks saw 2006 samples in 2 epochs, each once an epoch"),
        ("lightning_fit", "lightning", [], "saw 1000 samples; the checkpoint of step 7 went on with the 650"),
        ("accelerate_loop", "accelerate", [], "saw 1000 samples; the state of step 7 goes on with the 650"),
        ("jax_sharded", "jax", [], "40 steps over 2 devices"),
    ],
)
def test_an_example_runs_from_top_to_bottom(name: str, needs: str, launcher: list[str], said: str) -> None:
    if importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    done = subprocess.run(
        [sys.executable, *launcher, str(FOLDER / f"{name}.py")],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
