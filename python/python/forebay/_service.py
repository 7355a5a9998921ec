"""A running service as an object that can be sent anywhere: its address, and the credentials to be let in.

Loaders take it as `via`. Its certificates become files of the process that uses them, for this user only and removed
when the process ends. Who started the service, and who ends it, is told elsewhere (`forebay.ray`).
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forebay import _native

__all__ = ["Service", "write_files"]


class Service:
    """A data service that is running somewhere: what `fb.Loader(via=...)` takes.

    url: of its dispatcher, `forebay://host:port`.
    """

    def __init__(self, url: str, credentials: Mapping[str, str]) -> None:
        self.url = url
        self._credentials = dict(credentials)
        self._dispatcher: tuple[int, _native.Dispatcher] | None = None

    @property
    def via(self) -> dict[str, Any]:
        """The loader's setting, for this process. Add `"job"`, `"target"` and so on as needed."""
        return {"url": self.url, "credentials": str(_folder_of(self._credentials))}

    def status(self, wait: float = 5.0) -> dict[str, Any]:
        """What `forebay status --json` prints: workers, feeds, jobs, leases, rates, and the wanted number of workers.

        wait: seconds to wait for a dispatcher that is away.
        """
        # A connection belongs to the process that made it.
        if self._dispatcher is None or self._dispatcher[0] != os.getpid():
            self._dispatcher = (os.getpid(), _native.Dispatcher(json.dumps(self.via)))
        answer: dict[str, Any] = json.loads(self._dispatcher[1].status(wait))
        return answer

    def __reduce__(self) -> tuple[Any, ...]:
        return (Service, (self.url, self._credentials))

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} at {self.url}>"


_written: dict[tuple[int, str], Path] = {}
"""Folders of this process, by its id (a forked child has its own) and the token inside."""


def _folder_of(credentials: Mapping[str, str]) -> Path:
    """A folder with these files that only this user reads, gone when this process is."""
    key = (os.getpid(), credentials["token"])
    if key not in _written:
        folder = Path(tempfile.mkdtemp(prefix="forebay-credentials-"))
        write_files(folder, credentials)
        _written[key] = folder
    return _written[key]


def write_files(folder: Path, credentials: Mapping[str, str]) -> None:
    """Into a folder that is this user's alone."""
    for name, text in credentials.items():
        with open(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)


@atexit.register
def _remove() -> None:
    for (process, _), folder in _written.items():
        if process == os.getpid():
            shutil.rmtree(folder, ignore_errors=True)
