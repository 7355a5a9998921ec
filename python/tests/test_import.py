"""What importing costs and brings, and that the types are what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import forebay as fb
import made
import pytest


def test_import_brings_neither_torch_nor_jax_nor_threads() -> None:
    # NumPy's own threads are not ours.
    code = """
        import os, sys, numpy
        before = len(os.listdir("/proc/self/task"))
        import forebay
        heavy = {"torch", "jax", "lightning", "accelerate"} & set(sys.modules)
        assert not heavy, heavy
        assert len(os.listdir("/proc/self/task")) == before, os.listdir("/proc/self/task")
    """
    done = made.run_python(code)
    assert done.returncode == 0, done.stderr


def test_the_version_is_a_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", fb.__version__)


def test_every_name_offered_is_there_and_documented() -> None:
    for name in fb.__all__:
        value = getattr(fb, name)
        assert name == "IMAGENET" or name.startswith("__") or value.__doc__, name


def test_an_unknown_attribute_is_named() -> None:
    with pytest.raises(AttributeError, match="`loder`"):
        fb.loder  # noqa: B018


@pytest.mark.timeout(600)
def test_the_package_is_strictly_typed_and_the_stubs_are_true(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    config = root / "pyproject.toml"
    mypy = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        config,
        "--cache-dir",
        tmp_path / "mypy",
    ]
    # The sources rather than the installed copy: beside other packages their names would shadow the standard library.
    checked = subprocess.run([*mypy, "python/python/forebay"], capture_output=True, text=True, cwd=root)
    assert checked.returncode == 0, checked.stdout
    stubtest = [sys.executable, "-W", "ignore", "-m", "mypy.stubtest", "--mypy-config-file", config]
    stubs = subprocess.run([*stubtest, "forebay._native"], capture_output=True, text=True, cwd=tmp_path)
    assert stubs.returncode == 0, stubs.stdout


def test_the_wheel_is_one_for_all_pythons_and_says_that_it_is_typed() -> None:
    from importlib.metadata import distribution

    package = distribution("forebay")
    assert "Tag: cp311-abi3-" in (package.read_text("WHEEL") or "")
    names = {str(path) for path in package.files or ()}
    assert {"forebay/py.typed", "forebay/_native.pyi", "forebay/_native.abi3.so"} <= names
