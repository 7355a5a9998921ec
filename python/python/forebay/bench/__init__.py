"""Benches of the whole plane, side by side with what users have today: ``forebay bench NAME --json``.

Every figure is taken in a fresh process (see :mod:`forebay.bench._subjects`), subjects alternate within a round, and
goals are bars that are reported, never asserted. The shape of the output is in ``docs/reference/bench.md``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from ._harness import Bench
from ._images import ImagesBench
from ._raw import RawBench

BENCHES: dict[str, type[Bench]] = {"images": ImagesBench, "raw": RawBench}

_EXAMPLES = """examples:
  forebay bench images                 decode + augment against DataLoader and WebDataset, as a table
  forebay bench raw --json             reading without decoding, as one JSON object
  forebay bench --all --json           every bench, one JSON object a line
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benches that the arguments name; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="forebay bench",
        description="Measure Forebay beside what users have today.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="*", choices=[*BENCHES, []], help=f"one of: {', '.join(BENCHES)}")
    parser.add_argument("--all", action="store_true", help="run every bench")
    parser.add_argument("--json", action="store_true", help="print one JSON object a bench")
    parser.add_argument("--rounds", type=int, default=5, help="alternating rounds (default 5)")
    parser.add_argument("--samples", type=int, default=None, help="samples of the made dataset")
    parser.add_argument("--only", action="append", help="measure only this subject (may be repeated)")
    options = parser.parse_args(argv)
    names = list(BENCHES) if options.all else list(options.name)
    if not names:
        parser.print_help()
        return 2
    for name in names:
        bench = BENCHES[name](rounds=options.rounds, samples=options.samples, only=options.only)
        figures = bench.run(progress=lambda line: print(line, file=sys.stderr, flush=True))
        print(json.dumps(figures) if options.json else bench.table(figures), flush=True)
    return 0
