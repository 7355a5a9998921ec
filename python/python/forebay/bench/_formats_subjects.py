"""Subjects of ``forebay bench formats``, one a process: ``python -m forebay.bench._formats_subjects SUBJECT SETTINGS``.

Each gives the payloads that it brought as ``bytes``, and labels, batch by batch or one by one, for as many epochs as
asked. The first of them is not measured, so that neither are imports, indexes and starting threads.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from . import _functions

Settings = dict[str, Any]


def _taken(payloads: Sequence[Any], labels: Sequence[int]) -> int:
    """Looks at every payload and label, as a loop would; returns how many there were."""
    if sum(map(len, payloads)) == 0 or len(labels) != len(payloads):
        raise ValueError("a payload or a label is missing")
    return len(payloads)


def _forebay(
    settings: Settings, spec: str, image: str, label: str, *, as_array: bool = False
) -> Iterator[int]:
    import forebay as fb

    data = fb.open(spec, manifest_dir=settings["path_manifests"])
    recipe = [fb.npy(image) if as_array else fb.raw(image), fb.label(label)]
    with fb.Loader(
        data, recipe, batch_size=settings["batch_size"], num_workers=settings["threads"]
    ) as loader:
        for _ in range(settings["epochs"]):
            for batch in loader:
                yield _taken(batch[image], batch[label])


def forebay_tfrecord(settings: Settings) -> Iterator[int]:
    """Features by name, both checksums compared."""
    return _forebay(settings, f"{settings['path_tfrecord']}/*.tfrecord", "image", "label")


def forebay_parquet(settings: Settings) -> Iterator[int]:
    """Columns by name."""
    return _forebay(settings, f"{settings['path_parquet']}/*.parquet", "image", "label")


def forebay_mds(settings: Settings) -> Iterator[int]:
    """Columns by name."""
    return _forebay(settings, settings["path_mds"], "image", "label")


def forebay_litdata(settings: Settings) -> Iterator[int]:
    """Leaves by name; the payload is an array, on both sides."""
    return _forebay(settings, settings["path_litdata"], "image", "label", as_array=True)


def forebay_tar(settings: Settings) -> Iterator[int]:
    """Members by their ending."""
    return _forebay(settings, f"{settings['path_tar']}/*.tar", "bin", "cls")


def tfdata_tfrecord(settings: Settings) -> Iterator[int]:
    """The pipeline of TensorFlow's guide: batches parsed at once, files and parsing in parallel, read ahead."""
    import tensorflow as tf

    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    files = sorted(str(path) for path in Path(settings["path_tfrecord"]).glob("*.tfrecord"))
    data = tf.data.TFRecordDataset(files, num_parallel_reads=tf.data.AUTOTUNE)
    data = data.batch(settings["batch_size"])
    data = data.map(lambda batch: tf.io.parse_example(batch, features), tf.data.AUTOTUNE)
    data = data.prefetch(tf.data.AUTOTUNE)
    for _ in range(settings["epochs"]):
        for batch in data.as_numpy_iterator():
            yield _taken(batch["image"], batch["label"])


def pyarrow_parquet(settings: Settings) -> Iterator[int]:
    """Rows of batches, as Python values."""
    import pyarrow.parquet as pq

    for _ in range(settings["epochs"]):
        for path in sorted(Path(settings["path_parquet"]).glob("*.parquet")):
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(settings["batch_size"]):
                    yield _taken(batch.column("image").to_pylist(), batch.column("label").to_pylist())


def streaming_mds(settings: Settings) -> Iterator[int]:
    """Samples of a ``StreamingDataset`` in this process."""
    from streaming import StreamingDataset

    data = StreamingDataset(local=settings["path_mds"], shuffle=False, batch_size=settings["batch_size"])
    for _ in range(settings["epochs"]):
        for sample in data:
            yield _taken((sample["image"],), (sample["label"],))


def litdata_litdata(settings: Settings) -> Iterator[int]:
    """Samples of a ``StreamingDataset`` in this process."""
    from litdata import StreamingDataset

    data = StreamingDataset(settings["path_litdata"], shuffle=False)
    for _ in range(settings["epochs"]):
        for sample in data:
            yield _taken((sample["image"],), (sample["label"],))


def webdataset_tar(settings: Settings) -> Iterator[int]:
    """Samples of a ``WebDataset`` in this process."""
    import webdataset as wds

    urls = sorted(str(path) for path in Path(settings["path_tar"]).glob("*.tar"))
    for _ in range(settings["epochs"]):
        for sample in wds.WebDataset(urls, shardshuffle=False):
            yield _taken((sample["bin"],), (int(sample["cls"]),))


def forebay_function(settings: Settings) -> Iterator[int]:
    """A recipe that calls a Python function."""
    return _functions.forebay(settings)


def thread_pool(settings: Settings) -> Iterator[int]:
    """Threads that call the same function and do nothing else."""
    return _functions.thread_pool(settings)


SUBJECTS: dict[str, Callable[[Settings], Iterator[int]]] = {
    subject.__name__: subject
    for subject in (
        forebay_tfrecord,
        forebay_parquet,
        forebay_mds,
        forebay_litdata,
        forebay_tar,
        tfdata_tfrecord,
        pyarrow_parquet,
        streaming_mds,
        litdata_litdata,
        webdataset_tar,
        forebay_function,
        thread_pool,
    )
}


def _cpu_seconds() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def main() -> None:
    """Runs one subject and prints its figures."""
    run = SUBJECTS[sys.argv[1]](json.loads(sys.argv[2]))
    next(run)
    began, processor = time.perf_counter(), _cpu_seconds()
    samples = sum(run)
    seconds, used = time.perf_counter() - began, _cpu_seconds() - processor
    print(json.dumps({"samples_per_second": samples / seconds, "cpu_seconds_per_sample": used / samples}))


if __name__ == "__main__":
    main()
