"""Exceptions, one class for each kind of error: sorted by what you can do about it.

All derive from `ForebayError`; some are also a builtin, so that `except FileNotFoundError` works. The message reads
`what was being done, to what: why`. Where it happened is kept in attributes, and the cure, when it is known, in
`hint`, which tracebacks show as a note. Every exception can be pickled with all of that.
"""

from __future__ import annotations

import traceback
from typing import Any, ClassVar

__all__ = [
    "CancelledError",
    "CorruptError",
    "DeniedError",
    "ExhaustedError",
    "ForebayError",
    "FunctionError",
    "InternalError",
    "InvalidConfigError",
    "NotFoundError",
    "StaleError",
    "UnavailableError",
    "UnsupportedError",
]


class ForebayError(Exception):
    """Anything that Forebay raises."""

    kind: ClassVar[str] = "internal"
    """The kind's name, the same in logs, in `--json` output and in the docs."""

    hint: str | None
    """What you can do, when it is known."""
    sample_id: int | None
    """The sample that was fetched or prepared."""
    key: str | None
    """The sample's key."""
    object: str | None
    """The stored object: a shard or a file."""
    offset: int | None
    """Byte offset inside the object."""
    op: str | None
    """The op of the recipe that failed."""
    field: str | None
    """The field of the sample."""
    epoch: int | None
    """The epoch in which it happened."""

    def __init__(
        self,
        message: str = "",
        *,
        hint: str | None = None,
        sample_id: int | None = None,
        key: str | None = None,
        object: str | None = None,
        offset: int | None = None,
        op: str | None = None,
        field: str | None = None,
        epoch: int | None = None,
    ) -> None:
        super().__init__(message)
        self.hint = hint
        self.sample_id = sample_id
        self.key = key
        self.object = object
        self.offset = offset
        self.op = op
        self.field = field
        self.epoch = epoch
        if hint is not None:
            self.add_note(f"hint: {hint}")

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        # The notes are made again from the hint; keyword arguments do not survive the default way.
        facts = {name: value for name, value in self.__dict__.items() if not name.startswith("_")}
        cause = None if self.__cause__ is None else Traceback.of(self.__cause__)
        return (_rebuild, (type(self), str(self), facts, cause))


def _rebuild(
    cls: type[ForebayError], message: str, facts: dict[str, Any], cause: str | None = None
) -> ForebayError:
    made = cls(message, **facts)
    made.__cause__ = None if cause is None else Traceback(cause)
    return made


class Traceback(Exception):
    """The traceback of an exception of another process, as text: an exception cannot take its own there."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}" if self.args else ""

    @staticmethod
    def of(problem: BaseException) -> str:
        """An exception with its causes, as Python prints it."""
        return "".join(traceback.format_exception(problem))


class InvalidConfigError(ForebayError, ValueError):
    """The request makes no sense; change what the message names."""

    kind = "invalid_config"


class NotFoundError(ForebayError, FileNotFoundError):
    """No such dataset, file, shard or key."""

    kind = "not_found"


class DeniedError(ForebayError, PermissionError):
    """Rights or credentials are missing."""

    kind = "denied"


class UnavailableError(ForebayError, ConnectionError):
    """The other side did not answer in time; trying again may work."""

    kind = "unavailable"


class CorruptError(ForebayError):
    """Bytes are not what they claim to be."""

    kind = "corrupt"


class ExhaustedError(ForebayError):
    """A named limit was reached."""

    kind = "exhausted"


class StaleError(ForebayError):
    """The dataset changed underneath, or a checkpoint belongs to something else."""

    kind = "stale"


class CancelledError(ForebayError):
    """Someone asked to stop."""

    kind = "cancelled"


class UnsupportedError(ForebayError, NotImplementedError):
    """Known, but not offered here."""

    kind = "unsupported"


class InternalError(ForebayError, RuntimeError):
    """A fault of Forebay; please report it."""

    kind = "internal"


class FunctionError(ForebayError, RuntimeError):
    """A function of the recipe raised, or gave what it may not; what it raised is `__cause__`."""

    kind = "function"
