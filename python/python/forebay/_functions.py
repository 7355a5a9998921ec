"""Calling the functions of a recipe: values as Python has them go in, what comes out is made ready for the batch.

The native side calls `Local`, or what looks like it and asks another process (`_helpers`). Nothing here keeps anything
between two calls, so that any number of threads may call at once.
"""

from __future__ import annotations

import json
import pickle
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from forebay._source import fingerprint, import_named
from forebay.batch import DTYPES, Batch, array_of, wrap_columns
from forebay.errors import FunctionError, StaleError, Traceback
from forebay.ragged import Ragged

__all__ = ["Local", "Result", "carry", "describe", "find", "restore", "run", "run_batch"]

Value = tuple[str, Any]
"""A value from the native side: `tensor` with `(memory, dtype, shape)`, `bytes`, `text` or `json` with itself."""
Key = tuple[int, int]

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Result(NamedTuple):
    """What a function gave, for the native side."""

    kind: str
    data: Any
    """Flat bytes of an array, `bytes` or `str`."""
    dtype: str = ""
    shape: tuple[int, ...] = ()


class Local:
    """A function that is called in the thread that needs it."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def map(
        self,
        values: Sequence[Value],
        key: Key | None,
        names: Sequence[str] | None,
        outputs: Sequence[str],
        dtype: str | None,
    ) -> list[Result]:
        """What the function makes of values: of one as it is when `names` is `None`, otherwise of a dict of them."""
        given = run(self._function, [_python(value) for value in values], key, names)
        return results(given, names, outputs, dtype)

    def keep(self, values: Sequence[Value], key: Key | None, names: Sequence[str] | None) -> bool:
        """Whether the function says yes."""
        return bool(run(self._function, [_python(value) for value in values], key, names))

    def map_batch(
        self, ids: Sequence[int], columns: Sequence[tuple[str, str, Any]], key: Key | None
    ) -> list[Any]:
        """What the function makes of a batch, as `(name, kind, values)` each."""
        return run_batch(self._function, ids, wrap_columns(columns), key)


def run(
    function: Callable[..., Any], values: Sequence[Any], key: Key | None, names: Sequence[str] | None
) -> Any:
    """Calls a function of one sample."""
    argument = values[0] if names is None else dict(zip(names, values, strict=True))
    return function(argument) if key is None else function(argument, _generator(key))


def results(
    given: Any, names: Sequence[str] | None, outputs: Sequence[str], dtype: str | None
) -> list[Result]:
    """What a function gave, by its outputs."""
    if names is None:
        return [_result(given, dtype)]
    if not isinstance(given, Mapping):
        raise FunctionError(f"it gave {_kind(given)}: a function of whole samples gives a dict of columns")
    missing = [name for name in outputs if name not in given]
    unknown = [str(name) for name in given if name not in outputs]
    if missing or unknown:
        wrong = ", ".join(
            [*(f"`{name}` is missing" for name in missing), *(f"`{n}` is unknown" for n in unknown)]
        )
        raise FunctionError(
            f"it gave other columns than it said: {wrong}", hint="say with `outputs` which columns it gives"
        )
    return [_result(given[name], None) for name in outputs]


def run_batch(
    function: Callable[..., Any], ids: Sequence[int], columns_in: Mapping[str, Any], key: Key | None
) -> list[Any]:
    """Calls a function of a whole batch: columns of arrays, lists and payloads in and out."""
    batch = Batch(columns_in, ids=np.array(ids, np.uint64))
    given = function(batch) if key is None else function(batch, _generator(key))
    if not isinstance(given, Mapping):
        raise FunctionError(f"it gave {_kind(given)}: a function of batches gives a dict of columns")
    columns: list[Any] = []
    for name, value in given.items():
        if isinstance(value, Ragged):
            parts = (value.values, value.offsets, np.int64(value.axis))
            columns.append((str(name), "ragged", [_result(part, None) for part in parts]))
        elif _is_array(value):
            columns.append((str(name), "tensor", [_result(value, None)]))
        elif isinstance(value, str | bytes) or not hasattr(value, "__len__"):
            raise FunctionError(f"column `{name}` of it is {_kind(value)}: give an array or a list")
        else:
            columns.append((str(name), "values", [_result(one, None) for one in value]))
    return columns


def find(recipe: str) -> list[Local]:
    """The functions of a recipe from elsewhere, imported by their names; those that differ here are refused.

    Whoever started this process allowed these names: the native side asks for no others.
    """
    found = []
    for named in named_in(json.loads(recipe)):
        function = import_named(named["name"])
        check_source(named, function)
        found.append(Local(function))
    return found


def named_in(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every function of a recipe as it is written, in the order of calls."""
    of_columns = [op for entry in entries if "op" not in entry for op in entry.get("ops", ())]
    of_samples = [entry for entry in entries if "op" in entry]
    found = []
    for op in [*of_columns, *of_samples]:
        if isinstance(op, Mapping) and "function" in op:
            if isinstance(op["function"], str):
                op["function"] = {"name": op["function"]}  # type: ignore[index]
            found.append(op["function"])
    return found


def check_source(named: Mapping[str, Any], function: Callable[..., Any]) -> None:
    """Says so when a function is not the one that a recipe was made with."""
    here, there = fingerprint(function), named.get("source")
    if there and here != there:
        raise StaleError(
            f"import `{named['name']}`: its source is {here}, the recipe was made with {there}",
            hint="bring the same code to every machine, and make the recipe anew where it changed",
        )


# Exceptions, to be told here or in another process.


def describe(problem: BaseException) -> str:
    """An exception in one line, with the place where it was raised."""
    text = "".join(traceback.format_exception_only(problem)).strip()
    frames = traceback.extract_tb(problem.__traceback__)
    if not frames:
        return text
    return f"{text} (raised in `{frames[-1].name}`, {frames[-1].filename} line {frames[-1].lineno})"


def carry(problem: BaseException) -> bytes:
    """An exception with its traceback, for another process. What cannot be pickled of it becomes text."""
    text = Traceback.of(problem)
    line = describe(problem)
    for exception in (problem, RuntimeError(line)):
        try:
            kept = pickle.dumps((exception, text, line))
            pickle.loads(kept)
            return kept
        except Exception:
            continue
    return pickle.dumps((RuntimeError(repr(type(problem))), text, line))


def restore(carried: bytes) -> tuple[BaseException, str]:
    """What `carry` kept: the exception, caused by its traceback in words, and the line that describes it."""
    problem, text, line = pickle.loads(carried)
    problem.__cause__ = Traceback(text)
    return problem, line


# Values.


def _generator(key: Key) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=np.array(key, np.uint64)))


def _python(value: Value) -> Any:
    kind, held = value
    if kind == "tensor":
        return array_of(*held)
    return json.loads(held) if kind == "json" else held


def _is_array(value: Any) -> bool:
    return hasattr(value, "__array__") or hasattr(value, "__array_interface__")


def _result(given: Any, dtype: str | None) -> Result:
    if isinstance(given, str):
        return Result("text", given)
    if isinstance(given, bytes | bytearray | memoryview):
        return Result("bytes", bytes(given))
    if isinstance(given, bool | int | float):
        # A number is of the type that was asked for; others know their own.
        return _array(np.asarray(given, None if dtype is None else DTYPES.get(dtype)))
    if _is_array(given):
        return _array(np.asarray(given))
    try:
        return Result("json", json.dumps(given))
    except (TypeError, ValueError) as problem:
        raise FunctionError(
            f"it gave {_kind(given)}, which is no array, number, text, bytes or JSON: {problem}"
        ) from None


def _array(array: npt.NDArray[Any]) -> Result:
    native = array.dtype.newbyteorder("=")
    name = _NAMES.get(native) or ("bf16" if native.name == "bfloat16" else None)
    if name is None:
        raise FunctionError(f"it gave an array of {array.dtype}: known are {', '.join(DTYPES)}")
    flat = np.ascontiguousarray(array, native).reshape(-1).view(np.uint8)
    return Result("tensor", flat, name, array.shape)


def _kind(value: Any) -> str:
    return f"`{type(value).__name__}`"
