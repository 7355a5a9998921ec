"""Data of ``forebay bench formats``, by each format's own writer.

Run as ``python -m forebay.bench._formats_made FORMAT SETTINGS``, by the interpreter that has the library.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SHARDS = 8


def samples(settings: dict[str, Any]) -> Iterator[tuple[bytes, int]]:
    """Payloads that do not compress, and labels."""
    draw = random.Random(0)
    for at in range(settings["samples"]):
        yield draw.randbytes(settings["payload_bytes"]), at % 1000


def tfrecord(settings: dict[str, Any], folder: Path) -> None:
    """``tf.Example`` of bytes and an integer."""
    import tensorflow as tf

    writers = [tf.io.TFRecordWriter(str(folder / f"train-{shard:02}.tfrecord")) for shard in range(SHARDS)]
    for at, (payload, label) in enumerate(samples(settings)):
        features = {
            "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[payload])),
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
        }
        example = tf.train.Example(features=tf.train.Features(feature=features))
        writers[at * SHARDS // settings["samples"]].write(example.SerializeToString())
    for writer in writers:
        writer.close()


def parquet(settings: dict[str, Any], folder: Path) -> None:
    """Files with the row groups that pyarrow makes by itself."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    payloads, labels = zip(*samples(settings), strict=True)
    part = -(-settings["samples"] // SHARDS)
    for shard in range(SHARDS):
        rows = slice(shard * part, (shard + 1) * part)
        table = pa.table({"image": pa.array(payloads[rows], pa.binary()), "label": list(labels[rows])})
        pq.write_table(table, folder / f"train-{shard:02}.parquet")


def mds(settings: dict[str, Any], folder: Path) -> None:
    """Shards of the size that the library takes by itself."""
    from streaming import MDSWriter

    columns = {"image": "bytes", "label": "int"}
    with MDSWriter(columns=columns, out=str(folder), size_limit=1 << 24, exist_ok=True) as writer:
        for payload, label in samples(settings):
            writer.write({"image": payload, "label": label})


def litdata(settings: dict[str, Any], folder: Path) -> None:
    """Chunks by the writer that ``litdata.optimize`` runs in its processes. The payload is an array: rows of bytes and
    numbers alone would lie in Arrow tables, which are another format."""
    import numpy as np
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(str(folder), chunk_bytes=1 << 24)
    for at, (payload, label) in enumerate(samples(settings)):
        writer[at] = {"image": np.frombuffer(payload, np.uint8), "label": label}
    writer.done()
    writer.merge(1)


def tar(settings: dict[str, Any], folder: Path) -> None:
    """Tar shards."""
    import webdataset as wds

    part = -(-settings["samples"] // SHARDS)
    with wds.ShardWriter(str(folder / "train-%02d.tar"), maxcount=part, maxsize=1e12, verbose=0) as writer:
        for at, (payload, label) in enumerate(samples(settings)):
            writer.write({"__key__": f"{at:08}", "bin": payload, "cls": label})


WRITERS: dict[str, Callable[[dict[str, Any], Path], None]] = {
    writer.__name__: writer for writer in (tfrecord, parquet, mds, litdata, tar)
}


def main() -> None:
    """Writes one format."""
    settings = json.loads(sys.argv[2])
    folder = Path(settings["path"])
    folder.mkdir(parents=True, exist_ok=True)
    WRITERS[sys.argv[1]](settings, folder)


if __name__ == "__main__":
    main()
