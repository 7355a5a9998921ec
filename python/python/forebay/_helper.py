"""The life of a helper process: import the functions, then call them until the one who asks is gone."""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from forebay._functions import Result, carry, results, run, run_batch
from forebay._helpers import read_into, receive, send, write
from forebay.batch import DTYPES, bfloat16

__all__ = ["main"]

_LOOK_SECONDS = 1.0
"""A process that was forked off the one who asks may hold its socket open: its parent is looked at too."""


def main(asking: int, memory: int) -> None:
    """Answers until the other side hangs up, or is gone."""
    # Ctrl-C is for the process that started this one, which ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()
    threading.Thread(target=_watch, args=(asking, parent), daemon=True).start()
    link = socket.socket(fileno=asking)
    try:
        functions = pickle.loads(pickle.loads(receive(link)))
    except EOFError:
        return
    except BaseException as problem:
        send(link, pickle.dumps(carry(problem)))
        return
    send(link, pickle.dumps(None))
    while True:
        try:
            request, told = pickle.loads(receive(link))
        except (EOFError, OSError):
            return
        try:
            answer = ("done", _written(memory, _call(functions, request, memory, told)))
        except BaseException as problem:
            answer = ("raised", carry(problem))
        send(link, pickle.dumps(answer))


def _watch(asking: int, parent: int) -> None:
    """Ends this process when nobody is left to ask, whatever it is doing."""
    poll = select.poll()
    poll.register(asking, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
    while not poll.poll(_LOOK_SECONDS * 1000) and os.getppid() == parent:
        pass
    os._exit(0)


def _call(
    functions: Sequence[Callable[..., Any]],
    request: tuple[Any, ...],
    memory: int,
    told: Sequence[tuple[str, Any]],
) -> Any:
    what, number, key, *rest = request
    function, values = functions[number], [_value(memory, *one) for one in told]
    if what == "map_batch":
        columns: dict[str, Any] = {}
        left = iter(values)
        for name, kind, count in rest[1]:
            columns[name] = [next(left) for _ in range(count)] if kind == "tensors" else next(left)
        return run_batch(function, rest[0], columns, key)
    names = rest[0]
    given = run(function, values, key, names)
    return bool(given) if what == "keep" else results(given, names, *rest[1:])


def _value(memory: int, kind: str, told: Any) -> Any:
    """A value of its own: the function may keep it, and the shared memory is used again."""
    if kind == "tensor":
        at, _, dtype, shape = told
        array = np.empty(shape, DTYPES.get(dtype) or bfloat16())
        read_into(memory, array.reshape(-1).view(np.uint8), at)
        return array
    if kind in ("bytes", "pickled"):
        at, size = told
        data = np.empty(size, np.uint8)
        read_into(memory, data, at)
        return data.tobytes() if kind == "bytes" else pickle.loads(data.tobytes())
    return json.loads(told) if kind == "json" else told


def _written(memory: int, answer: Any) -> Any:
    """The answer with its bytes in the shared memory, where the values of the request are no longer needed."""
    at = 0

    def put(one: Any) -> Any:
        nonlocal at
        if isinstance(one, Result):
            if one.kind not in ("tensor", "bytes"):
                return one
            start, at = at, write(memory, one.data, at)
            return one._replace(data=(start, len(one.data)))
        if isinstance(one, list | tuple):
            return type(one)(put(part) for part in one)
        return one

    return put(answer)
