"""What is measured, one subject a process: ``python -m forebay.bench._subjects SUBJECT SETTINGS``.

Prints one JSON object. Imports are not timed; opening the dataset, building the loader and the first batch are.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Settings = dict[str, Any]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def forebay(settings: Settings) -> Callable[[], Iterator[int]]:
    """Shards, block shuffle, all work on native threads."""
    import forebay as fb

    recipe = [
        fb.image("jpg").random_resized_crop(settings["size"]).flip().normalize(mean=MEAN, std=STD),
        fb.label("cls"),
    ]

    def run() -> Iterator[int]:
        data = fb.open(f"{settings['path_shards']}/*.tar", manifest_dir=settings["path_manifests"])
        with fb.Loader(
            data, recipe, batch_size=settings["batch_size"], shuffle=True, num_workers=settings["workers"]
        ) as loader:
            for _ in range(settings["epochs"]):
                for batch in loader:
                    yield len(batch.ids)

    return run


def dataloader(settings: Settings) -> Callable[[], Iterator[int]]:
    """ImageFolder and a DataLoader with worker processes, as in the PyTorch examples."""
    from torch.utils.data import DataLoader
    from torchvision import datasets

    def run() -> Iterator[int]:
        data = datasets.ImageFolder(settings["path_tree"], _transforms(settings["size"]))
        loader = DataLoader(
            data,
            batch_size=settings["batch_size"],
            shuffle=True,
            num_workers=settings["workers"],
            persistent_workers=True,
        )
        for _ in range(settings["epochs"]):
            for images, _labels in loader:
                yield len(images)

    return run


def webdataset(settings: Settings) -> Callable[[], Iterator[int]]:
    """Shards through WebDataset's usual pipeline."""
    import webdataset as wds

    def run() -> Iterator[int]:
        urls = sorted(str(path) for path in Path(settings["path_shards"]).glob("*.tar"))
        transform = _transforms(settings["size"])
        data = (
            wds.WebDataset(urls, shardshuffle=100)
            .shuffle(1000)
            .decode("pil")
            .to_tuple("jpg", "cls")
            .map_tuple(transform, lambda label: label)
            .batched(settings["batch_size"])
        )
        loader = wds.WebLoader(
            data, batch_size=None, num_workers=settings["workers"], persistent_workers=True
        )
        for _ in range(settings["epochs"]):
            for images, _labels in loader:
                yield len(images)

    return run


def forebay_raw(settings: Settings) -> Callable[[], Iterator[int]]:
    """Payloads as they are, in stored order."""
    import forebay as fb

    def run() -> Iterator[int]:
        data = fb.open(f"{settings['path_shards']}/*.tar", manifest_dir=settings["path_manifests"])
        with fb.Loader(data, [fb.raw("jpg")], batch_size=settings["batch_size"]) as loader:
            for _ in range(settings["epochs"]):
                for batch in loader:
                    yield sum(len(payload) for payload in batch["jpg"])

    return run


def webdataset_raw(settings: Settings) -> Callable[[], Iterator[int]]:
    """Payloads through WebDataset in this process, without decoding."""
    import webdataset as wds

    def run() -> Iterator[int]:
        urls = sorted(str(path) for path in Path(settings["path_shards"]).glob("*.tar"))
        for _ in range(settings["epochs"]):
            for sample in wds.WebDataset(urls, shardshuffle=False):
                yield len(sample["jpg"])

    return run


def read(settings: Settings) -> Callable[[], Iterator[int]]:
    """Plain ``read()`` of each shard: all of its bytes, in memory of their own."""

    def run() -> Iterator[int]:
        for _ in range(settings["epochs"]):
            for path in sorted(Path(settings["path_shards"]).glob("*.tar")):
                with path.open("rb") as file:
                    yield len(file.read())

    return run


def read_reused(settings: Settings) -> Callable[[], Iterator[int]]:
    """``readinto`` of one buffer of 1 MiB again and again: what the page cache gives when nobody keeps the bytes."""

    def run() -> Iterator[int]:
        buffer = memoryview(bytearray(1 << 20))
        for _ in range(settings["epochs"]):
            for path in sorted(Path(settings["path_shards"]).glob("*.tar")):
                with path.open("rb", buffering=0) as file:
                    while count := file.readinto(buffer):
                        yield count

    return run


SUBJECTS = {
    subject.__name__: subject
    for subject in (forebay, dataloader, webdataset, forebay_raw, webdataset_raw, read, read_reused)
}


def _transforms(size: int) -> Any:
    from torchvision import transforms

    return transforms.Compose(
        [
            transforms.RandomResizedCrop(size),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )


def _cpu_seconds() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def main() -> None:
    """Runs one subject and prints its figures."""
    subject, settings = sys.argv[1], json.loads(sys.argv[2])
    run = SUBJECTS[subject](settings)
    cpu, began = _cpu_seconds(), time.perf_counter()
    total, first = 0, 0.0
    for amount in run():
        if total == 0:
            first = time.perf_counter() - began
        total += amount
    seconds, cpu = time.perf_counter() - began, _cpu_seconds() - cpu
    if subject.endswith("raw") or subject.startswith("read"):
        figures = {"bytes_per_second": total / seconds, "cpu_seconds_per_gigabyte": cpu / total * 1e9}
    else:
        figures = {
            "images_per_second": total / seconds,
            "cpu_seconds_per_1000": cpu / total * 1000,
            "first_batch_seconds": first,
        }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
