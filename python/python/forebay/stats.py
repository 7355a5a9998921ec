"""Figures of a loader, as a dict that prints as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["Stats"]


class Stats(dict[str, Any]):
    """What was measured, by name with the unit last. `print` shows a table; the dict is plain numbers,
    and words where a name has no unit, such as `cache_at`.

    The *stall* is the time your loop waited for batches, split into what would vanish if every payload were in memory
    (fetch) and the rest (prep). The *step* is your own time between batches.
    """

    def __repr__(self) -> str:
        return "\n".join(f"{name:<{_WIDTH}} {value}" for name, value in self._lines())

    __str__ = __repr__

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{name}</td><td>{value}</td></tr>" for name, value in self._lines())
        return f"<table>{rows}</table>"

    def _lines(self) -> Iterator[tuple[str, str]]:
        seconds = self.get("step_seconds", 0.0) + self.get("stall_seconds", 0.0)
        if seconds > 0:
            yield "samples per second", f"{self.get('samples', 0) / seconds:,.0f}"
            yield "stall of all time", f"{self.get('stall_seconds', 0.0) / seconds:.1%}"
        for name, value in self.items():
            yield name.replace("_", " "), _format(name, value)


_WIDTH = 24


def _format(name: str, value: float | str) -> str:
    if isinstance(value, str):
        return value or "-"
    if name.endswith("_bytes"):
        for unit in ("B", "KiB", "MiB", "GiB"):
            if value < 1024 or unit == "GiB":
                return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
            value /= 1024
    if "_seconds" in name:
        return f"{value:,.3f} s" if value >= 0.1 or value == 0 else f"{value * 1e3:,.3f} ms"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
