"""Alternating rounds, one fresh process a measurement, and the one shape of the figures."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from . import _peers

Figures = dict[str, float]

LOOK_SHARE = 0.01
"""Share of one processor that looking at memory may take: the system counts every page of gigabytes that are mapped by
several processes, which subjects that share memory would pay for and others not."""


class SubjectError(RuntimeError):
    """A subject could not be measured, and why."""


class Bench(ABC):
    """One bench: a made dataset, several subjects that do the same work on it, and bars over the medians."""

    name: ClassVar[str]
    subjects: ClassVar[tuple[str, ...]]
    packages: ClassVar[tuple[str, ...]] = ("forebay", "numpy")
    default_samples: ClassVar[int]
    module: ClassVar[str] = "forebay.bench._subjects"
    """Where the subjects are; run as a process of its own for each measurement."""
    needs: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Modules that a peer's subject imports. Where they are missing, or it fails, that costs its rows alone."""

    def __init__(
        self,
        *,
        rounds: int,
        samples: int | None = None,
        only: Sequence[str] | None = None,
        peer_rounds: int | None = None,
    ) -> None:
        self.rounds = rounds
        self.peer_rounds = rounds if peer_rounds is None else min(peer_rounds, rounds)
        self.samples = samples or self.default_samples
        self.measured = [s for s in self.subjects if only is None or s in only]
        self.skipped: dict[str, str] = {}

    @classmethod
    def from_options(cls, options: argparse.Namespace) -> Self:
        """The bench that the command's arguments ask for."""
        return cls(
            rounds=options.rounds,
            samples=options.samples,
            only=options.only,
            peer_rounds=options.peer_rounds,
        )

    @abstractmethod
    def make(self, folder: Path) -> dict[str, Any]:
        """Makes the data below ``folder``; returns its sizes for the conditions."""

    @abstractmethod
    def settings(self, folder: Path) -> dict[str, Any]:
        """What every subject is told."""

    @abstractmethod
    def bars(self, medians: dict[str, Figures]) -> list[dict[str, Any]]:
        """The goals, from the medians of each subject."""

    def run(self, progress: Callable[[str], None]) -> dict[str, Any]:
        """Measures everything and returns the figures in the documented shape."""
        began = time.monotonic()
        for subject in [s for s in self.measured if s in self.needs]:
            try:
                _peers.interpreter(self.needs[subject])
            except _peers.MissingPeerError as fault:
                self.skip(progress, subject, str(fault))
                self.measured.remove(subject)
        with tempfile.TemporaryDirectory(prefix="forebay-bench-") as root:
            folder = Path(root)
            progress(f"{self.name}: making {self.samples} samples")
            sizes = self.make(folder)
            settings = self.settings(folder)
            rounds = self.all_rounds(settings, progress)
        return self.figures(rounds, sizes, settings, time.monotonic() - began)

    def all_rounds(self, settings: dict[str, Any], progress: Callable[[str], None]) -> list[dict[str, Any]]:
        """The rounds of all subjects, in the order in which they were measured."""
        rounds: list[dict[str, Any]] = []
        # One unmeasured turn fills the page cache and every subject's own caches, as on a second run.
        for number in range(-1, self.rounds):
            # Every other round goes the other way round, so that nobody always comes first.
            for subject in self.measured if number % 2 == 0 else self.measured[::-1]:
                peer = subject in self.needs
                if subject in self.skipped or (peer and number >= self.peer_rounds):
                    continue
                python = _peers.interpreter(self.needs.get(subject, ()))
                try:
                    figures = measure(subject, settings, self.module, python)
                except SubjectError as fault:
                    if not peer:
                        raise
                    self.skip(progress, subject, str(fault))
                    continue
                warmup: dict[str, Any] = {"warmup": True} if number < 0 else {}
                rounds.append({"round": number, "subject": subject, **warmup, **figures})
                shown = ", ".join(f"{key} {value:.4g}" for key, value in figures.items())
                progress(f"{self.name}: round {number} {subject}: {shown}")
        return rounds

    def skip(self, progress: Callable[[str], None], what: str, why: str) -> None:
        """Notes that something is not measured, once."""
        if what not in self.skipped:
            self.skipped[what] = why
            progress(f"{self.name}: skipped {what}: {why}")

    def figures(
        self, rounds: list[dict[str, Any]], sizes: dict[str, Any], settings: dict[str, Any], seconds: float
    ) -> dict[str, Any]:
        """What was measured, in the documented shape."""
        results = summarise(rounds)
        medians = {s: {k: v["median"] for k, v in figures.items()} for s, figures in results.items()}
        return {
            "bench": self.name,
            "conditions": {
                "machine": machine(),
                "versions": versions(self.packages),
                "sizes": sizes,
                "settings": {key: value for key, value in settings.items() if not key.startswith("path")},
                "skipped": self.skipped,
                "seconds": round(seconds, 1),
            },
            "rounds": rounds,
            "results": results,
            "bars": self.bars(medians),
        }

    @staticmethod
    def table(figures: dict[str, Any]) -> str:
        """The figures for people."""
        last = max((taken["round"] for taken in figures["rounds"]), default=-1)
        lines = [f"{figures['bench']}: medians of up to {last + 1} rounds"]
        for subject, values in figures["results"].items():
            lines.append(f"  {subject}")
            for key, value in values.items():
                lines.append(
                    f"    {key:28} {value['median']:12.4g}   ({value['min']:.4g} to {value['max']:.4g})"
                )
        for bar in figures["bars"]:
            verdict = "holds" if bar["holds"] else "does not hold"
            lines.append(f"  {bar['name']}: {bar['value']:.3g} {bar['unit']} (goal {bar['goal']}): {verdict}")
        for what, why in figures["conditions"]["skipped"].items():
            lines.append(f"  skipped {what}: {why}")
        return "\n".join(lines)


def bar(name: str, value: float, goal: str, unit: str) -> dict[str, Any]:
    """A goal such as ``">= 2.0"`` and whether ``value`` meets it."""
    sign, limit = goal.split()
    holds = value >= float(limit) if sign == ">=" else value <= float(limit)
    return {"name": name, "value": round(value, 4), "goal": goal, "unit": unit, "holds": holds}


def measure(subject: str, settings: dict[str, Any], module: str, python: str = sys.executable) -> Figures:
    """Runs one subject in a process of its own and adds what only the outside can see: memory of the whole tree."""
    command = [python, "-m", module, subject, json.dumps(settings)]
    with tempfile.TemporaryFile("w+") as said:
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=said, text=True, env=environment()
        ) as process:
            peak = 0
            while process.poll() is None:
                began = time.perf_counter()
                peak = max(peak, tree_bytes(process.pid))
                time.sleep(max(0.05, (time.perf_counter() - began) / LOOK_SHARE))
            output = process.stdout.read() if process.stdout else ""
        said.seek(0)
        errors = said.read()
    if process.returncode != 0:
        sys.stderr.write(errors[-4000:])
        raise SubjectError(
            f"measure `{subject}`: it ended with code {process.returncode}: {last_line(errors)}"
        )
    figures: Figures = json.loads(output.splitlines()[-1])
    return {**figures, "peak_rss_bytes": float(peak)}


def environment() -> dict[str, str]:
    """What the processes of a bench are told: warnings and the chatter of libraries are no figures."""
    return {**os.environ, "PYTHONWARNINGS": "ignore", "TF_CPP_MIN_LOG_LEVEL": "3", "NO_PROXY": "*"}


def last_line(text: str) -> str:
    """The last line that says something."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")


def tree_bytes(pid: int) -> int:
    """Memory of a process and all its children; pages they share count once (PSS)."""
    total = 0
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                total += tree_bytes(int(child))
    except (OSError, ValueError):
        return total  # The process ended while it was looked at.
    return total


def summarise(rounds: Sequence[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Median, min and max of every figure of every subject, warm-up rounds left out."""
    results: dict[str, dict[str, dict[str, float]]] = {}
    for taken in rounds:
        if taken.get("warmup"):
            continue
        for key in taken.keys() - {"round", "subject"}:
            values = [r[key] for r in rounds if r["subject"] == taken["subject"] and not r.get("warmup")]
            results.setdefault(taken["subject"], {})[key] = {
                "median": statistics.median(values),
                "min": min(values),
                "max": max(values),
                "rounds": len(values),
            }
    return {subject: dict(sorted(values.items())) for subject, values in results.items()}


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    cpu = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": pages,
        "kernel": platform.release(),
        "load_average": os.getloadavg()[0],
    }


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Versions of all that took part; a package that is missing says so."""
    return {"python": platform.python_version(), **_peers.versions(packages)}
