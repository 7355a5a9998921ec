"""`forebay bench files`: small, to see that it measures what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from forebay import bench
from forebay.bench._files import evict, file_system


@pytest.mark.timeout(300)
def test_p022_files_and_shards_are_read_cold_and_their_calls_are_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert bench.main(["files", "--rounds", "1", "--samples", "96", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    results = figures["results"]
    assert set(results) == {"forebay_files", "forebay_shards", "read_files"}
    for name, result in results.items():
        assert result["samples_per_second"]["median"] > 0, name
        assert result["bytes_per_syscall"]["median"] > 1000, name
    # A file is at least one call. Payloads of this size have memory of their own, so shards need as many calls, side by
    # side instead of all over the disk; small neighbours share one (`p022_small_neighbours_share_a_system_call_...`).
    assert results["forebay_files"]["syscalls"]["median"] >= 96
    assert results["read_files"]["syscalls"]["median"] >= 96
    assert {bar["unit"] for bar in figures["bars"]} == {"%"}
    assert figures["conditions"]["settings"]["page_cache"] == "cold"


def test_files_are_evicted_without_rights(tmp_path: Path) -> None:
    file = tmp_path / "a.jpg"
    file.write_bytes(b"x" * 100_000)
    evict([file])
    assert file.read_bytes() == b"x" * 100_000
    assert file_system(tmp_path) != "unknown"
