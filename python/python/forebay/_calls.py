"""What a loader's native side calls: the recipe's functions, here or in helper processes, and a collating function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forebay._functions import Local, named_in
from forebay._helpers import Helpers
from forebay._source import is_importable
from forebay.batch import Output, output_named, samples_of, wrap
from forebay.errors import InvalidConfigError
from forebay.recipe import Recipe

__all__ = ["Calls"]

Collate = Callable[[list[dict[str, Any]]], Any]


class Calls:
    """The functions of one loader. Nothing is started before the first call."""

    def __init__(
        self, recipe: Recipe, processes: int | None, collate: Collate | None, output: tuple[str, bool]
    ) -> None:
        self.processes, self.collate = processes, collate
        self._functions = recipe.functions
        self._helpers = None
        if processes and self._functions:
            self._helpers = Helpers(self._functions, processes)
        self._collate = None if collate is None else _Collating(collate, output)

    def settings(self) -> dict[str, Any]:
        """What the native loader is told of them."""
        helpers = self._helpers
        if helpers is None:
            functions: list[Any] = [Local(function) for function in self._functions]
        else:
            functions = [helpers.function(number) for number in range(len(self._functions))]
        return {"functions": functions, "collate": self._collate}

    def open(self) -> None:
        """Takes calls again after `close`."""
        if self._helpers is not None:
            self._helpers.open()

    def close(self) -> None:
        """Ends helper processes, and whatever is being called there."""
        if self._helpers is not None:
            self._helpers.close()

    def pids(self) -> list[int]:
        """Helper processes that run now."""
        return [] if self._helpers is None else self._helpers.pids()


def check_elsewhere(recipe: Recipe) -> None:
    """Whether other processes can call a recipe's functions: they have only their names."""
    for named, function in zip(named_in(recipe.entries()), recipe.functions, strict=True):
        if not is_importable(function, named["name"]):
            raise InvalidConfigError(
                f"call `{named['name']}` in another process: it cannot be imported by that name",
                hint="put it into a module that workers can import, and start them with `--functions`; or omit `via`",
            )


class _Collating:
    """Makes what the loop gets out of a batch of the native side. Knows nothing of the loader, which knows it."""

    def __init__(self, collate: Collate, output: tuple[str, bool]) -> None:
        self._collate, self._named = collate, output
        self._output: Output | None = None

    def __call__(self, taken: tuple[Any, ...]) -> Any:
        if self._output is None:
            name, pin_memory = self._named
            self._output = output_named(name, pin_memory=pin_memory)
        return self._collate(samples_of(wrap(taken, self._output)))
