"""Makes the benches' data: photograph-like JPEGs as a class-per-folder tree and as tar shards."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, HEIGHT, QUALITY, CLASSES, DISTINCT = 500, 375, 92, 8, 64


def images(folder: Path, samples: int) -> dict[str, Any]:
    """``folder/tree`` and ``folder/shards`` with the same ``samples`` images; returns their sizes."""
    tree, shards = folder / "tree", folder / "shards"
    payloads = [_jpeg(seed) for seed in range(min(samples, DISTINCT))]
    total = 0
    for sample in range(samples):
        target = tree / f"class{sample % CLASSES}" / f"{sample:06}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        payload = payloads[sample % len(payloads)]
        target.write_bytes(payload)
        total += len(payload)
    shards.mkdir()
    pack = [sys.executable, "-m", "forebay", "pack", str(tree), str(shards), "--prefix", "train"]
    subprocess.run([*pack, "--max-count", str(max(1, samples // 8)), "--shuffle"], check=True, stdout=2)
    return {
        "samples": samples,
        "payload_bytes": total,
        "mean_payload_bytes": total // samples,
        "width": WIDTH,
        "height": HEIGHT,
        "jpeg_quality": QUALITY,
        "distinct_images": len(payloads),
        "shards": len(list(shards.glob("*.tar"))),
    }


def _jpeg(seed: int) -> bytes:
    """Noise at several scales: edges, gradients and grain, about as large as a photograph of this size."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    picture = np.zeros((HEIGHT, WIDTH, 3), np.float32)
    for cells, strength in ((3, 90.0), (12, 45.0), (60, 22.0), (200, 14.0)):
        coarse = rng.normal(0, strength, (cells, cells * 4 // 3, 3)).astype(np.float32)
        for channel in range(3):
            layer = Image.fromarray(coarse[..., channel]).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
            picture[..., channel] += np.asarray(layer)
    pixels = np.clip(picture + 120, 0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()
