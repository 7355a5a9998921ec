"""Files cross between Forebay and the libraries of their formats, both ways: what one writes, the other reads.

The library runs in a process of its own (`reference_side.py`), by this interpreter when it has the library, else by
that of `.venv-peers`, or by the one that `FOREBAY_BENCH_PEERS` names. `make test-references` installs them all.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forebay as fb
import made
import numpy as np
import pytest
import reference_side as side
from forebay.bench import _peers
from test_cli import forebay

pytestmark = pytest.mark.timeout(300)

# Settings from outside are gone once a test runs.
BESIDE = _peers.beside()

Write = Callable[[str], tuple[Path, Any]]


@functools.cache
def interpreter(module: str) -> str | None:
    """An interpreter that has a library."""
    if importlib.util.find_spec(module) is not None:
        return sys.executable
    find = f"import importlib.util, sys; sys.exit(importlib.util.find_spec('{module}') is None)"
    if BESIDE is not None and subprocess.run([BESIDE, "-c", find], capture_output=True).returncode == 0:
        return str(BESIDE)
    return None


def reference(module: str, what: str, folder: Path) -> Any:
    """What the library says after it wrote into, or read, a folder."""
    python = interpreter(module)
    if python is None:
        pytest.skip(f"`{module}` is not installed here, nor beside: `make test-references` installs it")
    quiet = {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
    }
    done = subprocess.run(
        [python, "-W", "ignore", side.__file__, what, str(folder)],
        env={**os.environ, **quiet, "HF_HOME": str(folder.parent / "hf"), "HOME": str(folder.parent)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Write:
    """What each library wrote, once for all tests, and what it said."""

    @functools.cache
    def write(module: str) -> tuple[Path, Any]:
        folder = tmp_path_factory.mktemp(module) / "data"
        folder.mkdir()
        return folder, reference(module, f"write_{module}", folder)

    return write


def rows(data: fb.Dataset, recipe: list[Any]) -> list[dict[str, Any]]:
    """Every sample as a loader brings it, by id, from a shuffled epoch."""
    found: dict[int, dict[str, Any]] = {}
    with fb.Loader(data, recipe, batch_size=5, shuffle=True, seed=3) as loader:
        for batch in loader:
            for row, sample_id in enumerate(batch.ids):
                assert int(sample_id) not in found
                found[int(sample_id)] = {name: column[row] for name, column in batch.items()}
    assert sorted(found) == list(range(len(data)))
    return [found[sample_id] for sample_id in range(len(data))]


def verified(spec: Path | str) -> None:
    """`forebay verify` finds nothing in it."""
    done = forebay("verify", str(spec), "--json")
    assert done.returncode == 0, done.stdout + done.stderr


SAMPLES = side.samples()
PICTURE = fb.image("png").layout("hwc")
VECTOR = fb.npy("vector", shape=(3,), dtype="f32")


def same(row: dict[str, Any], sample: dict[str, Any], **names: str) -> None:
    """Columns hold what the sample does, under the names that the sample has for them."""
    for column, name in names.items():
        value, wanted = row[column], sample[name]
        if isinstance(wanted, bytes):
            value = bytes(value)
        elif isinstance(wanted, list):
            value, wanted = np.asarray(value).tolist(), np.asarray(wanted).tolist()
        assert value == wanted, column


@pytest.mark.parametrize("name", ["shards", "one", "gz", "pax"])
def test_tars_of_webdataset_are_read_as_it_wrote_them(written: Write, name: str) -> None:
    folder, _ = written("webdataset")
    data = fb.open(folder / name)
    prefix = "long/" * 40 if name == "pax" else ""
    assert [data.key(n) for n in range(len(data))] == [prefix + side.key(n) for n in range(side.COUNT)]
    recipe = [
        *(fb.raw("bin"), fb.label("cls"), fb.text("txt"), fb.json("json")),
        *(fb.npy("npy"), fb.image("seg.png").layout("hwc")),
    ]
    for row, sample in zip(rows(data, recipe), SAMPLES, strict=True):
        same(row, sample, bin="bin", cls="cls", txt="txt", json="doc", npy="vector", **{"seg.png": "pixels"})
    verified(folder / name)


def stored(folder: Path) -> str:
    """The samples as tars that neither library wrote."""
    fields = [
        {
            **{"bin": sample["bin"], "cls": str(sample["cls"]).encode()},
            **{"txt": sample["txt"].encode(), "json": json.dumps(sample["doc"]).encode()},
        }
        for sample in SAMPLES
    ]
    return made.write_shards(folder, fields, shards=3)


def same_fields(row: dict[str, Any], sample: dict[str, Any]) -> None:
    """What a library read of one of the stored samples is what that holds."""
    assert set(row) == {"__key__", "bin", "cls", "txt", "json"}
    assert bytes.fromhex(row["bin"]) == sample["bin"]
    assert bytes.fromhex(row["cls"]) == str(sample["cls"]).encode()
    assert bytes.fromhex(row["txt"]) == sample["txt"].encode()
    assert json.loads(bytes.fromhex(row["json"])) == sample["doc"]


TARS = {
    "packed": ("pack",),
    "packed and shuffled": ("pack", "--shuffle", "--seed", "4"),
    "converted": ("convert", "--to", "tar"),
    "resharded": ("reshard", "--order", "shuffled", "--seed", "5"),
}


def write(command: tuple[str, ...], spec: str, out: Path) -> None:
    name, *flags = command
    done = forebay(name, spec, str(out), *flags, "--max-count", "5")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def tars(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Tars that Forebay wrote, by folder, and what WebDataset reads of them."""
    folder = tmp_path_factory.mktemp("tars")
    tree = made.write_tree(folder / "tree", classes=3, each=4)
    write(("pack",), str(tree), folder / "out/images")
    for name, command in TARS.items():
        write(command, stored(folder / "in"), folder / "out" / name)
    return folder, reference("webdataset", "read_webdataset", folder / "out")


@pytest.mark.parametrize("name", TARS)
def test_tars_of_ours_are_read_by_webdataset(tars: tuple[Path, Any], name: str) -> None:
    folder, found = tars
    data, keys = fb.open(folder / "out" / name), [row["__key__"] for row in found[name]]
    assert keys == [data.key(n) for n in range(len(data))]
    assert sorted(keys) == [f"{n:06d}" for n in range(side.COUNT)]
    assert (keys == sorted(keys)) == (name in ("packed", "converted"))
    for key, row in zip(keys, found[name], strict=True):
        same_fields(row, SAMPLES[int(key)])


def test_images_of_a_folder_are_packed_for_webdataset(tars: tuple[Path, Any]) -> None:
    folder, found = tars
    files = sorted((folder / "tree").glob("*/*.jpg"))
    assert [row["__key__"] for row in found["images"]] == [
        f"{path.parent.name}/{path.stem}" for path in files
    ]
    for row, path in zip(found["images"], files, strict=True):
        assert bytes.fromhex(row["jpg"]) == path.read_bytes()
        assert bytes.fromhex(row["cls"]) == path.parent.name.removeprefix("class").encode()


@pytest.mark.parametrize("name", ["plain", "gzip"])
def test_records_of_tensorflow_are_read_as_it_wrote_them(written: Write, name: str) -> None:
    folder, records = written("tensorflow")
    data = fb.open(folder / name)
    recipe = [
        *(fb.raw("image/encoded"), fb.label("image/class/label"), fb.text("caption")),
        *(VECTOR, fb.tokens("tokens"), fb.raw("record")),
    ]
    for n, (row, sample) in enumerate(zip(rows(data, recipe), SAMPLES, strict=True)):
        wanted = {**sample, "tokens": [*sample["tokens"], -1], "record": bytes.fromhex(records[n])}
        same(row, wanted, caption="txt", vector="vector", tokens="tokens", record="record")
        same(row, wanted, **{"image/encoded": "bin", "image/class/label": "cls"})
    verified(folder / name)


def test_records_of_tensorflow_that_are_no_examples_are_their_bytes(written: Write) -> None:
    folder, _ = written("tensorflow")
    data = fb.open(folder / "bare")
    for row, sample in zip(rows(data, [fb.raw("record")]), SAMPLES, strict=True):
        same(row, sample, record="bin")


RECORDS = {
    "converted": ("convert", "--to", "tfrecord"),
    "converted and compressed": ("convert", "--to", "tfrecord-gz"),
    "resharded": ("reshard", "--format", "tfrecord", "--order", "shuffled", "--seed", "5"),
    "resharded and compressed": ("reshard", "--format", "tfrecord-gz", "--order", "shuffled", "--seed", "5"),
}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What TensorFlow reads of files that Forebay wrote, by folder."""
    folder = tmp_path_factory.mktemp("records")
    kinds = dict.fromkeys(("__key__", "bin", "cls", "txt", "json"), "bytes")
    for name, command in RECORDS.items():
        write(command, stored(folder / "in"), folder / "out" / name)
        (folder / "out" / name / "kinds.json").write_text(json.dumps(kinds))
    lines = [json.dumps({"cls": sample["cls"], "txt": sample["txt"]}) for sample in SAMPLES]
    (folder / "lines.jsonl").write_text("\n".join(lines))
    write(("convert", "--to", "tfrecord"), str(folder / "lines.jsonl"), folder / "out/lines")
    (folder / "out/lines/kinds.json").write_text(json.dumps({"cls": "int", "txt": "bytes"}))
    return reference("tensorflow", "read_tensorflow", folder / "out")


@pytest.mark.parametrize("name", RECORDS)
def test_records_of_ours_are_read_by_tensorflow(records: Any, name: str) -> None:
    keys = [bytes.fromhex(row["__key__"]).decode() for row in records[name]]
    assert sorted(keys) == [f"{n:06d}" for n in range(side.COUNT)]
    assert (keys == sorted(keys)) == name.startswith("converted")
    for key, row in zip(keys, records[name], strict=True):
        same_fields(row, SAMPLES[int(key)])


def test_numbers_of_ours_are_numbers_to_tensorflow(records: Any) -> None:
    assert [row["cls"] for row in records["lines"]] == [sample["cls"] for sample in SAMPLES]
    assert [bytes.fromhex(row["txt"]).decode() for row in records["lines"]] == [s["txt"] for s in SAMPLES]


@pytest.mark.parametrize("name", ["plain", "zstd", "gz"])
def test_mds_is_read_as_its_library_wrote_it(written: Write, name: str) -> None:
    folder, _ = written("streaming")
    data = fb.open(folder / name)
    assert data.kind == "mds"
    recipe = [
        *(fb.raw("bin"), fb.label("cls"), fb.text("txt"), fb.json("doc"), VECTOR, PICTURE),
        *(fb.npy("score", shape=(1,), dtype="f32"), fb.image("pixels").layout("hwc")),
    ]
    for row, sample in zip(rows(data, recipe), SAMPLES, strict=True):
        same(
            row,
            sample,
            bin="bin",
            cls="cls",
            txt="txt",
            doc="doc",
            vector="vector",
            png="pixels",
            pixels="pixels",
        )
        assert row["score"].tolist() == [sample["score"]]
    verified(folder / name)


@pytest.mark.parametrize("name", ["br", "bz2", "snappy"])
def test_mds_in_other_compressions_is_refused_by_name(written: Write, name: str) -> None:
    folder, _ = written("streaming")
    with pytest.raises(fb.UnsupportedError, match=f"compressed by `{name}`"):
        fb.open(folder / name)


@pytest.mark.parametrize("name", ["count", "bytes", "zstd", "writer"])
def test_chunks_are_read_as_litdata_wrote_them_and_in_its_order(written: Write, name: str) -> None:
    folder, ordered = written("litdata")
    data = fb.open(folder / name)
    recipe = [
        *(fb.raw("bin"), fb.label("cls"), fb.text("inner.caption"), fb.label("inner.good")),
        *(fb.npy("inner.score", shape=(1,), dtype="f64"), fb.npy("tokens"), fb.image("pixels").layout("hwc")),
    ]
    found = rows(data, recipe)
    assert [int(row["cls"]) for row in found] == ordered[name]
    for row in found:
        n = (int(row["cls"]) + 5) // 40
        wanted = {**SAMPLES[n], "tokens": [*SAMPLES[n]["tokens"], -1], "good": n % 2 == 0}
        same(row, wanted, bin="bin", cls="cls", tokens="tokens", pixels="pixels")
        same(row, wanted, **{"inner.caption": "txt", "inner.good": "good"})
        assert row["inner.score"].tolist() == [wanted["score"]]
    assert len(found) == side.COUNT
    verified(folder / name)


def test_chunks_whose_items_are_compressed_are_refused(written: Write) -> None:
    folder, _ = written("litdata")
    with pytest.raises(fb.UnsupportedError, match="compressed"):
        fb.open(folder / "items")


def test_parquet_of_hugging_face_is_read_with_its_features(written: Write) -> None:
    folder, images = written("datasets")
    data = fb.open(folder)
    assert (data.kind, len(data), data.classes) == ("parquet", side.COUNT, side.CLASSES)
    recipe = [
        *(
            fb.raw("image"),
            fb.image("image", mode="rgb").layout("hwc").named("pixels"),
            fb.text("image.path"),
        ),
        *(fb.label("label"), VECTOR, fb.npy("tokens", dtype="i32"), fb.label("cls"), fb.label("good")),
        fb.npy("score", shape=(1,), dtype="f64"),
    ]
    for n, (row, sample) in enumerate(zip(rows(data, recipe), SAMPLES, strict=True)):
        same(row, sample, pixels="pixels", vector="vector", tokens="tokens", cls="cls")
        assert (bytes(row["image"]).hex(), row["image.path"]) == (images[n], f"{n}.png")
        assert (row["label"], row["good"]) == (n % len(side.CLASSES), n % 2 == 0)
        assert row["score"].tolist() == [sample["score"]]
        # A null is a field that the sample lacks.
        assert data[n].get("caption") == (None if n % 4 == 3 else sample["txt"].encode())
    verified(folder)


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "lz4"])
@pytest.mark.parametrize("version", ["1", "2"])
def test_parquet_is_read_as_pyarrow_wrote_it(written: Write, compression: str, version: str) -> None:
    folder, _ = written("pyarrow")
    data = fb.open(folder / f"{compression}-{version}")
    recipe = [
        *(fb.raw("bin"), fb.label("cls"), VECTOR, fb.npy("tokens", dtype="i64"), fb.text("large")),
        *(fb.npy("score", shape=(1,), dtype="f32"), fb.label("doc.n"), fb.text("doc.name"), fb.text("words")),
    ]
    for n, (row, sample) in enumerate(zip(rows(data, recipe), SAMPLES, strict=True)):
        same(row, sample, bin="bin", cls="cls", vector="vector", tokens="tokens", large="txt")
        assert row["score"].tolist() == [sample["score"]]
        assert (row["doc.n"], row["doc.name"], row["words"]) == (n, str(n), f"word {n % 3}")
        assert data[n].get("txt") == (sample["txt"].encode() or None)
    verified(folder / f"{compression}-{version}")
