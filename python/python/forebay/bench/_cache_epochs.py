"""What the second epoch still fetches when a share of the dataset may stay: ours beside the caches of others.

Each subject reads two shuffled epochs of the same payloads with room for a share of them, and counts the bytes that
came from the origin in the second. Others copy whole shards from a folder that stands for the remote store, all of
them by ``shutil.copy``, so the copies are counted there; what they read besides is not.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Settings = dict[str, Any]

SHARD_BYTES = 1 << 20
"""Of the others' shards: small, so that a share of the dataset is many shards."""


def _payloads(settings: Settings) -> list[bytes]:
    import forebay as fb

    data = fb.open(f"{settings['path_shards']}/*.tar", manifest_dir=settings["path_manifests"])
    with fb.Loader(data, [fb.raw("jpg")], batch_size=256, epochs=1) as loader:
        return [bytes(payload) for batch in loader for payload in batch["jpg"]]


class _Copies:
    """Counts the bytes of files that are copied while it is in force."""

    def __init__(self) -> None:
        self.bytes = 0
        self._plain: Callable[..., Any] = shutil.copy

    def __enter__(self) -> _Copies:
        def counted(source: str, target: str, **how: Any) -> Any:
            self.bytes += Path(source).stat().st_size
            return self._plain(source, target, **how)

        shutil.copy = counted  # type: ignore[assignment]
        return self

    def __exit__(self, *_: object) -> None:
        shutil.copy = self._plain


def _second_epoch(data: Iterable[object], copies: _Copies, total: int) -> float:
    """The share of all bytes that the second of two epochs copies."""
    for _sample in data:
        pass
    before = copies.bytes
    for _sample in data:
        pass
    return (copies.bytes - before) / total


def epoch2_forebay(settings: Settings, percent: int) -> float:
    """Ours."""
    import forebay as fb

    data = fb.open(f"{settings['path_shards']}/*.tar", manifest_dir=settings["path_manifests"])
    total = sum(len(payload) for payload in _payloads(settings))
    with fb.Loader(
        data, [fb.raw("jpg")], batch_size=64, shuffle="full", epochs=2, cache=total * percent // 100
    ) as loader:
        for _ in range(2):
            for _batch in loader:
                pass
        # The first epoch misses everything once.
        return float(loader.stats()["cache_miss_bytes"] - total) / total


def epoch2_streaming(settings: Settings, percent: int) -> float:
    """MosaicML Streaming with ``cache_limit``, shuffled as it does when nothing else is said: over all shards here."""
    return _streaming(settings, percent)


def epoch2_streaming_blocks(settings: Settings, percent: int) -> float:
    """The same, shuffled in blocks that fit into its room four times."""
    return _streaming(settings, percent, shuffle_block_size=len(_payloads(settings)) * percent // 400)


def _streaming(settings: Settings, percent: int, **shuffle: int) -> float:
    from streaming import MDSWriter, StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    clean_stale_shared_memory()
    with tempfile.TemporaryDirectory() as root:
        with MDSWriter(out=f"{root}/remote", columns={"jpg": "bytes"}, size_limit=SHARD_BYTES) as writer:
            for payload in _payloads(settings):
                writer.write({"jpg": payload})
        total = sum(path.stat().st_size for path in Path(root, "remote").glob("*.mds"))
        with _Copies() as copies:
            data = StreamingDataset(
                remote=f"{root}/remote",
                local=f"{root}/local",
                shuffle=True,
                batch_size=64,
                cache_limit=total * percent // 100,
                num_canonical_nodes=1,
                **shuffle,
            )
            return _second_epoch(data, copies, total)


def epoch2_litdata(settings: Settings, percent: int) -> float:
    """LitData with ``max_cache_size``."""
    import litdata
    from litdata.streaming.cache import Cache

    with tempfile.TemporaryDirectory() as root:
        cache = Cache(f"{root}/remote", chunk_bytes=SHARD_BYTES)
        for index, payload in enumerate(_payloads(settings)):
            cache[index] = payload
        cache.done()
        cache.merge()
        total = sum(path.stat().st_size for path in Path(root, "remote").glob("*.bin"))
        with _Copies() as copies:
            data = litdata.StreamingDataset(
                f"local:{root}/remote",
                cache_dir=f"{root}/local",
                shuffle=True,
                max_cache_size=total * percent // 100,
            )
            return _second_epoch(data, copies, total)


SUBJECTS = {
    f"{subject.__name__}_{percent}": (subject, percent)
    for subject in (epoch2_forebay, epoch2_streaming, epoch2_streaming_blocks, epoch2_litdata)
    for percent in (35, 65)
}
