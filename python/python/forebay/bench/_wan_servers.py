"""The other end of ``forebay bench wan``: object servers and the emulated line, each a process of its own."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from . import _peers
from ._harness import Figures, last_line

PROGRAMS = ("forebay-wan", "forebay-objects")


class UnavailableBenchError(RuntimeError):
    """The bench cannot run here, and why."""


def checkout() -> Path:
    """The clone of the project, which the servers are built from."""
    if (clone := _peers.checkout()) is None:
        raise UnavailableBenchError(
            "run bench `wan`: its servers are built from a clone of the project, and there is none around"
            f" `{Path.cwd()}` (this is a developer's bench: run it inside a clone)"
        )
    return clone


def built_before() -> Path | None:
    """A folder of programs that somebody built already, so that nothing is compiled beside a measurement."""
    named = os.environ.get("FOREBAY_BENCH_PROGRAMS")
    return Path(named) if named else None


def build(progress: Callable[[str], None]) -> Path:
    """Builds the servers in release mode and returns the folder they are in."""
    if folder := built_before():
        missing = [name for name in PROGRAMS if not (folder / name).is_file()]
        if missing:
            raise UnavailableBenchError(f"run bench `wan`: `FOREBAY_BENCH_PROGRAMS` has no `{missing[0]}`")
        return folder
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

    def __init__(self, program: Path, arguments: Sequence[object], inside: Sequence[str] = ()) -> None:
        self.lines: list[dict[str, Any]] = []
        command = [*inside, str(program), *map(str, arguments)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        first = self._process.stdout.readline() if self._process.stdout else ""
        if not first:
            _, errors = self._process.communicate()
            raise UnavailableBenchError(
                f"start `{program.name}`: it ended with code {self._process.returncode} before it was ready:"
                f" {last_line(errors)}"
            )
        self.said: dict[str, Any] = json.loads(first)
        self.port: int = self.said.get("port", 0)
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
        for stream in (self._process.stdout, self._process.stderr):
            if stream:
                stream.close()
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
        flags = ["--target", target, "--stall-share", stall_share, "--stall-ms", 1000]
        self._start(folder, rtt_ms, rate_mbit, flags)

    def _start(self, folder: Path, rtt_ms: float, rate_mbit: float, flags: Sequence[object]) -> None:
        self.bytes_per_second = rate_mbit * 125_000
        line = ["--rtt-ms", rtt_ms, "--rate-mbit", rate_mbit, "--report-ms", 100]
        Program.__init__(self, folder / "forebay-wan", [*line, *flags])

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


class Cable(Line):
    """A line of packets between two networks of their own, some of which it loses. Needs root and ``/dev/net/tun``."""

    def __init__(self, folder: Path, *, rtt_ms: float, rate_mbit: float, loss: float) -> None:
        self._start(folder, rtt_ms, rate_mbit, ["--packets", "--loss", loss])
        self.address: str = self.said["address"]
        """Of the server, in its own network."""
        self.client, self.server = (
            ("nsenter", f"--net=/proc/{self.said[side]}/ns/net") for side in ("client", "server")
        )


class Cassandra:
    """A real server that the project's own script installs and starts, for as long as this is open."""

    def __init__(self, run: Path) -> None:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        self._home = Path(os.environ.get("FOREBAY_SERVERS") or Path(cache) / "forebay-servers") / "cassandra"
        self._run = run
        self._say("install")
        try:
            self.address = self._say("start").splitlines()[-1]
        except (UnavailableBenchError, IndexError):
            self._say("stop")
            raise

    def _say(self, word: str) -> str:
        script = checkout() / "scripts/servers/cassandra.sh"
        command = [str(script), word, str(self._home), "--run", str(self._run)]
        # Half a gigabyte of rows and hundreds of answers under way do not fit into what the tests give it.
        heap = {"FOREBAY_CASSANDRA_HEAP": "4g", **os.environ}
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=heap)
        if done.returncode != 0:
            raise UnavailableBenchError(f"{word} Cassandra: {last_line(done.stderr)}")
        return done.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, where: TracebackType | None
    ) -> None:
        self._say("stop")


def virtual_link(progress: Callable[[str], None]) -> Figures:
    """How a whole loader fills 25 Gb/s x 100 ms, in virtual time: no machine at hand carries that much."""
    command = ["cargo", "run", "--quiet", "--example", "virtual_link"]
    if (folder := built_before()) and (folder / "examples/virtual_link").is_file():
        command = [str(folder / "examples/virtual_link")]
    progress(f"wan: a link of 25 Gb/s in virtual time: {' '.join(command)}")
    done = subprocess.run(command, cwd=checkout(), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise UnavailableBenchError(f"run `{' '.join(command)}`: {last_line(done.stderr)}")
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures
