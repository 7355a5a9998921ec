"""What ``forebay bench cache`` measures, one subject a process. Prints one JSON object, as the other subjects do."""

from __future__ import annotations

import json
import mmap
import os
import queue
import random
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import _cache_epochs, _cache_peers

Settings = dict[str, Any]
Ready = Callable[[], Iterator[int]]


def _forebay(settings: Settings, cache: dict[str, Any], *, as_bytes: bool = False) -> Ready:
    """A loader whose cache is full and settled; payloads as views, or each made a ``bytes``."""
    import forebay as fb

    data = fb.open(f"{settings['path_shards']}/*.tar", manifest_dir=settings["path_manifests"])

    def opened(epochs: int) -> fb.Loader:
        return fb.Loader(
            data,
            [fb.raw("jpg")],
            batch_size=settings["batch_size"],
            shuffle="full",
            cache=cache,
            epochs=epochs,
        )

    if "disk" in cache:
        # A cache on disk outlives the loader that filled it. What that one wrote is on the disk before anything is
        # measured, as the file is that the plain reads read.
        with opened(1) as filling:
            for _ in filling:
                pass
        os.sync()
    loader = opened(settings["epochs"] + 1)
    for _ in loader:
        pass

    def run() -> Iterator[int]:
        for _ in range(settings["epochs"]):
            for batch in loader:
                yield sum(map(len, batch["jpg"] if as_bytes else batch["jpg"].views()))
        loader.close()

    return run


def cache_memory(settings: Settings) -> Ready:
    """Hits from memory."""
    return _forebay(settings, {"memory": "8GiB"})


def cache_disk(settings: Settings) -> Ready:
    """Hits from disk, past the page cache."""
    return _forebay(settings, {"disk": f"{settings['path_kept']}:64GiB"})


def cache_memory_bytes(settings: Settings) -> Ready:
    """Hits from memory, each copied into a ``bytes``."""
    return _forebay(settings, {"memory": "8GiB"}, as_bytes=True)


def cache_disk_bytes(settings: Settings) -> Ready:
    """Hits from disk, each copied into a ``bytes``."""
    return _forebay(settings, {"disk": f"{settings['path_kept']}:64GiB"}, as_bytes=True)


def _lengths(settings: Settings) -> list[int]:
    import forebay as fb

    data = fb.open(f"{settings['path_shards']}/*.tar", manifest_dir=settings["path_manifests"])
    with fb.Loader(data, [fb.raw("jpg")], batch_size=settings["batch_size"], epochs=1) as loader:
        return [length for batch in loader for length in batch["jpg"].lengths()]


def memcpy(settings: Settings) -> Ready:
    """Copies of payloads of the same lengths, in another order every epoch, into one buffer."""
    import numpy as np

    payloads = [
        np.random.default_rng(0).integers(0, 255, length, dtype=np.uint8) for length in _lengths(settings)
    ]
    target = np.empty(max(len(payload) for payload in payloads), dtype=np.uint8)

    def run() -> Iterator[int]:
        order = random.Random(0)
        for _ in range(settings["epochs"]):
            order.shuffle(payloads)
            for payload in payloads:
                target[: len(payload)] = payload
                yield len(payload)

    return run


def direct_reads(settings: Settings) -> Ready:
    """``O_DIRECT`` reads of the same lengths, rounded up to pages, by one thread for every read in flight."""
    page = mmap.PAGESIZE
    lengths = _lengths(settings)
    rounded = [-(-length // page) * page for length in lengths]
    path = Path(settings["path_kept"]).with_name("plain")
    if not path.exists():
        with path.open("wb") as file:
            for length in rounded:
                file.write(os.urandom(length))
            file.flush()
            os.fsync(file.fileno())
    starts, start = [], 0
    for length in rounded:
        starts.append(start)
        start += length
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)

    def run() -> Iterator[int]:
        asked: queue.SimpleQueue[tuple[int, int, int] | None] = queue.SimpleQueue()
        done: queue.SimpleQueue[int] = queue.SimpleQueue()

        def work() -> None:
            buffer = mmap.mmap(-1, max(rounded))
            while (item := asked.get()) is not None:
                start, length, bytes_ = item
                os.preadv(descriptor, [memoryview(buffer)[:length]], start)
                done.put(bytes_)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(settings["reads_in_flight"])]
        for thread in threads:
            thread.start()
        order = random.Random(0)
        for _ in range(settings["epochs"]):
            items = list(zip(starts, rounded, lengths, strict=True))
            order.shuffle(items)
            for item in items:
                asked.put(item)
            for _ in items:
                yield done.get()
        for _ in threads:
            asked.put(None)

    return run


SUBJECTS = {
    subject.__name__: subject
    for subject in (
        cache_memory,
        cache_memory_bytes,
        memcpy,
        cache_disk,
        cache_disk_bytes,
        direct_reads,
    )
}
SUBJECTS |= _cache_peers.MOVES


def main() -> None:
    """Runs one subject and prints its figures."""
    subject, settings = sys.argv[1], json.loads(sys.argv[2])
    if subject in _cache_epochs.SUBJECTS:
        fetch, percent = _cache_epochs.SUBJECTS[subject]
        print(json.dumps({"fetched_share": fetch(settings, percent)}))
        return
    if subject in _cache_peers.FIGURES:
        print(json.dumps(_cache_peers.FIGURES[subject](settings)))
        return
    run = SUBJECTS[subject](settings)

    def cpu_seconds() -> float:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime

    cpu, began = cpu_seconds(), time.perf_counter()
    total = sum(run())
    seconds, cpu = time.perf_counter() - began, cpu_seconds() - cpu
    print(json.dumps({"bytes_per_second": total / seconds, "cpu_seconds_per_gigabyte": cpu / total * 1e9}))


if __name__ == "__main__":
    main()
