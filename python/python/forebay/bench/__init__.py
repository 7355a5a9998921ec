"""Benches of the whole plane, side by side with what users have today: ``forebay bench NAME --json``.

Every figure is taken in a fresh process (see :mod:`forebay.bench._subjects`), subjects alternate within a round, and
goals are bars that are reported, never asserted. The shape of the output is in ``docs/reference/bench.md``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from ._cache import CacheBench
from ._files import FilesBench
from ._functions import FunctionsBench
from ._harness import Bench, SubjectError
from ._images import ImagesBench
from ._raw import RawBench
from ._wan_servers import UnavailableBenchError
from .analyze import AnalyzeBench
from .cluster import ClusterBench
from .formats import FormatsBench
from .modalities import ModalitiesBench
from .service import ServiceBench
from .sweep import SweepBench, add_options
from .wan import WanBench

BENCHES: dict[str, type[Bench]] = {
    "images": ImagesBench,
    "raw": RawBench,
    "files": FilesBench,
    "functions": FunctionsBench,
    "formats": FormatsBench,
    "wan": WanBench,
    "cache": CacheBench,
    "service": ServiceBench,
    "cluster": ClusterBench,
    "analyze": AnalyzeBench,
    "modalities": ModalitiesBench,
    "sweep": SweepBench,
}

_EXAMPLES = """examples:
  forebay bench images                 decode + augment against DataLoader and WebDataset, as a table
  forebay bench raw --json             reading without decoding, as one JSON object
  forebay bench files                  files and shards on this disk, with a cold page cache
  forebay bench functions              a Python function in a recipe beside a bare thread pool
  forebay bench formats                TFRecord, Parquet, MDS, LitData and tar beside their own readers
  forebay bench wan --only objects     115 KB objects over an emulated line of 1 Gb/s and 100 ms
  forebay bench cache                  hits from memory and disk beside memcpy and direct reads
  forebay bench service                batches from a worker and a shared process, beside tf.data service
  forebay bench cluster                a service on Ray beside one by hand, what dies in it, and scaling
  forebay bench analyze                measured rates and predictions beside known ones, and what metering costs
  forebay bench modalities --only audio  files to log-mel spectra beside librosa and torchaudio
  forebay bench sweep --report sweep/  batch sizes x threads x step times x datasets, with drawings
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
    parser.add_argument(
        "--peer-rounds", type=int, default=None, help="rounds that others take part in (default: all)"
    )
    parser.add_argument("--samples", type=int, default=None, help="samples of the made dataset")
    parser.add_argument("--only", action="append", help="measure only this subject or case (may be repeated)")
    line = parser.add_argument_group("the line of `wan`")
    line.add_argument("--rate-mbit", type=float, default=1000.0, help="its rate in Mb/s (default 1000)")
    line.add_argument("--rtt-ms", type=float, default=100.0, help="its round trip in ms (default 100)")
    line.add_argument("--seconds", type=float, default=10.0, help="time of one measurement (default 10)")
    add_options(parser)
    options = parser.parse_args(argv)
    names = list(BENCHES) if options.all else list(options.name)
    if not names:
        parser.print_help()
        return 2
    code = 0
    for name in names:
        try:
            bench = BENCHES[name].from_options(options)
            figures = bench.run(progress=lambda line: print(line, file=sys.stderr, flush=True))
        except (UnavailableBenchError, SubjectError) as fault:
            print(f"forebay bench: {name}: {fault}", file=sys.stderr)
            code = 4  # The others can still be measured.
            continue
        print(json.dumps(figures) if options.json else bench.table(figures), flush=True)
    return code
