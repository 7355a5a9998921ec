"""Datasets made for tests, small and known in every byte."""

from __future__ import annotations

import io
import itertools
import os
import subprocess
import sys
import tarfile
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def picture(seed: int, width: int = 48, height: int = 40, mode: str = "RGB") -> Image.Image:
    """A smooth picture with a few edges: what photographs are to a codec."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = []
    for _ in range(3):
        a, b, c = rng.uniform(0.02, 0.2, 3)
        planes.append(127 + 60 * np.sin(a * x + 6 * c) + 60 * np.cos(b * y + 3 * a))
    pixels = np.stack(planes, -1)
    left, top = rng.integers(0, width // 2 + 1), rng.integers(0, height // 2 + 1)
    pixels[top : top + height // 4, left : left + width // 4] = rng.integers(0, 255, 3)
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).convert(mode)


def encoded(image: Image.Image, form: str = "JPEG", **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def write_tar(path: Path, samples: list[dict[str, bytes]], first: int = 0) -> Path:
    """A shard with one member per field, keys counted from `first`."""
    with tarfile.open(path, "w") as tar:
        for number, sample in enumerate(samples, first):
            for field, payload in sample.items():
                member = tarfile.TarInfo(f"{number:06d}.{field}")
                member.size = len(payload)
                tar.addfile(member, io.BytesIO(payload))
    return path


def write_shards(folder: Path, samples: list[dict[str, bytes]], shards: int) -> str:
    """Shards `s-000.tar` and so on; returns their spec."""
    folder.mkdir(parents=True, exist_ok=True)
    cuts = [len(samples) * shard // shards for shard in range(shards + 1)]
    for shard, (start, end) in enumerate(itertools.pairwise(cuts)):
        write_tar(folder / f"s-{shard:03d}.tar", samples[start:end], start)
    return str(folder / f"s-{{000..{shards - 1:03d}}}.tar")


def write_tree(folder: Path, classes: int = 3, each: int = 4, **options: Any) -> Path:
    """One folder per class, one JPEG per sample."""
    for number in range(classes):
        (folder / f"class{number}").mkdir(parents=True)
        for sample in range(each):
            path = folder / f"class{number}" / f"{sample}.jpg"
            path.write_bytes(encoded(picture(number * 100 + sample, **options), quality=90))
    return folder


def run_python(code: str, *, timeout: float = 100, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a script in a fresh interpreter with the same package."""
    return subprocess.run(
        [sys.executable, "-W", "ignore:this is a debug", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **environment},
    )


def path_with(folder: Path) -> str:
    """`PYTHONPATH` with one more folder."""
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


def ids(loader: Any) -> list[int]:
    """Sample ids of one iteration, padding left out."""
    return [int(i) for batch in loader for i in batch.ids[~batch.padding]]
