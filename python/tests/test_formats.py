"""Formats beside tar: read by a loader, written again by `forebay reshard`, and joined by key."""

from __future__ import annotations

import csv
import json
import zipfile
from pathlib import Path

import forebay as fb
import numpy as np
import pytest
from made import encoded, picture, write_shards
from test_cli import forebay

FIXTURES = Path(__file__).parents[2] / "crates/engine/tests/fixtures"


def samples(count: int) -> list[dict[str, bytes]]:
    return [
        {"jpg": encoded(picture(number)), "cls": str(number % 7).encode(), "txt": f"number {number}".encode()}
        for number in range(count)
    ]


def labels(data: fb.Dataset, **settings: object) -> list[int]:
    with fb.Loader(data, [fb.label("cls")], batch_size=4, **settings) as loader:  # type: ignore[arg-type]
        return [int(label) for batch in loader for label in batch["cls"]]


def test_lines_of_json_are_samples(tmp_path: Path) -> None:
    lines = [{"text": f"líne {n}", "score": n, "vector": [n, 2 * n]} for n in range(10)]
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    data = fb.open(file)
    assert len(data) == 10
    recipe = [fb.text("text"), fb.label("score"), fb.npy("vector", shape=(2,), dtype="f32")]
    with fb.Loader(data, recipe, batch_size=4, shuffle=True, seed=1) as loader:
        received = {}
        for batch in loader:
            for row, score in enumerate(batch["score"]):
                received[int(score)] = (batch["text"][row], batch["vector"][row].tolist())
    assert received == {n: (f"líne {n}", [n, 2 * n]) for n in range(10)}


def test_tables_are_read_as_the_csv_module_wrote_them(tmp_path: Path) -> None:
    rows = [
        {"path": f"files/{n}.bin", "label": ["dog", "cat"][n % 2], "n": n, "score": n / 4, "text": text}
        for n, text in enumerate(['a, "b"', "two\nlines", "tab\there", "é", "it's", "\r\n", " spaces "])
    ]
    (tmp_path / "files").mkdir()
    for row in rows:
        (tmp_path / str(row["path"])).write_bytes(f"payload {row['n']}".encode())
    for dialect, name in [("excel", "a.csv"), ("unix", "b.csv"), ("excel-tab", "c.tsv")]:
        with (tmp_path / name).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), dialect=dialect)
            writer.writeheader()
            writer.writerows(rows)
        data = fb.open(tmp_path / name)
        assert (data.kind, len(data), data.classes) == ("csv", len(rows), ["cat", "dog"])
        recipe = [
            fb.raw("path"),
            fb.label("label"),
            fb.label("n"),
            fb.npy("score", shape=(1,), dtype="f64"),
            fb.text("text"),
        ]
        with fb.Loader(data, recipe, batch_size=3, shuffle=True, seed=2) as loader:
            received = {}
            for batch in loader:
                for row, n in enumerate(batch["n"]):
                    received[int(n)] = tuple(batch[name][row] for name in ("path", "label", "score", "text"))
        assert sorted(received) == list(range(len(rows)))
        for wanted in rows:
            path, label, score, text = received[int(str(wanted["n"]))]
            assert bytes(path) == f"payload {wanted['n']}".encode()
            assert (["cat", "dog"][label], text) == (wanted["label"], wanted["text"])
            assert float(score[0]) == wanted["score"]


def test_members_of_a_zip_are_grouped_as_those_of_a_tar(tmp_path: Path) -> None:
    made = samples(6)
    with zipfile.ZipFile(tmp_path / "images.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number, sample in enumerate(made):
            for field, payload in sample.items():
                archive.writestr(f"{number:03d}.{field}", payload)
    data = fb.open(tmp_path / "images.zip")
    assert len(data) == 6
    assert data[4]["txt"] == made[4]["txt"]
    assert labels(data) == [number % 7 for number in range(6)]


@pytest.mark.parametrize(
    ("name", "label"), [("mds", "cls"), ("mds_zstd", "cls"), ("litdata", "label"), ("litdata_zstd", "label")]
)
def test_folders_of_other_libraries_are_datasets(tmp_path: Path, name: str, label: str) -> None:
    data = fb.open(FIXTURES / name, manifest_dir=tmp_path)
    recipe = [fb.image("image").resize((3, 4)).layout("hwc"), fb.label(label)]
    with fb.Loader(data, recipe, batch_size=5) as loader:
        (batch,) = list(loader)
    assert batch[label].tolist() == [at * 40 - 5 for at in range(5)]
    assert batch["image"].shape == (5, 3, 4, 3)
    assert batch["image"][3, 0, 0].tolist() == [3, 20, 30]


@pytest.mark.parametrize("form", ["tfrecord", "tfrecord-gz"])
def test_p073_shards_become_others_and_lose_nothing(tmp_path: Path, form: str) -> None:
    spec = write_shards(tmp_path / "in", samples(30), shards=3)
    done = forebay(
        "reshard",
        spec,
        str(tmp_path / "out"),
        "--format",
        form,
        "--order",
        "shuffled",
        "--seed",
        "5",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["samples"] == 30
    ending = {"tfrecord": "tfrecord", "tfrecord-gz": "tfrecord.gz"}[form]
    data = fb.open(str(tmp_path / "out" / f"*.{ending}"))
    assert len(data) == 30
    recipe = [fb.image("jpg").resize(16).center_crop(16), fb.label("cls"), fb.text("txt")]
    found = {}
    for source in (fb.open(spec), data):
        with fb.Loader(source, recipe, batch_size=7) as loader:
            rows = [
                (batch["txt"][row], int(batch["cls"][row]), batch["jpg"][row].tobytes())
                for batch in loader
                for row in range(len(batch.ids))
            ]
        found[source.kind] = rows
    assert found["tar"] != found["tfrecord"], "the order was to change"
    assert sorted(found["tar"]) == sorted(found["tfrecord"])


def test_p080_samples_of_two_sets_of_shards_are_joined_by_key(tmp_path: Path) -> None:
    made = samples(12)
    images = write_shards(tmp_path / "images", [{"jpg": sample["jpg"]} for sample in made], shards=2)
    words = write_shards(tmp_path / "words", [{"txt": sample["txt"]} for sample in made], shards=3)
    data = fb.join(images, words)
    assert len(data) == 12
    assert data[11] == {"jpg": made[11]["jpg"], "txt": made[11]["txt"]}
    with fb.Loader(data, [fb.image("jpg").resize(8).center_crop(8), fb.text("txt")], batch_size=5) as loader:
        texts = [text for batch in loader for text in batch["txt"]]
    assert texts == [sample["txt"].decode() for sample in made]
    fewer = write_shards(tmp_path / "fewer", [{"txt": sample["txt"]} for sample in made[:9]], shards=1)
    with pytest.raises(fb.ForebayError, match="000009"):
        fb.join(images, fewer)
    assert len(fb.join(images, fewer, missing="skip")) == 9
    assert len(fb.join(images, fewer, missing="keep")) == 12


def test_what_a_feature_of_numbers_holds_is_an_array(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"x": [[1, 2], [3, 4]]}\n', encoding="utf-8")
    with fb.Loader(fb.open(file), [fb.npy("x", dtype="f32")], batch_size=1) as loader:
        (batch,) = loader
    np.testing.assert_array_equal(batch["x"][0], np.array([[1, 2], [3, 4]], dtype=np.float32))


def test_parquet_is_read_as_pyarrow_wrote_it(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    made = samples(40)
    image = [{"bytes": sample["jpg"], "path": f"{n}.jpg"} for n, sample in enumerate(made)]
    rows = {
        "image": image,
        "label": [n % 7 for n in range(40)],
        "vector": [[n / 2, n / 4] for n in range(40)],
    }
    pq.write_table(pa.table(rows), tmp_path / "train.parquet", row_group_size=16)
    data = fb.open(tmp_path)
    recipe = [fb.image("image").resize(8), fb.label("label"), fb.npy("vector", shape=(2,), dtype="f32")]
    with fb.Loader(data, recipe, batch_size=8, shuffle=True, seed=3) as loader:
        received = [
            (int(y), v.tolist()) for b in loader for y, v in zip(b["label"], b["vector"], strict=True)
        ]
    assert sorted(received) == sorted((n % 7, [n / 2, n / 4]) for n in range(40))
    assert data[5]["image"] == made[5]["jpg"]
