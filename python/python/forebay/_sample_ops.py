"""Ops on whole samples and whole batches, for the end of a recipe.

Their names are those of builtins, as `open` is: they live in a module of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forebay.recipe import Function, SampleOp

__all__ = ["filter", "map", "map_batch"]


def map(
    function: Function, *, fields: str | Sequence[str], outputs: str | Sequence[str] | None = None
) -> SampleOp:
    """Replaces columns of a sample by what `function` makes of them: a dict in, a dict out.

    A second argument gets a generator, as with the `map` of a column.

    function: something to call, or `"module:name"`.
    fields: columns that it is given; they are gone afterwards unless it gives them back.
    outputs: columns that it gives; the same if not said.
    """
    said: dict[str, Any] = {} if outputs is None else {"outputs": _names(outputs)}
    return SampleOp("map", function, fields=_names(fields), **said)


def filter(function: Function, *, fields: str | Sequence[str]) -> SampleOp:
    """Leaves out samples for which `function` of a dict of these columns does not say yes.

    What becomes of their batches: see the `filter` of a column.
    """
    return SampleOp("filter", function, fields=_names(fields))


def map_batch(function: Function) -> SampleOp:
    """Replaces the columns of a batch by what `function` makes of them: a `Batch` in, a dict of columns out.

    It runs where samples are prepared, not in the training loop. Columns are NumPy arrays, lists and `Payloads`,
    whatever the loader's output is; every column it gives has one row per sample. A second argument gets a generator
    that is the same for the same samples, on any number of ranks.
    """
    return SampleOp("map_batch", function)


def _names(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)
