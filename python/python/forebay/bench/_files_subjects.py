"""Subjects of ``forebay bench files``, one a process: ``python -m forebay.bench._files_subjects SUBJECT SETTINGS``."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ._files import evict

Settings = dict[str, Any]


class Read(NamedTuple):
    """What a subject read, and by how many calls of the system."""

    samples: int
    bytes: int
    syscalls: int


def forebay_files(settings: Settings) -> Callable[[], Read]:
    """One file a sample, in a random order."""
    return _loader(settings, settings["path_tree"], "full")


def forebay_shards(settings: Settings) -> Callable[[], Read]:
    """Shards, shuffled by blocks."""
    return _loader(settings, f"{settings['path_shards']}/*.tar", "block")


def read_files(settings: Settings) -> Callable[[], Read]:
    """Plain ``read()`` of one file after the other in a random order, as a simple dataset class does it."""
    paths = sorted(Path(settings["path_tree"]).rglob("*.jpg"))
    random.Random(0).shuffle(paths)

    def run() -> Read:
        before = _own_calls()
        total = 0
        for path in paths:
            with path.open("rb", buffering=0) as file:
                total += len(file.read())
        return Read(len(paths), total, _own_calls() - before)

    return run


def _loader(settings: Settings, spec: str, shuffle: Any) -> Callable[[], Read]:
    import forebay as fb

    # Finding out what is there is not what is measured here.
    data = fb.open(spec, manifest_dir=settings["path_manifests"])

    def run() -> Read:
        samples = 0
        before = data.native.read_calls() or (0, 0)
        with fb.Loader(data, [fb.raw("jpg")], batch_size=settings["batch_size"], shuffle=shuffle) as loader:
            for batch in loader:
                samples += len(batch.ids)
        after = data.native.read_calls() or (0, 0)
        return Read(samples, after[1] - before[1], after[0] - before[0])

    return run


SUBJECTS = {subject.__name__: subject for subject in (forebay_files, forebay_shards, read_files)}


def _own_calls() -> int:
    return _io()["syscr"]


def _io() -> dict[str, int]:
    lines = Path("/proc/self/io").read_text().splitlines()
    return {name: int(value) for name, value in (line.split(": ") for line in lines)}


def main() -> None:
    """Makes the files cold, runs one subject and prints its figures."""
    subject, settings = sys.argv[1], json.loads(sys.argv[2])
    run = SUBJECTS[subject](settings)
    evict(Path(settings["path_tree"]).rglob("*.jpg"))
    evict(Path(settings["path_shards"]).glob("*.tar"))
    device, began = _io()["read_bytes"], time.perf_counter()
    read = run()
    seconds, device = time.perf_counter() - began, _io()["read_bytes"] - device
    figures = {
        "samples_per_second": read.samples / seconds,
        "bytes_per_second": read.bytes / seconds,
        "bytes_per_syscall": read.bytes / max(read.syscalls, 1),
        "syscalls": float(read.syscalls),
        "device_share": min(device / read.bytes, 1.0),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
