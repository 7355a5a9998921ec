"""``forebay bench analyze``: whether ``fb.analyze`` finds what is known, and whether what it predicts comes true.

Three parts, each also by itself (``--only``). ``rates``: pipelines of known rates, made of a store that answers so
many requests in a second, an op and a step that sleep. ``what_if``: a change is predicted from one measurement, then
made and measured. ``metering``: epochs with metering and without it in turn. What sleeps hardly computes, so some of
the first two run side by side; metering runs alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Self

from ._analyze_cases import CASES, PARTS, POINTS, Pipeline, Point
from ._harness import Bench, Figures, SubjectError, bar, environment, last_line

LOADS = ("payloads", "arrays")
BESIDE = 4
LONGEST_SECONDS = 300.0
"""Of one subject: more than any takes on a machine that is not lost."""

Told = dict[str, Any]


class AnalyzeBench(Bench):
    """Errors of measured rates, stall shares and predictions, and what metering costs."""

    name: ClassVar[str] = "analyze"
    subjects: ClassVar[tuple[str, ...]] = ("rates", "what_if", "metering")
    default_samples: ClassVar[int] = 0
    module: ClassVar[str] = "forebay.bench._analyze_subjects"

    def __init__(
        self,
        *,
        rounds: int = 1,
        only: Sequence[str] | None = None,
        cases: Sequence[Pipeline] = CASES,
        points: Sequence[Point] = POINTS,
        seconds: float = 1.5,
        pairs: int = 120,
        share: float = 1.0,
        beside: int = BESIDE,
    ) -> None:
        super().__init__(rounds=rounds, only=only)
        self.cases, self.points = cases, points
        self.seconds, self.pairs, self.share, self.beside = seconds, pairs, share, beside

    @classmethod
    def from_options(cls, options: argparse.Namespace) -> Self:
        """All cases, as often as asked."""
        return cls(rounds=options.repeats, only=options.only)

    def make(self, folder: Path) -> dict[str, Any]:
        """Nothing: stores are made where they are read."""
        return {
            "cases": len(self.cases) if "rates" in self.measured else 0,
            "points": len(self.points) if "what_if" in self.measured else 0,
        }

    def settings(self, folder: Path) -> dict[str, Any]:
        """What every subject is told."""
        return {"seconds": self.seconds, "pairs": self.pairs, "share": self.share, "beside": self.beside}

    def all_rounds(self, settings: dict[str, Any], progress: Callable[[str], None]) -> list[dict[str, Any]]:
        """Every case and point, some side by side; then metering, alone."""
        rounds: list[dict[str, Any]] = []

        def note(number: int, subject: str, figures: Figures) -> None:
            rounds.append({"round": number, "subject": subject, **figures})
            shown = ", ".join(f"{key} {value:.4g}" for key, value in figures.items() if not _is_detail(key))
            progress(f"{self.name}: {subject}: {shown}")

        for number in range(self.rounds):
            with ThreadPoolExecutor(self.beside) as pool:
                running = [
                    (subject, pool.submit(self._measured, subject, {**settings, **told}))
                    for subject, told in self._sleeping()
                ]
                try:
                    for subject, run in running:
                        note(number, subject, run.result())
                except SubjectError:
                    pool.shutdown(cancel_futures=True)
                    raise
            if "metering" in self.measured:
                for load in LOADS:
                    subject = f"metering/{load}"
                    note(number, subject, self._measured(subject, {**settings, "load": load}))
        return rounds

    def _sleeping(self) -> list[tuple[str, Told]]:
        """Subjects that may run side by side, and what each is told."""
        found: list[tuple[str, Told]] = []
        if "rates" in self.measured:
            found += [(f"rates/{case.name}", {"pipeline": case}) for case in self.cases]
        if "what_if" in self.measured:
            found += [
                (
                    f"what_if/{point.name}",
                    {"pipeline": point.base, "change": point.change, "then": point.then},
                )
                for point in self.points
            ]
        return found

    def _measured(self, subject: str, settings: Told) -> Figures:
        command = [sys.executable, "-m", self.module, subject, json.dumps(settings)]
        try:
            ended = subprocess.run(
                command,
                capture_output=True,
                text=True,
                env=environment(),
                timeout=LONGEST_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SubjectError(f"measure `{subject}`: no figures after {LONGEST_SECONDS:.0f} s") from None
        if ended.returncode != 0:
            why = last_line(ended.stderr)
            raise SubjectError(f"measure `{subject}`: it ended with code {ended.returncode}: {why}")
        figures: Figures = json.loads(ended.stdout.splitlines()[-1])
        return figures

    def bars(self, medians: dict[str, Figures]) -> list[dict[str, Any]]:
        """The goals: the worst of all cases, and of all points of each kind of change."""
        found = []
        cases = [figures for subject, figures in medians.items() if subject.startswith("rates/")]
        if cases:
            rate = max(figures["rate_error_share"] for figures in cases)
            share = max(figures["share_error_share"] for figures in cases)
            right = sum(figures["bottleneck_right_share"] for figures in cases) / len(cases)
            found += [
                bar(f"rates beside known ones, worst of {len(cases)} cases", rate * 100, "<= 10", "%"),
                bar(
                    f"stall shares beside known ones, worst of {len(cases)} cases",
                    share * 100,
                    "<= 5",
                    "points",
                ),
                bar(f"bottleneck named rightly, of {len(cases)} cases", right * 100, ">= 100", "%"),
            ]
        for kind in dict.fromkeys(_kind(subject) for subject in medians if subject.startswith("what_if/")):
            errors = [
                figures["error_share"]
                for subject, figures in medians.items()
                if subject.startswith(f"what_if/{kind}=")
            ]
            name = f"what if, {kind}: predicted beside measured, worst of {len(errors)} points"
            found.append(bar(name, max(errors) * 100, "<= 10", "%"))
        for subject, figures in medians.items():
            if subject.startswith("metering/"):
                load = subject.partition("/")[2]
                found.append(
                    bar(f"time that metering costs, {load}", figures["cost_share"] * 100, "<= 1", "%")
                )
        return found

    @staticmethod
    def table(figures: dict[str, Any]) -> str:
        """A line for each case, point and load, then the bars."""
        lines = ["analyze: found beside known, predicted beside measured (samples/s)"]
        for subject, values in figures["results"].items():
            kind, _, name = subject.partition("/")
            middle = {key: value["median"] for key, value in values.items()}
            if kind == "rates":
                found = ", ".join(f"{part} {middle[f'{part}_per_second']:.1f}" for part in PARTS)
                off = (
                    f"rates to {middle['rate_error_share']:.1%}, shares to {middle['share_error_share']:.1%}"
                )
                text = f"{found}: {off}"
            elif kind == "what_if":
                text = (
                    f"predicted {middle['predicted_per_second']:.1f}, measured {middle['measured_per_second']:.1f}:"
                    f" {middle['error_share']:.1%} off"
                )
            else:
                time, processor = middle["cost_share"], middle["cpu_cost_share"]
                text = f"metering costs {time:.2%} of the time, {processor:.2%} of the processor"
            lines.append(f"  {name}: {text}")
        for goal in figures["bars"]:
            verdict = "holds" if goal["holds"] else "does not hold"
            lines.append(
                f"  {goal['name']}: {goal['value']:.3g} {goal['unit']} (goal {goal['goal']}): {verdict}"
            )
        return "\n".join(lines)


def _kind(subject: str) -> str:
    """What a point changes: `cache` of `what_if/cache=50%/...`."""
    return subject.split("/")[1].partition("=")[0]


def _is_detail(key: str) -> bool:
    return key.startswith(("first_", "later_"))
