"""The bench of the service: what it makes of figures, and what it leaves out."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from forebay.bench import service


def bench(monkeypatch: pytest.MonkeyPatch, *, tensorflow: bool) -> service.ServiceBench:
    monkeypatch.setattr(service, "find_spec", lambda name: object() if tensorflow else None)
    return service.ServiceBench(rounds=1, samples=None, only=None)


def test_rows_of_tfdata_are_left_out_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "wire_tfdata" in bench(monkeypatch, tensorflow=True).measured
    without = bench(monkeypatch, tensorflow=False)
    assert "wire_tfdata" not in without.measured
    assert "tensorflow-cpu" in without.skipped["wire_tfdata"]


def test_bars_compare_medians_and_only_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    here = bench(monkeypatch, tensorflow=True)
    assert here.bars({}) == []
    medians = {
        "wire_forebay": {"bytes_per_second": 2e9, "bytes_per_cpu_second": 2e9},
        "wire_tfdata": {"bytes_per_second": 0.3e9, "bytes_per_cpu_second": 0.3e9},
        "images_local": {"images_per_second": 1000.0},
        "images_worker": {"images_per_second": 940.0},
        "images_share": {"images_per_second": 3900.0},
        "handover_memfd": {"bytes_per_second": 6e9},
    }
    assert [bar["holds"] for bar in here.bars(medians)] == [True, False, False, True, True]


def test_arrays_are_made_as_large_as_batches_of_38_mb_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "ARRAYS", 8)
    sizes = service.write_arrays(tmp_path / "arrays")
    assert sizes["samples"] == 8
    assert sizes["payload_bytes"] > 8 * 150_528
    names = []
    for path in sorted((tmp_path / "arrays").glob("*.tar")):
        with tarfile.open(path) as tar:
            names += tar.getnames()
    assert names == [f"{sample:06}.npy" for sample in range(8)]
