"""The other end of ``forebay bench wan``: object servers and the emulated line, each a process of its own."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PROGRAMS = ("forebay-wan", "forebay-objects")


class UnavailableBenchError(RuntimeError):
    """The bench cannot run here, and why."""


def checkout() -> Path:
    """The clone of the project that this package was built from, or that we stand in."""
    starts = [Path.cwd(), Path(__file__).resolve().parent, Path(sys.prefix).resolve()]
    for start in starts:
        for folder in (start, *start.parents):
            if (folder / "crates/testkit/src/bin/forebay-wan.rs").is_file():
                return folder
    raise UnavailableBenchError(
        f"run bench `wan`: its servers are built from a clone of the project, and there is none around `{starts[0]}`"
        " (this is a developer's bench: run it inside a clone)"
    )


def build(progress: Callable[[str], None]) -> Path:
    """Builds the servers in release mode and returns the folder they are in."""
    root = checkout()
    command = ["cargo", "build", "--release", "-p", "forebay-testkit", "--bins"]
    progress(f"wan: building the servers in `{root}`: {' '.join(command)}")
    try:
        done = subprocess.run(
            [*command, "--message-format", "json"], cwd=root, stdout=subprocess.PIPE, text=True
        )
    except FileNotFoundError as fault:
        raise UnavailableBenchError(
            "run bench `wan`: `cargo` is not installed, the servers need it"
        ) from fault
    if done.returncode != 0:
        raise UnavailableBenchError(
            f"run bench `wan`: `{' '.join(command)}` ended with code {done.returncode}"
        )
    built: dict[str, Path] = {}
    for line in done.stdout.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("reason") == "compiler-artifact" and message.get("executable"):
            built[message["target"]["name"]] = Path(message["executable"])
    missing = [name for name in PROGRAMS if name not in built]
    if missing:
        raise UnavailableBenchError(f"run bench `wan`: cargo built no `{missing[0]}`")
    return built[PROGRAMS[0]].parent


def allow_connections() -> None:
    """Hundreds of connections need two files each in the relay; children inherit the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 8192 if hard == resource.RLIM_INFINITY else min(8192, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Program:
    """A running server. It says its port in its first line and ends when its standard input closes."""

    def __init__(self, program: Path, arguments: Sequence[object]) -> None:
        self.lines: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            [str(program), *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        first = self._process.stdout.readline() if self._process.stdout else ""
        if not first:
            code = self._process.wait()
            raise UnavailableBenchError(
                f"start `{program.name}`: it ended with code {code} before it was ready"
            )
        self.port: int = json.loads(first)["port"]
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self.lines.append(json.loads(line))

    def close(self) -> dict[str, Any]:
        """Ends it; returns its last counts."""
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        if self._process.stdout:
            self._process.stdout.close()
        return self.lines[-1] if self.lines else {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


class Line(Program):
    """The emulated line in front of a server; it reports its counts ten times a second."""

    def __init__(
        self, folder: Path, target: str, *, rtt_ms: float, rate_mbit: float, stall_share: float
    ) -> None:
        self.bytes_per_second = rate_mbit * 125_000
        flags = ["--target", target, "--rtt-ms", rtt_ms, "--rate-mbit", rate_mbit, "--report-ms", 100]
        super().__init__(folder / "forebay-wan", [*flags, "--stall-share", stall_share, "--stall-ms", 1000])

    def seconds_until_full(
        self, began: float, ended: float, share: float = 0.9, window: float = 0.25
    ) -> float:
        """Seconds from ``began`` (unix time) until ``share`` of the rate was carried for a whole ``window``.

        All seconds of the run if that never happened.
        """
        # The last report of the run may still be on its way.
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline and (not self.lines or self.lines[-1]["unix_seconds"] < ended):
            time.sleep(0.02)
        trace = [(line["unix_seconds"], line["down_bytes"]) for line in list(self.lines)]
        trace = [point for point in trace if began <= point[0] <= ended + 0.2]
        start = 0
        for at, carried in trace:
            while start + 1 < len(trace) and trace[start + 1][0] <= at - window:
                start += 1
            since, before = trace[start]
            if at - since >= window and carried - before >= share * self.bytes_per_second * (at - since):
                return float(at - began)
        return ended - began
