"""Makes the data of ``forebay bench modalities``: clips as WAV files, and tokens as Megatron-LM stores them."""

from __future__ import annotations

import struct
import wave
from pathlib import Path
from typing import Any

import numpy as np

RATE, SECONDS, CHANNELS, DISTINCT = 44_100, 3.0, 2, 32
VOCAB, MEAN_LENGTH = 50_000, 400


def write_clips(folder: Path, samples: int) -> dict[str, Any]:
    """Clips of three seconds in stereo, sixteen bits: chirps in noise."""
    folder.mkdir(parents=True)
    count = round(RATE * SECONDS)
    at = np.arange(count) / RATE
    payloads = []
    for seed in range(min(samples, DISTINCT)):
        draws = np.random.default_rng(seed)
        low, high = draws.uniform(80, 400), draws.uniform(1000, 6000)
        tone = np.sin(2 * np.pi * (low * at + (high - low) * at**2 / (2 * SECONDS)))
        wave_of = tone[:, None] * 0.3 + draws.normal(0, 0.05, (count, CHANNELS))
        payloads.append((np.clip(wave_of, -1, 1) * 32767).astype("<i2").tobytes())
    total = 0
    for sample in range(samples):
        path = folder / f"{sample:06}.wav"
        with wave.open(str(path), "wb") as file:
            file.setnchannels(CHANNELS)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes(payloads[sample % len(payloads)])
        total += path.stat().st_size
    return {
        "samples": samples,
        "payload_bytes": total,
        "format": "WAV, 16 bits",
        "rate": RATE,
        "channels": CHANNELS,
        "seconds": SECONDS,
    }


def write_corpus(folder: Path, documents: int) -> dict[str, Any]:
    """``corpus.bin`` and ``corpus.idx``: documents of log-normal lengths, two bytes a token."""
    folder.mkdir(parents=True)
    draws = np.random.default_rng(0)
    lengths = np.clip(draws.lognormal(np.log(MEAN_LENGTH), 0.8, documents), 8, 2000).astype("<i4")
    tokens = draws.integers(1, VOCAB, int(lengths.sum()), dtype="<u2")
    (folder / "corpus.bin").write_bytes(tokens.tobytes())
    places = np.concatenate([[0], np.cumsum(lengths, dtype="<i8")[:-1]]) * 2
    with (folder / "corpus.idx").open("wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, documents, documents + 1))
        file.write(lengths.tobytes() + places.astype("<i8").tobytes())
        file.write(np.arange(documents + 1, dtype="<i8").tobytes())
    np.save(folder / "lengths.npy", lengths)
    return {"documents": documents, "tokens": len(tokens), "payload_bytes": 2 * len(tokens)}
