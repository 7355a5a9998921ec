"""Batches by length and by bytes: what is in one, resuming on other ranks, padding, and what is refused."""

from __future__ import annotations

import io
import json
import math
import random
from pathlib import Path
from typing import Any

import forebay as fb
import made
import numpy as np
import pytest
import served

RECIPE = [fb.npy("npy").pad_batch(-1, mask=True), fb.raw("npy").named("stored")]
SAMPLES = 400


def _array(values: Any) -> bytes:
    stored = io.BytesIO()
    np.save(stored, values)
    return stored.getvalue()


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> fb.Dataset:
    """Arrays of log-normal lengths in three shards."""
    draw = random.Random(3)
    lengths = [max(1, int(math.exp(draw.gauss(6, 1)))) for _ in range(SAMPLES)]
    samples = [{"npy": _array(np.full(length, number, np.int32))} for number, length in enumerate(lengths)]
    return fb.open(made.write_shards(tmp_path_factory.mktemp("arrays"), samples, 3))


def _rows(loader: fb.Loader) -> list[list[int]]:
    return [batch.ids[~batch.padding].tolist() for batch in loader]


@pytest.mark.parametrize("shuffle", [False, "full", "block"])
def test_p031_lengths_of_a_batch_are_within_the_ratio(arrays: fb.Dataset, shuffle: Any) -> None:
    with fb.Loader(arrays, RECIPE, batch_size=16, bucket=1.25, shuffle=shuffle, seed=2) as loader:
        seen = []
        for batch in loader:
            stored = [len(payload) for payload in batch["stored"]]
            assert max(stored) <= 1.25 * min(stored)
            lengths = batch["npy_length"]
            assert batch["npy"].shape == batch["npy_mask"].shape == (batch.size, lengths.max())
            for row, (sample, length) in enumerate(zip(batch.ids, lengths, strict=True)):
                assert (batch["npy"][row, :length] == int(sample)).all()
                assert (batch["npy"][row, length:] == -1).all()
                assert batch["npy_mask"][row].sum() == length
            seen += batch.ids.tolist()
        assert sorted(seen) == list(range(SAMPLES))
        stats = loader.stats()
        assert stats["padding_waste"] < 0.15 < 0.4 < stats["padding_waste_shuffled"]


@pytest.mark.parametrize("oversize", ["alone", "drop"])
def test_p032_every_batch_is_within_its_bytes(arrays: fb.Dataset, oversize: Any) -> None:
    limit = 8 << 10
    with fb.Loader(arrays, RECIPE, batch_bytes="8KiB", oversize=oversize, shuffle="full") as loader:
        batches = list(loader)
        again = _rows(loader)
        left_out = loader.stats()["left_out"]
    sizes = [sum(len(payload) for payload in batch["stored"]) for batch in batches]
    alone = [size for size, batch in zip(sizes, batches, strict=True) if batch.size == 1 and size > limit]
    assert all(size <= limit or size in alone for size in sizes)
    assert (len(alone) == 0, left_out > 0) == (oversize == "drop", oversize == "drop")
    assert sum(batch.size for batch in batches) == sum(map(len, again)) == SAMPLES - left_out
    with fb.Loader(arrays, RECIPE, batch_bytes="8KiB", oversize=oversize, shuffle="full") as loader:
        assert _rows(loader) == [batch.ids.tolist() for batch in batches]


@pytest.mark.parametrize(
    "how",
    [
        {"bucket": 1.5, "batch_size": 8},
        {"batch_bytes": 20_000},
        {"bucket": [1000, 3000], "batch_bytes": 50_000},
    ],
)
def test_p031_p032_a_state_resumes_on_other_ranks(arrays: fb.Dataset, how: dict[str, Any]) -> None:
    def loader(rank: int = 0, world_size: int = 1) -> fb.Loader:
        return fb.Loader(arrays, RECIPE, shuffle="block", seed=1, rank=rank, world_size=world_size, **how)

    with loader() as one:
        wanted = _rows(one)
        assert loader().show(0, 5).ids.tolist() == wanted[5]
    ranks = [loader(rank, 3) for rank in range(3)]
    loops = [iter(rank) for rank in ranks]
    received = [next(loop).ids.tolist() for _ in range(4) for loop in loops]
    assert received == wanted[:12]
    state = json.loads(json.dumps(ranks[2].state_dict()))
    for rank in ranks:
        rank.close()
    ranks = [loader(rank, 2) for rank in range(2)]
    for rank in ranks:
        rank.load_state_dict(state)
    assert len({rank.remaining for rank in ranks}) == 1
    rest = [_rows(rank) for rank in ranks]
    assert len(rest[0]) == len(rest[1])
    received += [rows for step in zip(*rest, strict=True) for rows in step]
    assert [i for rows in received for i in rows] == [i for rows in wanted for i in rows]
    for rank in ranks:
        rank.close()


def test_what_contradicts_is_refused(arrays: fb.Dataset, tmp_path: Path) -> None:
    for arguments, why in [
        ({"bucket": 1.0}, "give a ratio"),
        ({"bucket": [5, 5]}, "that rise"),
        ({"oversize": "drop"}, "no batch_bytes"),
        ({"length_field": "npy"}, "neither bucket nor batch_bytes"),
        ({"bucket": 2.0, "size_classes": 2, "shuffle": "full"}, "give one of them"),
        ({"batch_bytes": 99, "in_order": False}, "order by arrival"),
        ({"batch_bytes": 99, "batch_size": None}, "single samples"),
        ({"batch_bytes": 99, "length_field": "x"}, "no such field"),
    ]:
        with pytest.raises(fb.InvalidConfigError, match=why):
            fb.Loader(arrays, RECIPE, **arguments)
    with pytest.raises(fb.InvalidConfigError, match="one size already"):
        fb.Loader(arrays, [fb.npy("npy", shape=[3], dtype="i32").pad_batch()])
    with fb.Loader(arrays, RECIPE, bucket=1.5, batch_size=8, shuffle="full") as loader:
        next(iter(loader))
        state = loader.state_dict()
    with (
        fb.Loader(arrays, RECIPE, bucket=1.6, batch_size=8, shuffle="full") as other,
        pytest.raises(fb.StaleError, match=r"bucket=1\.5"),
    ):
        other.load_state_dict(state)


def test_p031_p032_another_process_makes_the_same_batches(arrays: fb.Dataset, tmp_path: Path) -> None:
    how: dict[str, Any] = {"bucket": 1.5, "batch_bytes": 60_000, "shuffle": "full", "epochs": 1}
    with fb.Loader(arrays, RECIPE, **how) as here:
        wanted = [(batch.ids.tolist(), batch["npy"].tolist(), batch["npy_length"].tolist()) for batch in here]
    socket = tmp_path / "share.sock"
    with (
        served.Process("share", "--socket", str(socket)),
        fb.Loader(arrays, RECIPE, via=f"unix://{socket}", **how) as there,
    ):
        got = [(batch.ids.tolist(), batch["npy"].tolist(), batch["npy_length"].tolist()) for batch in there]
    assert got == wanted
