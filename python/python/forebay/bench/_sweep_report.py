"""What a sweep says: a table of all cells, and the four effects with their drawings, as a page and as one HTML file."""

from __future__ import annotations

import json
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
    """``sweep.json``, ``sweep.md`` with a drawing for each effect, and ``sweep.html``, which holds all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    grid = Grid(figures)
    drawings = {name: svg(name, panels) for name, panels in effects(grid).items()}
    note = _note(figures, grid)
    text = ["# Batch size, workers, step time and dataset type", "", note, ""]
    for name, drawing in drawings.items():
        file = f"sweep-{name.lower().replace(' ', '-')}.svg"
        (folder / file).write_text(drawing)
        text += [f"## {name}", "", f"![{name}]({file})", ""]
    text += ["## All cells", "", "```", table(figures), "```", ""]
    (folder / "sweep.md").write_text("\n".join(text))
    (folder / "sweep.html").write_text(
        page("Batch size, workers, step time and dataset type", note, drawings)
    )
    (folder / "sweep.json").write_text(json.dumps(figures) + "\n")


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
