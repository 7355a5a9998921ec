"""Prepared samples saved as a dataset of shards: `fb.materialize(data, recipe, out)`."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from forebay import _native
from forebay.dataset import Dataset, _texts
from forebay.loader import Loader
from forebay.recipe import Recipe, RecipeLike

__all__ = ["materialize"]


def materialize(
    data: Dataset | str | os.PathLike[str],
    recipe: RecipeLike,
    out: str | os.PathLike[str],
    *,
    epoch: int = 0,
    chunk_samples: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    claim_timeout: float = 60.0,
    dry_run: bool = False,
    progress: Callable[[int, int], object] | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Saves the prepared samples of one epoch as tar shards that open like any other dataset.

    data, recipe: what is prepared, and how; other arguments of `Loader`, such as `batch_size`, `shuffle`, `seed`, `via`
        and `on_error`, may follow. Every position of the epoch is saved, whatever rank and end of epoch say.
    out: a folder, or a store such as `s3://bucket/prepared`.
    epoch: the epoch whose order and draws are saved.
    chunk_samples: samples of one shard, whole batches: 1024 rounded up, or what is there already, when not given.
    storage_options: what the store of `out` is told.
    claim_timeout: seconds of silence after which the shard of another run that writes to `out` is made by this one.
    dry_run: only look at what is there and say what would be made.
    progress: called now and then with samples saved and samples that were missing.

    The same call again makes what is missing, and several calls, in any processes and on any machines, share it.
    Returns what was done: `shards`, `found` (there before), `made`, `made_by_others`, `samples`, `saved`, `bytes`,
    `bad`, `random_ops`, and `recipe`, a `Recipe` that reads `out` back byte for byte, as `recipe.json` there does.
    Random ops are drawn once, so that every later epoch sees the same: a warning says so.
    """
    whole = {"rank": 0, "world_size": 1, "last_batch": "partial", "in_order": True, "epochs": epoch + 1}
    loader = Loader(data, recipe, **{**settings, **whole})
    arguments: dict[str, Any] = {
        "epoch": epoch,
        "chunk_samples": chunk_samples,
        "storage_options": _texts(storage_options or {}),
        "claim_timeout": float(claim_timeout),
    }

    def run(dry: bool) -> dict[str, Any]:
        native, text = loader.dataset.native, loader.recipe.to_json()
        said = _native.materialize(
            native, text, loader._told(), os.fspath(out), **arguments, dry_run=dry, progress=progress
        )
        return dict(json.loads(said))

    try:
        planned = run(True)
        if planned["random_ops"]:
            names = ", ".join(planned["random_ops"])
            warnings.warn(
                f"{names} in the recipe: what epoch {epoch} draws is saved, and every later epoch sees the same",
                UserWarning,
                stacklevel=2,
            )
        done = planned if dry_run else run(False)
    finally:
        loader.close()
    done["recipe"] = Recipe(json.dumps(done["recipe"]))
    return done
