"""Runs all benches, keeps their figures, and prints the bars that do not hold.

The shape of the figures is described in docs/reference/bench.md. Goals belong to the benches; nothing here changes
one. A bar that does not hold is reported, not an error: a bench run on a small or busy machine is a measurement.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COMMAND = [str(ROOT / ".venv/bin/forebay"), "bench", "--all", "--json"]


def read(text: str) -> list[dict[str, Any]]:
    """The objects in the output, one a line; raises ValueError with what is wrong in a wrong one."""
    runs = [json.loads(line) for line in text.splitlines() if line.strip()]
    for run in runs:
        for key, kind in (
            ("bench", str),
            ("conditions", dict),
            ("rounds", list),
            ("results", dict),
            ("bars", list),
        ):
            if not isinstance(run.get(key), kind):
                raise ValueError(
                    f"bench `{run.get('bench', '?')}`: `{key}` is missing or not a {kind.__name__}"
                )
        for bar in run["bars"]:
            lacking = {"name", "value", "goal", "unit", "holds"} - set(bar)
            if lacking:
                raise ValueError(f"bench `{run['bench']}`, bar `{bar.get('name', '?')}`: no `{min(lacking)}`")
    return runs


def report(runs: list[dict[str, Any]]) -> str:
    """One line for each bar that does not hold, and the count."""
    bars = [(run["bench"], bar) for run in runs for bar in run["bars"]]
    short = [(bench, bar) for bench, bar in bars if not bar["holds"]]
    lines = [
        f"does not hold: {bench}: {bar['name']} is {bar['value']} {bar['unit']}, the goal is {bar['goal']}"
        for bench, bar in short
    ]
    lines.append(f"{len(runs)} benches, {len(bars)} bars: {len(bars) - len(short)} hold, {len(short)} do not")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--read", type=Path, help="report on kept figures instead of running")
    options = parser.parse_args()
    kept = ROOT / "target/bench/latest.jsonl"
    if options.read:
        text = options.read.read_text()
    else:
        done = subprocess.run(
            COMMAND, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode != 0:
            print(f"run `forebay bench --all --json`: it ended with {done.returncode}", file=sys.stderr)
            return done.returncode
        text = done.stdout
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(text)
        print(f"figures: {kept.relative_to(ROOT)}")
    try:
        print(report(read(text)))
    except ValueError as fault:
        print(f"read bench figures: {fault}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
