"""The data of ``forebay bench wan``: shards and images on disk, rows in Cassandra.

As a program it writes the shards of Streaming: ``python -m forebay.bench._wan_data FOLDER SAMPLES``.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from . import _made
from ._harness import environment, last_line
from ._wan_servers import UnavailableBenchError

SAMPLE_BYTES, SHARDS = 115_000, 16


def write_shards(folder: Path, samples: int) -> dict[str, Any]:
    """16 tar shards of noise."""
    folder.mkdir()
    each, payloads = max(1, samples // SHARDS), _payloads()
    for shard in range(SHARDS):
        with tarfile.open(folder / f"train-{shard:03}.tar", "w") as archive:
            for n in range(shard * each, (shard + 1) * each):
                about = tarfile.TarInfo(f"{n:06}.bin")
                about.size = SAMPLE_BYTES
                archive.addfile(about, io.BytesIO(payloads[n % len(payloads)]))
    return {"shards": SHARDS, "samples": SHARDS * each, "payload_bytes": SHARDS * each * SAMPLE_BYTES}


def _payloads() -> list[bytes]:
    rng = np.random.default_rng(0)
    return [rng.bytes(SAMPLE_BYTES) for _ in range(64)]


def write_mds(python: str, folder: Path, samples: int) -> None:
    """The same samples as shards of MosaicML Streaming, written by the interpreter that has it."""
    command = [python, "-m", "forebay.bench._wan_data", str(folder / "mds"), str(samples)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    if done.returncode != 0:
        raise UnavailableBenchError(f"write shards for Streaming: {last_line(done.stderr)}")


def _write_mds(folder: str, samples: int) -> None:
    from streaming import MDSWriter

    payloads, size = _payloads(), samples // SHARDS * SAMPLE_BYTES
    with MDSWriter(out=folder, columns={"bin": "bytes"}, size_limit=size) as out:
        for n in range(samples):
            out.write({"bin": payloads[n % len(payloads)]})


def write_images(folder: Path) -> dict[str, Any]:
    """Photograph-like JPEGs; the server hands them out again and again under many keys."""
    folder.mkdir()
    sizes = []
    for seed in range(_made.DISTINCT):
        picture = _made._jpeg(seed)
        (folder / f"{seed:02}.jpg").write_bytes(picture)
        sizes.append(len(picture))
    return {"distinct_images": len(sizes), "mean_bytes": sum(sizes) // len(sizes)}


def ingest(cassandra: str, folder: Path, table: dict[str, Any]) -> None:
    """Writes the shards' samples into Cassandra; a second time finds them there."""
    to = f"cassandra://{cassandra}/{table['keyspace']}/{table['table']}"
    command = [
        sys.executable,
        "-m",
        "forebay",
        "ingest",
        str(folder / "shards/train-*.tar"),
        to,
        "--create",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        last = [line for line in done.stderr.splitlines() if line.strip()][:1] or ["no message"]
        raise UnavailableBenchError(
            f"write `{to}`: `forebay ingest` ended with code {done.returncode}: {last[0]}"
        )


if __name__ == "__main__":
    _write_mds(sys.argv[1], int(sys.argv[2]))
