"""The `forebay` command of the package: the native one, with its exit codes and its Ctrl-C."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def forebay(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from forebay._cli import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *arguments], capture_output=True, text=True, timeout=60
    )


def test_it_tells_its_version_and_what_it_sees(tree: Path) -> None:
    assert forebay("--version").stdout.startswith("forebay ")
    told = forebay("info", str(tree), "--json")
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["samples"] == 12


def test_errors_end_with_their_exit_code() -> None:
    assert forebay("info", "no-such-folder").returncode == 3
    assert forebay("no-such-command").returncode == 2
