"""A training-like loop: makes a small image dataset, trains a pretended accelerator on it, explains the waiting.

Needs the installed package and nothing else. `make demo` runs it.
"""

from __future__ import annotations

import argparse
import struct
import sys
import tempfile
import time
import zlib
from pathlib import Path

import forebay as fb
import numpy as np


def png(pixels: np.ndarray) -> bytes:
    """An 8-bit RGB image as PNG."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows, 1))
        + chunk(b"IEND", b"")
    )


def make_dataset(folder: Path, samples: int) -> None:
    """Smooth noise in four class folders."""
    rng = np.random.default_rng(0)
    for sample in range(samples):
        coarse = rng.integers(0, 256, (16, 20, 3), dtype=np.uint8)
        target = folder / f"class{sample % 4}" / f"{sample:05}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(png(np.kron(coarse, np.ones((18, 18, 1), np.uint8))))


def bar(epoch: int, done: int, total: int) -> None:
    """A progress bar on a terminal; elsewhere one line an epoch."""
    if sys.stderr.isatty():
        filled = 40 * done // total
        end = "\n" if done == total else "\r"
        print(
            f"epoch {epoch}  [{'#' * filled}{'.' * (40 - filled)}] {done}/{total}", end=end, file=sys.stderr
        )
    elif done == total:
        print(f"epoch {epoch}: {total} batches", file=sys.stderr)


def main() -> int:
    """Runs the demo and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--step-ms", type=float, default=30.0, help="time of the pretended accelerator step")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="forebay-demo-") as folder:
        print(f"making {options.samples} images ...", file=sys.stderr)
        make_dataset(Path(folder) / "images", options.samples)
        data = fb.open(Path(folder) / "images", manifest_dir=Path(folder) / "manifests")
        recipe = [fb.image("png").random_resized_crop(224).flip().normalize(fb.IMAGENET), fb.label("cls")]
        began = time.perf_counter()
        with fb.Loader(
            data, recipe, batch_size=options.batch_size, shuffle=True, epochs=options.epochs
        ) as loader:
            for epoch in range(options.epochs):
                total = len(loader)
                for step, batch in enumerate(loader):
                    assert batch["png"].shape[1:] == (3, 224, 224)
                    time.sleep(options.step_ms / 1000)  # The accelerator.
                    bar(epoch, step + 1, total)
            stats = loader.stats()
        seconds = time.perf_counter() - began
    stall = stats["stall_seconds"]
    print(f"throughput    {stats['samples'] / seconds:8.0f} images/s")
    print(f"first batch   {stats['first_batch_seconds'] * 1000:8.0f} ms")
    print(f"steps         {stats['step_seconds']:8.2f} s in the accelerator")
    print(
        f"stall         {stall:8.2f} s, {100 * stall / seconds:.0f} % of {seconds:.2f} s: "
        f"fetch {stats['fetch_stall_seconds']:.2f} s, prep {stats['prep_stall_seconds']:.2f} s"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
