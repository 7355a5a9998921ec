"""The four effects of a sweep as drawings: SVG by hand, one HTML file around them, nothing fetched from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 380, 240
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 28, 40

_STYLE = """
:root { --ink: #1d2433; --faint: #c9ced8; --paper: #ffffff; --one: #0b6bcb; --two: #c2410c; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --faint: #454d5c; --paper: #14181f; --one: #6cb6ff; --two: #ffa657; }
}
svg { font: 12px system-ui, sans-serif; background: var(--paper); max-width: 100%; height: auto; }
svg text { fill: var(--ink); }
svg .axis { stroke: var(--faint); fill: none; }
svg .one { stroke: var(--one); fill: none; stroke-width: 2; } svg circle.one { fill: var(--one); }
svg .two { stroke: var(--two); fill: none; stroke-width: 2; } svg circle.two { fill: var(--two); }
"""
_PAGE_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
       color: var(--ink); background: var(--paper); }
h1 { font-size: 1.5rem; line-height: 1.2; } h2 { font-size: 1.1rem; margin: 1.5rem 0 .5rem; }
.drawing { overflow-x: auto; }
@media (max-width: 44rem) { .drawing svg { max-width: none; width: 40rem; } }
"""


class Panel(NamedTuple):
    """One drawing: a line for each loader over evenly spaced labels. ``None`` is a cell that was not measured."""

    title: str
    labels: Sequence[str]
    lines: Mapping[str, Sequence[float | None]]


def svg(name: str, panels: Sequence[Panel]) -> str:
    """The panels side by side, as a file of its own."""
    width = WIDTH * len(panels)
    drawn = [_panel(panel, WIDTH * place) for place, panel in enumerate(panels)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}"'
        f' role="img" aria-label="{escape(name)}"><style>{_STYLE}</style>{"".join(drawn)}</svg>\n'
    )


def page(title: str, note: str, effects: dict[str, str]) -> str:
    """One HTML file with every drawing in it."""
    parts = "".join(
        f'<h2>{escape(name)}</h2>\n<div class="drawing">{drawing}</div>' for name, drawing in effects.items()
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}{_PAGE_STYLE}</style></head><body><h1>{escape(title)}</h1><p>{escape(note)}</p>\n"
        f"{parts}</body></html>\n"
    )


def _panel(panel: Panel, offset: int) -> str:
    values = [value for line in panel.lines.values() for value in line if value is not None]
    top = _round_up(max(values, default=0.0))
    span, drop = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    between = span / max(1, len(panel.labels))

    def x(place: int) -> float:
        # In the middle of its part of the axis, so that a long label stays inside of the panel.
        return offset + LEFT + between * (place + 0.5)

    def y(value: float) -> float:
        return TOP + drop * (1 - value / top)

    parts = [f'<text x="{offset + LEFT}" y="16">{escape(panel.title)}</text>']
    for share in (0.0, 0.5, 1.0):
        height = y(top * share)
        parts.append(f'<path class="axis" d="M{offset + LEFT} {height:.1f}h{span}"/>')
        shown = f"{top * share:.3g} s"
        parts.append(f'<text x="{offset + LEFT - 6}" y="{height + 4:.1f}" text-anchor="end">{shown}</text>')
    for place, label in enumerate(panel.labels):
        parts.append(
            f'<text x="{x(place):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{escape(label)}</text>'
        )
    for number, (name, line) in enumerate(panel.lines.items()):
        color = ("one", "two")[number % 2]
        points = [(x(place), y(value)) for place, value in enumerate(line) if value is not None]
        path = " ".join(f"{'L' if at else 'M'}{px:.1f} {py:.1f}" for at, (px, py) in enumerate(points))
        if path:
            parts.append(f'<path class="{color}" d="{path}"/>')
        parts.extend(f'<circle class="{color}" cx="{px:.1f}" cy="{py:.1f}" r="3"/>' for px, py in points)
        left = offset + LEFT + 110 * number
        parts.append(f'<circle class="{color}" cx="{left + 4}" cy="{HEIGHT - 8}" r="4"/>')
        parts.append(f'<text x="{left + 14}" y="{HEIGHT - 4}">{escape(name)}</text>')
    return "".join(parts)


def _round_up(value: float) -> float:
    """The next round number whose half is round too, for the axis; above 0."""
    if value <= 0:
        return 1.0
    step = 10.0
    while step > value:
        step /= 10
    while step * 10 < value:
        step *= 10
    return next(step * factor for factor in (1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10) if step * factor >= value)
