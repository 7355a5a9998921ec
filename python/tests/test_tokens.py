"""Text and tokens: windows are those of a memmap, packing gives every token once, and states know what they need."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import forebay as fb
import numpy as np
import numpy.typing as npt
import pytest
import served


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


def test_a_member_of_a_line_of_json_becomes_bytes(tmp_path: Path) -> None:
    texts = ["a", "grüße", "", 'two\nlines, "quoted"', "\U0001f30a"]
    for escapes in (True, False):
        lines = [json.dumps({"n": n, "text": text}, ensure_ascii=escapes) for n, text in enumerate(texts)]
        file = tmp_path / f"escaped_{escapes}.jsonl"
        file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        data = fb.open(file)
        recipe = [fb.text("text").byte_tokens(bos=256, eos=257).pad_batch(mask=True), fb.label("n")]
        with fb.Loader(data, recipe, batch_size=len(texts)) as loader:
            (batch,) = loader
        for n, row, mask in zip(batch["n"], batch["text"], batch["text_mask"], strict=True):
            assert row[mask].tolist() == [256, *texts[int(n)].encode(), 257]


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


TEXTS = [
    "The basin fills from above, and the gates are shut.",
    "Water stands in the forebay before it meets the turbines; grüße, naïve café!",
    "   two  spaces\tand\nlines\r\n",
    "1234567890 3.14 a-b_c don't won't I'll",
    "水は低きに流れる 🌊🌊 e\u0301",
    "",
]


def train(kind: str, file: Path) -> Any:
    """A tokenizer of this kind, trained on made text and saved."""
    hf = pytest.importorskip("tokenizers")
    draws = np.random.default_rng(5)
    words = ["".join(draws.choice(list("abcdegrüß'"), int(draws.integers(1, 9)))) for _ in range(300)]
    corpus = [" ".join(draws.choice(words, 12)) for _ in range(200)] + TEXTS
    special = ["[UNK]", "[CLS]", "[SEP]", "<mask>"]
    if kind == "bpe":
        made = hf.Tokenizer(hf.models.BPE())
        made.pre_tokenizer = hf.pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.post_processor = hf.processors.ByteLevel(trim_offsets=True)
        alphabet = hf.pre_tokenizers.ByteLevel.alphabet()
        trainer = hf.trainers.BpeTrainer(vocab_size=700, special_tokens=special, initial_alphabet=alphabet)
    elif kind == "bpe_split":
        # What models of today do: an expression that looks ahead, then bytes.
        made = hf.Tokenizer(hf.models.BPE(ignore_merges=True))
        pattern = hf.Regex(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
            r"|\s+(?!\S)|\s+"
        )
        made.pre_tokenizer = hf.pre_tokenizers.Sequence(
            [
                hf.pre_tokenizers.Split(pattern, "isolated"),
                hf.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        alphabet = hf.pre_tokenizers.ByteLevel.alphabet()
        trainer = hf.trainers.BpeTrainer(vocab_size=700, special_tokens=special, initial_alphabet=alphabet)
    elif kind == "wordpiece":
        made = hf.Tokenizer(hf.models.WordPiece(unk_token="[UNK]"))
        made.normalizer = hf.normalizers.BertNormalizer()
        made.pre_tokenizer = hf.pre_tokenizers.BertPreTokenizer()
        trainer = hf.trainers.WordPieceTrainer(vocab_size=500, special_tokens=special)
    else:
        made = hf.Tokenizer(hf.models.Unigram())
        made.normalizer = hf.normalizers.NFKC()
        made.pre_tokenizer = hf.pre_tokenizers.Metaspace()
        trainer = hf.trainers.UnigramTrainer(vocab_size=400, special_tokens=special, unk_token="[UNK]")
    made.train_from_iterator(corpus, trainer)
    if kind in ("wordpiece", "unigram"):
        made.post_processor = hf.processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
        )
    made.save(str(file))
    return made


def write_texts(folder: Path, texts: list[str]) -> fb.Dataset:
    folder.mkdir(exist_ok=True)
    for number, text in enumerate(texts):
        (folder / f"{number:03}.txt").write_bytes(text.encode())
    return fb.open(folder, extensions=["txt"])


@pytest.mark.parametrize("kind", ["bpe", "bpe_split", "wordpiece", "unigram"])
def test_tokens_are_those_of_the_tokenizers_package(tmp_path: Path, kind: str) -> None:
    reference = train(kind, tmp_path / "tokenizer.json")
    draws = np.random.default_rng(8)
    letters = list("abcdegrüß' .,\n0123水🌊\u0301<mask>[UNK]")
    texts = TEXTS + ["".join(draws.choice(letters, int(draws.integers(0, 80)))) for _ in range(60)]
    texts += ["a <mask> between [SEP] others"]
    data = write_texts(tmp_path / "texts", texts)
    for special in (True, False):
        column = fb.text("txt").tokenize(tmp_path / "tokenizer.json", add_special_tokens=special)
        with fb.Loader(data, [column], batch_size=7, num_workers=2) as loader:
            made = [row.tolist() for batch in loader for row in batch["txt"]]
        assert made == [reference.encode(text, add_special_tokens=special).ids for text in texts]


def test_tokenized_texts_are_cut_and_padded_and_come_the_same_after_a_resume(tmp_path: Path) -> None:
    reference = train("wordpiece", tmp_path / "tokenizer.json")
    data = write_texts(tmp_path / "texts", TEXTS * 5)
    column = fb.text("txt").tokenize(tmp_path / "tokenizer.json").truncate(8)
    column = column.mask_tokens(0.3, mask_id=3, vocab=300, special=[1, 2]).pad_batch(value=0, mask=True)

    def batches(state: Any = None) -> Any:
        with fb.Loader(data, [column], batch_size=4, shuffle=True, seed=2) as loader:
            if state is not None:
                loader.load_state_dict(state)
            for batch in loader:
                yield batch["txt"].copy(), batch["txt_labels"].copy(), batch.ids.copy(), loader.state_dict()

    whole = list(batches())
    for tokens, labels, ids, _ in whole:
        for row, label, number in zip(tokens, labels, ids, strict=True):
            wanted = reference.encode(data[int(number)]["txt"].decode()).ids[:8]  # type: ignore[union-attr]
            was = np.where(label == -100, row, label)[: len(wanted)]
            assert was.tolist() == wanted
    resumed = list(batches(whole[2][3]))
    assert len(resumed) == len(whole) - 3
    for before, after in zip(whole[3:], resumed, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(before[:3], after[:3], strict=True))


def test_another_tokenizer_is_another_recipe_and_is_never_used_instead(tmp_path: Path) -> None:
    train("bpe", tmp_path / "a.json")
    train("wordpiece", tmp_path / "b.json")
    (tmp_path / "copy.json").write_bytes((tmp_path / "a.json").read_bytes())
    data = write_texts(tmp_path / "texts", TEXTS)
    recipe = fb.Recipe([fb.text("txt").tokenize(tmp_path / "a.json")])
    assert recipe.fingerprint == fb.Recipe([fb.text("txt").tokenize(tmp_path / "copy.json")]).fingerprint
    assert recipe.fingerprint != fb.Recipe([fb.text("txt").tokenize(tmp_path / "b.json")]).fingerprint
    (tmp_path / "b.json").replace(tmp_path / "a.json")
    with (
        fb.Loader(data, recipe, batch_size=2) as loader,
        pytest.raises(fb.StaleError, match=r"a\.json.*not the file"),
    ):
        next(iter(loader))
    (tmp_path / "a.json").unlink()
    with fb.Loader(data, recipe, batch_size=2) as loader, pytest.raises(fb.NotFoundError, match=r"a\.json"):
        next(iter(loader))


def test_what_is_no_tokenizer_and_what_cannot_follow_one_is_refused(tmp_path: Path) -> None:
    data = write_texts(tmp_path / "texts", TEXTS)
    for content in (b"", b"{}", b"\xff\x00", b'{"model": {"type": "BPE"}}', b"[" * 100_000):
        (tmp_path / "bad.json").write_bytes(content)
        column = fb.text("txt").tokenize(tmp_path / "bad.json")
        with (
            fb.Loader(data, [column], batch_size=2) as loader,
            pytest.raises(fb.CorruptError, match=r"bad\.json"),
        ):
            next(iter(loader))
    with pytest.raises(fb.NotFoundError, match=r"none\.json"):
        fb.text("txt").tokenize(tmp_path / "none.json")
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(fb.InvalidConfigError, match="64 MiB"):
        fb.text("txt").tokenize(tmp_path / "large.json")
    column = fb.text("txt").tokenize(tmp_path / "bad.json").pack(32)
    with pytest.raises(fb.InvalidConfigError, match="before any is read"):
        fb.Loader(data, [column], batch_size=2)


@pytest.mark.timeout(180)
def test_a_worker_tokenizes_as_this_process_does_and_refuses_another_file(tmp_path: Path) -> None:
    train("bpe", tmp_path / "tokenizer.json")
    data = write_texts(tmp_path / "texts", TEXTS * 4)
    recipe = [fb.text("txt").tokenize(tmp_path / "tokenizer.json").pad_batch()]
    with fb.Loader(data, recipe, batch_size=6, epochs=1) as loader:
        wanted = [batch["txt"].tolist() for batch in loader]
    with served.service(tmp_path, workers=1) as (url, _, _):
        with fb.Loader(data, recipe, via=url, batch_size=6, epochs=1) as loader:
            assert [batch["txt"].tolist() for batch in loader] == wanted
        train("wordpiece", tmp_path / "tokenizer.json")
        loader = fb.Loader(data, recipe, via=url, batch_size=5, epochs=1, seed=9)
        with loader, pytest.raises(fb.ForebayError, match="not the file"):
            next(iter(loader))
