"""The processes behind ``forebay bench service``: dispatcher, worker, share, and those of tf.data service."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

TICKS = os.sysconf("SC_CLK_TCK")


class Running(Protocol):
    """Whatever uses a processor for a job."""

    def cpu_seconds(self) -> float:
        """What it has used so far."""
        ...


class Process:
    """A server that says where it listens in its first line, and ends with this."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr, text=True
        )
        first = self._process.stdout.readline() if self._process.stdout else ""
        if not first:
            code = self._process.wait(30)
            raise RuntimeError(f"start `{' '.join(command)}`: it ended with code {code}")
        self.address = first.split()[-1]

    def cpu_seconds(self) -> float:
        """What it has used so far."""
        return cpu_seconds(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def cpu_seconds(pid: int | str = "self") -> float:
    """User and system time of a process, all of its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def descendants() -> list[int]:
    """All processes that this one started, and theirs."""
    found: list[int] = []
    left = ["self"]
    while left:
        parent = left.pop()
        try:
            tasks = list(Path(f"/proc/{parent}/task").iterdir())
            children = [child for task in tasks for child in (task / "children").read_text().split()]
        except OSError:
            continue  # It ended meanwhile.
        left += children
        found += [int(child) for child in children]
    return found


class Descendants:
    """All of them together."""

    def cpu_seconds(self) -> float:
        """What those that still run have used so far."""
        total = 0.0
        for pid in descendants():
            with suppress(OSError):
                total += cpu_seconds(pid)
        return total


def _forebay(*arguments: str) -> Process:
    return Process([sys.executable, "-m", "forebay", *arguments])


def dispatcher() -> Process:
    """A dispatcher at any free port of this machine."""
    return _forebay("dispatcher", "--listen", "127.0.0.1:0")


def worker(dispatcher: Process, threads: int, same_host: str, staging_bytes: int) -> Process:
    """One worker, at any free port of this machine."""
    target = f"forebay://{dispatcher.address.removeprefix('forebay://')}"
    flags = ("--dispatcher", target, "--listen", "127.0.0.1:0", "--threads", str(threads))
    return _forebay("worker", *flags, "--same-host", same_host, "--staging", str(staging_bytes))


def share(socket: Path, threads: int, staging_bytes: int) -> Process:
    """The process that prepares for all jobs of this host."""
    flags = ("--socket", str(socket), "--threads", str(threads), "--staging", str(staging_bytes))
    return _forebay("share", *flags)


def tfdata(role: str, *arguments: str) -> Process:
    """A server of tf.data service."""
    return Process([sys.executable, "-m", "forebay.bench._service_tfdata", role, *arguments])
