"""What the processes of a torch `DataLoader` have to agree on: which epoch they read, and from where.

Each of them has a copy of the dataset and is asked for a batch in its turn; none of them knows of the others, and the
process that started them is not told what they do. They meet in a small file in memory, which every copy of a dataset
has open: the first process of an iteration settles the epoch, the others follow.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import multiprocessing.context
import multiprocessing.reduction
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["Start", "Turns"]


class Start(NamedTuple):
    """Where an iteration begins."""

    epoch: int
    cursor: str | None
    """A place inside the epoch; its beginning when there is none."""
    is_first: bool
    """Whether nobody was told anything before."""


class Turns:
    """The account of one dataset's iterations in other processes."""

    def __init__(self, file: int | None = None) -> None:
        self._file = os.memfd_create("forebay-turns") if file is None else file

    def seek(self, cursor: str) -> None:
        """The next iteration begins here."""
        with self._account() as account:
            account.update(epoch=json.loads(cursor)["epoch"], cursor=cursor, begun=None)

    def begin(self, iteration: int, process: int) -> Start:
        """The place where `process` begins. `iteration` is the same for all that are asked in turn."""
        with self._account() as account:
            is_first = not account.get("known")
            joined = account.get("joined", [])
            # Who seeds every iteration alike has processes that come back under the same number.
            if account.get("iteration") != iteration or process in joined or account.get("begun") is None:
                epoch, cursor = account.get("epoch", 0), account.get("cursor")
                account.update(iteration=iteration, begun=[epoch, cursor], joined=[], known=True)
                account.update(epoch=epoch + 1, cursor=None)
            account["joined"] = [*account["joined"], process]
            epoch, cursor = account["begun"]
            return Start(epoch, cursor, is_first)

    def begun(self) -> Start | None:
        """The iteration that processes began last, unless the loader was sent elsewhere since."""
        with self._account() as account:
            begun = account.get("begun")
            return None if begun is None else Start(begun[0], begun[1], False)

    @contextlib.contextmanager
    def _account(self) -> Iterator[dict[str, Any]]:
        """What is agreed on, to be read and changed by one process at a time."""
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            text = os.pread(self._file, os.fstat(self._file).st_size, 0)
            account: dict[str, Any] = json.loads(text) if text else {}
            yield account
            text = json.dumps(account).encode()
            os.pwrite(self._file, text, 0)
            os.ftruncate(self._file, len(text))
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._file)

    def __reduce__(self) -> tuple[Any, ...]:
        # A process that is being started gets the same file; any other copy is on its own.
        if multiprocessing.context.get_spawning_popen() is None:
            return (Turns, ())
        return (_attach, (multiprocessing.reduction.DupFd(self._file),))


def _attach(file: Any) -> Turns:
    return Turns(file.detach())
