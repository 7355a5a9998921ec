"""The clients of ``forebay bench wan``, one a process: ``python -m forebay.bench._wan_clients CLIENT SETTINGS``.

Each reads for a given time and prints one JSON object: when how many payload bytes had arrived, and what they cost this
process and its children. Imports are not counted; opening the dataset is timed apart.
"""

from __future__ import annotations

import collections
import importlib
import itertools
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

Settings = dict[str, Any]
Reading = Iterator[tuple[int, int]]
"""Samples and payload bytes, as they come."""

THREADS = 64


def forebay(settings: Settings) -> Callable[[], Reading]:
    """Forebay without a knob: objects, shards or rows, by what the settings name."""
    import forebay as fb

    options: dict[str, Any] = {"manifest_dir": settings["path_manifests"]}
    for name in ("storage_options", "extensions"):
        if name in settings:
            options[name] = settings[name]
    data = fb.open(settings["spec"], **options)
    order: dict[str, Any] = {"in_order": False} if settings.get("arrival") else {}

    def run() -> Reading:
        if settings.get("decode"):
            recipe = [fb.image("jpg").random_resized_crop(224).flip().normalize(fb.IMAGENET)]
            with fb.Loader(data, recipe, batch_size=settings["batch_size"], shuffle=True, **order) as loader:
                while True:
                    for batch in loader:
                        yield len(batch.ids), len(batch.ids) * settings["sample_bytes"]
        field = next((name for name in ("bin", "data") if name in data.fields), data.fields[0])
        with fb.Loader(data, [fb.raw(field)], batch_size=settings["batch_size"], **order) as loader:
            while True:
                for batch in loader:
                    payloads = batch[field] if settings.get("as_bytes") else batch[field].views()
                    yield len(batch.ids), sum(map(len, payloads))

    return run


def forebay_bytes(settings: Settings) -> Callable[[], Reading]:
    """The same, with each payload made a ``bytes``, as the others make them."""
    return forebay({**settings, "as_bytes": True})


def _keys(settings: Settings) -> Iterator[str]:
    count = settings["objects"]
    digits = max(6, len(str(count)))
    return itertools.cycle(f"o/{n:0{digits}}.bin" for n in range(count))


def _pooled(fetch: Callable[[str], int], keys: Iterator[str]) -> Reading:
    """What a careful user writes by hand: 64 threads, twice as many requests under way or waiting."""
    with ThreadPoolExecutor(THREADS) as pool:
        window: collections.deque[Future[int]] = collections.deque()
        try:
            for key in keys:
                window.append(pool.submit(fetch, key))
                if len(window) == 2 * THREADS:
                    yield 1, window.popleft().result()
        finally:
            for waiting in window:
                waiting.cancel()


def http_client_pool(settings: Settings) -> Callable[[], Reading]:
    """64 threads with a connection of the standard library each."""
    import http.client
    import threading

    host, own = settings["host"], threading.local()

    def fetch(key: str) -> int:
        if not hasattr(own, "connection"):
            own.connection = http.client.HTTPConnection(host)
        own.connection.request("GET", f"/bucket/{key}")
        return len(own.connection.getresponse().read())

    return lambda: _pooled(fetch, _keys(settings))


def urllib3_pool(settings: Settings) -> Callable[[], Reading]:
    """64 threads over one pool of urllib3."""
    import urllib3

    pool = urllib3.PoolManager(maxsize=THREADS, block=True)
    url = f"http://{settings['host']}/bucket/"
    return lambda: _pooled(lambda key: len(pool.request("GET", url + key).data), _keys(settings))


def boto3_pool(settings: Settings) -> Callable[[], Reading]:
    """64 threads over one client of boto3."""
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    config = Config(signature_version=UNSIGNED, s3={"addressing_style": "path"}, max_pool_connections=THREADS)
    client = boto3.client(
        "s3", endpoint_url=f"http://{settings['host']}", region_name="us-east-1", config=config
    )

    def fetch(key: str) -> int:
        return len(client.get_object(Bucket="bucket", Key=key)["Body"].read())

    return lambda: _pooled(fetch, _keys(settings))


def s3torchconnector(settings: Settings) -> Callable[[], Reading]:
    """Amazon's connector under a DataLoader with 8 processes."""
    from s3torchconnector import S3ClientConfig, S3MapDataset
    from torch.utils.data import DataLoader

    data = S3MapDataset.from_prefix(
        "s3://bucket/o/",
        region="us-east-1",
        endpoint=f"http://{settings['host']}",
        transform=_read_all,
        s3client_config=S3ClientConfig(unsigned=True, force_path_style=True),
    )
    len(data)  # Lists the keys now, once, instead of in every process.
    return lambda: _batches(
        DataLoader(data, settings["batch_size"], num_workers=8, collate_fn=list, persistent_workers=True)
    )


def webdataset(settings: Settings) -> Callable[[], Reading]:
    """WebDataset over HTTP (it runs curl for each shard) under a DataLoader with 4 processes."""
    import webdataset as wds
    from torch.utils.data import DataLoader

    urls = [f"http://{settings['host']}/train-{n:03}.tar" for n in range(settings["shards"])]
    data = wds.WebDataset(urls, shardshuffle=False).map(_payload)
    return lambda: _batches(
        DataLoader(data, settings["batch_size"], num_workers=4, collate_fn=list, persistent_workers=True)
    )


def streaming(settings: Settings) -> Callable[[], Reading]:
    """MosaicML Streaming: shards to a local folder, then samples from there. One pass; a second would be local."""
    os.environ.update(
        S3_ENDPOINT_URL=f"http://{settings['host']}",
        AWS_ACCESS_KEY_ID="bench",
        AWS_SECRET_ACCESS_KEY="bench",
        AWS_DEFAULT_REGION="us-east-1",
    )
    from streaming import StreamingDataset

    def run() -> Reading:
        with tempfile.TemporaryDirectory(prefix="forebay-bench-mds-") as local:
            data = StreamingDataset(
                remote="s3://bucket/mds", local=local, shuffle=False, batch_size=settings["batch_size"]
            )
            for sample in data:
                yield 1, len(sample["bin"])

    return run


def cassandra_driver(settings: Settings) -> Callable[[], Reading]:
    """The Python driver with prepared reads, 128 under way."""
    from cassandra.cluster import Cluster

    host, port = settings["host"].rsplit(":", 1)
    session = Cluster([host], port=int(port)).connect(settings["keyspace"])
    ids = [row[0] for row in session.execute(f"SELECT id FROM {settings['table']}")]
    select = session.prepare(f"SELECT data FROM {settings['table']} WHERE id = ?")

    def run() -> Reading:
        window: collections.deque[Any] = collections.deque()
        for sample_id in itertools.cycle(ids):
            window.append(session.execute_async(select, (sample_id,)))
            if len(window) == 128:
                yield 1, len(window.popleft().result().one()[0])

    return run


def _read_all(opened: Any) -> bytes:
    return bytes(opened.read())


def _payload(sample: dict[str, Any]) -> bytes:
    return bytes(sample["bin"])


def _batches(loader: Any) -> Reading:
    while True:
        for batch in loader:
            yield len(batch), sum(map(len, batch))


CLIENTS = {
    client.__name__: client
    for client in (
        forebay,
        forebay_bytes,
        http_client_pool,
        urllib3_pool,
        boto3_pool,
        s3torchconnector,
        webdataset,
        streaming,
        cassandra_driver,
    )
}

NEEDS = {
    "forebay": ("forebay",),
    "forebay_bytes": ("forebay",),
    "urllib3_pool": ("urllib3",),
    "boto3_pool": ("boto3",),
    "s3torchconnector": ("s3torchconnector", "torch"),
    "webdataset": ("webdataset", "torch"),
    "streaming": ("streaming",),
    "cassandra_driver": ("cassandra",),
}
"""Modules that a client imports; without them it is left out, by name."""


def cpu_seconds() -> float:
    """Of this process and of its children, those that ended and those that still run."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    return ended + sum(_running_seconds(child) for child in _children(os.getpid()))


def _children(pid: int) -> list[int]:
    try:
        tasks = [task / "children" for task in Path(f"/proc/{pid}/task").iterdir()]
        return [int(child) for task in tasks for child in task.read_text().split()]
    except OSError:
        return []  # It ended while it was looked at.


def _running_seconds(pid: int) -> float:
    """Of a process, the children it has waited for, and those that still run."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    used = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return used + sum(_running_seconds(child) for child in _children(pid))


def memory_bytes(name: str) -> int:
    """A line of ``/proc/self/status``, such as ``VmHWM``."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def forget_peak() -> None:
    """Begins the peak of memory anew, where the kernel lets us; a peak from the imports would hide growth."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def main() -> None:
    """Runs one client and prints what it saw, or why it could not."""
    try:
        figures = measure(sys.argv[1], json.loads(sys.argv[2]))
    except Exception as fault:
        figures = {"error": f"{type(fault).__name__}: {str(fault).strip()}"}
    print(json.dumps(figures), flush=True)
    # Threads of a pool may still wait for a slow answer, and nobody needs it any more.
    os._exit(0)


def measure(client: str, settings: Settings) -> dict[str, Any]:
    """Reads with one client for the time given."""
    for module in NEEDS.get(client, ()):
        importlib.import_module(module)
    opened = time.perf_counter()
    run = CLIENTS[client](settings)
    open_seconds = time.perf_counter() - opened
    forget_peak()
    resident, cpu = memory_bytes("VmRSS"), cpu_seconds()
    began, began_unix = time.perf_counter(), time.time()
    marks: list[tuple[float, int]] = []
    samples = payload_bytes = 0
    reading = run()
    for count, amount in reading:
        samples, payload_bytes = samples + count, payload_bytes + amount
        at = time.perf_counter() - began
        if not marks or at - marks[-1][0] >= 0.01:
            marks.append((at, payload_bytes))
        # From the first payload on, so that clients that start processes first get their time too.
        if at >= marks[0][0] + settings["seconds"]:
            break
    ended = time.perf_counter() - began
    peak, cpu = memory_bytes("VmHWM") - resident, cpu_seconds() - cpu
    reading.close()  # type: ignore[attr-defined]  # they are all generators
    return {
        "began_unix_seconds": began_unix,
        "seconds": ended,
        "open_seconds": open_seconds,
        "samples": samples,
        "payload_bytes": payload_bytes,
        "marks": marks,
        "cpu_seconds": cpu,
        "memory_growth_bytes": peak,
    }


if __name__ == "__main__":
    main()
