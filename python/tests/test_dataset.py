"""Datasets: what they show, what they log, how they travel."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path

import forebay as fb
import made
import pytest


def test_a_folder_of_classes_shows_its_samples(tree: Path) -> None:
    data = fb.open(tree)
    assert len(data) == 12
    assert data.kind == "tree"
    assert data.classes == ["class0", "class1", "class2"]
    assert set(data.fields) == {"jpg", "cls"}
    assert data[5] == {"jpg": (tree / "class1" / "1.jpg").read_bytes(), "cls": 1}
    assert data[-1] == data[11]
    assert data.key(5).startswith("class1/1")
    assert data.url == str(tree)
    assert len(list(data)) == 12
    assert "12 samples" in repr(data)


@pytest.mark.parametrize("number", [12, -13])
def test_a_sample_beyond_the_end_is_an_index_error(tree: Path, number: int) -> None:
    with pytest.raises(IndexError, match="12 samples"):
        fb.open(tree)[number]


def test_specs_may_be_lists_and_paths(shards: str) -> None:
    whole = fb.open(shards)
    parts = fb.open([Path(shards.replace("{000..004}", f"{n:03d}")) for n in range(5)])
    assert len(whole) == 1003
    assert whole.version == parts.version
    assert whole[17] == parts[17]


def test_arguments_of_open_come_from_the_environment_and_the_argument_wins(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREBAY_KIND", "table")
    monkeypatch.setenv("FOREBAY_MANIFEST_DIR", str(tmp_path / "kept"))
    monkeypatch.setenv("FOREBAY_EXTENSIONS", "png, jpg")
    assert fb.open(tree).kind == "table"
    assert len(list((tmp_path / "kept").iterdir())) == 1
    assert fb.open(tree, kind="tree").kind == "tree"
    monkeypatch.setenv("FOREBAY_EXTENSIONS", "png")
    with pytest.raises(fb.NotFoundError):
        fb.open(tree)
    assert len(fb.open(tree, extensions=["jpg"])) == 12
    monkeypatch.setenv("FOREBAY_STORAGE_OPTIONS", '{"region": "here"}')
    with pytest.raises(fb.UnsupportedError, match="`region`"):
        fb.open(tree)
    for name, text in [("STORAGE_OPTIONS", "region"), ("STORAGE_OPTIONS", "[1]"), ("REBUILD", "perhaps")]:
        monkeypatch.setenv("FOREBAY_STORAGE_OPTIONS", "{}")
        monkeypatch.setenv(f"FOREBAY_{name}", text)
        with pytest.raises(fb.InvalidConfigError, match=f"from FOREBAY_{name}"):
            fb.open(tree)


def test_a_changed_folder_is_noticed_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made.write_tree(tmp_path / "t", classes=2, each=2)
    before = fb.open(tmp_path / "t").version
    (tmp_path / "t" / "class0" / "new.jpg").write_bytes(made.encoded(made.picture(9)))
    with caplog.at_level(logging.WARNING, logger="forebay"):
        after = fb.open(tmp_path / "t")
    assert after.version != before
    assert len(after) == 5
    assert any("stale" in note for note in after.notes)
    assert "stale" in caplog.text


def test_a_pickled_dataset_opens_again_and_refuses_changed_data(tmp_path: Path) -> None:
    made.write_tree(tmp_path / "t", classes=2, each=2)
    data = fb.open(tmp_path / "t")
    packed = pickle.dumps(data)
    again = pickle.loads(packed)
    assert again.version == data.version
    assert again[3] == data[3]
    (tmp_path / "t" / "class0" / "new.jpg").write_bytes(made.encoded(made.picture(9)))
    with pytest.raises(fb.StaleError, match=data.version):
        pickle.loads(packed)


def test_synthetic_data_is_made_the_same_again() -> None:
    data = fb.synthetic(50, bytes=10, classes=3, seed=4)
    again = pickle.loads(pickle.dumps(data))
    assert [data[i] for i in range(50)] == [again[i] for i in range(50)]
    assert fb.open("synthetic://?samples=50&bytes=10&classes=3&seed=4")[7] == data[7]
    drawn = fb.synthetic(50, templates=[b"one", b"three"], field="txt")
    assert {sample["txt"] for sample in drawn} == {b"one", b"three"}


def test_progress_is_told_and_its_exceptions_arrive(tmp_path: Path) -> None:
    spec = made.write_shards(tmp_path, [{"txt": b"x"}] * 40, 4)
    seen: list[tuple[int, int, int, int]] = []
    fb.open(spec, rebuild=True, progress=lambda *at: seen.append(at))
    assert seen[-1][:3] == (4, 4, 40)

    def fails(*at: int) -> None:
        raise KeyError("progress")

    with pytest.raises(KeyError, match="progress"):
        fb.open(spec, rebuild=True, progress=fails)


def test_a_listing_is_told_and_logged_when_it_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(2500):
        (tmp_path / f"{number:05}.jpg").touch()
    seen: list[tuple[int, int, int, int]] = []
    with caplog.at_level(logging.INFO, logger="forebay"):
        fb.open(tmp_path, rebuild=True, progress=lambda *at: seen.append(at))
    assert seen[:2] == [(0, 1000, 0, 0), (0, 2000, 0, 0)]
    assert "objects found" not in caplog.text
    monkeypatch.setattr("forebay.dataset._LOG_SECONDS", 0.0)
    with caplog.at_level(logging.INFO, logger="forebay"):
        fb.open(tmp_path, rebuild=True)
    assert f"listing {tmp_path}: 2000 objects found in 0 s" in caplog.text


def test_options_that_mean_nothing_are_refused(tree: Path) -> None:
    with pytest.raises(fb.UnsupportedError, match="`anon`"):
        fb.open(tree, storage_options={"anon": True})
    with pytest.raises(fb.InvalidConfigError, match="`cab`"):
        fb.open(tree, kind="cab")
