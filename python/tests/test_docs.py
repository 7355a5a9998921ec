"""The guide runs as it is written, and the reference is what the docstrings say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

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


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    """What `python/reference.py` says of the page and the package, by one process: it imports torch and Lightning."""
    code = """
        import contextlib, importlib, io, json, pkgutil, sys
        import forebay as fb, reference
        said = {"left_out": reference.left_out()}
        sys.argv = ["reference.py", "--check"]
        with contextlib.redirect_stderr(io.StringIO()) as err:
            said["status"] = reference.main()
        said["err"] = err.getvalue()
        # A module is the home of names that `fb` has, or known to the page.
        files = [file.name for file in pkgutil.iter_modules(fb.__path__) if not file.name.startswith("_")]
        modules = [importlib.import_module(f"forebay.{name}") for name in files if name != "bench"]
        known = list(reference.MODULES.values())
        homes = [module for module in modules if set(module.__all__) & set(fb.__all__)]
        said["unknown"] = [module.__name__ for module in modules if module not in known + homes]
        for things in reference.SECTIONS.values():
            things[:] = [thing for thing in things if thing not in (fb.mix, fb.torch.to_device)]
        said["without_two"] = reference.left_out()
        print(json.dumps(said))
    """
    done = made.run_python(code, timeout=280, PYTHONPATH=made.path_with(ROOT / "python"))
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.mark.timeout(300)
def test_the_reference_has_every_public_name(reference: dict[str, Any]) -> None:
    assert (reference["left_out"], reference["unknown"]) == ([], [])
    assert reference["without_two"] == ["fb.mix", "fb.torch.to_device"]


@pytest.mark.timeout(300)
def test_the_reference_is_current(reference: dict[str, Any]) -> None:
    assert reference["status"] == 0, reference["err"]
