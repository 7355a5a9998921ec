"""Boxes and masks that follow their images, on shards that this makes itself."""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from pathlib import Path

import forebay as fb
import numpy as np

WIDTH, HEIGHT, SAMPLES = 96, 72, 200


def npy_png(pixels: np.ndarray) -> bytes:
    """A gray PNG, written by hand so that nothing but NumPy is needed."""
    import struct
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def sample(number: int) -> dict[str, bytes]:
    """A few rectangles, with annotations as COCO has them and a mask that numbers their classes."""
    rng = np.random.default_rng(number)
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    annotations = []
    for _ in range(rng.integers(1, 4)):
        left, top = rng.integers(0, WIDTH - 24), rng.integers(0, HEIGHT - 24)
        wide, high = rng.integers(8, 24, 2)
        label = int(rng.integers(1, 5))
        mask[top : top + high, left : left + wide] = label
        box = [int(left), int(top), int(wide), int(high)]
        annotations.append({"bbox": box, "category_id": label})
    image = mask * 50 + 20
    return {
        "png": npy_png(image),
        "mask.png": npy_png(mask),
        "json": json.dumps({"annotations": annotations}).encode(),
    }


def write(folder: Path) -> str:
    with tarfile.open(folder / "made.tar", "w") as tar:
        for number in range(SAMPLES):
            for field, payload in sample(number).items():
                member = tarfile.TarInfo(f"{number:06d}.{field}")
                member.size = len(payload)
                tar.addfile(member, io.BytesIO(payload))
    return str(folder / "made.tar")


def main() -> None:
    boxes = fb.boxes("json", follow="png", min_visibility=0.1)
    recipe = fb.Recipe(
        [
            fb.image("png").random_resized_crop(64, scale=(0.3, 1.0)).flip().affine(10, fill=20),
            fb.image("mask.png", mode="gray", follow="png").named("mask"),
            boxes.pad_batch(),
            boxes.labels().pad_batch(),
        ]
    )
    print(recipe)
    checked = 0
    with tempfile.TemporaryDirectory() as folder:
        data = fb.open(write(Path(folder)))
        with fb.Loader(data, recipe, batch_size=16, shuffle=True, seed=3) as loader:
            for _ in range(2):
                for batch in loader:
                    for row in range(len(batch.ids)):
                        mask = batch["mask"][row, 0]
                        count = batch["boxes_length"][row]
                        inside = np.zeros(mask.shape, bool)
                        for left, top, right, bottom in batch["boxes"][row, :count]:
                            inside[int(top) : int(np.ceil(bottom)), int(left) : int(np.ceil(right))] = True
                        # What is seen lies in a box, but for slivers of things that are nearly gone.
                        assert (mask[~inside] > 0).mean() < 0.05 if (~inside).any() else True
                    checked += len(batch.ids)
    assert checked == 2 * SAMPLES
    print(f"boxes of {SAMPLES} images followed their pixels in 2 epochs")


if __name__ == "__main__":
    main()
