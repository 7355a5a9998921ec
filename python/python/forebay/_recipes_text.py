"""Recipes by name for text: plain recipes, which print as TOML."""

from __future__ import annotations

from typing import Literal

from forebay._tokens import tokens
from forebay.recipe import Recipe

__all__ = ["lm_pack"]


def lm_pack(
    length: int = 2048,
    *,
    field: str = "tokens",
    fit: Literal["greedy", "best"] = "best",
    value: int = 0,
) -> Recipe:
    """Documents packed into rows of `length` tokens, with the labels of a language model.

    The batch has `tokens`, `tokens_labels` (the next token, -100 where there is none), `tokens_position`,
    `tokens_segment` and `tokens_cu_seqlens`. The loader's `batch_size` is the number of rows.
    """
    return Recipe([tokens(field).named("tokens").pack(length, fit=fit, value=value, labels=True)])
