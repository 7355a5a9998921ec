"""What a sweep says: a table of all cells, and the four effects with their drawings, as a page and as one HTML file."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ._sweep_plots import Panel, page, svg

FIRST, ALL = "first_batch_seconds", "all_waits_seconds"


class Grid:
    """The medians of a sweep, by cell."""

    def __init__(self, figures: dict[str, Any]) -> None:
        settings = figures["conditions"]["settings"]
        self.batch_sizes: list[int] = settings["batch_sizes"]
        self.threads: list[int] = settings["threads"]
        self.steps: list[float] = settings["steps_seconds"]
        self.datasets: list[str] = settings["datasets"]
        self.rounds: list[dict[str, Any]] = figures["rounds"]
        self.loaders = list(dict.fromkeys(cell["loader"] for cell in self.rounds))
        self.results: dict[str, Any] = figures["results"]
        # What the effects are shown at, where they do not vary it: a usual batch, as many threads as processors.
        cores = figures["conditions"]["machine"]["cores"]
        self.base_batch = self.batch_sizes[len(self.batch_sizes) // 2]
        self.base_threads = min(self.threads, key=lambda threads: abs(threads - cores))

    def at(
        self,
        loader: str,
        figure: str,
        *,
        dataset: str | None = None,
        batch: int | None = None,
        threads: int | None = None,
        step: float | None = None,
    ) -> float | None:
        """The median of a figure in one cell; ``None`` where it failed."""
        step = self.steps[0] if step is None else step
        subject = (
            f"{loader}/{dataset or self.datasets[0]}/batch{batch or self.base_batch}"
            f"/threads{threads or self.base_threads}/step{step:g}"
        )
        found = self.results.get(subject)
        return None if found is None else float(found[figure]["median"])

    def waits(self, loader: str, step: float) -> list[float | None]:
        """The waits of the first round, batch by batch."""
        for cell in self.rounds:
            same = cell["loader"] == loader and cell["dataset"] == self.datasets[0]
            base = cell["batch_size"] == self.base_batch and cell["threads"] == self.base_threads
            if same and base and cell["step_seconds"] == step:
                return list(cell.get("waits_seconds", []))
        return []


def effects(grid: Grid) -> dict[str, list[Panel]]:
    """The four effects, in the order in which people ask for them."""

    def over(name: str, values: Sequence[Any], argument: str) -> list[Panel]:
        panels = []
        for title, figure in ((f"first batch, by {name}", FIRST), (f"all waits, by {name}", ALL)):
            lines = {
                loader: [grid.at(loader, figure, **{argument: value}) for value in values]
                for loader in grid.loaders
            }
            panels.append(Panel(title, [str(value) for value in values], lines))
        return panels

    by_step = []
    for step in grid.steps:
        lines = {loader: grid.waits(loader, step) for loader in grid.loaders}
        count = max((len(line) for line in lines.values()), default=0)
        title = f"wait for each batch, step of {step:g} s"
        by_step.append(Panel(title, [str(number + 1) for number in range(count)], lines))
    return {
        "Effect of batch size": over("batch size", grid.batch_sizes, "batch"),
        "Effect of number of workers": over("threads or processes", grid.threads, "threads"),
        "Effect of sleep time": by_step,
        "Effect of dataset type": over("dataset", grid.datasets, "dataset"),
    }


def table(figures: dict[str, Any]) -> str:
    """First wait / all waits in seconds: a row for each batch size, a column for each number of threads."""
    grid = Grid(figures)
    lines = [
        f"sweep: seconds until the first batch / all waits of {figures['conditions']['settings']['batches']}"
    ]
    heads = "".join(f"{threads:>16}" for threads in grid.threads)
    for loader in grid.loaders:
        for dataset in grid.datasets:
            for step in grid.steps:
                lines += ["", f"{loader}, {dataset}, step of {step:g} s", f"  {'batch':>6}{heads}"]
                for batch in grid.batch_sizes:
                    where: dict[str, Any] = {"dataset": dataset, "batch": batch, "step": step}
                    cells = [_pair(grid, loader, {**where, "threads": threads}) for threads in grid.threads]
                    lines.append(f"  {batch:>6}{''.join(f'{cell:>16}' for cell in cells)}")
    lines += [f"skipped {what}: {why}" for what, why in figures["conditions"]["skipped"].items()]
    return "\n".join(lines)


def _pair(grid: Grid, loader: str, where: dict[str, Any]) -> str:
    first, every = grid.at(loader, FIRST, **where), grid.at(loader, ALL, **where)
    return "failed" if first is None or every is None else f"{first:.3f} / {every:.3f}"


def write_report(figures: dict[str, Any], folder: Path) -> None:
    """``sweep.json``, ``sweep.md`` with a drawing for each effect, and ``sweep.html``, which holds all of them.

    All of it is made of the figures alone: the same figures give the same files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    grid = Grid(figures)
    drawn = effects(grid)
    drawings = {name: svg(name, panels) for name, panels in drawn.items()}
    parts = []
    for name, panels in drawn.items():
        file = f"sweep-{name.lower().replace(' ', '-')}.svg"
        (folder / file).write_text(drawings[name])
        parts += [f"## {name}", "", f"![{name}]({file})", "", *_values(panels)]
    note = _note(figures, grid)
    text = _PAGE.format(
        title=TITLE,
        note=note,
        command=_command(figures),
        minutes=f"{figures['conditions'].get('seconds', 0) / 60:.0f}",
        summary="\n".join(_summary(grid)),
        effects="\n".join(parts),
        cells=table(figures),
    )
    (folder / "sweep.md").write_text(text)
    (folder / "sweep.html").write_text(page(TITLE, note, drawings))
    (folder / "sweep.json").write_text(json.dumps(figures) + "\n")


TITLE = "Batch size, workers, step time and dataset type"
_PAGE = """\
# {title}

{note}

This page is made of `sweep.json` beside it: `forebay bench sweep --read sweep.json --report .` writes it again.
`{command}` takes the figures again; this took {minutes} minutes.

## In short

{summary}

{effects}
## All cells

```
{cells}
```
"""


def _command(figures: dict[str, Any]) -> str:
    """The command that takes the same figures."""
    asked = figures["conditions"]["settings"].get("asked", {})
    given = "".join(f" --{name} {value}" for name, value in asked.items())
    return f"forebay bench sweep{given} --report DIR"


def _summary(grid: Grid) -> list[str]:
    """How the loaders compare over all cells that both have."""
    ours, *others = grid.loaders
    lines = []
    failed = [cell["subject"] for cell in grid.rounds if "fault" in cell]
    for other in others:
        for figure, words in ((FIRST, "the first batch"), (ALL, "all waits")):
            pairs = [
                (mine, theirs)
                for dataset, batch, threads, step in itertools.product(
                    grid.datasets, grid.batch_sizes, grid.threads, grid.steps
                )
                if (mine := _at(grid, ours, figure, dataset, batch, threads, step))
                and (theirs := _at(grid, other, figure, dataset, batch, threads, step))
            ]
            if not pairs:
                continue
            ratios = sorted(theirs / mine for mine, theirs in pairs)
            less = sum(mine < theirs for mine, theirs in pairs)
            lines.append(
                f"- {words}: {ours} waits less in {less} of {len(pairs)} cells; {other} takes"
                f" {statistics.median(ratios):.1f} times as long (median; {ratios[0]:.2f} to {ratios[-1]:.0f})"
            )
    lines.append(f"- {len(grid.rounds)} measurements, {len(failed)} failed")
    return lines


def _at(
    grid: Grid, loader: str, figure: str, dataset: str, batch: int, threads: int, step: float
) -> float | None:
    return grid.at(loader, figure, dataset=dataset, batch=batch, threads=threads, step=step)


def _values(panels: Sequence[Panel]) -> list[str]:
    """What is drawn, in seconds: a row for each loader and panel."""
    lines = []
    for panel in panels:
        lines += [
            f"| {panel.title}, s | {' | '.join(panel.labels)} |",
            "| --- " * (len(panel.labels) + 1) + "|",
        ]
        for loader, line in panel.lines.items():
            shown = ["failed" if value is None else f"{value:.3f}" for value in line]
            lines.append(f"| {loader} | {' | '.join(shown)} |")
        lines.append("")
    return lines


def _note(figures: dict[str, Any], grid: Grid) -> str:
    conditions = figures["conditions"]
    machine, versions = conditions["machine"], conditions["versions"]
    known = ", ".join(f"{name} {version}" for name, version in versions.items())
    return (
        f"Waits from the end of a step to the arrival of the next batch, for the first"
        f" {conditions['settings']['batches']} batches of a new loader, at scale {conditions['settings']['scale']:g}."
        f" Where an effect does not vary them: batches of {grid.base_batch}, {grid.base_threads} threads (or DataLoader"
        f" processes), no step time, {grid.datasets[0]} samples. Taken on {machine['cores']} cores"
        f" ({machine['cpu']}), load {machine['load_average']:.1f}, with {known}."
    )
