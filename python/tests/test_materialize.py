"""Saving prepared samples: what is read back is what the live loader gives."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import forebay as fb
import made
import numpy as np
import pytest


@pytest.fixture
def data(tmp_path: Path) -> fb.Dataset:
    samples = [{"jpg": made.encoded(made.picture(n)), "cls": str(n % 3).encode()} for n in range(20)]
    made.write_tar(tmp_path / "train-000000.tar", samples, 0)
    return fb.open(tmp_path / "train-000000.tar")


RECIPE = [fb.image("jpg").random_resized_crop(16), fb.label("cls")]


def test_p064_what_was_saved_is_what_the_loader_gives(data: fb.Dataset, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    how: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 3}
    out = tmp_path / "out"
    with pytest.warns(UserWarning, match="random_resized_crop in the recipe: what epoch 1 draws is saved"):
        done = fb.materialize(
            data, RECIPE, out, epoch=1, chunk_samples=8, progress=lambda *at: seen.append(at), **how
        )
    assert (done["shards"], done["made"], done["found"], done["saved"]) == (3, 3, 0, 20)
    assert seen[-1] == (20, 20)
    assert done["recipe"] == fb.Recipe((out / "recipe.json").read_text())
    with (
        fb.Loader(data, RECIPE, **how) as live,
        fb.Loader(fb.open(out), done["recipe"], batch_size=4) as back,
    ):
        live.set_epoch(1)
        for one, two in zip(live, back, strict=True):
            for column in ("jpg", "cls"):
                assert one[column].dtype == two[column].dtype
                assert np.array_equal(one[column], two[column])


@pytest.mark.filterwarnings("ignore:random_resized_crop")
def test_p064_a_dry_run_says_what_would_be_made_and_a_rest_is_made(data: fb.Dataset, tmp_path: Path) -> None:
    out = tmp_path / "out"
    planned = fb.materialize(data, RECIPE, out, batch_size=4, chunk_samples=8, dry_run=True)
    assert (planned["shards"], planned["missing_samples"], out.exists()) == (3, 20, False)

    def stop(saved: int, _: int) -> None:
        if saved > 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fb.materialize(data, RECIPE, out, batch_size=4, chunk_samples=8, progress=stop)
    with pytest.raises(fb.UnavailableError, match="not whole, 1 of 3 shards"):
        fb.open(out)
    part = fb.open(out, follow=True)
    assert len(part) == 8
    rest = fb.materialize(data, RECIPE, out, batch_size=4)
    assert (rest["found"], rest["made"], rest["chunk_samples"]) == (1, 2, 8)
    again = pickle.loads(pickle.dumps(part))
    assert (len(again), again.version) == (8, part.version), "a copy means what was there"
    assert len(fb.open(out, follow=True)) == len(fb.open(out)) == 20
    with pytest.raises(fb.StaleError, match="another seed"):
        fb.materialize(data, RECIPE, out, batch_size=4, seed=9)
