"""Figures of a loader, as a dict that prints as a table, and the user's own phases in it."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, ParamSpec, Protocol, TypeVar

__all__ = ["Phase", "Stats"]


class Stats(dict[str, Any]):
    """What was measured, by name with the unit last. `print` shows a table of what is in use; the dict has everything,
    plain numbers, and words where a name has no unit, such as `cache_at`. `phases` has a dict for each phase.

    The *stall* is the time your loop waited for batches, split into what would vanish if every payload were in memory
    (fetch) and the rest (prep). The *step* is your own time between batches. *Queue* is the hand-over of batches that
    were done, *transfer* making them the framework's. Together they are `wall_seconds`. `straggler` is a dict about the
    rank that makes the others wait, or `None`; `others_seconds` the part of the step in which others were waited for.

    `tuned` lists what the loader changed by itself, threads and open batches, each with the step and the reason.
    `step_by_length` says how step time follows from the bytes of a batch: `base_seconds`, `seconds_per_byte` and
    `explained`, the share of the differences between steps that it accounts for; `None` while all are of one length.
    """

    def __init__(self, figures: Mapping[str, Any] | None = None) -> None:
        super().__init__(figures or {})
        phases = self.get("phases")
        if isinstance(phases, list):
            self["phases"] = {
                phase["name"]: {name: value for name, value in phase.items() if name != "name"}
                for phase in phases
            }

    def __repr__(self) -> str:
        lines = [_row(*cells) for cells in self._times()]
        if lines:
            lines.append("")
        lines += [f"{name:<{_WIDTH}} {value}" for name, value in self._lines()]
        return "\n".join(lines)

    __str__ = __repr__

    def _repr_html_(self) -> str:
        def row(cells: tuple[str, ...]) -> str:
            return "<tr>" + "".join(f"<td>{_escape(cell)}</td>" for cell in cells) + "</tr>"

        tables = [self._times(), self._lines()]
        return "".join(f"<table>{''.join(row(cells) for cells in table)}</table>" for table in tables)

    def _times(self) -> Iterator[tuple[str, ...]]:
        """Where the time went: a line for each part, the user's phases below the step that they are part of."""
        wall = self.get("wall_seconds", 0.0)
        if not wall:
            return
        yield ("where the time went", "seconds", "share", "p50", "p95", "p99")
        for part in _PARTS:
            name = f"{part}_seconds"
            yield self._part(
                part.replace("_", " "), self[name], wall, *(self[f"{name}_{p}"] for p in _PERCENTILES)
            )
            if part == "step":
                if others := self.get("others_seconds"):
                    yield self._part("  waiting for ranks", others, wall)
                for phase, times in self.get("phases", {}).items():
                    percentiles = (times[f"seconds_{p}"] for p in _PERCENTILES)
                    yield self._part(f"  {phase}", times["seconds"], wall, *percentiles)
        yield ("all", f"{wall:,.3f}", "100.0 %", "", "", "")

    @staticmethod
    def _part(name: str, seconds: float, wall: float, *percentiles: float) -> tuple[str, ...]:
        return (name, f"{seconds:,.3f}", f"{seconds / wall:.1%}".replace("%", " %"), *map(_time, percentiles))

    def _late(self) -> str:
        """The rank that makes the others wait, in a line; nothing when there is none."""
        late = self.get("straggler")
        if not late:
            return ""
        times = late["own_us"] / max(late["usual_us"], 1)
        because = f" ({', '.join(late['evidence'])})" if late["evidence"] else ""
        return f"rank {late['rank']}, {times:.1f} times the step of others, in {late['stage']}{because}"

    def _lines(self) -> Iterator[tuple[str, str]]:
        seconds = self.get("wall_seconds", 0.0)
        if seconds > 0:
            yield "samples per second", f"{self.get('samples', 0) / seconds:,.0f}"
            yield "stall of all time", f"{self.get('stall_seconds', 0.0) / seconds:.1%}"
        if late := self._late():
            yield "late", late
        if by_length := self.get("step_by_length"):
            base, slope = by_length["base_seconds"], by_length["seconds_per_byte"]
            share = f"explains {by_length['explained']:.0%} of how steps differ"
            yield "step by batch length", f"{_time(base)} + {_time(slope * 2**20)} per MiB, {share}"
        for choice in self.get("tuned", []):
            yield f"tuned at step {choice['step']:,}", choice["why"]
        shown = {"phases", "straggler", "others_seconds", "tuned", "step_by_length"}
        if seconds > 0:
            shown |= {f"{part}_seconds" for part in _PARTS} | {"wall_seconds"}
        for name, value in self.items():
            is_unused = name.startswith(_OPTIONAL) and not value
            is_unbounded = name == "window_bytes" and value >= _UNBOUNDED
            is_percentile = name.endswith(tuple(f"_{p}" for p in _PERCENTILES))
            if not (name in shown or is_unused or is_unbounded or is_percentile):
                yield name.replace("_", " "), _format(name, value)


_P = ParamSpec("_P")
_R = TypeVar("_R")


class _Accounts(Protocol):
    def add_phase(self, name: str, nanos: int) -> None: ...


class Phase:
    """Times what is done inside of `with`. Made by `Loader.phase`; may be used again, one at a time.

    As a decorator it times every call of a function, from any number of threads.
    """

    def __init__(self, accounts: _Accounts, name: str) -> None:
        self._accounts, self._name, self._since = accounts, name, 0

    def __enter__(self) -> None:
        self._since = time.perf_counter_ns()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._accounts.add_phase(self._name, time.perf_counter_ns() - self._since)

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Times every call of a function as this phase."""

        @functools.wraps(function)
        def timed(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with Phase(self._accounts, self._name):
                return function(*args, **kwargs)

        return timed


_WIDTH = 24
_PARTS = ("step", "fetch_stall", "prep_stall", "queue", "transfer")
_PERCENTILES = ("p50", "p95", "p99")
# Left out of the table, never of the dict, while they are zero: most loaders use none or few of these.
_OPTIONAL = (
    *("cut_off_tokens", "left_out"),
    *("asked_again", "cache_", "filtered", "hedges", "link_", "mixed_rounds", "padding", "retries", "rounds"),
    *("skipped", "store_away", "substituted", "throttled", "wire_", "workers"),
)
# The window of a store on this machine is bounded in requests alone.
_UNBOUNDED = 1 << 60


def _row(name: str, *cells: str) -> str:
    return f"{name:<{_WIDTH}}" + "".join(f"{cell:>12}" for cell in cells).rstrip()


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _time(seconds: float) -> str:
    return f"{seconds:,.3f} s" if seconds >= 0.1 or seconds == 0 else f"{seconds * 1e3:,.3f} ms"


def _format(name: str, value: float | str) -> str:
    if isinstance(value, str):
        return value or "-"
    if name.endswith("_bytes"):
        for unit in ("B", "KiB", "MiB", "GiB"):
            if value < 1024 or unit == "GiB":
                return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
            value /= 1024
    if "_seconds" in name:
        return _time(value)
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
