"""Values one behind the other: what a column holds, in every framework, and wherever batches are made."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import forebay as fb
import made
import numpy as np
import pytest
import served

SAMPLES = 150


def lengths() -> list[int]:
    return np.random.default_rng(8).integers(0, 60, SAMPLES).tolist()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> fb.Dataset:
    samples = [
        {
            "npy": made.npy(np.full((length, 2), number, np.int32)),
            "txt": ("ä" * length).encode(),
            "ids": np.arange(number, number + length, dtype="<u2").tobytes(),
        }
        for number, length in enumerate(lengths())
    ]
    return fb.open(made.write_shards(tmp_path_factory.mktemp("ragged"), samples, 3))


def columns() -> list[fb.Column]:
    return [
        fb.npy("npy").ragged(),
        fb.text("txt").ragged(),
        fb.raw("ids").ragged(offsets="i32"),
        fb.tokens("ids", stored="u16").named("tokens").truncate(20).ragged(),
        fb.text("txt").byte_tokens().mask_tokens(mask_id=300, vocab=256).named("masked").ragged(),
    ]


def check(batch: fb.Batch) -> None:
    told = lengths()
    wanted = {"npy": [], "txt": [], "ids": [], "tokens": []}
    for sample in batch.ids.tolist():
        wanted["npy"].append(np.full((told[sample], 2), sample, np.int32))
        wanted["txt"].append(np.frombuffer(("ä" * told[sample]).encode(), np.uint8))
        ids = np.arange(sample, sample + told[sample], dtype="<u2")
        wanted["ids"].append(np.frombuffer(ids.tobytes(), np.uint8))
        wanted["tokens"].append(ids[:20].astype(np.int64))
    for name, values in wanted.items():
        column = batch[name]
        assert isinstance(column, fb.Ragged)
        assert len(column) == batch.size
        assert column.offsets.dtype == (np.int32 if name == "ids" else np.int64)
        assert column.offsets.tolist() == [0, *np.cumsum([len(value) for value in values])]
        assert np.array_equal(column.values, np.concatenate(values))
        assert column.values.dtype == values[0].dtype
        assert column.values.flags.writeable
        for row, (one, again, value) in enumerate(zip(column, values, values, strict=True)):
            assert np.array_equal(one, value)
            assert np.array_equal(column[row], again)
        assert column.lengths.tolist() == [len(value) for value in values]
        assert np.array_equal(column[-1], values[-1])
    labels = batch["masked_labels"]
    assert labels.offsets.tolist() == batch["masked"].offsets.tolist()
    hidden = labels.values != -100
    assert (labels.values[~hidden] == -100).all()
    assert (batch["masked"].values[~hidden] < 256).all()


@pytest.mark.parametrize("how", [{"batch_size": 16}, {"batch_bytes": 3000}, {"bucket": 2.0, "batch_size": 8}])
def test_p031_a_ragged_column_has_every_value_behind_the_one_before(
    data: fb.Dataset, how: dict[str, Any]
) -> None:
    with fb.Loader(data, columns(), shuffle=True, seed=4, **how) as loader:
        seen = []
        for batch in loader:
            check(batch)
            seen += batch.ids.tolist()
        assert sorted(seen) == list(range(SAMPLES))
        assert "ragged int32[" in repr(batch)


def test_p031_ragged_columns_come_through_other_processes_caches_and_files(
    data: fb.Dataset, tmp_path: Path
) -> None:
    def ragged(batches: fb.Loader) -> list[Any]:
        made_of = []
        for batch in batches:
            check(batch)
            parts = [(c.values.tolist(), c.offsets.tolist(), c.axis) for c in batch.values()]
            made_of.append((batch.ids.tolist(), parts))
        return made_of

    how: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 4, "epochs": 2}
    with fb.Loader(data, columns(), **how) as here:
        wanted = [ragged(here), ragged(here)]
    with fb.Loader(data, columns(), cache="16MiB", **how) as cached:
        assert [ragged(cached), ragged(cached)] == wanted
    socket = tmp_path / "share.sock"
    with served.Process("share", "--socket", str(socket)):
        for compression in ("none", "lz4"):
            via = {"url": f"unix://{socket}", "compression": compression}
            with fb.Loader(data, columns(), via=via, **how) as there:
                assert [ragged(there), ragged(there)] == wanted
    same = fb.Recipe(fb.Recipe(columns()).to_toml())
    assert same.fingerprint == fb.Recipe(columns()).fingerprint
    with fb.Loader(data, same, **how) as told:
        assert ragged(told) == wanted[0]


def test_ragged_columns_of_torch_are_nested_tensors_without_a_copy(data: fb.Dataset) -> None:
    torch = pytest.importorskip("torch")
    with fb.Loader(data, columns(), batch_size=16, output="torch") as loader:
        batch = next(iter(loader))
    column = batch["npy"]
    nested = column.nested()
    assert nested.is_nested
    assert nested.layout == torch.jagged
    assert nested.shape[0] == 16
    assert nested.values().data_ptr() == column.values.data_ptr()
    assert all(torch.equal(one, other) for one, other in zip(nested.unbind(), column, strict=True))
    moved = column.to("cpu", non_blocking=True)
    assert torch.equal(moved.values, column.values)
    assert torch.equal(moved.offsets, column.offsets)
    copy = pickle.loads(pickle.dumps(column))
    assert torch.equal(copy.values, column.values)
    assert copy.axis == 0
    with pytest.raises(IndexError, match="row 16"):
        column[16]


def test_ragged_columns_of_jax_are_trees(data: fb.Dataset) -> None:
    jax = pytest.importorskip("jax")
    with fb.Loader(data, [fb.npy("npy").ragged(offsets="i32")], batch_size=16, output="jax") as loader:
        column = next(iter(loader))["npy"]

    @jax.jit
    def total(column: fb.Ragged) -> Any:
        return column.values.sum() + column.offsets[-1]

    assert int(total(column)) == int(np.asarray(column.values).sum()) + len(column.values)
    doubled = jax.tree.map(lambda part: part * 2, column)
    assert isinstance(doubled, fb.Ragged)
    assert doubled.axis == column.axis


def twice(batch: fb.Batch) -> dict[str, Any]:
    column = batch["npy"]
    return {"npy": fb.Ragged(column.values * 2, column.offsets, column.axis), "rows": np.arange(batch.size)}


def broken(batch: fb.Batch) -> dict[str, Any]:
    column = batch["npy"]
    return {"npy": fb.Ragged(column.values, column.offsets[::-1], column.axis)}


def test_functions_of_batches_take_and_make_ragged_columns(data: fb.Dataset) -> None:
    with fb.Loader(data, [fb.npy("npy").ragged(), fb.map_batch(twice)], batch_size=16) as loader:
        for batch in loader:
            values = batch["npy"].values
            assert (values == np.repeat(2 * batch.ids.astype(np.int32), batch["npy"].lengths)[:, None]).all()
    wrong = [fb.npy("npy").ragged(), fb.map_batch(broken)]
    with (
        fb.Loader(data, wrong, batch_size=16) as loader,
        pytest.raises(fb.FunctionError, match="offsets do not lead"),
    ):
        next(iter(loader))


def test_what_cannot_be_ragged_is_refused_with_a_reason(data: fb.Dataset, tree: Path) -> None:
    for column, why in [
        (fb.npy("npy", shape=(2,), dtype="i32").ragged(), "one size already"),
        (fb.npy("npy").ragged().pad_batch(), "it comes last"),
        (fb.json("txt").ragged(), "objects have no elements"),
        (fb.label("cls").ragged(), "one size already"),
        (fb.image("jpg").ragged(), "images differ along two axes"),
    ]:
        with pytest.raises(fb.InvalidConfigError, match=why):
            fb.Recipe([column])
    recipe = json.dumps([{"field": "npy", "decode": "npy", "ops": [{"op": "ragged", "offsets": "u8"}]}])
    with pytest.raises(fb.InvalidConfigError, match="offsets"):
        fb.Recipe(recipe)
    shapes = [{"npy": made.npy(np.zeros((2, width)))} for width in (3, 4)]
    other = fb.open(made.write_shards(tree.parent / "shapes", shapes, 1))
    with (
        fb.Loader(other, [fb.npy("npy").ragged()], batch_size=2) as loader,
        pytest.raises(fb.CorruptError, match="differ beyond axis 0"),
    ):
        next(iter(loader))
