"""Arguments of a loader: their defaults, their `FOREBAY_*` variables, their checks.

Raw values come from the call or from the environment (the call wins) and become resolved ones here; all faults are
reported at once. What PyTorch's `DataLoader` takes is taken too, or refused with a reason. Defaults that depend on the
dataset or the machine are filled in by the loader and the engine.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from forebay import _native
from forebay.errors import ForebayError, InvalidConfigError, UnsupportedError

__all__ = ["ARGUMENTS", "UNSET", "Unset", "read_bool", "resolve"]


class Unset:
    """An argument that was not given, so that the environment or the default speaks."""

    def __repr__(self) -> str:
        return "unset"

    def __reduce__(self) -> str:
        return "UNSET"


UNSET: Final = Unset()

T = TypeVar("T")


class Argument(NamedTuple):
    """One argument: its default, how it is checked, and how its text in the environment is read."""

    default: Any
    check: Callable[[Any], Any]
    read: Callable[[str], Any] = str


def resolve(given: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments with their values, from the call, the environment or the default."""
    faults = []
    resolved = {}
    for name, argument in ARGUMENTS.items():
        value = given.get(name, UNSET)
        variable = f"FOREBAY_{name.upper()}"
        try:
            if isinstance(value, Unset) and variable in os.environ:
                text = os.environ[variable].strip()
                try:
                    value = argument.check(_none_or(argument.read)(text))
                except (ValueError, TypeError) as problem:
                    raise ValueError(f"{problem} (from {variable})") from None
            else:
                value = argument.default if isinstance(value, Unset) else argument.check(value)
        except (ValueError, TypeError) as problem:
            faults.append(f"{name} {problem}")
        resolved[name] = value
    if faults:
        raise InvalidConfigError("make loader: " + "; ".join(faults))
    return resolved


def refuse(name: str) -> None:
    """Says why an argument that PyTorch knows is not taken."""
    reasons = {
        "sampler": "order is a function of dataset, seed and epoch: use `shuffle` and `seed`",
        "batch_sampler": "order is a function of dataset, seed and epoch: use `shuffle`, `seed` and `batch_size`",
        "transform": "say it with ops of the recipe: `.map(function)` of a column calls one of yours",
    }
    if name in reasons:
        raise UnsupportedError(f"make loader: `{name}` is not taken", hint=reasons[name])
    close = [known for known in ARGUMENTS if known.startswith(name[:4])]
    raise InvalidConfigError(
        f"make loader: there is no argument `{name}`",
        hint="did you mean " + " or ".join(f"`{known}`" for known in close) + "?" if close else None,
    )


def _whole(least: int, most: int = 2**63 - 1) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"is {value!r}: give a whole number")
        number = int(value.__index__())
        if not least <= number <= most:
            bound = f"at least {least}" if number < least else f"at most {most}"
            raise ValueError(f"is {number}: give {bound}")
        return number

    return check


def _or_none(check: Callable[[Any], T]) -> Callable[[Any], T | None]:
    return lambda value: None if value is None else check(value)


def _or_auto(check: Callable[[Any], T]) -> Callable[[Any], T | None]:
    """`"auto"` and `None` leave the choice to the engine."""
    return lambda value: None if value is None or value == "auto" else check(value)


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"is {value!r}: give True or False")
    return value


def _one_of(*words: Any) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not any(value is word or (isinstance(word, str) and value == word) for word in words):
            raise ValueError(f"is {value!r}: known are {', '.join(repr(word) for word in words)}")
        return value

    return check


def _seconds(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value < 0:
        raise ValueError(f"is {value!r}: give seconds, or 0 or None for no limit")
    return None if value == 0 or math.isinf(value) else float(value)


def _bytes(value: Any) -> int:
    if isinstance(value, str):
        try:
            return _native.parse_bytes(value)
        except ForebayError as problem:
            raise ValueError(f"is {value!r}: {problem}") from None
    return _whole(1)(value)


def _cache(value: Any) -> str:
    """The setting as JSON, for the engine, which checks it."""
    if not isinstance(value, str | int | Mapping) or isinstance(value, bool):
        raise TypeError(f"is {value!r}: give a size such as '64GiB', or a dict with `memory` and `disk`")
    try:
        return json.dumps(dict(value) if isinstance(value, Mapping) else value, default=os.fspath)
    except (TypeError, ValueError) as problem:
        raise ValueError(f"is {value!r}: {problem}") from None


def _via(value: Any) -> str:
    """The setting as JSON, for the engine, which checks it."""
    # A service that knows its own setting, such as `forebay.ray.start` gives.
    value = getattr(value, "via", value)
    if not isinstance(value, str | Mapping):
        raise TypeError(
            f"is {value!r}: give 'auto', 'unix:///path' or 'forebay://host:port', or a dict with `url` and more"
        )
    try:
        return json.dumps(dict(value) if isinstance(value, Mapping) else value, default=os.fspath)
    except (TypeError, ValueError) as problem:
        raise ValueError(f"is {value!r}: {problem}") from None


def _metrics(value: Any) -> str:
    """The setting as JSON, for the native loader, which checks it."""
    if not isinstance(value, str | Mapping):
        raise TypeError(
            f"is {value!r}: give 'host:port', 'otlp', or a dict with `listen`, `token_file` and `otlp`"
        )
    try:
        return json.dumps(dict(value) if isinstance(value, Mapping) else value, default=os.fspath)
    except (TypeError, ValueError) as problem:
        raise ValueError(f"is {value!r}: {problem}") from None


def _folder(value: Any) -> str:
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise TypeError(f"is {value!r}: give a folder")
    return os.fspath(value)


def _store(value: Any) -> Any:
    if value != "torch" and not all(callable(getattr(value, name, None)) for name in ("set", "check", "get")):
        raise TypeError(f'is {value!r}: give "torch", or a store of torch.distributed')
    return value


def _read_json(text: str) -> Any:
    if not text.startswith("{"):
        return text
    try:
        return json.loads(text)
    except ValueError as problem:
        raise ValueError(f"is {text!r}, which is not JSON: {problem}") from None


def _epoch_samples(value: Any) -> int | str:
    """A number, or what ends an epoch of a mix."""
    return str(value) if value in ("first", "all") else _whole(1, 2**48)(value)


def _mix_schedule(value: Any) -> list[dict[str, Any]]:
    """Changes as tables; what their numbers must be is the engine's to check."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise TypeError(f"is {value!r}: give a list of `(epoch, weights)` or `(epoch, position, weights)`")
    changes = []
    for change in value:
        if isinstance(change, Mapping):
            table = {"position": 0, **change}
        elif isinstance(change, Sequence) and len(change) in (2, 3):
            table = {
                "epoch": change[0],
                "position": change[1] if len(change) == 3 else 0,
                "weights": change[-1],
            }
        else:
            raise TypeError(f"has {change!r}: give `(epoch, weights)` or `(epoch, position, weights)`")
        if set(table) != {"epoch", "position", "weights"}:
            raise ValueError(f"has {change!r}: a change has `epoch`, `position` and `weights`")
        places = {name: _whole(0)(table[name]) for name in ("epoch", "position")}
        changes.append({**places, "weights": [float(weight) for weight in table["weights"]]})
    return changes


_POLICIES = ("off", "dynamic", "file", "data", "file_or_data")


def _sharding(value: Any) -> str:
    hint = isinstance(value, str) and value.startswith("hint:") and len(value) > len("hint:")
    if value not in _POLICIES and not hint:
        raise ValueError(f"is {value!r}: known are {', '.join(map(repr, _POLICIES))} and 'hint:FIELD'")
    return str(value)


def _size_classes(value: Any) -> int | list[int]:
    """A number of classes, or the first length of every class but the first."""
    if not isinstance(value, list | tuple):
        return _whole(1, 1024)(value)
    bounds = [_bytes(bound) for bound in value]
    if not bounds or any(one >= next_ for one, next_ in itertools.pairwise(bounds)):
        raise ValueError(f"is {value!r}: boundaries are bytes that rise")
    return bounds


def _read_size_classes(text: str) -> Any:
    if "," not in text:
        return _read_number(text)
    return [_read_number(bound.strip()) for bound in text.split(",") if bound.strip()]


def _bucket(value: Any) -> float | list[int]:
    """The ratio of the lengths in a batch, or the first length of every bucket but the first."""
    if isinstance(value, list | tuple):
        bounds = [_bytes(bound) for bound in value]
        if not bounds or any(one >= next_ for one, next_ in itertools.pairwise(bounds)):
            raise ValueError(f"is {value!r}: boundaries are lengths that rise")
        return bounds
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1.05 <= value <= 1e6:
        raise ValueError(f"is {value!r}: give a ratio such as 1.25, at least 1.05, or a list of boundaries")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"is {value!r}: give a name")
    return value


def _limit(value: Any) -> int | float:
    if isinstance(value, float):
        if not 0 <= value <= 1:
            raise ValueError(f"is {value}: a rate lies between 0.0 and 1.0, a count is a whole number")
        return value
    return _whole(0)(value)


def _function(of: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not callable(value):
            raise TypeError(f"is {value!r}: give a function of {of}")
        return value

    return check


def _anything(value: Any) -> Any:
    return value


def _none_or(read: Callable[[str], T]) -> Callable[[str], T | None]:
    return lambda text: None if text.lower() in ("none", "") else read(text)


def read_bool(text: str) -> Any:
    words = {
        "1": True,
        "true": True,
        "yes": True,
        "on": True,
        "0": False,
        "false": False,
        "no": False,
        "off": False,
    }
    return words.get(text.lower(), text)


def _read_number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


_SIZE = _or_auto(_bytes)
_COUNT = _or_auto(_whole(1))

ARGUMENTS: Final[Mapping[str, Argument]] = {
    "batch_size": Argument(UNSET, _or_none(_whole(1)), _read_number),
    "shuffle": Argument(False, _one_of(False, True, "full", "block", "resample"), read_bool),
    "epoch_samples": Argument(None, _or_none(_epoch_samples), _read_number),
    "mix_schedule": Argument(None, _or_none(_mix_schedule), json.loads),
    "sharding": Argument(None, _or_none(_sharding)),
    "parts": Argument(None, _or_none(_whole(1, 1024)), _read_number),
    "size_classes": Argument(None, _or_none(_size_classes), _read_size_classes),
    "size_field": Argument(None, _or_none(_text)),
    "bucket": Argument(None, _or_none(_bucket), _read_size_classes),
    "batch_bytes": Argument(None, _or_none(_bytes)),
    "oversize": Argument(None, _or_none(_one_of("alone", "drop"))),
    "length_field": Argument(None, _or_none(_text)),
    "seed": Argument(None, _or_none(_whole(0, 2**64 - 1)), _read_number),
    "drop_last": Argument(None, _or_none(_bool), read_bool),
    "last_batch": Argument(None, _or_none(_one_of("drop", "partial", "pad", "wrap"))),
    "num_workers": Argument(None, _or_auto(_whole(0, 1024)), _read_number),
    "prefetch_batches": Argument(None, _COUNT, _read_number),
    "prefetch_factor": Argument(None, _COUNT, _read_number),
    "memory": Argument(None, _SIZE),
    "cache": Argument(None, _or_none(_cache), _read_json),
    "via": Argument(None, _or_none(_via), _read_json),
    "metrics": Argument(None, _or_none(_metrics), _read_json),
    "ranks_folder": Argument(None, _or_none(_folder)),
    "ranks_store": Argument(None, _or_none(_store)),
    "inflight": Argument(None, _COUNT, _read_number),
    "request_bytes": Argument(None, _SIZE),
    "request_tries": Argument(None, _or_auto(_whole(1, 1000)), _read_number),
    "request_timeout": Argument(None, _or_auto(_seconds), _read_number),
    "request_deadline": Argument(None, _or_auto(_seconds), _read_number),
    "hedge": Argument(True, _bool, read_bool),
    "slow_start": Argument(None, _or_none(_whole(1, 2**20)), _read_number),
    "in_order": Argument(True, _bool, read_bool),
    "window": Argument(None, _or_auto(_whole(0, 8192)), _read_number),
    "timeout": Argument(600.0, _or_none(_seconds), _read_number),
    "rank": Argument(None, _or_none(_whole(0)), _read_number),
    "world_size": Argument(None, _or_none(_whole(1)), _read_number),
    "on_error": Argument("raise", _one_of("raise", "skip", "substitute")),
    "max_errors": Argument(None, _or_none(_limit), _read_number),
    "quarantine": Argument(None, _or_none(_folder)),
    "ledger": Argument(None, _or_none(_folder)),
    "output": Argument("numpy", _one_of("numpy", "torch", "jax", "dlpack")),
    "epochs": Argument(None, _or_none(_whole(1)), _read_number),
    "block_bytes": Argument(None, _SIZE),
    "group_blocks": Argument(None, _COUNT, _read_number),
    "pin_memory": Argument(False, _bool, read_bool),
    "persistent_workers": Argument(True, _bool, read_bool),
    "processes": Argument(None, _or_none(_whole(0, 1024)), _read_number),
    "collate": Argument(None, _or_none(_function("a list of samples"))),
    "collate_fn": Argument(None, _or_none(_function("a list of samples"))),
    "worker_init_fn": Argument(None, _or_none(_function("the thread's number"))),
    "generator": Argument(None, _anything),
    "multiprocessing_context": Argument(None, _anything),
    "pin_memory_device": Argument(None, _anything),
}
