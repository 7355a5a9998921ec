"""The `forebay` command: everything native, but `bench`, which compares with other Python loaders."""

from __future__ import annotations

import importlib
import importlib.util
import signal
import sys

from forebay import _native

__all__ = ["main"]


def main() -> int:
    """Runs the command with the arguments of this process and returns its exit code."""
    if sys.argv[1:2] == ["bench"] and importlib.util.find_spec("forebay.bench") is not None:
        bench = importlib.import_module("forebay.bench")
        return int(bench.main(sys.argv[2:]))
    # Python's handler would only take note of Ctrl-C until the command is done.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return int(_native.run_cli(["forebay", *sys.argv[1:]]))
