"""Text and tokens: windows are those of a memmap, packing gives every token once, and states know what they need."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import forebay as fb
import numpy as np
import numpy.typing as npt
import pytest


def write_corpus(folder: Path, lengths: list[int]) -> npt.NDArray[np.uint16]:
    """A `.bin` with its `.idx`; every token is another number."""
    tokens = np.arange(sum(lengths), dtype="<u2")
    (folder / "corpus.bin").write_bytes(tokens.tobytes())
    sizes = np.array(lengths, "<i4")
    places = (np.concatenate([[0], np.cumsum(sizes)[:-1]]) * 2).astype("<i8")
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(sizes), len(sizes) + 1)
    documents = np.arange(len(sizes) + 1, dtype="<i8")
    (folder / "corpus.idx").write_bytes(head + sizes.tobytes() + places.tobytes() + documents.tobytes())
    return tokens


def lengths_of(count: int) -> list[int]:
    return [int(length) for length in np.random.default_rng(3).integers(1, 60, count)]


def test_windows_are_those_of_a_memmap(tmp_path: Path) -> None:
    tokens = write_corpus(tmp_path, lengths_of(100))
    (tmp_path / "bare.u16").write_bytes(tokens.tobytes())
    cross = fb.open(tmp_path / "corpus.bin", tokens={"window": 32, "documents": "cross"})
    bare = fb.open(tmp_path / "bare.u16", tokens={"window": 32})
    assert cross.kind == "tokens"
    assert cross.fields == ("tokens",)
    assert len(cross) == len(bare) == (len(tokens) - 1) // 32
    memmap = np.memmap(tmp_path / "bare.u16", np.uint16, "r")
    with fb.Loader(bare, [fb.tokens(length=33, dtype="i32")], batch_size=7, shuffle=True, seed=4) as loader:
        for batch in loader:
            assert batch["tokens"].dtype == np.int32
            for number, row in zip(batch.ids, batch["tokens"], strict=True):
                start = int(number) * 32
                assert row.tolist() == memmap[start : start + 33].tolist()


def test_text_becomes_bytes_padded_on_either_side(tmp_path: Path) -> None:
    for number, text in enumerate(["a", "grüße", ""]):
        (tmp_path / f"{number}.txt").write_text(text, encoding="utf-8")
    data = fb.open(tmp_path, extensions=["txt"])
    tokens = fb.text("txt").byte_tokens(offset=2, eos=1)
    for side in ("left", "right"):
        with fb.Loader(data, [tokens.pad_batch(mask=True, side=side)], batch_size=3) as loader:  # type: ignore[arg-type]
            batch = next(iter(loader))
        for row, mask, text in zip(batch["txt"], batch["txt_mask"], ["a", "grüße", ""], strict=True):
            wanted = [byte + 2 for byte in text.encode()] + [1]
            assert row[mask].tolist() == wanted
            assert not row[~mask].any()
            assert mask[-1 if side == "left" else 0]


def packed(data: fb.Dataset, recipe: Any, world: int, state: Any, steps: int) -> tuple[list[int], Any]:
    """The tokens that all ranks receive, and the state afterwards."""
    loaders = [
        fb.Loader(data, recipe, batch_size=4, shuffle=True, seed=1, rank=rank, world_size=world)
        for rank in range(world)
    ]
    found: list[int] = []
    for loader in loaders:
        if state is not None:
            loader.load_state_dict(state)
    its = [iter(loader) for loader in loaders]
    for _ in range(steps):
        batches = [next(it, None) for it in its]
        if batches[0] is None:
            break
        for batch in batches:
            assert batch is not None
            assert batch["tokens"].shape == (4, 64)
            if not batch.padding[0]:
                found += batch["tokens"][batch["tokens_segment"] > 0].tolist()
    state = loaders[0].state_dict()
    for loader in loaders:
        loader.close()
    return found, state


@pytest.mark.parametrize("fit", ["greedy", "best"])
def test_packing_resumes_on_another_number_of_ranks_exactly(tmp_path: Path, fit: Any) -> None:
    tokens = write_corpus(tmp_path, lengths_of(200))
    data = fb.open(tmp_path / "corpus.bin")
    recipe = fb.recipes.lm_pack(64, fit=fit)
    found: list[int] = []
    state = None
    for world, steps in ((2, 3), (3, 1), (1, 10_000)):
        more, state = packed(data, recipe, world, state, steps)
        found += more
    assert sorted(found) == tokens.tolist()


def test_a_state_of_best_fit_knows_its_rows(tmp_path: Path) -> None:
    write_corpus(tmp_path, lengths_of(50))
    data = fb.open(tmp_path / "corpus.bin")
    with fb.Loader(data, fb.recipes.lm_pack(64), batch_size=2, seed=1) as one:
        next(iter(one))
        with (
            fb.Loader(data, fb.recipes.lm_pack(64), batch_size=3, seed=1) as other,
            pytest.raises(fb.StaleError),
        ):
            other.load_state_dict(one.state_dict())


def test_masks_are_the_same_for_the_same_seed_and_others_in_another_epoch(tmp_path: Path) -> None:
    write_corpus(tmp_path, [50] * 20)
    data = fb.open(tmp_path / "corpus.bin")
    recipe = [fb.tokens().mask_tokens(0.3, mask_id=60_000, vocab=1000)]

    def epochs() -> list[list[int]]:
        with fb.Loader(data, recipe, batch_size=20, seed=1) as loader:
            batches = [next(iter(loader)) for _ in range(2)]
        for batch in batches:
            chosen = batch["tokens_labels"] != -100
            original = np.arange(1000).reshape(20, 50)
            assert (batch["tokens"][~chosen] == original[~chosen]).all()
            assert (batch["tokens_labels"][chosen] == original[chosen]).all()
        return [batch["tokens"].ravel().tolist() for batch in batches]

    first, second = epochs()
    assert [first, second] == epochs()
    assert first != second


def test_recipes_are_the_same_as_toml_and_print_what_they_are() -> None:
    recipe = fb.recipes.lm_pack(2048)
    assert fb.Recipe(recipe.to_toml()) == recipe
    column = fb.text("txt").byte_tokens(eos=0).truncate(8, side="left").pad_batch(side="left")
    assert repr(column).startswith("text('txt').byte_tokens(offset=0, eos=0).truncate(length=8, side='left')")
    assert fb.Recipe([column]).entries()[0]["ops"][2]["side"] == "left"
    plain = fb.Recipe([fb.npy("x").pad_batch()])
    assert "side" not in plain.to_json()
    with pytest.raises(fb.InvalidConfigError, match="works on tokens"):
        fb.Recipe([{"field": "x", "decode": "npy", "ops": [{"op": "pack", "length": 4}]}])


def test_what_cannot_be_opened_says_why(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(10))
    with pytest.raises(fb.InvalidConfigError, match="type its tokens"):
        fb.open(tmp_path / "a.bin", tokens={"window": 2})
    with pytest.raises(fb.InvalidConfigError, match="tokens is"):
        fb.open(tmp_path / "a.bin", tokens={"windw": 2})  # type: ignore[typeddict-unknown-key]
    assert len(fb.open(tmp_path / "a.bin", tokens={"window": 2, "dtype": "u16"})) == 2
