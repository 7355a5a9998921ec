"""The loader's order, counts and iteration, seen from a training loop."""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from typing import Any

import forebay as fb
import made
import numpy as np
import pytest

RAW = [fb.raw("bin"), fb.label("cls")]


def test_a_batch_is_a_dict_of_columns_with_provenance(shards: str) -> None:
    recipe = [fb.npy("npy"), fb.label("cls"), fb.text("txt"), fb.json("json"), fb.raw("txt").named("bytes")]
    with fb.Loader(shards, recipe, batch_size=4) as loader:
        batch = next(iter(loader))
    assert isinstance(batch, dict)
    assert list(batch) == ["npy", "cls", "txt", "json", "bytes"]
    assert len(batch) == 5
    assert batch.size == 4
    assert (batch.epoch, batch.step) == (0, 0)
    assert batch.ids.dtype == np.uint64
    assert batch.ids.tolist() == [0, 1, 2, 3]
    assert batch.padding.tolist() == [False] * 4
    assert batch["npy"].shape == (4, 2, 3)
    assert batch["npy"].dtype == np.float32
    assert batch["npy"][3, 1, 2] == 3
    assert batch["cls"].dtype == np.int64
    assert batch["cls"].tolist() == [0, 1, 2, 3]
    assert batch["txt"][2] == "sample 2 é"
    assert batch["json"] == [{"number": n} for n in range(4)]
    assert batch["bytes"][1] == "sample 1 é".encode()
    assert dict(**batch).keys() == batch.keys()
    assert "float32[4, 2, 3]" in repr(batch)
    again = pickle.loads(pickle.dumps(batch))
    assert again.ids.tolist() == [0, 1, 2, 3]
    assert again["txt"] == batch["txt"]


def test_arrays_of_different_shapes_are_a_list(tmp_path: Any) -> None:
    samples = [{"npy": made.npy(np.arange(n + 1, dtype=np.int16))} for n in range(6)]
    spec = made.write_shards(tmp_path, samples, 1)
    with fb.Loader(spec, [fb.npy("npy")], batch_size=3) as loader:
        first, _ = loader
    assert [array.tolist() for array in first["npy"]] == [[0], [0, 1], [0, 1, 2]]
    assert first["npy"][0].dtype == np.int16


def test_single_samples_have_no_batch_axis(shards: str) -> None:
    with fb.Loader(shards, [fb.npy("npy"), fb.text("txt")], batch_size=None) as loader:
        assert len(loader) == 1003
        assert loader.batch_size is None
        for number, sample in enumerate(itertools.islice(loader, 5)):
            assert sample["npy"].shape == (2, 3)
            assert sample["txt"] == f"sample {number} é"


def test_every_iteration_is_the_next_epoch(numbers: fb.Dataset) -> None:
    with fb.Loader(numbers, RAW, batch_size=64, shuffle="full") as loader:
        orders = []
        for epoch in range(3):
            assert loader.epoch == epoch
            batches = list(loader)
            assert {batch.epoch for batch in batches} == {epoch}
            orders.append([int(i) for batch in batches for i in batch.ids])
        assert loader.epoch == 3
    assert all(sorted(order) == list(range(1003)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3


def test_a_loop_left_early_goes_on_with_the_next_epoch_and_an_unused_one_does_not(
    numbers: fb.Dataset,
) -> None:
    with fb.Loader(numbers, RAW, batch_size=100) as loader:
        iter(loader)
        assert next(iter(loader)).epoch == 0
        assert next(iter(loader)).epoch == 1


def test_only_the_newest_iterator_is_live(numbers: fb.Dataset) -> None:
    with fb.Loader(numbers, RAW, batch_size=100) as loader:
        old = iter(loader)
        next(old)
        new = iter(loader)
        next(new)
        with pytest.raises(fb.InvalidConfigError, match="newer iterator"):
            next(old)
        assert len(list(new)) == 10
        with pytest.raises(StopIteration):
            next(new)


def test_set_epoch_chooses_and_repeats_an_epoch(numbers: fb.Dataset) -> None:
    with fb.Loader(numbers, RAW, batch_size=100, shuffle=True) as loader:
        zero, one = made.ids(loader), made.ids(loader)
        loader.set_epoch(0)
        assert made.ids(loader) == zero
        loader.set_epoch(1)
        assert made.ids(loader) == one
        loader.set_epoch(7)
        assert next(iter(loader)).epoch == 7


def test_iterating_beyond_epochs_is_an_error(numbers: fb.Dataset) -> None:
    with fb.Loader(numbers, RAW, batch_size=500, epochs=2) as loader:
        assert [len(list(loader)) for _ in range(2)] == [3, 3]
        with pytest.raises(fb.InvalidConfigError, match="epochs=2"):
            iter(loader)


@pytest.mark.parametrize("shuffle", [False, "full", "block"])
def test_p025_order_depends_on_seed_and_epoch_only(numbers: fb.Dataset, shuffle: Any) -> None:
    def order(epoch: int, **arguments: Any) -> list[int]:
        with fb.Loader(numbers, RAW, batch_size=32, shuffle=shuffle, seed=5, **arguments) as loader:
            loader.set_epoch(epoch)
            return made.ids(loader)

    expected = order(3, num_workers=1)
    assert order(3, num_workers=2) == order(3, num_workers=4) == expected
    with fb.Loader(numbers, RAW, batch_size=32, shuffle=shuffle, seed=5) as loader:
        epochs = [made.ids(loader) for _ in range(4)]
    assert epochs[3] == expected
    if shuffle:
        assert epochs[2] != expected
        with fb.Loader(numbers, RAW, batch_size=32, shuffle=shuffle, seed=6) as loader:
            assert made.ids(loader) != epochs[0]


def test_p025_order_is_the_same_under_any_hash_seed() -> None:
    code = """
        import forebay as fb, zlib
        data = fb.synthetic(1003, bytes=100, shards=4)
        recipe = [fb.raw("bin"), fb.label("cls")]
        for shuffle in (False, "full", "block"):
            with fb.Loader(data, recipe, batch_size=32, shuffle=shuffle, seed=5) as loader:
                loader.set_epoch(3)
                print(zlib.crc32(b"".join(bytes(b.ids) + b"".join(b["bin"]) for b in loader)))
    """
    outputs = {made.run_python(code, PYTHONHASHSEED=seed).stdout for seed in ("0", "1", "12345")}
    assert len(outputs) == 1
    assert len(outputs.pop().split()) == 3


@pytest.mark.parametrize("shuffle", [False, "full", "block"])
def test_p026_ranks_read_every_sample_once(numbers: fb.Dataset, shuffle: Any) -> None:
    ranks = []
    for rank in range(4):
        with fb.Loader(
            numbers, RAW, batch_size=16, shuffle=shuffle, rank=rank, world_size=4, num_workers=3
        ) as loader:
            ranks.append(made.ids(loader))
    assert sorted(itertools.chain(*ranks)) == list(range(1003))
    sizes = [len(rank) for rank in ranks]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("policy", ["drop", "partial", "pad", "wrap"])
def test_p027_all_ranks_have_the_same_number_of_batches(numbers: fb.Dataset, policy: Any) -> None:
    counts, real, flagged = set(), Counter(), 0
    for rank in range(4):
        with fb.Loader(numbers, RAW, batch_size=30, last_batch=policy, rank=rank, world_size=4) as loader:
            promised = len(loader)
            batches = list(loader)
        assert len(batches) == promised
        counts.add(promised)
        for batch in batches:
            real.update(batch.ids[~batch.padding].tolist())
            flagged += int(batch.padding.sum())
            if policy != "partial":
                assert batch.size == 30
    assert len(counts) == 1
    steps = counts.pop()
    if policy == "drop":
        assert sum(real.values()) == steps * 120 == 960
        assert flagged == 0
    else:
        assert sorted(real) == list(range(1003))
        assert set(real.values()) == {1}
        assert flagged == (0 if policy == "partial" else steps * 120 - 1003)


def test_p028_fewer_shards_than_threads_and_ranks(tmp_path: Any) -> None:
    spec = made.write_shards(tmp_path, [{"txt": str(n).encode()} for n in range(31)], 3)
    with fb.Loader(spec, [fb.text("txt")], batch_size=4, num_workers=8, shuffle=True) as loader:
        assert sorted(made.ids(loader)) == list(range(31))
    seen = []
    for rank in range(8):
        with fb.Loader(spec, [fb.text("txt")], batch_size=2, shuffle=True, rank=rank, world_size=8) as loader:
            seen += made.ids(loader)
    assert sorted(seen) == list(range(31))


@pytest.mark.parametrize("samples", [40, 41, 49])
@pytest.mark.parametrize("policy", ["drop", "partial", "pad", "wrap"])
def test_p030_counts_of_the_last_batch_are_exact(samples: int, policy: Any) -> None:
    data = fb.synthetic(samples, bytes=8)
    with fb.Loader(data, RAW, batch_size=10, last_batch=policy) as loader:
        sizes = [batch.size for batch in loader]
        loader.set_epoch(0)
        last = list(loader)[-1]
        assert len(loader) == len(sizes)
    rest = samples % 10
    if policy == "drop" or rest == 0:
        assert sizes == [10] * (samples // 10)
    elif policy == "partial":
        assert sizes == [10] * 4 + [rest]
    else:
        assert sizes == [10] * 5
        assert last.padding.sum() == 10 - rest
        filler = last.ids[last.padding].tolist()
        assert filler == ([samples - 1] * (10 - rest) if policy == "pad" else list(range(10 - rest)))


def test_p004_arrival_order_names_every_sample_and_an_epoch_is_exact() -> None:
    # Pictures of very different size take very different times.
    templates = [
        made.encoded(made.picture(n, *size)) for n, size in enumerate([(16, 16), (900, 700), (60, 60)])
    ]
    data = fb.synthetic(300, templates=templates, field="jpg")
    recipe = [fb.image("jpg").resize((8, 8)), fb.label("cls")]
    with fb.Loader(data, recipe, batch_size=8, shuffle=True, in_order=False, num_workers=4, seed=1) as loader:
        for epoch in range(2):
            batches = list(loader)
            assert {batch.epoch for batch in batches} == {epoch}
            assert sorted(i for batch in batches for i in batch.ids.tolist()) == list(range(300))
            labels = {int(i): int(c) for b in batches for i, c in zip(b.ids, b["cls"], strict=True)}
            assert all(data[i]["cls"] == c for i, c in labels.items())


@pytest.mark.parametrize("window", [0, 5, 64])
def test_p005_arrival_order_stays_within_its_window_and_epoch(window: int) -> None:
    templates = [
        made.encoded(made.picture(n, *size)) for n, size in enumerate([(16, 16), (900, 700), (60, 60)])
    ]
    data = fb.synthetic(120, templates=templates, field="jpg")
    recipe = [fb.image("jpg").resize((8, 8)), fb.raw("jpg").named("bytes")]
    common: dict[str, Any] = {"batch_size": 8, "shuffle": "full", "seed": 3, "num_workers": 4}
    with (
        fb.Loader(data, recipe, **common) as planned,
        fb.Loader(data, recipe, in_order=False, window=window, **common) as arriving,
    ):
        for epoch in range(5):
            plan, arrived = list(planned), list(arriving)
            assert {batch.epoch for batch in arrived} == {epoch}
            place = {i: n for n, i in enumerate(i for b in plan for i in b.ids.tolist())}
            delivered = [i for b in arrived for i in b.ids.tolist()]
            assert sorted(delivered) == list(range(120))
            assert max(now - place[i] for now, i in enumerate(delivered)) <= window
            if window == 0:
                for one, other in zip(plan, arrived, strict=True):
                    assert one["bytes"] == other["bytes"]
                    assert np.array_equal(one["jpg"], other["jpg"])


def test_show_makes_any_batch_again(tree: Any) -> None:
    recipe = [fb.image("jpg").random_resized_crop(24).flip().normalize(fb.IMAGENET), fb.label("cls")]
    arguments: dict[str, Any] = {"batch_size": 5, "shuffle": True, "seed": 9}
    with fb.Loader(tree, recipe, **arguments) as loader:
        kept = {(batch.epoch, batch.step): batch for _ in range(3) for batch in loader}
        place = loader.state_dict()
        for (epoch, step), batch in kept.items():
            for shown in (
                loader.show(epoch, step),
                fb.show(tree, recipe, epoch=epoch, batch=step, **arguments),
            ):
                assert shown.ids.tolist() == batch.ids.tolist()
                assert np.array_equal(shown["jpg"], batch["jpg"])
                assert (shown.epoch, shown.step) == (epoch, step)
        assert loader.state_dict() == place
        with pytest.raises(fb.InvalidConfigError, match="an epoch has 3"):
            loader.show(0, 3)


def test_stats_are_numbers_and_print_as_a_table(numbers: fb.Dataset) -> None:
    with fb.Loader(numbers, RAW, batch_size=100) as loader:
        assert loader.stats()["batches"] == 0
        made.ids(loader)
        stats = loader.stats()
    assert stats["batches"] == 11
    assert stats["samples"] == 1003
    assert stats["payload_bytes"] >= 100_300
    assert stats["stall_seconds"] == pytest.approx(stats["fetch_stall_seconds"] + stats["prep_stall_seconds"])
    assert "stall seconds" in str(stats)
    assert "samples per second" in repr(stats)
    assert "<table>" in stats._repr_html_()


def test_a_loader_travels_with_its_place(numbers: fb.Dataset) -> None:
    with fb.Loader(numbers, RAW, batch_size=100, shuffle=True) as loader:
        iterator = iter(loader)
        taken = [int(i) for _ in range(4) for i in next(iterator).ids]
        with pickle.loads(pickle.dumps(loader)) as copy:
            assert (len(copy), copy.remaining) == (11, 7)
            rest = made.ids(copy)
        assert rest == [int(i) for batch in iterator for i in batch.ids]
    assert sorted(taken + rest) == list(range(1003))
