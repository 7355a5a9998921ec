"""``forebay bench modalities``: audio, tokens, packed documents and augmented images, beside the usual Python way.

Each of the four is measured as a job does it: files in, batches out, from opening the dataset to the last batch. The
others are a DataLoader with as many processes as Forebay has threads, over the libraries that people use there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from . import _made
from ._harness import Bench, Figures, bar
from ._modalities_data import write_clips, write_corpus

CASES = {
    "audio": ("forebay", "torchaudio", "librosa", "scipy"),
    "windows": ("forebay", "memmap"),
    "packing": ("forebay", "python"),
    "augment": ("forebay", "torchvision"),
}
STANDS_IN = {"audio": "scipy"}
"""Whom a goal is about only where none of the others could be measured."""
GOALS = {"audio": 3.0, "windows": 5.0, "packing": 3.0, "augment": 2.0}


class ModalitiesBench(Bench):
    """Forebay beside DataLoaders over librosa, torchaudio, NumPy and torchvision."""

    name: ClassVar[str] = "modalities"
    subjects: ClassVar[tuple[str, ...]] = tuple(f"{case}_{who}" for case, all in CASES.items() for who in all)
    packages: ClassVar[tuple[str, ...]] = (
        *(
            "forebay",
            "numpy",
            "torch",
            "torchvision",
            "torchaudio",
            "librosa",
            "soundfile",
            "scipy",
            "pillow",
        ),
    )
    needs: ClassVar[dict[str, tuple[str, ...]]] = {
        "audio_torchaudio": ("torch", "torchaudio", "soundfile"),
        "audio_librosa": ("torch", "librosa"),
        "audio_scipy": ("torch", "scipy"),
        "windows_memmap": ("torch",),
        "packing_python": ("torch",),
        "augment_torchvision": ("torch", "torchvision"),
    }
    default_samples: ClassVar[int] = 512
    module: ClassVar[str] = "forebay.bench._modalities_subjects"

    def __init__(
        self,
        *,
        rounds: int,
        samples: int | None = None,
        only: Sequence[str] | None = None,
        peer_rounds: int | None = None,
    ) -> None:
        # The name of a case means all of its subjects.
        chosen = None
        if only is not None:
            chosen = [s for s in self.subjects if s in only or s.split("_")[0] in only]
        super().__init__(rounds=rounds, samples=samples, only=chosen, peer_rounds=peer_rounds)

    def make(self, folder: Path) -> dict[str, Any]:
        """What the cases that are measured read."""
        cases = {subject.split("_")[0] for subject in self.measured}
        sizes: dict[str, Any] = {}
        if "audio" in cases:
            sizes["audio"] = write_clips(folder / "clips", self.samples)
        if {"windows", "packing"} & cases:
            sizes["tokens"] = write_corpus(folder / "corpus", self.samples * 64)
        if "augment" in cases:
            sizes["images"] = _made.images(folder, self.samples * 2)
        return sizes

    def settings(self, folder: Path) -> dict[str, Any]:
        """The same for all subjects."""
        return {
            "path_clips": str(folder / "clips"),
            "path_corpus": str(folder / "corpus"),
            "path_tree": str(folder / "tree"),
            "path_shards": str(folder / "shards"),
            "path_manifests": str(folder / "manifests"),
            "workers": len(os.sched_getaffinity(0)),
            "clip_batch": 32,
            "clip_rate": 16_000,
            "clip_seconds": 3.0,
            "n_fft": 400,
            "hop_length": 160,
            "n_mels": 80,
            "window": 1024,
            "window_batch": 64,
            "row": 2048,
            "row_batch": 16,
            "image_batch": 64,
            "size": 224,
            "epochs": 2,
            "page_cache": "warm",
        }

    def bars(self, medians: dict[str, Figures]) -> list[dict[str, Any]]:
        """Against the fastest of those whom each goal is about."""
        found = []
        for case, (_, *others) in CASES.items():
            mine = medians.get(f"{case}_forebay")
            measured = {who: medians[f"{case}_{who}"] for who in others if f"{case}_{who}" in medians}
            if mine is None or not measured:
                continue
            if len(measured) > 1:
                measured.pop(STANDS_IN.get(case, ""), None)
            who, best = max(measured.items(), key=lambda pair: pair[1]["samples_per_second"])
            times = mine["samples_per_second"] / best["samples_per_second"]
            found.append(bar(f"{case} against {who}", times, f">= {GOALS[case]}", "x"))
        return found
