"""Ops on whole samples and whole batches, for the end of a recipe.

Their names are those of builtins, as `open` is: they live in a module of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forebay.recipe import Function, SampleOp

__all__ = ["cutmix", "filter", "map", "map_batch", "mixup", "mixup_or_cutmix"]


def map(
    function: Function, *, fields: str | Sequence[str], outputs: str | Sequence[str] | None = None
) -> SampleOp:
    """Replaces columns of a sample by what `function` makes of them: a dict in, a dict out.

    A second argument gets a generator, as with the `map` of a column.

    function: something to call, or `"module:name"`.
    fields: columns that it is given; they are gone afterwards unless it gives them back.
    outputs: columns that it gives; the same if not said.
    """
    said: dict[str, Any] = {} if outputs is None else {"outputs": _names(outputs)}
    return SampleOp("map", function, fields=_names(fields), **said)


def filter(function: Function, *, fields: str | Sequence[str]) -> SampleOp:
    """Leaves out samples for which `function` of a dict of these columns does not say yes.

    What becomes of their batches: see the `filter` of a column.
    """
    return SampleOp("filter", function, fields=_names(fields))


def map_batch(function: Function) -> SampleOp:
    """Replaces the columns of a batch by what `function` makes of them: a `Batch` in, a dict of columns out.

    It runs where samples are prepared, not in the training loop. Columns are NumPy arrays, lists and `Payloads`,
    whatever the loader's output is; every column it gives has one row per sample. A second argument gets a generator
    that is the same for the same samples, on any number of ranks.
    """
    return SampleOp("map_batch", function)


def mixup(
    classes: int, *, image: str = "jpg", label: str = "cls", alpha: float = 1.0, p: float = 1.0
) -> SampleOp:
    """Blends every image of a batch with another one of it, by a share drawn from Beta(`alpha`, `alpha`) for the batch.

    The last op of a recipe. Labels become `f32` rows of `classes` shares. Partners are so many rows before, a number
    that is drawn; everything drawn is the same for the same samples, on any number of ranks and wherever the batch is
    made. A batch of one sample is left as it is.

    classes: number of classes; labels are below it.
    image: column of images, which the recipe makes all of one size.
    label: column of labels.
    p: probability that a batch is mixed.
    """
    return SampleOp("mixup", None, image=image, label=label, classes=classes, alpha=alpha, p=p)


def cutmix(
    classes: int, *, image: str = "jpg", label: str = "cls", alpha: float = 1.0, p: float = 1.0
) -> SampleOp:
    """Puts a box of another image of the batch into every image; the box is drawn for the batch, and labels have the
    share of its area. Otherwise as `mixup`."""
    return SampleOp("cutmix", None, image=image, label=label, classes=classes, alpha=alpha, p=p)


def mixup_or_cutmix(
    classes: int,
    *,
    image: str = "jpg",
    label: str = "cls",
    mixup_alpha: float = 1.0,
    cutmix_alpha: float = 1.0,
    cutmix_share: float = 0.5,
    p: float = 1.0,
) -> SampleOp:
    """Mixes a batch with probability `p`: with probability `cutmix_share` by `cutmix`, otherwise by `mixup`."""
    return SampleOp(
        "mixup_or_cutmix",
        None,
        image=image,
        label=label,
        classes=classes,
        mixup_alpha=mixup_alpha,
        cutmix_alpha=cutmix_alpha,
        cutmix_share=cutmix_share,
        p=p,
    )


def _names(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)
