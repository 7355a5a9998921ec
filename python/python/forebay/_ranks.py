"""Which rank of how many this process is: asked of whoever knows, in a fixed order.

Arguments first, then `torch.distributed` and JAX when they are imported and initialised already (nothing is imported
here), then `RANK` and `WORLD_SIZE` as `torchrun` sets them, then Slurm's variables, else one rank.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from forebay.errors import InvalidConfigError

__all__ = ["discover", "on_this_host", "store_of"]

_log = logging.getLogger("forebay")


def discover(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Rank and number of ranks; what was found, and where, is logged."""
    if rank is not None and world_size is not None:
        return rank, world_size
    if rank is not None or world_size is not None:
        given = f"rank={rank}" if world_size is None else f"world_size={world_size}"
        raise InvalidConfigError(
            f"make loader: only {given} was given", hint="give both rank and world_size, or neither"
        )
    found = _from_torch() or _from_jax() or _from_environment("RANK", "WORLD_SIZE")
    found = found or _from_environment("SLURM_PROCID", "SLURM_NTASKS")
    if found is None:
        return 0, 1
    rank, world_size, where = found
    _log.info("rank %d of %d, from %s", rank, world_size, where)
    return rank, world_size


def on_this_host(world_size: int) -> int:
    """Ranks that share this host's link: what the launcher says, else all of them are taken to be elsewhere."""
    for name in ("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE"):
        text = os.environ.get(name, "")
        if text.isdigit():
            return max(1, min(int(text), world_size))
    return 1


def store_of(store: Any) -> Any:
    """The store that ranks share: of the process group when it is `"torch"`, else what was given."""
    if not isinstance(store, str):
        return store
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        raise InvalidConfigError(
            'share a store with other ranks: ranks_store is "torch", but there is no process group',
            hint="call torch.distributed.init_process_group before the loader is made, or give ranks_folder",
        )
    return distributed.distributed_c10d._get_default_store()


def _from_torch() -> tuple[int, int, str] | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size(), "torch.distributed"


def _from_jax() -> tuple[int, int, str] | None:
    jax = sys.modules.get("jax")
    is_initialized = getattr(getattr(jax, "distributed", None), "is_initialized", None)
    if jax is None or is_initialized is None or not is_initialized():
        return None
    return jax.process_index(), jax.process_count(), "jax.distributed"


def _from_environment(rank: str, world_size: str) -> tuple[int, int, str] | None:
    if rank not in os.environ or world_size not in os.environ:
        return None
    try:
        return int(os.environ[rank]), int(os.environ[world_size]), f"{rank} and {world_size}"
    except ValueError:
        raise InvalidConfigError(
            f"make loader: {rank}=`{os.environ[rank]}` and {world_size}=`{os.environ[world_size]}` are no numbers",
            hint="give rank and world_size",
        ) from None
