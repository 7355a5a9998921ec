"""Helper processes: functions of a recipe called outside of the training process, one call at a time in each.

Every helper is a fresh interpreter that imports the functions by their module, as `spawn` does, and nothing else of
the program. Values go through a file in memory that both have open, words about them through a socket. A helper whose
socket closes ends at once, so none outlives the process that started it; one that dies is replaced and its call made
again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from forebay._functions import Key, Result, Value, restore
from forebay._source import is_importable, name_of
from forebay.batch import wrap_columns
from forebay.errors import CancelledError, ForebayError, FunctionError, InvalidConfigError

__all__ = ["Helpers", "Raised", "receive", "send"]

_log = logging.getLogger("forebay")

_TRIES = 3
"""Helpers that one call may cost."""
_HEADER = struct.Struct("<I")
_ALIGNMENT = 64
_START = """
import json, sys
sys.path[:] = json.loads(sys.argv[3])
from forebay._helper import main
main(int(sys.argv[1]), int(sys.argv[2]))
"""
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Helpers run side by side: libraries that would start a thread per processor in each are told not to."""


class Raised(Exception):
    """A function raised in a helper: the exception is the cause, and this is the line about it."""


class Helpers:
    """Up to `count` helper processes for these functions, started when they are needed."""

    def __init__(self, functions: Sequence[Callable[..., Any]], count: int) -> None:
        for function in functions:
            _check(function)
        self._functions = pickle.dumps(list(functions))
        self._count = count
        self._changed = threading.Condition()
        self._free: list[_Helper] = []
        self._all: set[_Helper] = set()
        self._starting = 0
        self._open = True
        self._process = os.getpid()

    def function(self, number: int) -> Remote:
        """What the native side calls in place of function `number`."""
        return Remote(self, number)

    def call(self, request: tuple[Any, ...], values: Sequence[Value]) -> Any:
        """Lets a helper do it, and another one when that one dies."""
        ended = []
        for _ in range(_TRIES):
            helper = self._take()
            try:
                answer = helper.call(request, values)
            except (EOFError, OSError):
                ended.append(helper.end())
                self._lose(helper)
                if not self._open:
                    break
                _log.warning("helper %s: starting another and making its sample again", ended[-1])
                continue
            except BaseException:
                helper.end()
                self._lose(helper)
                raise
            self._give_back(helper)
            return answer
        if not self._open:
            raise CancelledError("call a function: the loader was closed")
        raise FunctionError(
            f"{_TRIES} helpers in a row ended inside of it: {'; '.join(ended)}",
            hint="look for a crash or too little memory in what the function calls",
        )

    def open(self) -> None:
        """Takes calls again after `close`."""
        self._open = True

    def close(self) -> None:
        """Ends all helpers, and with them whatever is being called. May be called any number of times."""
        self._open = False
        if self._process != os.getpid():
            return
        with self._changed:
            helpers, self._free = list(self._all), []
            self._all.clear()
            self._changed.notify_all()
        for helper in helpers:
            helper.hang_up()
        for helper in helpers:
            helper.end()

    def pids(self) -> list[int]:
        """The processes that run now."""
        with self._changed:
            return sorted(helper.pid for helper in self._all)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def _take(self) -> _Helper:
        with self._changed:
            if self._process != os.getpid():
                # A forked child has the parent's helpers, and must leave them alone.
                self._free, self._all, self._starting = [], set(), 0
                self._process = os.getpid()
            while self._open and not self._free and len(self._all) + self._starting >= self._count:
                self._changed.wait()
            if not self._open:
                raise CancelledError("call a function: the loader was closed")
            if self._free:
                return self._free.pop()
            self._starting += 1
        helper = None
        try:
            helper = _Helper(self._functions)
        finally:
            with self._changed:
                self._starting -= 1
                if helper is not None and self._open:
                    self._all.add(helper)
                self._changed.notify()
        if not self._open:
            helper.end()
            raise CancelledError("call a function: the loader was closed")
        return helper

    def _give_back(self, helper: _Helper) -> None:
        with self._changed:
            if helper in self._all:
                self._free.append(helper)
            self._changed.notify()

    def _lose(self, helper: _Helper) -> None:
        with self._changed:
            self._all.discard(helper)
            self._changed.notify()


class Remote:
    """A function that helpers call: the same calls as of `Local`."""

    __slots__ = ("_helpers", "_number")

    def __init__(self, helpers: Helpers, number: int) -> None:
        self._helpers, self._number = helpers, number

    def map(
        self,
        values: Sequence[Value],
        key: Key | None,
        names: Sequence[str] | None,
        outputs: Sequence[str],
        dtype: str | None,
    ) -> list[Result]:
        """See `Local.map`."""
        return self._helpers.call(("map", self._number, key, names, outputs, dtype), values)  # type: ignore[no-any-return]

    def keep(self, values: Sequence[Value], key: Key | None, names: Sequence[str] | None) -> bool:
        """See `Local.keep`."""
        return bool(self._helpers.call(("keep", self._number, key, names), values))

    def map_batch(
        self, ids: Sequence[int], columns: Sequence[tuple[str, str, Any]], key: Key | None
    ) -> list[Any]:
        """See `Local.map_batch`."""
        values: list[Value] = []
        shapes: list[tuple[str, str, int]] = []
        for name, kind, value in columns:
            if kind == "tensors":
                shapes.append((name, kind, len(value)))
                values.extend(("tensor", one) for one in value)
            elif kind == "tensor":
                shapes.append((name, kind, 1))
                values.append((kind, value))
            else:
                shapes.append((name, kind, 1))
                values.append(("pickled", pickle.dumps(wrap_columns([(name, kind, value)])[name])))
        return self._helpers.call(("map_batch", self._number, key, ids, shapes), values)  # type: ignore[no-any-return]


class _Helper:
    """One process."""

    def __init__(self, functions: bytes) -> None:
        self._memory = os.memfd_create("forebay-helper")
        ours, theirs = socket.socketpair()
        self._socket = ours
        environment = dict(os.environ)
        for name in _ONE_THREAD:
            environment.setdefault(name, "1")
        arguments = [str(theirs.fileno()), str(self._memory), json.dumps(sys.path)]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, *arguments],
                pass_fds=(theirs.fileno(), self._memory),
                stdin=subprocess.DEVNULL,
                env=environment,
            )
        self.pid = self._process.pid
        try:
            send(ours, pickle.dumps(functions))
            answer = pickle.loads(receive(ours))
        except (EOFError, OSError):
            raise InvalidConfigError(
                f"start a helper: it ended before it was ready, {self.end()}",
                hint="its own words are on standard error",
            ) from None
        if isinstance(answer, bytes):
            problem, line = restore(answer)
            self.end()
            raise InvalidConfigError(
                f"start a helper: its functions cannot be imported: {line}",
                hint="helpers import functions by their module: put them where PYTHONPATH or a package has them",
            ) from problem

    def call(self, request: tuple[Any, ...], values: Sequence[Value]) -> Any:
        """What the function gives. What it raises is raised as the cause of `Raised`."""
        told: list[tuple[str, Any]] = []
        at = 0
        for kind, value in values:
            if kind == "tensor":
                memory, dtype, shape = value
                told.append((kind, (at, len(memory), dtype, shape)))
                at = write(self._memory, memory, at)
            elif isinstance(value, bytes):
                told.append((kind, (at, len(value))))
                at = write(self._memory, value, at)
            else:
                told.append((kind, value))
        send(self._socket, pickle.dumps((request, told)))
        how, answer = pickle.loads(receive(self._socket))
        if how == "raised":
            problem, line = restore(answer)
            if isinstance(problem, ForebayError):
                raise problem
            raise Raised(line) from problem
        return _read(self._memory, answer)

    def hang_up(self) -> None:
        """Wakes whoever waits for an answer; the process ends."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def end(self) -> str:
        """Waits for the end of the process, or makes it; says how it ended. May be called again, by any thread."""
        self.hang_up()
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return f"process {self.pid} ended " + (f"by signal {-code}" if code < 0 else f"with code {code}")

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._socket.close()
            os.close(self._memory)


def _read(memory: int, answer: Any) -> Any:
    """Results with what lies in the shared memory."""
    if isinstance(answer, Result):
        if answer.kind not in ("tensor", "bytes"):
            return answer
        at, size = answer.data
        data = np.empty(size, np.uint8)
        read_into(memory, data, at)
        return answer._replace(data=data if answer.kind == "tensor" else data.tobytes())
    if isinstance(answer, list | tuple):
        # A result is a tuple too, and was dealt with.
        return type(answer)(_read(memory, one) for one in answer)
    return answer


def _check(function: Callable[..., Any]) -> None:
    name = name_of(function)
    hint = "put it into a module of its own and import it from there, or leave `processes` out: threads call anything"
    if name.startswith(("__main__:", "__mp_main__:")):
        raise InvalidConfigError(
            f"call `{name}` in helper processes: they do not run your main program", hint=hint
        )
    if hasattr(function, "__qualname__") and not is_importable(function):
        raise InvalidConfigError(
            f"call `{name}` in helper processes: it cannot be imported by that name", hint=hint
        )
    try:
        pickle.dumps(function)
    except Exception as problem:
        raise InvalidConfigError(f"call `{name}` in helper processes: {problem}", hint=hint) from None


# What passes between the two.


def send(to: socket.socket, message: bytes) -> None:
    """Sends a message."""
    to.sendall(_HEADER.pack(len(message)) + message)


def receive(source: socket.socket) -> bytes:
    """The next message; `EOFError` when the other side is gone."""
    return _exactly(source, _HEADER.unpack(_exactly(source, _HEADER.size))[0])


def _exactly(source: socket.socket, size: int) -> bytes:
    message = bytearray()
    while len(message) < size:
        part = source.recv(min(size - len(message), 1 << 20))
        if not part:
            raise EOFError("the other side is gone")
        message += part
    return bytes(message)


def write(memory: int, data: Any, at: int) -> int:
    """Puts bytes into the shared memory; the next free place."""
    rest = memoryview(data)
    while rest.nbytes:
        written = os.pwrite(memory, rest, at)
        rest, at = rest[written:], at + written
    return (at + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT


def read_into(memory: int, data: Any, at: int) -> None:
    """Fills `data` from the shared memory."""
    rest = memoryview(data)
    while rest.nbytes:
        read = os.preadv(memory, [rest], at)
        if not read:
            raise EOFError("the shared memory is too short")
        rest, at = rest[read:], at + read
