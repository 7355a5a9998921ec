"""The bench of the service: what it makes of figures, and what it leaves out."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from forebay.bench import service


def bench() -> service.ServiceBench:
    return service.ServiceBench(rounds=1)


def test_rows_of_tfdata_need_tensorflow_and_no_others_do() -> None:
    assert bench().needs == {"wire_tfdata": ("tensorflow",)}
    assert "wire_tfdata" in bench().measured


def test_bars_compare_medians_and_only_what_was_measured() -> None:
    here = bench()
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
