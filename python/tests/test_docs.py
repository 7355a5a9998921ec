"""The guide runs as it is written, and the reference is what the docstrings say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import made
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *("first-batch", "resume", "sharding", "functions", "audio", "text", "detection"),
    *("frameworks", "materialize", "video"),
]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place with `photos/` and `shards/`, as the guide has them."""
    folder = tmp_path_factory.mktemp("guide")
    made.write_tree(folder / "photos", classes=3, each=6)
    samples = [
        {"jpg": made.encoded(made.picture(number)), "cls": str(number % 3).encode()} for number in range(40)
    ]
    (folder / "shards").mkdir()
    for shard in range(4):
        name = f"train-{shard:06d}.tar"
        made.write_tar(folder / "shards" / name, samples[shard * 10 : shard * 10 + 10], shard * 10)
    return folder


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PAGES)
def test_the_guide_runs_from_top_to_bottom(name: str, folder: Path) -> None:
    blocks = BLOCK.findall((ROOT / "docs" / "guide" / f"{name}.md").read_text())
    assert len(blocks) >= 3
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore:this is a debug", "-c", "\n".join(blocks)],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_the_reference_is_current() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", ROOT / "python" / "reference.py", "--check"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
