"""Processes of a service and of a host's shared preparation, for tests: started, found, killed, always ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

DEADLINE = 60.0
"""Seconds until something that must happen counts as not happening."""


class Process:
    """One `forebay` command that prints where it listens."""

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "forebay", *arguments, "--json"]
        self._child = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
            text=True,
        )
        assert self._child.stdout is not None
        line = self._read_object()
        if not line:
            _, problem = self._child.communicate(timeout=DEADLINE)
            raise AssertionError(f"`{' '.join(arguments)}` did not start: {problem}")
        self.said: dict[str, Any] = json.loads(line)

    def _read_object(self) -> str:
        """Lines up to the end of the first JSON object."""
        assert self._child.stdout is not None
        lines: list[str] = []
        for line in self._child.stdout:
            lines.append(line)
            if line.rstrip() == "}":
                break
        return "".join(lines)

    @property
    def pid(self) -> int:
        return self._child.pid

    def kill(self) -> None:
        """As a machine that loses power would."""
        self._child.kill()
        self._child.communicate(timeout=DEADLINE)

    def signal(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    def wait(self) -> int:
        self._child.communicate(timeout=DEADLINE)
        return self._child.returncode

    def end(self) -> None:
        if self._child.poll() is None:
            self._child.terminate()
            try:
                self._child.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                self.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def dispatcher(state: Path, *, port: int = 0, **options: str) -> Process:
    flags = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    return Process("dispatcher", "--listen", f"127.0.0.1:{port}", "--state", str(state), *flags)


def worker(url: str, **options: str) -> Process:
    flags = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    return Process("worker", "--dispatcher", url, "--listen", "127.0.0.1:0", *flags)


@contextmanager
def service(
    folder: Path, workers: int = 2, functions: str | None = None, **options: str
) -> Iterator[tuple[str, Process, list[Process]]]:
    """A dispatcher and workers, which may call these functions: the URL, the dispatcher and the workers."""
    allowed = {} if functions is None else {"functions": functions}
    head = dispatcher(folder / "state", **options)
    url = str(head.said["url"])
    hands: list[Process] = []
    try:
        hands.extend(worker(url, **allowed) for _ in range(workers))
        yield url, head, hands
    finally:
        for process in [*hands, head]:
            process.end()


def status(url: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "forebay", "status", url, "--json"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=True)
    answer: dict[str, Any] = json.loads(said.stdout)
    return answer


def children() -> list[int]:
    """Processes that this one started and that have not ended."""
    found = []
    for path in Path("/proc/self/task").glob("*/children"):
        try:
            found += [int(word) for word in path.read_text().split()]
        except FileNotFoundError:
            continue  # The thread ended meanwhile.
    return [pid for pid in found if state_of(pid) not in ("Z", "")]


def state_of(pid: int) -> str:
    """What the system says of a process; empty when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return ""


def eventually(what: Any, wanted: str) -> None:
    until = time.monotonic() + DEADLINE
    while not what():
        assert time.monotonic() < until, f"not within {DEADLINE} s: {wanted}"
        time.sleep(0.05)
