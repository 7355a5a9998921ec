"""``forebay bench sweep``: how batch size, number of workers, step time and dataset type change the wait for batches.

The grid is batch size (32 to 1024) x threads (1 to 64) x step time (none, 2 s) x dataset (encoded photographs,
preprocessed arrays), for Forebay and for a plain DataLoader, which has a process where Forebay has a thread. What is
measured is the time from the end of a step to the arrival of the next batch, for the first batches of a new loader.
``--scale`` shrinks batches and steps alike, so that the default ends in minutes; ``--scale 1`` is the grid as written.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import math
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from . import _made, _peers
from ._harness import Bench, Figures, SubjectError, environment
from ._sweep_report import table, write_report
from ._sweep_subjects import CROPPED

BATCH_SIZES = (32, 128, 256, 512, 1024)
THREADS = (1, 2, 4, 8, 32, 48, 64)
STEP_SECONDS = (0.0, 2.0)
DATASETS = ("encoded", "preprocessed")
SCALE = 1 / 16
BATCHES, CLASSES, DISTINCT = 11, 8, 64

Cell = dict[str, Any]


class SweepBench(Bench):
    """Waits for the first batches over a grid, Forebay beside a plain DataLoader."""

    name: ClassVar[str] = "sweep"
    subjects: ClassVar[tuple[str, ...]] = ("forebay", "dataloader")
    packages: ClassVar[tuple[str, ...]] = ("forebay", "numpy", "torch", "torchvision", "pillow")
    needs: ClassVar[dict[str, tuple[str, ...]]] = {"dataloader": ("torch", "torchvision")}
    default_samples: ClassVar[int] = 0
    module: ClassVar[str] = "forebay.bench._sweep_subjects"

    def __init__(
        self,
        *,
        rounds: int = 1,
        only: Sequence[str] | None = None,
        scale: float = SCALE,
        batch_sizes: Sequence[int] = BATCH_SIZES,
        threads: Sequence[int] = THREADS,
        steps: Sequence[float] = STEP_SECONDS,
        datasets: Sequence[str] = DATASETS,
        report: Path | None = None,
        read: Path | None = None,
    ) -> None:
        self.scale = scale
        # What differs from the grid as it is by default, as it would be asked for.
        self.asked: dict[str, str] = {}
        for name, value, default in (
            ("batch-sizes", batch_sizes, BATCH_SIZES),
            ("threads", threads, THREADS),
            ("steps", steps, STEP_SECONDS),
            ("datasets", datasets, DATASETS),
        ):
            if sorted(value, key=str) != sorted(default, key=str):
                self.asked[name] = ",".join(
                    f"{one:g}" if isinstance(one, float) else str(one) for one in value
                )
        if scale != SCALE:
            self.asked["scale"] = f"{scale:g}"
        if rounds != 1:
            self.asked["repeats"] = str(rounds)
        # Small scales make neighbours alike; each is measured once.
        self.batch_sizes = sorted({max(1, round(size * scale)) for size in batch_sizes})
        self.threads = sorted(set(threads))
        self.steps = sorted({step * scale for step in steps})
        self.datasets = [name for name in DATASETS if name in datasets]
        self.report, self.read = report, read
        super().__init__(rounds=rounds, samples=BATCHES * max(self.batch_sizes), only=only)

    @classmethod
    def from_options(cls, options: argparse.Namespace) -> Self:
        """The grid that the command's arguments ask for."""
        return cls(
            rounds=options.repeats,
            only=options.only,
            scale=options.scale,
            batch_sizes=options.batch_sizes,
            threads=options.threads,
            steps=options.steps,
            datasets=options.datasets,
            report=options.report,
            read=options.read,
        )

    def run(self, progress: Callable[[str], None]) -> dict[str, Any]:
        """Measures the grid, or takes figures that were kept; writes the report if one is asked for."""
        figures = super().run(progress) if self.read is None else kept(self.read)
        if self.report is not None:
            write_report(figures, self.report)
        return figures

    def make(self, folder: Path) -> dict[str, Any]:
        """A few distinct samples under many names: links, so that the grid as written fits on a disk too."""
        kinds: dict[str, tuple[str, Callable[[int], bytes]]] = {
            "encoded": ("jpg", _made._jpeg),
            "preprocessed": ("npy", _array),
        }
        sizes: dict[str, Any] = {"samples": self.samples, "distinct": min(self.samples, DISTINCT)}
        for dataset in self.datasets:
            ending, payload = kinds[dataset]
            originals = []
            for seed in range(sizes["distinct"]):
                original = folder / "originals" / f"{seed}.{ending}"
                original.parent.mkdir(exist_ok=True)
                original.write_bytes(payload(seed))
                originals.append(original)
            for sample in range(self.samples):
                target = folder / dataset / f"class{sample % CLASSES}" / f"{sample:06}.{ending}"
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(originals[sample % len(originals)], target)
            total = sum(original.stat().st_size for original in originals)
            sizes[f"{dataset}_mean_bytes"] = total // len(originals)
        return sizes

    def settings(self, folder: Path) -> dict[str, Any]:
        """What every loader is told."""
        return {
            **{f"path_{dataset}": str(folder / dataset) for dataset in self.datasets},
            "path_manifests": str(folder / "manifests"),
            "batches": BATCHES,
            "scale": self.scale,
            "batch_sizes": self.batch_sizes,
            "threads": self.threads,
            "steps_seconds": self.steps,
            "datasets": self.datasets,
            "asked": self.asked,
            "page_cache": "warm",
        }

    def bars(self, medians: dict[str, Figures]) -> list[dict[str, Any]]:
        """None: the grid shows effects, it has no goals."""
        return []

    def all_rounds(self, settings: dict[str, Any], progress: Callable[[str], None]) -> list[Cell]:
        """Every cell of the grid, as often as asked; loaders alternate for every step time."""
        cells: list[Cell] = []
        grid = (self.batch_sizes, self.threads, self.steps, self.datasets, self.measured, range(self.rounds))
        total = math.prod(len(side) for side in grid)
        for number in range(self.rounds):
            for turn, step in enumerate(self.steps):
                backwards = (number + turn) % 2 == 1
                for loader in self.measured[::-1] if backwards else self.measured:
                    try:
                        for cell in self._measured(loader, step, settings):
                            cells.append({"round": number, **cell})
                            progress(f"sweep: {len(cells)} of {total}: {_shown(cells[-1])}")
                    except SubjectError as fault:
                        if loader not in self.needs:
                            raise
                        self.skip(progress, loader, str(fault))
        return cells

    def figures(
        self, rounds: list[Cell], sizes: dict[str, Any], settings: dict[str, Any], seconds: float
    ) -> dict[str, Any]:
        """What was measured: results are made of the figures, each wait stands in the rounds."""
        names = ("round", "subject", *FIGURES)
        measured = [{name: cell[name] for name in names} for cell in rounds if "fault" not in cell]
        return {**super().figures(measured, sizes, settings, seconds), "rounds": rounds}

    def _measured(self, loader: str, step: float, settings: dict[str, Any]) -> Iterator[Cell]:
        """All datasets, batch sizes and numbers of threads, one after the other in a fresh process."""
        cells = [
            {"dataset": dataset, "batch_size": size, "threads": threads, "step_seconds": step}
            for dataset, size, threads in itertools.product(self.datasets, self.batch_sizes, self.threads)
        ]
        python = _peers.interpreter(self.needs.get(loader, ()))
        command = [python, "-m", self.module, loader, json.dumps({**settings, "cells": cells})]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
            for line in process.stdout or ():
                cell: Cell = json.loads(line)
                place = f"{cell['dataset']}/batch{cell['batch_size']}/threads{cell['threads']}"
                yield {
                    "subject": f"{loader}/{place}/step{step:g}",
                    "loader": loader,
                    **cell,
                    **_figures(cell),
                }
        if process.returncode != 0:
            raise SubjectError(f"measure `{loader}`: it ended with code {process.returncode}")

    @staticmethod
    def table(figures: dict[str, Any]) -> str:
        """The first wait and all waits of every cell."""
        return table(figures)


def kept(file: Path) -> dict[str, Any]:
    """The figures of a sweep that was measured before."""
    try:
        figures = json.loads(file.read_text())
    except (OSError, ValueError) as fault:
        raise SubjectError(f"read figures of a sweep from `{file}`: {fault}") from None
    if not isinstance(figures, dict) or figures.get("bench") != "sweep":
        raise SubjectError(f"read figures of a sweep from `{file}`: they are not of a sweep")
    return figures


FIGURES = ("first_batch_seconds", "later_waits_seconds", "all_waits_seconds", "longest_later_wait_seconds")


def _figures(cell: Cell) -> Figures:
    if "fault" in cell:
        return {}
    waits: list[float] = cell["waits_seconds"]
    later = waits[1:]
    return dict(zip(FIGURES, (waits[0], sum(later), sum(waits), max(later, default=0.0)), strict=True))


def _shown(cell: Cell) -> str:
    if "fault" in cell:
        return f"{cell['subject']}: {cell['fault']}"
    return (
        f"{cell['subject']}: first {cell['first_batch_seconds']:.3f} s, all {cell['all_waits_seconds']:.3f} s"
    )


def _array(seed: int) -> bytes:
    """What preprocessing leaves of a photograph, as ``.npy``."""
    buffer = io.BytesIO()
    np.save(buffer, np.random.default_rng(seed).normal(size=(3, CROPPED, CROPPED)).astype(np.float32))
    return buffer.getvalue()


def add_options(parser: argparse.ArgumentParser) -> None:
    """What only this bench is told."""
    grid = parser.add_argument_group("the grid of `sweep`")
    grid.add_argument(
        "--scale", type=_scale, default=SCALE, help="of batch sizes and step times (default 1/16)"
    )
    grid.add_argument("--batch-sizes", type=_counts, default=BATCH_SIZES, help="before they are scaled")
    grid.add_argument("--threads", type=_counts, default=THREADS, help="threads, or DataLoader processes")
    grid.add_argument("--steps", type=_seconds, default=STEP_SECONDS, help="seconds, before they are scaled")
    grid.add_argument("--datasets", type=_datasets, default=DATASETS, help="encoded, preprocessed, or both")
    grid.add_argument(
        "--repeats",
        type=int,
        default=1,
        help="how often each cell is measured; of `analyze` each case (default 1)",
    )
    grid.add_argument(
        "--report", type=Path, help="a folder for sweep.json, sweep.md and the four effects as SVG and HTML"
    )
    grid.add_argument("--read", type=Path, help="kept figures (sweep.json) to report on instead of measuring")


def _scale(text: str) -> float:
    above, _, below = text.partition("/")
    scale = float(above) / float(below or 1)
    if not 0 < scale <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 1")
    return scale


def _counts(text: str) -> list[int]:
    counts = [int(part) for part in text.split(",")]
    if min(counts) < 1:
        raise argparse.ArgumentTypeError(f"{text} has a number below 1")
    return counts


def _seconds(text: str) -> list[float]:
    seconds = [float(part) for part in text.split(",")]
    if not all(0 <= step <= 3600 for step in seconds):
        raise argparse.ArgumentTypeError(f"{text} has a time that is not between 0 and 3600 s")
    return seconds


def _datasets(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in DATASETS:
            raise argparse.ArgumentTypeError(f"`{name}` is not one of {', '.join(DATASETS)}")
    return names
