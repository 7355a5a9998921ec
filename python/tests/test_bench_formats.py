"""``forebay bench formats``: readers of one format bring the same samples; what is not installed costs its own rows."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from forebay.bench import _formats_made, _formats_subjects
from forebay.bench.formats import FORMATS, FormatsBench

WRITTEN_HERE = [
    name
    for name, how in FORMATS.items()
    if all(importlib.util.find_spec(module) is not None for module in how.modules)
]


# WebDataset leaves its shards open for the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", WRITTEN_HERE)
def test_both_readers_bring_every_sample(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    _formats_made.WRITERS[name]({"samples": 200, "payload_bytes": 64}, folder)
    settings = {
        f"path_{name}": str(folder),
        "path_manifests": str(tmp_path / "manifests"),
        "batch_size": 16,
        "threads": 2,
        "epochs": 2,
    }
    for subject in (f"forebay_{name}", FORMATS[name].peer):
        assert sum(_formats_subjects.SUBJECTS[subject](settings)) == 400, subject


def test_every_subject_is_there_and_bars_are_about_what_was_measured() -> None:
    assert set(FormatsBench.subjects) == set(_formats_subjects.SUBJECTS)
    bench = FormatsBench(rounds=1)
    rate: dict[str, dict[str, float]] = {"forebay_parquet": {"samples_per_second": 12.0}}
    assert bench.bars(rate) == []
    rate["pyarrow_parquet"] = {"samples_per_second": 10.0}
    (found,) = bench.bars(rate)
    assert (found["value"], found["goal"], found["holds"]) == (1.2, ">= 1.2", True)


def test_a_library_that_is_missing_costs_its_format(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from forebay import bench

    missing = {name: how._replace(modules=("no_such_library",)) for name, how in FORMATS.items()}
    monkeypatch.setattr("forebay.bench.formats.FORMATS", missing)
    needs = {how.peer: how.modules for how in missing.values()}
    monkeypatch.setattr(FormatsBench, "needs", needs)
    monkeypatch.setenv("FOREBAY_BENCH_PEERS", sys.executable)
    monkeypatch.setattr(FormatsBench, "subjects", ("forebay_mds", "streaming_mds", "thread_pool"))
    assert bench.main(["formats", "--json", "--rounds", "1", "--samples", "512"]) == 0
    figures: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert set(figures["results"]) == {"thread_pool"}
    assert set(figures["conditions"]["skipped"]) == {"forebay_mds", "streaming_mds"}
    assert figures["bars"] == []
