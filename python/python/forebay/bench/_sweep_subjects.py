"""One loader over some cells of the sweep, in a process of its own:
``python -m forebay.bench._sweep_subjects LOADER SETTINGS``.

Prints one JSON object a cell as soon as it is measured. Imports, opening the dataset and one unmeasured turn come
before the first cell, so that no cell pays for them. A cell that fails says why and the next one goes on.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
RESIZED, CROPPED = 256, 224

Batches = Callable[[int, int], Generator[Any, None, None]]
"""From batch size and number of threads or processes to batches, from a loader that is new."""


def forebay(dataset: str, settings: dict[str, Any]) -> Batches:
    """Native threads in this process."""
    import forebay as fb

    data = fb.open(settings[f"path_{dataset}"], manifest_dir=settings["path_manifests"])
    column = (
        fb.image("jpg").resize(RESIZED).center_crop(CROPPED).normalize(mean=MEAN, std=STD)
        if dataset == "encoded"
        else fb.npy("npy", shape=(3, CROPPED, CROPPED), dtype="f32")
    )

    def batches(batch_size: int, threads: int) -> Generator[Any, None, None]:
        with fb.Loader(data, [column], batch_size=batch_size, num_workers=threads) as loader:
            yield from loader

    return batches


def dataloader(dataset: str, settings: dict[str, Any]) -> Batches:
    """Worker processes, as many as there would be threads; everything else as DataLoader has it by default."""
    from torch.utils.data import DataLoader, Dataset
    from torchvision import datasets, transforms

    data: Dataset[Any]
    if dataset == "encoded":
        steps = [
            transforms.Resize(RESIZED),
            transforms.CenterCrop(CROPPED),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
        data = datasets.ImageFolder(settings["path_encoded"], transforms.Compose(steps))
    else:
        data = datasets.DatasetFolder(settings["path_preprocessed"], _load, extensions=(".npy",))

    def batches(batch_size: int, threads: int) -> Generator[Any, None, None]:
        yield from DataLoader(data, batch_size=batch_size, num_workers=threads)

    return batches


def _load(path: str) -> Any:
    import numpy as np
    import torch

    return torch.from_numpy(np.load(path))


LOADERS = {loader.__name__: loader for loader in (forebay, dataloader)}


def waits(batches: Generator[Any, None, None], count: int, step_seconds: float) -> list[float]:
    """Seconds from the end of each step to the arrival of the next batch, for the first ``count`` batches."""
    taken: list[float] = []
    with closing(batches):
        began = time.perf_counter()
        for _batch in batches:
            taken.append(time.perf_counter() - began)
            if len(taken) == count:
                break
            if step_seconds > 0:
                time.sleep(step_seconds)
            began = time.perf_counter()
    return taken


def main() -> None:
    """Measures the cells that the settings list."""
    loader, settings = LOADERS[sys.argv[1]], json.loads(sys.argv[2])
    opened: dict[str, Batches] = {}
    for cell in settings["cells"]:
        result: dict[str, Any] = {}
        try:
            dataset = cell["dataset"]
            if dataset not in opened:
                opened[dataset] = loader(dataset, settings)
                waits(opened[dataset](1, 1), 2, 0.0)
            batches = opened[dataset](cell["batch_size"], cell["threads"])
            result["waits_seconds"] = waits(batches, settings["batches"], cell["step_seconds"])
        except Exception as fault:  # Such as too little shared memory for this many processes.
            result["fault"] = f"{type(fault).__name__}: {fault}".splitlines()[0]
        print(json.dumps({**cell, **result}), flush=True)


if __name__ == "__main__":
    main()
