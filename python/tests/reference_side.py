"""The other side of `test_references.py`: the libraries whose formats Forebay reads and writes, at work on files.

Run as `python reference_side.py WHAT FOLDER` by an interpreter that has the library. Writes datasets into folders below
FOLDER, or reads what lies in it, and prints what there is to say as one line of JSON, last. Nothing here knows Forebay.
The samples are made here, so that both sides have them.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

COUNT = 12
"""Samples of every dataset."""

CLASSES = ["cat", "dog", "eel"]

Said = Any


def sample(n: int) -> dict[str, Any]:
    """Bytes of any length, also none and many; a number below zero; text beyond ASCII, also none."""
    return {
        "bin": random.Random(n).randbytes(70_000 if n == 7 else n * 37),
        "cls": n * 40 - 5,
        "txt": f"sample {n} é 日" if n else "",
        "doc": {"n": n, "half": [n / 2, None, "ü"]},
        "score": n / 4,
        "vector": [float(n), n / 8, -1.5],
        "tokens": list(range(n % 5)),
        "pixels": [[[n, 20, column] for column in range(4)] for _ in range(3)],
    }


def samples() -> list[dict[str, Any]]:
    """All of them."""
    return [sample(n) for n in range(COUNT)]


def key(n: int) -> str:
    """What a sample is called in tars of WebDataset."""
    return f"part{n % 2}/{n:06d}"


def _array(sample: dict[str, Any]) -> Any:
    import numpy as np

    return np.array(sample["vector"], np.float32)


def _picture(sample: dict[str, Any]) -> Any:
    import numpy as np
    from PIL import Image

    return Image.fromarray(np.array(sample["pixels"], np.uint8))


def write_webdataset(folder: Path) -> Said:
    """Shards, one tar, one that is compressed, and names that need pax."""
    import webdataset as wds

    def encoded(n: int) -> dict[str, Any]:
        made = sample(n)
        fields = {"bin": made["bin"], "cls": made["cls"], "txt": made["txt"], "json": made["doc"]}
        return {"__key__": key(n), **fields, "npy": _array(made), "seg.png": _picture(made)}

    for name in ("shards", "one", "gz", "pax"):
        (folder / name).mkdir()
    with wds.ShardWriter(str(folder / "shards/s-%03d.tar"), maxcount=5, verbose=0) as writer:
        for n in range(COUNT):
            writer.write(encoded(n))
    for file, settings in {"one/a.tar": {}, "gz/a.tar.gz": {}, "pax/a.tar": {"format": "PAX_FORMAT"}}.items():
        with wds.TarWriter(str(folder / file), **settings) as writer:
            for n in range(COUNT):
                prefix = "long/" * 40 if settings else ""
                writer.write({**encoded(n), "__key__": prefix + key(n)})
    return None


def read_webdataset(folder: Path) -> Said:
    """Every sample of the tars in each folder: its key, and its fields in hex."""
    import webdataset as wds

    def row(found: dict[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in found.items() if name not in ("__url__", "__local_path__")}
        return {name: value.hex() if isinstance(value, bytes) else value for name, value in kept.items()}

    said = {}
    for inside in folder.iterdir():
        tars = sorted(str(path) for path in inside.glob("*.tar"))
        said[inside.name] = [
            row(found) for found in wds.WebDataset(tars, shardshuffle=False, empty_check=False)
        ]
    return said


def _example(made: dict[str, Any]) -> bytes:
    import tensorflow as tf

    texts = lambda value: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))  # noqa: E731
    numbers = lambda value: tf.train.Feature(int64_list=tf.train.Int64List(value=value))  # noqa: E731
    floats = lambda value: tf.train.Feature(float_list=tf.train.FloatList(value=value))  # noqa: E731
    features = {
        "image/encoded": texts(made["bin"]),
        "image/class/label": numbers([made["cls"]]),
        "caption": texts(made["txt"].encode()),
        "vector": floats(made["vector"]),
        "tokens": numbers([*made["tokens"], -1]),
        "none": numbers([]),
    }
    serialized: bytes = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
    return serialized


def write_tensorflow(folder: Path) -> Said:
    """Files as they are and compressed, and one of records that are no examples. Says the records in hex."""
    import tensorflow as tf

    records = [_example(made) for made in samples()]
    for name, compression in {"plain": "", "gzip": "GZIP"}.items():
        (folder / name).mkdir()
        for shard in range(2):
            ending = ".gz" if compression else ""
            path = folder / name / f"train-{shard}.tfrecord{ending}"
            with tf.io.TFRecordWriter(str(path), compression) as writer:
                for record in records[shard * COUNT // 2 : (shard + 1) * COUNT // 2]:
                    writer.write(record)
    (folder / "bare").mkdir()
    with tf.io.TFRecordWriter(str(folder / "bare/a.tfrecord")) as writer:
        for made in samples():
            writer.write(made["bin"])
    return [record.hex() for record in records]


def read_tensorflow(folder: Path) -> Said:
    """Every record of each folder, whose checksums are compared: features by name, bytes in hex.

    `kinds.json` beside the files says which features there are, and whether they are `int` or `bytes`.
    """
    import tensorflow as tf

    types = {"int": tf.int64, "bytes": tf.string}

    def rows(inside: Path) -> list[dict[str, Any]]:
        kinds = json.loads((inside / "kinds.json").read_text())
        wanted = {name: tf.io.FixedLenFeature([], types[kind]) for name, kind in kinds.items()}
        files = sorted(str(path) for path in inside.glob("*.tfrecord*"))
        compression = "GZIP" if files[0].endswith(".gz") else ""
        found = []
        for record in tf.data.TFRecordDataset(files, compression_type=compression):
            example = tf.io.parse_single_example(record, wanted)
            values = {name: value.numpy() for name, value in example.items()}
            found.append({name: int(v) if kinds[name] == "int" else v.hex() for name, v in values.items()})
        return found

    return {inside.name: rows(inside) for inside in folder.iterdir()}


def write_streaming(folder: Path) -> Said:
    """MDS with every compression that the library has."""
    from streaming import MDSWriter

    columns = {
        "bin": "bytes",
        "cls": "int",
        "txt": "str",
        "doc": "json",
        "score": "float32",
        "vector": "ndarray:float32",
        "png": "png",
        "pixels": "pil",
    }
    for compression in (None, "zstd:7", "gz", "br:3", "bz2", "snappy"):
        name = "plain" if compression is None else compression.partition(":")[0]
        hashes = ["sha1", "xxh128", "xxh64"]
        with MDSWriter(
            columns=columns, out=str(folder / name), compression=compression, hashes=hashes, size_limit=40_000
        ) as writer:
            for made in samples():
                picture = _picture(made)
                row = {name: made[name] for name in ("bin", "cls", "txt", "doc", "score")}
                writer.write({**row, "vector": _array(made), "png": picture, "pixels": picture})
    return None


def _item(n: int) -> dict[str, Any]:
    """A sample as LitData takes it, made in one of its processes."""
    import numpy as np

    made = sample(n)
    inner = {"score": made["score"], "caption": made["txt"], "good": n % 2 == 0}
    tokens = np.array([*made["tokens"], -1], np.int32)
    return {
        "bin": made["bin"],
        "cls": made["cls"],
        "inner": inner,
        "tokens": tokens,
        "pixels": _picture(made),
    }


def write_litdata(folder: Path) -> Said:
    """Chunks by `optimize` and by the writer below it. Says in which order LitData's own reader has them."""
    import litdata
    from litdata.streaming.writer import BinaryWriter

    ways: dict[str, dict[str, Any]] = {
        "count": {"chunk_size": 5},
        "bytes": {"chunk_bytes": 20_000},
        "zstd": {"chunk_size": 5, "compression": "zstd", "compression_level": "chunk"},
    }
    for name, how in ways.items():
        litdata.optimize(
            fn=_item,
            inputs=list(range(COUNT)),
            output_dir=str(folder / name),
            num_workers=1,
            verbose=False,
            **how,
        )
    for name, how in {"writer": {}, "items": {"compression": "zstd"}}.items():
        writer = BinaryWriter(str(folder / name), chunk_size=5, **how)
        for n in range(COUNT):
            writer[n] = _item(n)
        writer.done()
        writer.merge(1)
    # Its reader expands chunks where they lie, so it is given copies.
    copies = shutil.copytree(folder, folder.parent / "copies")
    ordered = {
        name: litdata.StreamingDataset(str(copies / name), shuffle=False) for name in (*ways, "writer")
    }
    return {name: [int(row["cls"]) for row in data] for name, data in ordered.items()}


def write_datasets(folder: Path) -> Said:
    """Parquet as `datasets` writes images, classes, sequences and holes. Says the bytes of the images in hex."""
    import io

    from datasets import ClassLabel, Dataset, Features, Image, Sequence, Value

    def png(made: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        _picture(made).save(out, "PNG")
        return out.getvalue()

    features = Features(
        {
            "image": Image(),
            "label": ClassLabel(names=CLASSES),
            "vector": Sequence(Value("float32"), length=3),
            "tokens": Sequence(Value("int32")),
            "caption": Value("string"),
            "cls": Value("int64"),
            "good": Value("bool"),
            "score": Value("float64"),
        }
    )
    rows = [
        {
            "image": {"bytes": png(made), "path": f"{n}.png"},
            "label": n % len(CLASSES),
            "vector": made["vector"],
            "tokens": made["tokens"],
            "caption": None if n % 4 == 3 else made["txt"],
            "cls": made["cls"],
            "good": n % 2 == 0,
            "score": made["score"],
        }
        for n, made in enumerate(samples())
    ]
    data = Dataset.from_list(rows, features=features)
    for shard in range(2):
        part = data.shard(num_shards=2, index=shard, contiguous=True)
        part.to_parquet(folder / f"train-{shard:05d}-of-00002.parquet", batch_size=4)
    return [row["image"]["bytes"].hex() for row in rows]


def write_pyarrow(folder: Path) -> Said:
    """Parquet with each compression and both forms of pages."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    made = samples()
    columns = {
        "bin": pa.array([row["bin"] for row in made], pa.binary()),
        "cls": pa.array([row["cls"] for row in made], pa.int32()),
        "txt": pa.array([row["txt"] or None for row in made], pa.string()),
        "score": pa.array([row["score"] for row in made], pa.float32()),
        "vector": pa.array([row["vector"] for row in made], pa.list_(pa.float32())),
        "tokens": pa.array([row["tokens"] for row in made], pa.list_(pa.int64())),
        "doc": pa.array([{"n": n, "name": str(n)} for n in range(COUNT)]),
        "large": pa.array([row["txt"] for row in made], pa.large_string()),
        "words": pa.array([f"word {n % 3}" for n in range(COUNT)]).dictionary_encode(),
    }
    for compression in ("none", "snappy", "gzip", "zstd", "lz4"):
        for version in ("1.0", "2.0"):
            target = folder / f"{compression}-{version[0]}"
            target.mkdir()
            how = {"compression": compression, "data_page_version": version, "row_group_size": 5}
            pq.write_table(pa.table(columns), target / "train.parquet", data_page_size=100, **how)
    return None


WHAT: dict[str, Callable[[Path], Said]] = {
    act.__name__: act
    for act in (
        write_webdataset,
        read_webdataset,
        write_tensorflow,
        read_tensorflow,
        write_streaming,
        write_litdata,
        write_datasets,
        write_pyarrow,
    )
}


if __name__ == "__main__":
    said = WHAT[sys.argv[1]](Path(sys.argv[2]))
    print(json.dumps(said), flush=True)
