"""Drawn compositions of all that decides what is in a batch, beside a model that knows nothing of how it is done.

Orders, mixes and their changes, buckets, filters, functions, padding, ranks, and jobs that end in the middle and go on
with other ranks: the ids of every batch are those of the model.
"""

from __future__ import annotations

import io
import json
import math
import random
from collections import Counter
from typing import Any, NamedTuple

import forebay as fb
import made
import numpy as np
import pytest

SIZES = (300, 90)
BOUNDS = [1024, 3000]


class Made(NamedTuple):
    """Datasets, and for each of their samples its number and the bytes of its array."""

    parts: list[fb.Dataset]
    lengths: list[int]


def _array(number: int, length: int) -> bytes:
    stored = io.BytesIO()
    np.save(stored, np.full(length, number, np.int32))
    return stored.getvalue()


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Made:
    draw, parts, lengths = random.Random(5), [], []
    for size in SIZES:
        samples = []
        for _ in range(size):
            number = len(lengths)
            array = _array(number, max(1, int(math.exp(draw.gauss(6, 1)))))
            lengths.append(len(array))
            samples.append({"npy": array, "json": json.dumps({"number": number}).encode()})
        parts.append(fb.open(made.write_shards(tmp_path_factory.mktemp("part"), samples, 2)))
    return Made(parts, lengths)


class Case:
    """One composition, drawn."""

    def __init__(self, seed: int, datasets: Made) -> None:
        self.draw = draw = random.Random(seed)
        self.lengths = datasets.lengths
        self.order: dict[str, Any] = {"seed": draw.randrange(1000)}
        if draw.random() < 0.5:
            self.data = fb.mix([(part, draw.uniform(0.2, 1)) for part in datasets.parts])
            self.order |= {"shuffle": True, "epoch_samples": draw.choice([700, 2500])}
            if draw.random() < 0.6:
                place = (draw.choice([0, 1]), draw.choice([0, 1000, 2000]), [draw.random(), draw.random()])
                self.order["mix_schedule"] = [place]
        else:
            self.data = datasets.parts[0]
            self.order["shuffle"] = draw.choice([False, "full", "block", "resample"])
        self.epoch = draw.choice([0, 1])
        self.batch_size = draw.choice([1, 7, 32, 64])
        self.is_bucketed = draw.random() < 0.5
        self.keeps = draw.choice([1, 2, 3])
        self.adds = draw.choice([0, 1000])
        self.last = draw.choice(["partial", "pad", "wrap"])

    def recipe(self) -> list[Any]:
        """A filter, a function, and what is padded."""
        number = fb.json("json")
        if self.keeps > 1:
            number = number.filter(self._is_kept)
        return [number.map(self._added), fb.npy("npy").pad_batch(-1)]

    def _is_kept(self, found: Any) -> bool:
        return bool(found["number"] % self.keeps == 0)

    def _added(self, found: Any) -> int:
        return int(found["number"]) + self.adds

    def loader(self, rank: int, world_size: int) -> fb.Loader:
        how: dict[str, Any] = {"batch_size": self.batch_size, "last_batch": self.last, **self.order}
        if self.is_bucketed:
            how |= {"bucket": BOUNDS, "length_field": "npy"}
        return fb.Loader(self.data, self.recipe(), rank=rank, world_size=world_size, **how)

    def wanted(self) -> list[list[int]]:
        """Batches of the epoch before filters. The order alone is taken from a loader, which does nothing else."""
        with fb.Loader(self.data, [fb.json("json")], batch_size=50, **self.order) as plain:
            plain.set_epoch(self.epoch)
            order = made.ids(plain)
        if not self.is_bucketed:
            return [order[at : at + self.batch_size] for at in range(0, len(order), self.batch_size)]
        full, opened = [], {}
        for sample in order:
            bucket = sum(self.lengths[sample] >= bound for bound in BOUNDS)
            opened.setdefault(bucket, []).append(sample)
            if len(opened[bucket]) == self.batch_size:
                full.append(opened.pop(bucket))
        return full + [opened[bucket] for bucket in sorted(opened)]

    def units(self, left: list[list[int]]) -> int:
        """How many batches come as they are. A short one at the end of an order is divided among all ranks."""
        return len(left) if self.is_bucketed else sum(len(ids) == self.batch_size for ids in left)

    def kept(self, ids: list[int]) -> list[int]:
        return [i for i in ids if i % self.keeps == 0]


@pytest.mark.parametrize("seed", range(40))
def test_what_any_composition_delivers_is_what_a_naive_model_says(datasets: Made, seed: int) -> None:
    case = Case(seed, datasets)
    wanted, done, state = case.wanted(), 0, None
    while done < len(wanted):
        world_size = case.draw.randint(1, 4)
        whole_steps = case.units(wanted[done:]) // world_size
        steps = case.draw.choice([whole_steps, case.draw.randint(0, whole_steps)])
        is_last = case.draw.random() < 0.4 or whole_steps <= 1
        ranks = [case.loader(rank, world_size) for rank in range(world_size)]
        for rank in ranks:
            if state is None:
                rank.set_epoch(case.epoch)
            else:
                rank.load_state_dict(state)
        loops = [iter(rank) for rank in ranks]
        for _ in range(whole_steps if is_last else steps):
            for loop in loops:
                batch = next(loop)
                ids = batch.ids.tolist()
                assert not batch.padding.any()
                assert ids == case.kept(wanted[done]), f"batch {done} of {len(wanted)}"
                assert list(batch["json"]) == [i + case.adds for i in ids]
                assert all((batch["npy"][row, 0] == i).all() for row, i in enumerate(ids))
                done += 1
        if is_last:
            # What does not fill a step is divided among the ranks, or filled up with what is marked.
            rest = [list(loop) for loop in loops]
            assert len({len(batches) for batches in rest}) == 1, "equal steps"
            left = [i for batches in rest for batch in batches for i in batch.ids[~batch.padding].tolist()]
            assert Counter(left) == Counter(i for ids in wanted[done:] for i in case.kept(ids))
            done = len(wanted)
        else:
            state = json.loads(json.dumps(case.draw.choice(ranks).state_dict()))
        for rank in ranks:
            rank.close()
