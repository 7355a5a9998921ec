"""Bad samples are written down with their reasons, and not read again: others stand in, the same everywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import forebay as fb
import made
import pytest
import served

RECIPE = [fb.image("jpg").resize((8, 8)), fb.label("cls")]
BAD = [13, 333, 338, 500, 711, 900, 901, 902, 950, 999]


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """1,000 images, 1 % of them cut off."""
    good = made.encoded(made.picture(0, 24, 24))
    samples = [{"jpg": b"\xff\xd8\xff" if n in BAD else good, "cls": b"%d" % n} for n in range(1000)]
    return made.write_shards(tmp_path_factory.mktemp("spoiled"), samples, 3)


def batches(spec: str, **arguments: Any) -> list[list[int]]:
    with fb.Loader(spec, RECIPE, batch_size=50, shuffle=True, seed=4, **arguments) as loader:
        return [batch.ids.tolist() for batch in loader]


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("policy", ["skip", "substitute"])
def test_bad_samples_are_written_down_once_with_place_and_reason(
    spoiled: str, tmp_path: Path, policy: Any
) -> None:
    path = tmp_path / "bad.jsonl"
    with fb.Loader(spoiled, RECIPE, batch_size=50, on_error=policy, quarantine=path, epochs=2) as loader:
        for _ in range(2):
            made.ids(loader)
    found = entries(path)
    assert sorted(entry["sample_id"] for entry in found) == BAD
    for entry in found:
        assert entry["key"] == f"{entry['sample_id']:06d}"
        assert entry["kind"] == "corrupt"
        assert ".tar" in entry["object"]
        assert "decode" in entry["reason"] or "jpg" in entry["reason"]
        assert entry["dataset"] == fb.open(spoiled).version


def test_the_sample_that_raised_is_written_down(spoiled: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    with fb.Loader(spoiled, RECIPE, batch_size=50, quarantine=path) as loader, pytest.raises(fb.CorruptError):
        made.ids(loader)
    assert [entry["sample_id"] for entry in entries(path)] == [13]
    # It does not stop the next run.
    with fb.Loader(spoiled, RECIPE, batch_size=50, quarantine=path) as loader:
        first = next(iter(loader)).ids.tolist()
    assert 13 not in first
    assert len(first) == 50


def test_known_and_newly_found_samples_have_the_same_substitutes_on_any_number_of_ranks(
    spoiled: str, tmp_path: Path
) -> None:
    path = tmp_path / "bad.jsonl"
    wanted = batches(spoiled, on_error="substitute", quarantine=path)
    assert len(entries(path)) == len(BAD)
    assert not set(BAD) & {n for ids in wanted for n in ids}
    # Now nothing bad is read, so nothing can raise.
    assert batches(spoiled, on_error="raise", quarantine=path, max_errors=0) == wanted
    for world_size in (2, 4):
        ranks = [batches(spoiled, quarantine=path, rank=r, world_size=world_size) for r in range(world_size)]
        dealt = [ranks[step % world_size][step // world_size] for step in range(len(wanted))]
        assert dealt == wanted
    assert len(entries(path)) == len(BAD)


def test_workers_of_a_service_leave_them_out_too(spoiled: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    wanted = batches(spoiled, on_error="substitute", quarantine=path)
    with served.service(tmp_path, workers=1) as (url, _, _):
        assert batches(spoiled, via=url, quarantine=path) == wanted


def test_what_was_found_in_another_version_is_of_no_interest(spoiled: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    batches(spoiled, on_error="substitute", quarantine=path)
    path.write_text(path.read_text().replace(fb.open(spoiled).version, "another"))
    with pytest.raises(fb.CorruptError):
        batches(spoiled, quarantine=path)


def test_a_file_that_was_cut_off_goes_on_and_a_broken_one_names_the_line(
    spoiled: str, tmp_path: Path
) -> None:
    path = tmp_path / "bad.jsonl"
    batches(spoiled, on_error="skip", quarantine=path)
    whole = path.read_text()
    path.write_text(whole[:-20])
    batches(spoiled, on_error="skip", quarantine=path)
    assert sorted(entry["sample_id"] for entry in entries(path)) == BAD
    path.write_text("nonsense\n" + whole)
    with pytest.raises(fb.CorruptError, match="line 1"):
        fb.Loader(spoiled, RECIPE, quarantine=path)


def test_verify_finds_them_all_at_once(spoiled: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    command = [sys.executable, "-m", "forebay", "verify", spoiled, "--quarantine", str(path), "--json"]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        assert done.returncode == 3, done.stderr
        assert json.loads(done.stdout)["quarantined"] == len(BAD)
    assert sorted(entry["sample_id"] for entry in entries(path)) == BAD
    wanted = batches(spoiled, on_error="substitute")
    assert batches(spoiled, quarantine=path) == wanted


@pytest.mark.parametrize(("limit", "holds"), [(0.010, True), (0.009, False)])
def test_a_share_limits_bad_samples_of_each_rank(spoiled: str, limit: float, holds: bool) -> None:
    if holds:
        assert len(batches(spoiled, on_error="skip", max_errors=limit)) == 20
    else:
        with pytest.raises(fb.ExhaustedError, match="max_errors allows 9"):
            batches(spoiled, on_error="skip", max_errors=limit)
