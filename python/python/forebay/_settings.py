"""From checked arguments to what the native loader is told, and the order in words."""

from __future__ import annotations

import sys
from typing import Any

from forebay import _native, _ranks
from forebay._config import Unset
from forebay.dataset import Dataset
from forebay.errors import InvalidConfigError
from forebay.recipe import Recipe

__all__ = ["order_text", "settings_of"]

_MOST_ROWS = 2**20
"""Samples of a batch that only `batch_bytes` bounds."""

_ARRIVAL_WINDOW = 1024
"""Places by which a sample may be late when the order is by arrival and no window is given."""


def settings_of(config: dict[str, Any], data: Dataset) -> dict[str, Any]:
    """What the native loader is told."""
    rank, world_size = _ranks.discover(config["rank"], config["world_size"])
    shuffle = config["shuffle"]
    if shuffle is True:
        shuffle = "full" if data.native.is_read_one_by_one() else "block"
    seed = config["seed"]
    if seed is None:
        generator = config["generator"]
        seed = 0 if generator is None else int(generator.initial_seed()) % 2**64
    window = None
    if not config["in_order"]:
        window = _ARRIVAL_WINDOW if config["window"] is None else config["window"]
    elif config["window"]:
        raise InvalidConfigError(
            f"make loader: window is {config['window']}, but order is by plan", hint="add `in_order=False`"
        )
    prefetch, factor = config["prefetch_batches"], config["prefetch_factor"]
    threads = config["num_workers"]
    if threads is None and config["processes"]:
        # A thread waits for each helper, and needs no processor for that.
        threads = max(_native.available_threads(), config["processes"])
    return {
        "batch_size": _batch_size(config),
        "rank": rank,
        "world_size": world_size,
        "last_batch": _last_batch(config),
        "turn": (0, 1),
        "shuffle": shuffle or "none",
        "epoch_samples": config["epoch_samples"],
        "mix_schedule": [
            {**change, "weights": data.native.mix_weights(change["weights"])}
            for change in config["mix_schedule"] or ()
        ],
        "mix_set": [],
        "block_bytes": config["block_bytes"],
        "group_blocks": config["group_blocks"],
        "sharding": config["sharding"],
        "parts": config["parts"],
        "size_classes": config["size_classes"],
        "size_field": config["size_field"],
        "bucket": config["bucket"],
        "batch_bytes": config["batch_bytes"],
        "oversize": config["oversize"],
        "length_field": config["length_field"],
        "seed": seed,
        "threads": None if threads is None else max(threads, 1),
        "prefetch_batches": factor if prefetch is None else prefetch,
        "memory_bytes": config["memory"],
        "window": window,
        "on_error": config["on_error"],
        "max_errors": config["max_errors"],
        "quarantine": config["quarantine"],
        "ledger": config["ledger"],
        "timeout": config["timeout"],
        "inflight": config["inflight"],
        "request_bytes": config["request_bytes"],
        "cache": config["cache"],
        "via": config["via"],
        "metrics": config["metrics"],
        "ranks_folder": config["ranks_folder"],
        "ranks_store": config["ranks_store"],
        "command": [sys.executable, "-m", "forebay"],
        "slow_start": config["slow_start"],
        "hedge": config["hedge"],
        "request_tries": config["request_tries"],
        "request_timeout": config["request_timeout"],
        "request_deadline": config["request_deadline"],
        "local_ranks": _ranks.on_this_host(world_size),
        # Not an argument: without it stalls are not explained and nothing tunes itself. A bench measures what it costs.
        "metering": True,
        "epochs": config["epochs"],
        "thread_init": config["worker_init_fn"],
    }


def _batch_size(config: dict[str, Any]) -> int:
    size = config["batch_size"]
    if isinstance(size, Unset):
        # Bytes alone bound a batch, when they do.
        return 1 if config["batch_bytes"] is None else _MOST_ROWS
    if size is None and not (config["bucket"] is None and config["batch_bytes"] is None):
        raise InvalidConfigError(
            "make loader: batch_size=None yields single samples, but `bucket` or `batch_bytes` cuts batches"
        )
    return 1 if size is None else int(size)


def _last_batch(config: dict[str, Any]) -> str:
    named, drop = config["last_batch"], config["drop_last"]
    if named is None:
        return "drop" if drop else "partial"
    if drop is not None and drop != (named == "drop"):
        raise InvalidConfigError(
            f"make loader: drop_last={drop} and last_batch={named!r} contradict each other"
        )
    return str(named)


def order_text(settings: dict[str, Any], data: Dataset, recipe: Recipe) -> str:
    """Order in one word, with what changes it."""
    text = str(settings["shuffle"])
    mixed = data.native.mix()
    if mixed is not None:
        # How a mix is shuffled makes no difference to it; its weights do, and they are not part of the version.
        text = "mix:" + ",".join(f"{samples}*{weight:.12g}" for samples, weight in mixed)
    names = ["block_bytes", "group_blocks"] if text == "block" else []
    names += ["epoch_samples"]
    if settings["sharding"] not in (None, "dynamic"):
        names += ["sharding", "parts", "batch_size"]
    if settings["size_classes"] is not None:
        names += ["size_classes", "size_field", "batch_size", "world_size"]
    # Bytes alone only cut what stays where it is, as the batch size does.
    if settings["bucket"] is not None or settings["oversize"] == "drop":
        names += ["bucket", "batch_bytes", "oversize", "length_field", "batch_size"]
    # Documents that are packed as they come stay where they are; others move between batches of so many rows.
    ops = (op for entry in recipe.entries() for op in entry.get("ops", []))
    if any(op["op"] == "pack" and (op["fit"] == "best" or op["long"] == "drop") for op in ops):
        names += ["batch_size"]
    told = {name: settings[name] for name in names if settings[name] is not None}
    return ":".join([text, *(f"{name}={value}" for name, value in told.items())])
