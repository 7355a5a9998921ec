"""What ``forebay bench service`` measures, one subject a process. Prints one JSON object, as the other subjects do.

Time begins after the first batches: how long processes take to start, and the system to give them memory for the
first time, is not what is compared.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from . import _service_processes as processes
from ._service_processes import Process, Running, cpu_seconds
from ._subjects import MEAN, STD

Settings = dict[str, Any]
Figures = dict[str, float]


def _arrays(settings: Settings, **options: Any) -> Any:
    """A loader of batches of stored arrays: next to nothing is prepared, so that the way to the loop is measured."""
    import forebay as fb

    data = fb.open(f"{settings['path_arrays']}/*.tar", manifest_dir=settings["path_manifests"])
    column = fb.npy("npy", shape=settings["shape"], dtype="u8")
    return fb.Loader(data, [column], batch_size=settings["batch_size"], **options)


def images(settings: Settings, **options: Any) -> Any:
    """A loader of decoded and augmented photographs."""
    import forebay as fb

    data = fb.open(f"{settings['path_shards']}/*.tar", manifest_dir=settings["path_manifests"])
    recipe = [
        fb.image("jpg").random_resized_crop(settings["size"]).flip().normalize(mean=MEAN, std=STD),
        fb.label("cls"),
    ]
    return fb.Loader(data, recipe, batch_size=settings["batch_size"], shuffle=True, **options)


def _touched(batch: Any) -> int:
    """Bytes of a batch of arrays, after one byte of each page was looked at."""
    array = batch["npy"]
    int(array.reshape(-1)[::4096].sum())
    return int(array.nbytes)


def _timed(
    amounts: Iterator[int], settings: Settings, servers: Sequence[Running]
) -> tuple[float, float, float]:
    """Amount, seconds and processor seconds of everyone, after the first batches and for the time that was set."""
    for _ in range(settings["first_batches"]):
        next(amounts)
    before = cpu_seconds() + sum(server.cpu_seconds() for server in servers)
    began, total = time.perf_counter(), 0
    for amount in amounts:
        total += amount
        if time.perf_counter() - began >= settings["seconds"]:
            break
    seconds = time.perf_counter() - began
    used = cpu_seconds() + sum(server.cpu_seconds() for server in servers) - before
    return float(total), seconds, used


def _bytes_figures(amounts: Iterator[int], settings: Settings, servers: list[Process]) -> Figures:
    total, seconds, used = _timed(amounts, settings, servers)
    return {"bytes_per_second": total / seconds, "bytes_per_cpu_second": total / max(used, 1e-9)}


def image_figures(loader: Any, settings: Settings, servers: Sequence[Running]) -> Figures:
    """Rate and processor time of a job, with what serves it."""
    total, seconds, used = _timed((len(batch.ids) for batch in forever(loader)), settings, servers)
    return {"images_per_second": total / seconds, "cpu_seconds_per_1000": used / total * 1000}


def forever(loader: Any) -> Iterator[Any]:
    """Epoch after epoch."""
    while True:
        yield from loader


def _service(stack: ExitStack, settings: Settings, same_host: str) -> tuple[str, list[Process]]:
    """A dispatcher with one worker: what to give as ``via``, and their processes."""
    dispatcher = stack.enter_context(processes.dispatcher())
    worker = stack.enter_context(
        processes.worker(dispatcher, settings["threads"], same_host, settings["staging_bytes"])
    )
    return f"forebay://{dispatcher.address.removeprefix('forebay://')}", [dispatcher, worker]


def wire_forebay(settings: Settings) -> Figures:
    """Large batches that lie ready at one worker, over TCP on this machine."""
    with ExitStack() as stack:
        via, servers = _service(stack, settings, "tcp")
        return _staged_figures(stack, settings, via, servers)


def wire_prepared(settings: Settings) -> Figures:
    """The same, with the worker's reading and collating."""
    with ExitStack() as stack:
        via, servers = _service(stack, settings, "tcp")
        loader = stack.enter_context(_arrays(settings, via=via))
        return _bytes_figures((_touched(batch) for batch in forever(loader)), settings, servers)


def wire_tfdata(settings: Settings) -> Figures:
    """Batches of the same size through one worker of tf.data service, which has one ready and sends it repeatedly."""
    from ._service_tfdata import batches

    with ExitStack() as stack:
        dispatcher = stack.enter_context(processes.tfdata("dispatcher"))
        worker = stack.enter_context(processes.tfdata("worker", dispatcher.address))
        shape = (settings["batch_size"], *settings["shape"])
        return _bytes_figures(batches(dispatcher.address, shape), settings, [dispatcher, worker])


def images_local(settings: Settings) -> Figures:
    """Photographs prepared in the job's own process."""
    with images(settings, num_workers=settings["threads"]) as loader:
        return image_figures(loader, settings, [])


def images_worker(settings: Settings) -> Figures:
    """The same through one worker on the same cores."""
    with ExitStack() as stack:
        via, servers = _service(stack, settings, "memory")
        loader = stack.enter_context(images(settings, via=via))
        return image_figures(loader, settings, servers)


def images_share(settings: Settings) -> Figures:
    """Jobs that read one preparation: what all of them receive together, in a second."""
    jobs = settings["jobs"]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="forebay-share-")))
        share = stack.enter_context(
            processes.share(folder / "share.sock", settings["threads"], settings["staging_bytes"])
        )
        told = json.dumps({**settings, "via": f"unix://{folder / 'share.sock'}"})
        before = share.cpu_seconds()
        started = [
            subprocess.Popen(
                [sys.executable, "-m", __spec__.name, "images_share_job", told, f"job-{number}"],
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(jobs)
        ]
        seen = []
        for job in started:
            output, _ = job.communicate(timeout=settings["seconds"] * 4 + 300)
            if job.returncode != 0:
                raise RuntimeError(f"a job that shares ended with code {job.returncode}")
            seen.append(json.loads(output.splitlines()[-1]))
        total = sum(figures["images_per_second"] for figures in seen)
        return {
            "images_per_second": total,
            "share_cpu_seconds": share.cpu_seconds() - before,
            "slowest_share": min(figures["images_per_second"] for figures in seen) * jobs / total,
        }


def images_share_job(settings: Settings, job: str) -> Figures:
    """One of the jobs that share."""
    with images(settings, via={"url": settings["via"], "job": job}) as loader:
        return image_figures(loader, settings, [])


def handover_memfd(settings: Settings) -> Figures:
    """Batches that lie ready in the process of this host, handed over as shared memory."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="forebay-share-")))
        share = stack.enter_context(
            processes.share(folder / "share.sock", settings["threads"], settings["staging_bytes"])
        )
        return _staged_figures(stack, settings, f"unix://{folder / 'share.sock'}", [share])


def _staged_figures(stack: ExitStack, settings: Settings, via: str, servers: list[Process]) -> Figures:
    """What a job receives that takes what lies staged, because another one with the same batches was ahead."""
    staged = settings["staged_batches"]
    ahead = stack.enter_context(_arrays(settings, via={"url": via, "job": "ahead"}))
    behind = stack.enter_context(_arrays(settings, via={"url": via, "job": "behind"}))
    late, early = forever(behind), forever(ahead)
    _touched(next(late))
    for _ in range(staged):
        _touched(next(early))
    # What the late job had asked for in advance is in its process already, and does not count.
    for _ in range(settings["first_batches"]):
        _touched(next(late))
    _wait_until_idle(servers)
    before, began = cpu_seconds() + sum(server.cpu_seconds() for server in servers), time.perf_counter()
    total = sum(_touched(next(late)) for _ in range(staged - settings["first_batches"] - 1))
    seconds = time.perf_counter() - began
    used = cpu_seconds() + sum(server.cpu_seconds() for server in servers) - before
    return {"bytes_per_second": total / seconds, "bytes_per_cpu_second": total / max(used, 1e-9)}


def _wait_until_idle(servers: list[Process]) -> None:
    """Waits until nothing is prepared ahead any more."""
    used, until = -1.0, time.monotonic() + 10
    while (now := sum(server.cpu_seconds() for server in servers)) > used + 0.02 and time.monotonic() < until:
        used = now
        time.sleep(0.3)


SUBJECTS: dict[str, Callable[[Settings], Figures]] = {
    subject.__name__: subject
    for subject in (
        *(wire_forebay, wire_prepared, wire_tfdata),
        *(images_local, images_worker, images_share, handover_memfd),
    )
}


def main() -> None:
    """Runs one subject and prints its figures."""
    subject, settings = sys.argv[1], json.loads(sys.argv[2])
    if subject == "images_share_job":
        print(json.dumps(images_share_job(settings, sys.argv[3])))
    else:
        print(json.dumps(SUBJECTS[subject](settings)))


if __name__ == "__main__":
    main()
