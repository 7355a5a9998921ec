"""Mixes of datasets by weight and resampling with replacement, through Python."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import forebay as fb
import made
import numpy as np
import pytest

RECIPE = [fb.raw("bin"), fb.label("cls")]


def parts() -> list[fb.Dataset]:
    return [
        fb.synthetic(4000, bytes=16, seed=1),
        fb.synthetic(300, bytes=16, seed=2),
        fb.synthetic(900, bytes=16, seed=3),
    ]


def mixed(weights: tuple[float, float, float] = (5, 3, 2)) -> fb.Dataset:
    return fb.mix(list(zip(parts(), weights, strict=True)))


def loader(data: fb.Dataset, **arguments: Any) -> fb.Loader:
    recipe = RECIPE if "bin" in data.fields else [fb.label("cls")]
    return fb.Loader(data, recipe, **{"batch_size": 50, "shuffle": True, "seed": 7, **arguments})


def test_p029_proportions_of_a_mix_are_within_two_percent_over_10_000_samples() -> None:
    data = mixed()
    assert (len(data), data.kind) == (5200, "mix")
    with loader(data, epoch_samples=10_000) as batches:
        assert len(batches) == 200
        ids = made.ids(batches)
        again = made.ids(batches)
    assert len(ids) == len(again) == 10_000
    for epoch in (ids, again):
        shares = np.histogram(epoch, [0, 4000, 4300, 5200])[0] / 10_000
        assert np.abs(shares - [0.5, 0.3, 0.2]).max() <= 0.02, shares
    # A part smaller than its share comes again and again, each of its samples as often as any other.
    counts = np.bincount([i for i in ids if 4000 <= i < 4300], minlength=4300)[4000:]
    assert counts.max() - counts.min() <= 2, (counts.min(), counts.max())
    assert ids != again
    with loader(mixed(), epoch_samples=10_000) as batches:
        assert made.ids(batches) == ids, "the same seed gives the same mix"
    with loader(mixed(), epoch_samples=10_000, seed=8) as batches:
        assert made.ids(batches) != ids


def test_p029_samples_of_a_mix_are_those_of_its_datasets() -> None:
    data, of = mixed(), parts()
    with loader(data, epoch_samples=500) as batches:
        for batch in batches:
            for row, sample in enumerate(batch.ids.tolist()):
                start, part = max(
                    (s, p) for s, p in zip((0, 4000, 4300), range(3), strict=True) if s <= sample
                )
                assert bytes(batch["bin"][row]) == of[part][sample - start]["bin"]


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_p029_the_state_of_a_mix_resumes_on_any_number_of_ranks(ranks: int) -> None:
    with loader(mixed(), epoch_samples=2000) as whole:
        wanted = made.ids(whole)
    taken, states = [], []
    for rank in range(4):
        with loader(mixed(), epoch_samples=2000, rank=rank, world_size=4) as batches:
            steps = iter(batches)
            taken += [int(i) for _ in range(3) for i in next(steps).ids]
            states.append(batches.state_dict())
    assert all(state == states[0] for state in states)
    rest = []
    for rank in range(ranks):
        with loader(mixed(), epoch_samples=2000, rank=rank, world_size=ranks) as batches:
            batches.load_state_dict(states[0])
            rest += made.ids(batches)
    assert sorted(taken + rest) == sorted(wanted)


def test_p029_resampling_draws_all_shards_alike_in_epochs_of_exactly_n(shards: str) -> None:
    data = fb.open(shards)
    with loader(data, shuffle="resample", epoch_samples=20_000, batch_size=500, last_batch="drop") as batches:
        assert len(batches) == 40
        ids = made.ids(batches)
        after = made.ids(batches)
    assert len(ids) == 20_000
    assert ids != after
    # 64 shares of the dataset: with 63 degrees of freedom, 103.4 is passed by one honest generator in a thousand,
    # and 33.8 from below, which an order without replacement would fall under.
    edges = np.linspace(0, len(data), 65)
    counts = np.histogram(ids, edges)[0]
    expected = 20_000 * np.diff(np.ceil(edges)) / len(data)
    chi = float(((counts - expected) ** 2 / expected).sum())
    assert 33.8 < chi < 103.4, chi
    with loader(data, shuffle="resample", epoch_samples=20_000, batch_size=500) as batches:
        steps = iter(batches)
        for _ in range(11):
            next(steps)
        state = batches.state_dict()
    with loader(data, shuffle="resample", epoch_samples=20_000, batch_size=250) as batches:
        batches.load_state_dict(state)
        assert made.ids(batches) == ids[11 * 500 :]


def test_weights_enter_the_state(tmp_path: Path) -> None:
    with loader(mixed()) as batches:
        state = batches.state_dict()
    assert len(str(state)) < 4096
    with loader(mixed((5, 3, 1))) as batches, pytest.raises(fb.StaleError, match="shuffle is mix:"):
        batches.load_state_dict(state)
    with (
        loader(mixed(), epoch_samples=100) as batches,
        pytest.raises(fb.StaleError, match="epoch_samples=100"),
    ):
        batches.load_state_dict(state)


def test_a_mix_is_made_of_whatever_open_takes(shards: str, tmp_path: Path) -> None:
    samples = [{"jpg": b"x", "cls": b"1"} for _ in range(12)]
    other = made.write_shards(tmp_path / "other", samples, 2)
    data = fb.mix({shards: 1, other: 1})
    assert {"npy", "cls", "jpg"} <= set(data.fields)
    copy = pickle.loads(pickle.dumps(data))
    assert copy.version == data.version
    with (
        fb.Loader(data, [fb.label("cls")], batch_size=8, shuffle=True, epoch_samples=80) as one,
        fb.Loader(copy, [fb.label("cls")], batch_size=8, shuffle=True, epoch_samples=80) as two,
    ):
        assert made.ids(one) == made.ids(two)
    nested = fb.mix([(data, 1), (fb.open(other), 3)])
    assert len(nested) == len(data) + 12
    shown = fb.show(data, [fb.label("cls")], batch=3, batch_size=8, shuffle=True, epoch_samples=80)
    assert shown.size == 8
    # Labels of a folder are numbers of the manifest, those of these shards are bytes.
    tree = made.write_tree(tmp_path / "tree")
    with pytest.raises(
        fb.InvalidConfigError, match=r"`cls`.* a payload for some samples and an integer for others"
    ):
        fb.mix([(data, 1), (tree, 1)])


def test_what_cannot_be_mixed_is_refused_with_a_hint(shards: str) -> None:
    data = fb.open(shards)
    for weights in ((0, 1), (-1, 1), (float("nan"), 1), (float("inf"), 1)):
        with pytest.raises(fb.InvalidConfigError, match="weight of number 0") as caught:
            fb.mix(list(zip([data, data], weights, strict=True)))
        assert "above 0" in str(caught.value.hint)
    with pytest.raises(fb.InvalidConfigError, match="0 were given"):
        fb.mix({})
    for pair in ([data], [(data, "much")], [data, 3]):
        with pytest.raises(fb.InvalidConfigError, match="is not a dataset with a weight") as caught:
            fb.mix(pair)  # type: ignore[arg-type]
        assert "fb.mix(" in str(caught.value.hint)
    with pytest.raises(fb.NotFoundError):
        fb.mix({"/no/such/thing.tar": 1})
    both = fb.mix([(data, 1), (data, 2)])
    refused = [
        (both, {}, "a mix has no stored order; set shuffle to `full`"),
        (both, {"shuffle": "resample"}, "a mix draws without replacement"),
        (both, {"shuffle": True, "sharding": "data", "parts": 2}, "a mix has no parts"),
        (data, {"shuffle": True, "epoch_samples": 5}, "use a mix, or shuffle `resample`"),
        (data, {"shuffle": "resample", "sharding": "file", "parts": 2}, "set shuffle to `full`"),
    ]
    for what, arguments, why in refused:
        with pytest.raises(fb.InvalidConfigError, match=why):
            fb.Loader(what, [fb.label("cls")], batch_size=4, **arguments)
    with pytest.raises(fb.InvalidConfigError, match="epoch_samples is 0"):
        fb.Loader(data, [fb.label("cls")], shuffle="resample", epoch_samples=0)


SCHEDULE = [(0, 2000, [1, 1, 1]), (1, [0, 1, 3]), {"epoch": 2, "position": 1024, "weights": [1, 0, 0]}]


def shares(ids: list[int]) -> list[float]:
    return (np.histogram(ids, [0, 4000, 4300, 5200])[0] / len(ids)).tolist()


def test_p029_weights_change_at_the_places_of_the_schedule() -> None:
    with loader(mixed(), epoch_samples=4096, mix_schedule=SCHEDULE) as batches:
        first, second, third, fourth = (made.ids(batches) for _ in range(4))
    with loader(mixed(), epoch_samples=4096) as batches:
        assert made.ids(batches)[:2048] == first[:2048], "what is before a change stays"
    assert np.abs(np.subtract(shares(first[:2048]), [0.5, 0.3, 0.2])).max() < 0.01
    assert np.abs(np.subtract(shares(first[2048:]), [1 / 3] * 3)).max() < 0.01
    assert shares(second) == [0, 0.25, 0.75]
    assert shares(third[:1024]) == [0, 0.25, 0.75]
    assert shares(third[1024:]) == [1, 0, 0]
    assert shares(fourth) == [1, 0, 0], "a change holds through all epochs after it"


def test_p029_a_mix_whose_weights_change_resumes_on_any_number_of_ranks() -> None:
    how: dict[str, Any] = {"epoch_samples": 4000, "mix_schedule": SCHEDULE}
    with loader(mixed(), **how) as whole:
        wanted = [made.ids(whole) for _ in range(3)]
    for stop, ranks in [(3, 2), (20, 3), (21, 1)]:
        with loader(mixed(), rank=1, world_size=2, **how) as batches:
            for batch in batches:
                if batch.step == stop - 1:
                    break
            state = batches.state_dict()
        rest: list[int] = []
        for rank in range(ranks):
            with loader(mixed(), rank=rank, world_size=ranks, **how) as batches:
                batches.load_state_dict(state)
                rest += made.ids(batches)
        assert sorted(rest) == sorted(wanted[0][stop * 100 :])


def test_p029_weights_set_on_the_way_are_those_of_a_schedule_and_travel_in_the_state() -> None:
    with loader(mixed(), epoch_samples=5000) as batches:
        seen: list[int] = []
        steps: list[int] = []
        for batch in batches:
            seen += batch.ids.tolist()
            steps.append(batch.step)
            if batch.step == 30:
                assert batches.set_weights([0, 0, 1]) == (0, 2048)
                state = batches.state_dict()
                assert batches.state_after(batch) == state
        assert steps == list(range(100)), "the iteration goes on"
        assert batches.set_weights([1, 0, 0], epoch=2, position=10) == (2, 1024)
        second, third = made.ids(batches), made.ids(batches)
    with loader(mixed(), epoch_samples=5000) as plain:
        assert seen[:2048] == made.ids(plain)[:2048]
    assert shares(seen[2048:]) == shares(second) == [0, 0, 1]
    assert shares(third[:1024]) == [0, 0, 1]
    assert shares(third[1024:]) == [1, 0, 0]
    scheduled = [(0, 2048, [0, 0, 1]), (2, 10, [1, 0, 0])]
    with loader(mixed(), epoch_samples=5000, mix_schedule=scheduled) as same:
        assert [made.ids(same) for _ in range(3)] == [seen, second, third]
    # Another job, made as the first one was, goes on with the weights that were set.
    rest: list[int] = []
    for rank in range(3):
        with loader(mixed(), epoch_samples=5000, rank=rank, world_size=3) as batches:
            batches.load_state_dict(state)
            assert batches.state_dict() == state
            rest += made.ids(batches)
    assert sorted(rest) == sorted(seen[31 * 50 :])
    with loader(mixed(), epoch_samples=5000) as batches:
        batches.load_state_dict(state)
        copy = pickle.loads(pickle.dumps(batches))
        assert made.ids(copy) == made.ids(batches) == seen[31 * 50 :]
        copy.close()


def test_p029_only_changes_behind_what_was_received_may_be_added() -> None:
    def state_of(**how: Any) -> dict[str, Any]:
        with loader(mixed(), epoch_samples=4096, **how) as batches:
            for batch in batches:
                if batch.step == 30:
                    return batches.state_dict()
        raise AssertionError

    early, late = (0, 1024, [1, 1, 1]), (0, 3000, [1, 2, 3])
    cases: list[tuple[list[Any], list[Any], str | None]] = [
        ([], [late], None),
        ([early], [early, late], None),
        ([], [early], r"\[1.0, 1.0, 1.0\] from position 1024 of epoch 0 on comes too late"),
        ([early, late], [early], r"from position 3072 of epoch 0 on is missing"),
        ([early], [(0, 1024, [1, 1, 2])], r"it was \[1.0, 1.0, 1.0\], not \[1.0, 1.0, 2.0\]"),
    ]
    for before, after, why in cases:
        state = state_of(mix_schedule=before)
        with loader(mixed(), epoch_samples=4096, mix_schedule=after) as batches:
            if why is None:
                batches.load_state_dict(state)
                continue
            with pytest.raises(fb.StaleError, match=why):
                batches.load_state_dict(state)
            batches.load_state_dict(state, strict=False)
    with loader(mixed(), epoch_samples=4096) as batches:
        steps = iter(batches)
        for _ in range(30):
            next(steps)
        with pytest.raises(fb.StaleError, match="comes too late"):
            batches.set_weights([1, 1, 1], epoch=0, position=1000)
        for weights in ([1, 1], [0, 0, 0], [-1, 1, 1]):
            with pytest.raises(fb.InvalidConfigError, match="change the weights"):
                batches.set_weights(weights)
        next(steps)


def test_p029_datasets_of_a_nested_mix_share_the_weight_that_it_is_given() -> None:
    large, small, middle = parts()
    nested = fb.mix([(fb.mix([(large, 3), (small, 1)]), 0.5), (middle, 0.5)])
    with loader(nested, epoch_samples=2048, mix_schedule=[(1, [1, 3]), (2, [1, 1, 0])]) as batches:
        assert [shares(made.ids(batches)) for _ in range(3)] == [
            [0.375, 0.125, 0.5],
            [0.1875, 0.0625, 0.75],
            [0.5, 0.5, 0],
        ]


def test_p029_an_epoch_lasts_until_the_first_dataset_or_all_were_read() -> None:
    with loader(mixed((40, 5, 9)), epoch_samples="first") as batches:
        ids = made.ids(batches)
        assert len(ids) == len(set(ids))
        assert len(ids) == 3 * 1024
    with loader(mixed((40, 5, 9)), epoch_samples="all", batch_size=512) as batches:
        ids = made.ids(batches)
        assert set(ids) == set(range(5200))
        assert len(ids) == len(batches) * 512
    for how, why in [
        ({"epoch_samples": "some"}, "epoch_samples is 'some'"),
        ({"epoch_samples": "all", "mix_schedule": [(1, [1, 1, 1])]}, "weights change"),
        ({"mix_schedule": [(1, [1, 1])]}, "2 weights for 3 datasets"),
        ({"mix_schedule": [(1,)]}, "mix_schedule has"),
    ]:
        with pytest.raises(fb.InvalidConfigError, match=why):
            loader(mixed(), **how)
    one = parts()[0]
    for how in ({"epoch_samples": "all"}, {"mix_schedule": [(1, [1.0])]}):
        with pytest.raises(fb.InvalidConfigError, match="one dataset"):
            loader(one, **how)
