"""A `forebay` command that lives no longer than the process that started it.

`Child` is for that process. It holds one end of a pipe whose other end is the child's standard input, and writes
nothing to it: when the process ends, however it ends, the system closes the pipe and the child leaves. Run as a program
this module is the child.
"""

from __future__ import annotations

import collections
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from forebay import _cli
from forebay._service import write_files
from forebay.errors import UnavailableError

__all__ = ["Child"]

_LINES = 20
"""Last lines of what the child said to people that are kept for an error."""


class Child:
    """A `forebay` command that prints an object when it is ready.

    credentials: what it reads while it starts, as files that are gone afterwards.
    on_end: called with the exit code from another thread, when the command ends without having been asked to.
    """

    def __init__(
        self, *arguments: str, credentials: Mapping[str, str], on_end: Callable[[int], object]
    ) -> None:
        self._said: collections.deque[str] = collections.deque(maxlen=_LINES)
        self._asked = False
        self._on_end = on_end
        with tempfile.TemporaryDirectory(prefix="forebay-credentials-") as folder:
            write_files(Path(folder), credentials)
            self.said = self._start([*arguments, "--credentials", folder, "--json"])
        threading.Thread(target=self._watch, name="forebay-child-end", daemon=True).start()

    def _start(self, arguments: list[str]) -> dict[str, Any]:
        """Starts it, and waits for its object."""
        # What this process can import the child can too: functions of users among it.
        paths = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "forebay._supervised", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
        )
        self._reader = threading.Thread(target=self._pass_on, name="forebay-child", daemon=True)
        self._reader.start()
        lines: list[str] = []
        assert self._process.stdout is not None
        for line in self._process.stdout:
            lines.append(line)
            if line.rstrip() == "}":
                answer: dict[str, Any] = json.loads("".join(lines))
                if "error" not in answer:
                    return answer
                self._process.wait()
                self._close()
                told = answer["error"]
                raise UnavailableError(
                    f"start `forebay {arguments[0]}`: {told['message']}", hint=told.get("hint")
                )
        code = self._process.wait()
        self._close()
        raise UnavailableError(f"start `forebay {arguments[0]}`: it ended with {code}: {self._last_words()}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def _pass_on(self) -> None:
        """What it says to people goes where this process's words go."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append(line)
            sys.stderr.write(line)

    def _last_words(self) -> str:
        return " ".join("".join(self._said).split())

    def _close(self) -> None:
        """Lets go of the pipes of a process that has ended; what it said last is read by then."""
        self._reader.join(5)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _watch(self) -> None:
        code = self._process.wait()
        self._close()
        if not self._asked:
            self._on_end(code)

    def end(self, seconds: float, how: signal.Signals = signal.SIGTERM) -> bool:
        """Asks it to leave, and makes it after so many seconds; whether it left by itself."""
        self._asked = True
        if self._process.poll() is None:
            self._process.send_signal(how)
        try:
            self._process.wait(seconds)
            return True
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return False


def main() -> int:
    threading.Thread(target=_leave_with_parent, name="forebay-parent", daemon=True).start()
    return _cli.main()


def _leave_with_parent() -> None:
    # Nobody writes here: an answer means that the other end is closed.
    os.read(0, 1)
    os._exit(143)


if __name__ == "__main__":
    sys.exit(main())
