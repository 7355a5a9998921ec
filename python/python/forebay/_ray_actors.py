"""The actors of `forebay.ray`: each owns one process of a service, and is nothing without it.

A process of its own, and not a thread of the actor: it is the same command that is run by hand, it drains when it is
asked to by a signal, and when it crashes it leaves word. It ends with its actor, however that ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forebay._supervised import Child
from forebay.errors import UnavailableError

__all__ = ["ForebayDispatcher", "ForebayWorker"]

_AGAIN_SECONDS = 10.0
"""How long a dispatcher that was started again tries to listen where it did: its folder and port may still be held."""


class ForebayDispatcher:
    """The actor that owns the dispatcher.

    Started again it listens where it did before, so that workers and loaders find it. `run` is the same then, and
    another one whenever a service is started anew in an old folder.
    """

    def __init__(
        self,
        folder: str,
        run: str,
        credentials: Mapping[str, str],
        tls: bool,
        flags: list[str],
        temporary: bool,
    ) -> None:
        self._folder, self._temporary = Path(folder), temporary
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._noted = self._folder / f"address-{run}"
        is_again = self._noted.exists()
        listen = self._noted.read_text() if is_again else f"{_own_address(tls)}:0"
        arguments = ["dispatcher", "--listen", listen, "--state", str(self._folder / "state"), *flags]
        until = time.monotonic() + (_AGAIN_SECONDS if is_again else 0)
        while True:
            try:
                self._child = Child(*arguments, credentials=credentials, on_end=_end_actor)
                break
            except UnavailableError:
                if time.monotonic() >= until:
                    raise
                time.sleep(0.2)
        self._url = str(self._child.said["url"])
        whole = self._noted.with_suffix(".new")
        whole.write_text(self._url.removeprefix("forebay://"))
        whole.replace(self._noted)

    def url(self) -> str:
        return self._url

    def end(self) -> None:
        """Ends the dispatcher, and forgets what was for this run alone."""
        self._child.end(5, signal.SIGINT)
        self._noted.unlink(missing_ok=True)
        if self._temporary:
            shutil.rmtree(self._folder, ignore_errors=True)


class ForebayWorker:
    """The actor that owns one worker."""

    def __init__(self, url: str, credentials: Mapping[str, str], tls: bool, flags: list[str]) -> None:
        arguments = ["worker", "--dispatcher", url, "--listen", f"{_own_address(tls)}:0", *flags]
        self._child = Child(*arguments, credentials=credentials, on_end=_end_actor)

    def where(self) -> dict[str, Any]:
        """Address, id and process of the worker."""
        return {**self._child.said, "pid": self._child.pid}

    def drain(self, seconds: float) -> bool:
        """Lets it finish what it has and leave; whether it did within that time."""
        return self._child.end(seconds)


def _end_actor(code: int) -> None:
    """An actor without its process is of no use; Ray starts it again."""
    print(f"the process of this actor ended with {code}", file=sys.stderr, flush=True)
    os._exit(1)


def _own_address(tls: bool) -> str:
    """Where others reach this node; without encryption, where only this machine does."""
    if not tls:
        return "127.0.0.1"
    import ray

    address = str(ray.util.get_node_ip_address())
    return f"[{address}]" if ":" in address else address
