"""A bad sample is a fact, not a crash: raise, skip or substitute, within a limit, with a report."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import forebay as fb
import made
import pytest

RECIPE = [fb.image("jpg").resize((8, 8)), fb.label("cls")]
BAD = {13, 333, 338, 500, 711, 900, 901, 902, 950, 999}


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """1,000 images, 1 % of them cut off."""
    good = made.encoded(made.picture(0, 24, 24))
    samples = [{"jpg": b"\xff\xd8\xff" if n in BAD else good, "cls": b"%d" % n} for n in range(1000)]
    return made.write_shards(tmp_path_factory.mktemp("spoiled"), samples, 3)


def test_p012_raise_names_the_sample(spoiled: str) -> None:
    with fb.Loader(spoiled, RECIPE, batch_size=50) as loader, pytest.raises(fb.CorruptError) as caught:
        made.ids(loader)
    error = caught.value
    assert error.sample_id == 13
    assert error.key == "000013"
    assert "s-000.tar" in str(error.object)
    assert error.field == "jpg"
    assert error.epoch == 0
    assert "000013" in str(error)
    assert pickle.loads(pickle.dumps(error)).sample_id == 13


@pytest.mark.parametrize("limit", [0.02, 20, None])
def test_p012_skip_within_the_limit_ends_with_the_exact_list(spoiled: str, limit: Any) -> None:
    with fb.Loader(spoiled, RECIPE, batch_size=50, shuffle=True, on_error="skip", max_errors=limit) as loader:
        seen = made.ids(loader)
        assert len(loader) == 20
        report = loader.errors()
        assert loader.stats()["skipped"] == 10
    assert sorted(seen) == sorted(set(range(1000)) - BAD)
    assert {bad.sample_id for bad in report} == BAD
    assert len(report) == 10
    assert all(isinstance(bad.error, fb.CorruptError) and bad.substitute is None for bad in report)
    assert {bad.key for bad in report} == {f"{n:06d}" for n in BAD}


@pytest.mark.parametrize("limit", [0.005, 5])
@pytest.mark.parametrize("policy", ["skip", "substitute"])
def test_p012_beyond_the_limit_the_run_aborts(spoiled: str, limit: Any, policy: Any) -> None:
    with (
        fb.Loader(spoiled, RECIPE, batch_size=50, on_error=policy, max_errors=limit) as loader,
        pytest.raises(fb.ExhaustedError, match="max_errors allows 5"),
    ):
        made.ids(loader)


def test_p012_substitute_keeps_batches_full_and_names_both(spoiled: str) -> None:
    def run(threads: int) -> tuple[list[int], list[fb.BadSample]]:
        with fb.Loader(
            spoiled, RECIPE, batch_size=50, on_error="substitute", num_workers=threads, shuffle=True, seed=2
        ) as loader:
            batches = list(loader)
            assert {batch.size for batch in batches} == {50}
            return [int(i) for batch in batches for i in batch.ids], loader.errors()

    seen, report = run(1)
    assert {bad.sample_id for bad in report} == BAD
    assert all(bad.substitute is not None and bad.substitute not in BAD for bad in report)
    assert not BAD & set(seen)
    again, _ = run(4)
    assert again == seen


def test_a_missing_field_is_bad_only_where_it_is_missing(tmp_path: Path) -> None:
    samples: list[dict[str, bytes]] = [{"txt": b"x", "cls": b"1"} for _ in range(6)]
    del samples[3]["txt"]
    spec = made.write_shards(tmp_path, samples, 1)
    with fb.Loader(spec, [fb.text("txt")], batch_size=3, on_error="skip") as loader:
        assert made.ids(loader) == [0, 1, 2, 4, 5]
        assert [bad.sample_id for bad in loader.errors()] == [3]
