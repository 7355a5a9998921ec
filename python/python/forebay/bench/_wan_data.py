"""The data of ``forebay bench wan``: shards and images on disk, rows in Cassandra."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from . import _made
from ._wan_servers import UnavailableBenchError

SAMPLE_BYTES, SHARDS = 115_000, 16


def write_shards(folder: Path, samples: int) -> dict[str, Any]:
    """16 tar shards of noise, and the same samples as MDS shards where Streaming is installed."""
    folder.mkdir()
    each, rng = max(1, samples // SHARDS), np.random.default_rng(0)
    payloads = [rng.bytes(SAMPLE_BYTES) for _ in range(64)]
    for shard in range(SHARDS):
        with tarfile.open(folder / f"train-{shard:03}.tar", "w") as archive:
            for n in range(shard * each, (shard + 1) * each):
                about = tarfile.TarInfo(f"{n:06}.bin")
                about.size = SAMPLE_BYTES
                archive.addfile(about, io.BytesIO(payloads[n % len(payloads)]))
    try:
        from streaming import MDSWriter
    except ImportError:  # Not installed, or not wholly; its client will say so.
        MDSWriter = None
    if MDSWriter is not None:
        size = each * SAMPLE_BYTES
        with MDSWriter(out=str(folder / "mds"), columns={"bin": "bytes"}, size_limit=size) as out:
            for n in range(SHARDS * each):
                out.write({"bin": payloads[n % len(payloads)]})
    return {"shards": SHARDS, "samples": SHARDS * each, "payload_bytes": SHARDS * each * SAMPLE_BYTES}


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
        str(folder / "shards/train-000.tar"),
        to,
        "--create",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        last = [line for line in done.stderr.splitlines() if line.strip()][:1] or ["no message"]
        raise UnavailableBenchError(
            f"write `{to}`: `forebay ingest` ended with code {done.returncode}: {last[0]}"
        )
