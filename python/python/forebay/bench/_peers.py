"""Where the packages are that Forebay is measured beside: in this interpreter, or in one of their own.

Their pins do not fit the tests' set, so ``scripts/setup.sh bench`` puts them into ``.venv-peers`` next to ``.venv``.
``FOREBAY_BENCH_PEERS`` names another interpreter. It needs this package too, because subjects are modules of it.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

VARIABLE = "FOREBAY_BENCH_PEERS"

_FIND = """
import importlib.util, json, sys
print(json.dumps([name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]))
"""
_VERSIONS = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        pass
print(json.dumps(found))
"""


class MissingPeerError(RuntimeError):
    """A package that is compared with is nowhere, and which."""


def checkout() -> Path | None:
    """The clone of the project that we stand in, or that this package was built from."""
    for start in (Path.cwd(), Path(__file__).resolve().parent, Path(sys.prefix).resolve()):
        for folder in (start, *start.parents):
            if (folder / "crates/testkit/src/bin/forebay-wan.rs").is_file():
                return folder
    return None


def beside() -> Path | None:
    """The other interpreter, if there is one."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    clone = checkout()
    python = clone / ".venv-peers/bin/python" if clone else None
    return python if python and python.is_file() else None


@functools.cache
def interpreter(modules: tuple[str, ...]) -> str:
    """The interpreter that can import all of ``modules``; raises MissingPeerError when none can."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if not missing:
        return sys.executable
    if (python := beside()) is None:
        raise MissingPeerError(f"`{missing[0]}` is not installed")
    missing = json.loads(_ask(python, _FIND, ("forebay", *modules)) or "[]")
    if missing:
        raise MissingPeerError(f"`{missing[0]}` is not installed in `{python.parent.parent.name}`")
    return str(python)


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Versions of ``packages``, wherever each is taken from; one that is missing says so."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    wanted = [package for package, known in found.items() if known == "not installed"]
    if wanted and (python := beside()):
        found.update(json.loads(_ask(python, _VERSIONS, wanted) or "{}"))
    return found


def _ask(python: Path, script: str, words: Sequence[str]) -> str:
    """What a short script prints last in the other interpreter."""
    command = [str(python), "-c", script, *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise MissingPeerError(f"run `{python}`: {fault}") from fault
    if done.returncode != 0:
        last = [line for line in done.stderr.splitlines() if line.strip()][-1:] or ["no message"]
        raise MissingPeerError(f"run `{python}`: it ended with code {done.returncode}: {last[0]}")
    return done.stdout.strip()
