"""Runs all benches, one after the other, keeps their figures, and prints the bars that do not hold.

The shape of the figures is described in docs/reference/bench.md. Goals belong to the benches; nothing here changes
one. A bar that does not hold is reported, not an error: a bench run on a small or busy machine is a measurement. A
bench that fails is an error, told at the end, after the others have run; their figures are kept.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "target/bench"
FOREBAY = str(ROOT / ".venv/bin/forebay")
LIST = "from forebay.bench import BENCHES; print(*BENCHES)"


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
    for run in runs:
        for what, why in run["conditions"].get("skipped", {}).items():
            lines.append(f"skipped: {run['bench']}: {what}: {why}")
    lines.append(f"{len(runs)} benches, {len(bars)} bars: {len(bars) - len(short)} hold, {len(short)} do not")
    return "\n".join(lines)


def known() -> list[str]:
    """The benches of the installed package."""
    listed = subprocess.run([sys.executable, "-c", LIST], stdout=subprocess.PIPE, text=True, check=True)
    return listed.stdout.split()


def run(name: str, flags: list[str]) -> str | None:
    """One bench: its line of figures, kept in a file of its own, or nothing when it failed. Says how long it took."""
    began = time.monotonic()
    command = [FOREBAY, "bench", name, "--json", *flags]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    seconds = time.monotonic() - began
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    if done.returncode != 0 or len(lines) != 1:
        print(f"bench {name}: failed with {done.returncode} after {seconds:.0f} s", flush=True)
        return None
    (KEPT / f"{name}.json").write_text(lines[0] + "\n")
    print(f"bench {name}: {seconds:.0f} s", flush=True)
    return lines[0]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="*", help="benches to run (default: all)")
    parser.add_argument("--read", type=Path, help="report on kept figures instead of running")
    for flag, about in (
        ("--rounds", "alternating rounds of each bench"),
        ("--peer-rounds", "rounds that others take part in"),
        ("--seconds", "time of one measurement of `wan`"),
        ("--samples", "samples of each made dataset"),
    ):
        parser.add_argument(flag, help=about)
    options = parser.parse_args()
    failed: list[str] = []
    if options.read:
        text = options.read.read_text()
    else:
        given = {"rounds": options.rounds, "peer-rounds": options.peer_rounds}
        given |= {"seconds": options.seconds, "samples": options.samples}
        flags = [word for key, value in given.items() if value for word in (f"--{key}", value)]
        KEPT.mkdir(parents=True, exist_ok=True)
        latest = KEPT / "latest.jsonl"
        latest.write_text("")
        for name in options.name or known():
            line = run(name, flags)
            if line is None:
                failed.append(name)
                continue
            with latest.open("a") as out:
                out.write(line + "\n")
        text = latest.read_text()
        print(f"figures: {latest.relative_to(ROOT)}")
    try:
        print(report(read(text)))
    except ValueError as fault:
        print(f"read bench figures: {fault}", file=sys.stderr)
        return 3
    if failed:
        print(f"failed: {', '.join(failed)}; see above", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
