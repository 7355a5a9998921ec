"""Columns of text and tokens. Tokens are integers in a row: stored as such, or the bytes of a text.

Ops come in the order in which they are written; `pack` and `pad_batch` are of whole batches and come last.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

from forebay.errors import InvalidConfigError, NotFoundError
from forebay.recipe import Column, Dtype

__all__ = ["Text", "Tokens", "tokens"]

_MAX_TOKENIZER_BYTES = 64 << 20


class Tokens(Column):
    """A column of tokens, `i64` unless `dtype` says another type of integers."""

    __slots__ = ()

    def slice(self, start: int, length: int) -> Self:
        """Takes `length` tokens from `start` on, and refuses samples that have fewer. Then all samples have one
        length, and are written straight into the batch."""
        return self._op("slice", start=start, length=length)

    def truncate(self, length: int, *, side: Literal["left", "right"] = "right") -> Self:
        """Cuts off what is more than `length` tokens, at the end or at the beginning."""
        return self._op("truncate", length=length, side=side)

    def random_window(self, length: int) -> Self:
        """Takes `length` tokens from a random place on, another one in every epoch; shorter samples are taken whole.
        Where samples are documents, a window never leaves its document."""
        return self._op("random_window", length=length)

    def mask_tokens(
        self,
        p: float = 0.15,
        *,
        mask_id: int,
        vocab: int,
        special: Sequence[int] = (),
        random: float = 0.1,
        keep: float = 0.1,
    ) -> Self:
        """Hides tokens for masked-language modelling, drawn anew in every epoch.

        Each token but the `special` ones is chosen with probability `p`. Of the chosen, a share `random` becomes a
        token below `vocab`, a share `keep` stays, and the others become `mask_id`. A column `NAME_labels` has what the
        chosen were, and -100 elsewhere.
        """
        given: dict[str, Any] = {"mask_id": mask_id, "vocab": vocab, "special": list(special)}
        return self._op("mask_tokens", p=p, **given, random=random, keep=keep)

    def pad_batch(  # type: ignore[override]
        self,
        value: int = 0,
        *,
        multiple: int = 1,
        to: int | None = None,
        mask: bool = False,
        side: Literal["left", "right"] = "right",
    ) -> Self:
        """Makes one array of rows of different lengths, filled with `value` on one `side`. Comes last.

        Lengths are rounded up to a `multiple`, or are `to` in every batch, which no row may exceed. A column
        `NAME_length` has the real lengths; with `mask` a column `NAME_mask` is true where tokens are real.
        """
        # The right side is not spelled out: such recipes are what they were before there was another.
        left = {"side": side} if side != "right" else {}
        return self._op("pad_batch", value=value, multiple=multiple, to=to, mask=mask, **left)

    def pack(
        self,
        length: int,
        *,
        fit: Literal["greedy", "best"] = "greedy",
        look_ahead: int = 256,
        long: Literal["split", "truncate", "drop"] = "split",
        value: int = 0,
        labels: bool = False,
        documents: int = 128,
    ) -> Self:
        """Packs documents into rows of `length` tokens; the loader's `batch_size` is the rows of a batch.

        Documents are dealt to batches before any is read, by the lengths that the dataset knows, so every token comes
        once whoever reads and however often a run was resumed. Comes last.

        length: tokens of a row.
        fit: `"greedy"` takes documents in the order of the plan; `"best"` puts each into the fullest row that has room,
            and keeps what fits nowhere for the next batch.
        look_ahead: documents, in the order of the plan, among which `"best"` looks for one that fits.
        long: what becomes of documents longer than a row: they go on in the next row, are cut off, or are left out.
            What is beyond all rows of a batch is in no other: `stats()["cut_off_tokens"]` counts it, a warning says so.
        value: what is behind the last document of a row.
        labels: whether a column `NAME_labels` has the next token of the same document, and -100 where there is none.
        documents: most documents of a row, as a mean over the batch.

        Beside the column there are `NAME_position` (counted anew in every document), `NAME_segment` (1 for the first
        document of a row, 0 behind the last) and `NAME_cu_seqlens` (where documents begin and end in all rows one after
        the other, as attention kernels for rows of varying length take it).
        """
        return self._op(
            "pack",
            length=length,
            fit=fit,
            look_ahead=look_ahead,
            long=long,
            value=value,
            labels=labels,
            documents=documents,
        )


class Text(Column):
    """A column of texts."""

    __slots__ = ()

    def byte_tokens(self, *, offset: int = 0, bos: int | None = None, eos: int | None = None) -> Tokens:
        """Takes the bytes of the UTF-8 text as tokens: 0 to 255, moved by `offset`, between `bos` and `eos` when those
        are given. Needs no vocabulary."""
        return Tokens(self._op("byte_tokens", offset=offset, bos=bos, eos=eos)._data)

    def tokenize(self, file: str | os.PathLike[str], *, add_special_tokens: bool = True) -> Tokens:
        """Takes the tokens that a `tokenizer.json` of Hugging Face makes of the text: those of
        `Tokenizer.from_file(file).encode(text).ids`, with the truncation and padding that the file asks for.

        file: the tokenizer, of at most 64 MiB. The recipe holds its path and its SHA-256, so another content is another
            recipe. Processes that prepare samples read it under the same path, and refuse one that differs.
        add_special_tokens: whether the tokens that it puts around every text are there.

        How many tokens a text has is not known before it is read, so `pack` is refused after it. The command `forebay
        tokenize` writes them to a file once, which `fb.open` opens and `pack` packs.
        """
        path = Path(file).absolute()
        parameters = {"file": str(path), "sha256": _sha256(path)}
        return Tokens(self._op("tokenize", **parameters, add_special_tokens=add_special_tokens)._data)


def tokens(
    field: str = "tokens",
    *,
    dtype: Dtype | None = None,
    stored: Dtype | None = None,
    length: int | None = None,
) -> Tokens:
    """A column of tokens: files of tokens, `.npy` arrays, lists of JSON, or payloads of bare integers.

    field: field of the sample; files of tokens have `tokens`.
    dtype: element type of the column, `i64` by default. A token that does not fit is an error.
    stored: element type of payloads that are bare integers; files of tokens and arrays tell theirs.
    length: tokens of every sample, when all have as many: they are written straight into the batch.
    """
    decode: dict[str, Any] = {"kind": "tokens"}
    if stored is not None:
        decode["stored"] = stored
    if length is not None:
        decode["length"] = length
    data: dict[str, Any] = {"field": field, "decode": decode}
    if dtype is not None:
        data["dtype"] = dtype
    return Tokens(data)


def _sha256(path: Path) -> str:
    doing = f"read tokenizer `{path}`"
    try:
        if path.stat().st_size > _MAX_TOKENIZER_BYTES:
            raise InvalidConfigError(f"{doing}: it has more than 64 MiB")
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as problem:
        raise NotFoundError(f"{doing}: {problem.strerror}") from problem
