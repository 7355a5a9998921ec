"""The native parts, as `forebay` uses them. Not a public interface."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, final

from typing_extensions import Buffer

__all__ = [
    "DEBUG_BUILD",
    "Dataset",
    "Loader",
    "Memory",
    "__version__",
    "available_threads",
    "merge_cursors",
    "open",
    "parse_bytes",
    "read_recipe",
    "recipe_to_toml",
    "run_cli",
    "synthetic",
]

__version__: str
DEBUG_BUILD: bool

@final
class Memory(Buffer):
    @property
    def address(self) -> int: ...
    def __len__(self) -> int: ...

@final
class Dataset:
    def __len__(self) -> int: ...
    def fields(self) -> list[tuple[str, bool]]: ...
    def class_names(self) -> list[str] | None: ...
    def version(self) -> str: ...
    def url(self) -> str: ...
    def kind(self) -> str: ...
    def notes(self) -> list[str]: ...
    def total_bytes(self) -> int: ...
    def is_object_per_sample(self) -> bool: ...
    def key(self, sample_id: int) -> str: ...
    def sample(self, sample_id: int) -> dict[str, bytes | int]: ...

@final
class Loader:
    def __new__(
        cls,
        dataset: Dataset,
        recipe: str,
        *,
        batch_size: int,
        rank: int,
        world_size: int,
        last_batch: str,
        shuffle: str,
        block_bytes: int | None,
        group_blocks: int | None,
        sharding: str | None,
        parts: int | None,
        size_classes: int | Sequence[int] | None,
        size_field: str | None,
        seed: int,
        threads: int | None,
        prefetch_batches: int | None,
        memory_bytes: int | None,
        cache: str | None,
        via: str | None,
        command: Sequence[str],
        window: int | None,
        on_error: str,
        max_errors: int | float | None,
        timeout: float | None,
        inflight: int | None,
        request_bytes: int | None,
        slow_start: int | None,
        hedge: bool,
        request_tries: int | None,
        request_timeout: float | None,
        request_deadline: float | None,
        local_ranks: int,
        epochs: int | None,
        thread_init: Callable[[int], object] | None,
    ) -> Loader: ...
    def begin(self) -> None: ...
    def next(self) -> tuple[int, int, int, Memory, Memory, list[tuple[str, str, Any]]] | None: ...
    def cursor(self) -> str: ...
    def seek(self, cursor: str) -> None: ...
    def seek_epoch(self, epoch: int) -> None: ...
    def seek_batch(self, epoch: int, batch: int) -> None: ...
    def steps(self) -> int: ...
    def epoch_samples(self) -> int: ...
    def epoch(self) -> int: ...
    def stats(self) -> str: ...
    def faults(self) -> list[tuple[int, str, int, Exception, int | None]]: ...
    def resize_cache(self, cache: str) -> None: ...
    def close(self) -> None: ...

def open(
    spec: list[str],
    *,
    labels: Path | None = None,
    kind: str | None = None,
    manifest_dir: Path | None = None,
    rebuild: bool = False,
    storage_options: dict[str, str] | None = None,
    local: Path | None = None,
    extensions: list[str] | None = None,
    progress: Callable[[int, int, int, int], object] | None = None,
) -> Dataset: ...
def synthetic(
    samples: int,
    *,
    bytes: int,
    templates: list[bytes] | None = None,
    field: str = "bin",
    classes: int = 10,
    shards: int = 1,
    seed: int = 0,
) -> Dataset: ...
def available_threads() -> int: ...
def parse_bytes(text: str) -> int: ...
def merge_cursors(cursors: list[str], samples: int) -> str: ...
def read_recipe(text: str, *, toml: bool = False) -> tuple[str, str]: ...
def recipe_to_toml(json: str) -> str: ...
def run_cli(args: list[str]) -> int: ...
