"""States of a loader: what is in one, and whether one fits a loader."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from forebay.errors import InvalidConfigError, StaleError, UnsupportedError

__all__ = ["FORMAT", "Changes", "check_state", "schedule_of"]

_log = logging.getLogger("forebay")

FORMAT = 1
"""Raised when an older reader could misunderstand a newer state."""

_WORDS = {
    "dataset": "dataset version",
    "samples": "number of samples",
    "recipe": "recipe fingerprint",
    "seed": "seed",
    "shuffle": "shuffle",
}


Changes = list[dict[str, Any]]
"""Changes of the weights of a mix: `epoch`, `position` and `weights` each."""


def schedule_of(states: Sequence[Mapping[str, Any]]) -> tuple[Changes, Changes]:
    """The changes that a loader was made with, and those that were set later, the same in all states."""
    found = [state.get("mix_schedule", {"given": [], "set": []}) for state in states]
    if any(other != found[0] for other in found):
        raise StaleError(
            "load states: ranks changed the weights of the mix in different ways",
            hint="call `set_weights` on every rank, at the same step",
        )
    return list(found[0]["given"]), list(found[0]["set"])


def check_state(state: Mapping[str, Any], mine: Mapping[str, Any], *, url: str, strict: bool) -> None:
    """Compares a state with that of a loader; says what differs, or only logs it when not `strict`."""
    missing = [name for name in mine if name not in state and name != "mix_schedule"]
    if missing:
        raise InvalidConfigError(
            f"load state: it has no {', '.join(f'`{name}`' for name in missing)}",
            hint="give what `state_dict()` returned",
        )
    if state["format"] != FORMAT:
        raise UnsupportedError(
            f"load state: format {state['format']} was written by another Forebay, this one reads {FORMAT}"
        )
    differences = [
        f"{words} is {mine[name]}, in the state {state[name]}"
        for name, words in _WORDS.items()
        if mine[name] != state[name]
    ]
    if not differences:
        return
    message = f"load state into loader of `{url}`: {'; '.join(differences)}"
    if strict:
        raise StaleError(
            message, hint="make the loader as it was, or take the place over with `strict=False`"
        )
    _log.warning("%s", message)
