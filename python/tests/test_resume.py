"""Resuming: the state is small, says what it belongs to, and leads to the exact next sample on any number of ranks."""

from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path
from typing import Any

import forebay as fb
import made
import numpy as np
import pytest

RAW = [fb.raw("bin"), fb.label("cls")]
ORDERS: list[dict[str, Any]] = [
    {"shuffle": False},
    {"shuffle": "full"},
    {"shuffle": "block"},
    {"shuffle": "block", "in_order": False, "window": 200},
]


def state_after(loader: fb.Loader, steps: int) -> tuple[dict[str, Any], list[int]]:
    """The state after some steps of an iteration, and what was received."""
    iterator = iter(loader)
    seen = [int(i) for _ in range(steps) for i in next(iterator).ids]
    return json.loads(json.dumps(loader.state_dict())), seen


@pytest.mark.parametrize("order", ORDERS)
def test_a_state_is_small_plain_and_describes_what_was_received(numbers: fb.Dataset, order: Any) -> None:
    with fb.Loader(numbers, RAW, batch_size=10, num_workers=2, **order) as loader:
        iterator = iter(loader)
        for _ in range(37):
            next(iterator)
            state = loader.state_dict()
            assert len(json.dumps(state)) < 4096
            assert loader.get_state() == state
    assert set(state) == {"format", "dataset", "samples", "recipe", "seed", "shuffle", "cursor"}
    assert all(isinstance(value, int | str) for value in state.values())


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("sharded", [False, True])
def test_p058_restart_from_step_50_of_95_delivers_step_51_next(order: Any, sharded: bool) -> None:
    ranks = 3 if sharded else 1
    data = fb.synthetic(95 * 8 * ranks, bytes=64, shards=4)
    for rank in range(ranks):
        arguments = {"batch_size": 8, "seed": 1, "rank": rank, "world_size": ranks, **order}
        with fb.Loader(data, RAW, **arguments) as loader:
            assert len(loader) == 95
            iterator = iter(loader)
            before = [next(iterator) for _ in range(50)]
            state = json.loads(json.dumps(loader.state_dict()))
            after = list(iterator)
        with fb.Loader(data, RAW, **arguments) as again:
            again.load_state_dict(state)
            again.set_epoch(0)
            assert (len(again), again.remaining) == (95, 45)
            resumed = list(again)
            assert len(resumed) == 45
            assert again.epoch == 1
            if order.get("in_order", True):
                for one, other in zip(after, resumed, strict=True):
                    assert one.ids.tolist() == other.ids.tolist()
                    assert one["bin"] == other["bin"]
            ids = [int(i) for batch in before + resumed for i in batch.ids]
            assert len(set(ids)) == len(ids) == 95 * 8


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_p059_a_checkpoint_of_4_ranks_goes_on_with_another_number(
    numbers: fb.Dataset, order: Any, ranks: int
) -> None:
    def loaders(world_size: int) -> list[fb.Loader]:
        return [
            fb.Loader(numbers, RAW, batch_size=16, rank=rank, world_size=world_size, num_workers=2, **order)
            for rank in range(world_size)
        ]

    states, seen = [], []
    for loader in loaders(4):
        with loader:
            state, ids = state_after(loader, 7)
            states.append(state)
            seen += ids
    assert len(seen) == 7 * 16 * 4
    plan_order = order.get("in_order", True)
    for loader in loaders(ranks):
        with loader:
            loader.load_state_dict(states[0] if plan_order else states)
            seen += made.ids(loader)
    assert sorted(seen) == list(range(1003))


def test_p059_resuming_late_reads_almost_nothing_of_what_was_skipped(tmp_path: Path) -> None:
    data = fb.synthetic(100_000, bytes=200, shards=20)
    for order in ORDERS[:3]:
        with fb.Loader(data, RAW, batch_size=100, **order) as loader:
            loader.load_state_dict({**loader.state_dict(), "cursor": '{"version":1,"epoch":0,"base":90000}'})
            iterator = iter(loader)
            first = next(iterator)
            read = loader.stats()["payload_bytes"]
            rest = [int(i) for batch in iterator for i in batch.ids]
            total = loader.stats()["payload_bytes"]
        assert len(rest) + first.size == 10_000
        # Everything that is left may be on its way; of the 18 MB that were skipped less than 1 % may be.
        assert read <= 10_000 * 200 + 0.01 * 90_000 * 200
        assert total <= 10_000 * 200 * 2 + 0.01 * 90_000 * 200


def test_a_state_taken_at_the_end_leads_to_the_next_epoch(numbers: fb.Dataset) -> None:
    with fb.Loader(numbers, RAW, batch_size=100, shuffle=True) as loader:
        made.ids(loader)
        state = loader.state_dict()
        following = made.ids(loader)
    with fb.Loader(numbers, RAW, batch_size=100, shuffle=True) as again:
        again.set_state(state)
        assert again.epoch == 1
        assert made.ids(again) == following


def test_random_ops_are_drawn_the_same_after_a_resume(tree: Path) -> None:
    recipe = [fb.image("jpg").random_resized_crop(16).flip().color_jitter(0.4, 0.4, 0.4, 0.1)]
    with fb.Loader(tree, recipe, batch_size=2, shuffle=True, seed=3) as loader:
        list(loader)
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        expected = [batch["jpg"] for batch in iterator]
    with fb.Loader(tree, recipe, batch_size=2, shuffle=True, seed=3) as again:
        again.load_state_dict(state)
        for one, other in zip(expected, again, strict=True):
            assert np.array_equal(one, other["jpg"])


def test_a_state_of_something_else_is_refused_and_says_what_differs(numbers: fb.Dataset, caplog: Any) -> None:
    with fb.Loader(numbers, RAW, batch_size=10, shuffle="block", seed=1) as loader:
        state, _ = state_after(loader, 3)
    other = fb.synthetic(1003, bytes=101, shards=4)
    cases = [
        (fb.Loader(other, RAW, shuffle="block", seed=1), ["dataset version", other.version, numbers.version]),
        (fb.Loader(numbers, [fb.raw("bin")], shuffle="block", seed=1), ["recipe fingerprint"]),
        (fb.Loader(numbers, RAW, shuffle="block", seed=2), ["seed is 2, in the state 1"]),
        (fb.Loader(numbers, RAW, shuffle="full", seed=1), ["shuffle is full, in the state block"]),
        (fb.Loader(numbers, RAW, shuffle="block", group_blocks=8, seed=1), ["group_blocks=8"]),
        (
            fb.Loader(fb.synthetic(10), RAW, seed=4),
            ["dataset version", "samples is 10, in the state 1003", "seed", "shuffle"],
        ),
    ]
    for loader, words in cases:
        with loader, pytest.raises(fb.StaleError) as caught:
            loader.load_state_dict(state)
        for word in words:
            assert word in str(caught.value)
    with fb.Loader(numbers, [fb.raw("bin")], shuffle="block", seed=1) as loader:
        loader.load_state_dict(state, strict=False)
        assert "recipe fingerprint" in caplog.text
        assert len(made.ids(loader)) == 1003 - 30


def test_what_is_no_state_is_refused(numbers: fb.Dataset) -> None:
    with fb.Loader(numbers, RAW) as loader:
        state = loader.state_dict()
        with pytest.raises(fb.InvalidConfigError, match="`cursor`"):
            loader.load_state_dict({"format": 1})
        with pytest.raises(fb.UnsupportedError, match="format 99"):
            loader.load_state_dict({**state, "format": 99})
        with pytest.raises(fb.InvalidConfigError, match="not a cursor"):
            loader.load_state_dict({**state, "cursor": "{}"})
        with pytest.raises(fb.StaleError, match="beyond the end"):
            loader.load_state_dict({**state, "cursor": '{"version":1,"epoch":0,"base":2000}'})


def test_states_of_ranks_that_do_not_belong_together_are_refused(numbers: fb.Dataset) -> None:
    states = []
    for rank, steps in ((0, 3), (1, 4)):
        with fb.Loader(
            numbers, RAW, batch_size=10, in_order=False, rank=rank, world_size=2, shuffle=True
        ) as loader:
            states.append(state_after(loader, steps)[0])
    with fb.Loader(numbers, RAW, batch_size=10, in_order=False, shuffle=True) as loader:
        with pytest.raises(fb.InvalidConfigError, match="same step"):
            loader.load_state_dict(states)
        with pytest.raises(fb.StaleError, match="rank 0 of 2"):
            loader.load_state_dict(states[0])


def test_a_state_travels_through_torch_save(numbers: fb.Dataset, tmp_path: Path) -> None:
    import torch

    with fb.Loader(numbers, RAW, batch_size=100, shuffle=True) as loader:
        state, seen = state_after(loader, 4)
        torch.save({"data": state, "model": torch.nn.Linear(2, 2).state_dict()}, tmp_path / "c.pt")
    loaded = torch.load(tmp_path / "c.pt", weights_only=True)
    with fb.Loader(numbers, RAW, batch_size=100, shuffle=True) as again:
        again.load_state_dict(loaded["data"])
        assert sorted(seen + made.ids(again)) == list(range(1003))


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("order", [ORDERS[2], ORDERS[3]])
def test_a_state_travels_through_distributed_checkpoint(
    numbers: fb.Dataset, tmp_path: Path, order: Any
) -> None:
    import torch.distributed.checkpoint as dcp

    with fb.Loader(numbers, RAW, batch_size=100, **order) as loader:
        _, seen = state_after(loader, 4)
        dcp.save({"data": loader}, checkpoint_id=tmp_path / "c", no_dist=True)
    with fb.Loader(numbers, RAW, batch_size=100, **order) as again:
        dcp.load({"data": again}, checkpoint_id=tmp_path / "c", no_dist=True)
        assert sorted(seen + made.ids(again)) == list(range(1003))


def test_close_keeps_the_place(numbers: fb.Dataset) -> None:
    loader = fb.Loader(numbers, RAW, batch_size=100, shuffle=True)
    state, seen = state_after(loader, 4)
    loader.close()
    loader.close()
    assert loader.state_dict() == state
    assert sorted(seen + made.ids(loader)) == list(range(1003))
    loader.close()


def test_taking_a_state_does_not_disturb(numbers: fb.Dataset) -> None:
    with fb.Loader(numbers, RAW, batch_size=100, shuffle=True) as loader:
        expected = made.ids(loader)
        loader.set_epoch(0)
        seen = []
        for batch in loader:
            copy.deepcopy(loader.state_dict())
            seen += batch.ids.tolist()
    assert seen == expected
    assert list(itertools.chain(seen)) == expected
