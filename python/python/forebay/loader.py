"""The loader: what a training loop iterates over."""

from __future__ import annotations

import atexit
import dataclasses
import json
import logging
import os
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self

from forebay import _config, _native, _ranks
from forebay._calls import Calls, check_elsewhere
from forebay._config import UNSET, Unset
from forebay._service import Service
from forebay._settings import order_text, settings_of
from forebay._state import FORMAT, check_state, schedule_of
from forebay._turns import Turns
from forebay.batch import Batch, Output, output_named, wrap
from forebay.dataset import Dataset
from forebay.dataset import open as open_dataset
from forebay.errors import ForebayError, InvalidConfigError, StaleError, UnsupportedError
from forebay.recipe import Recipe, RecipeLike
from forebay.stats import Phase, Stats

__all__ = ["BadSample", "Loader", "SkippedBatch", "show"]

_log = logging.getLogger("forebay")

# What one loader of a rank does, and those that it makes to help or to look do not.
_ALONE = {"metrics": None, "ranks_folder": None, "ranks_store": None}


@dataclasses.dataclass(frozen=True)
class BadSample:
    """A sample that went wrong: which, why, and what took its place."""

    sample_id: int
    key: str
    epoch: int
    error: ForebayError
    substitute: int | None
    """The sample that took its place, if one did."""


@dataclasses.dataclass(frozen=True)
class SkippedBatch:
    """A batch that was left out, because it was no longer kept and was not to be made again."""

    epoch: int
    step: int
    """Number of the batch in its iteration: no `Batch.step` of the epoch is the same."""
    ids: tuple[int, ...]
    """The samples that it would have had, without rows that only fill it."""


class Loader:
    """Iterates over a dataset, batch by batch, epoch after epoch, resumable at any step.

    Every argument can also be given as an environment variable `FOREBAY_` + its name in capitals; the argument wins.
    Where not stated otherwise `None` or `"auto"` leaves the choice to the loader.

    data: a `Dataset`, or what `open` takes.
    recipe: columns (`[fb.image("jpg").resize(224), fb.label("cls")]`), a `Recipe`, JSON or TOML.
    batch_size: samples per batch and rank, 1 if not given; the most of them with `bucket` or `batch_bytes`; rows where
        the recipe packs documents. `None` yields single samples without a batch axis.
    shuffle: `False` keeps the stored order. `"full"` permutes all samples; `"block"` permutes blocks of neighbours
        and mixes them in groups, so that reads stay sequential. `True` is `"block"` for shards and `"full"` for one
        object per sample. `"resample"` draws every sample from all, with replacement. A `mix` needs one of the
        others, and is permuted as a whole.
    epoch_samples: samples of an epoch of a mix or of `shuffle="resample"`, over all ranks; as many as the dataset has
        if not given. A mix can say what ends an epoch instead: `"first"` is as long as no sample has to come twice,
        `"all"` until every sample came.
    mix_schedule: other weights of a mix from a place on, through all epochs after it: `(epoch, weights)` or
        `(epoch, position, weights)` each, a weight for every dataset. A change waits for the next 1024 positions.
    sharding: deals the dataset to `parts` parts that are read in turn, a batch of each: `"file"` (objects in turn),
        `"data"` (samples in turn), `"file_or_data"` (by objects if there are enough), `"hint:FIELD"` (by an integer
        field), `"off"` (every part has every sample, so an epoch has each of them `parts` times), `"dynamic"` (no
        parts, as when not given). The batch size is part of the order.
    parts: number of parts, such as that of workers or ranks.
    size_classes: gives all ranks samples of about one size at every step: a number of classes that hold equal shares of
        all bytes, or boundaries in bytes such as `[1024, "4KiB"]`. Batch size and world size are part of the order.
    size_field: the field whose payload counts for `size_classes`; all fields together if not given.
    bucket: batches of samples of about one length: the longest is at most so many times the shortest (`1.25`), or
        boundaries of buckets such as `[1024, "4KiB"]`. Any order can be bucketed, and batches are the same on any
        number of ranks. Batches that did not become full come at the end of the epoch; `last_batch="drop"` leaves them
        out.
    batch_bytes: most bytes of a batch, such as `"64MiB"`: the sum of its lengths, or with `bucket` its longest length
        times its samples, which is what it takes padded. `batch_size` is then the most samples of a batch, and need
        not be given. The number of batches may differ from epoch to epoch.
    oversize: what a sample does that alone is larger than `batch_bytes`: `"alone"` (the default) makes it a batch of
        its own, `"drop"` leaves it out; `stats()["left_out"]` counts it.
    length_field: what a length is for `bucket` and `batch_bytes`: the bytes of this field's payload, or the number in
        this integer field, such as a count of tokens; all payloads together if not given.
    seed: of the order and of all random ops; 0 if not given.
    drop_last: leaves out the samples that do not fill a last batch on every rank; short for `last_batch="drop"`.
    last_batch: `"partial"` (the default; last batches are shorter), `"drop"`, `"pad"` (the last sample is repeated and
        marked), `"wrap"` (the first samples are repeated and marked). All ranks have the same number of batches.
    num_workers: preparing threads. If not given, one per processor to begin with, and more where the loop waits for
        them and they help. 0 is 1: there are no worker processes to avoid.
    prefetch_batches: batches kept ready. If not given, as many as fit in 128 MiB, at most 8, and more within `memory`
        where the loop waits because they come in bursts.
    prefetch_factor: the same. It is not multiplied by `num_workers`, because threads work on one batch together.
    memory: bytes that payloads and undelivered batches may take together, such as `"1GiB"`.
    cache: keeps payloads near, so that later epochs read only what does not fit: a size such as `"64GiB"` for memory,
        or `{"memory": "64GiB", "disk": "/nvme/forebay:500GiB"}`. Nothing is evicted: what is kept is chosen by seed,
        and every epoch from the second on hits exactly that. `"at"` says what memory keeps of a sample: `"bytes"`
        (the default), decoded pixels (`"decode"`), what an op made of them, or what is measured to be best (`"auto"`).
    via: where batches are made. `None` is this process. `"auto"` is one process of this host that all its jobs and
        ranks share (`"unix:///path"` names its socket); `"forebay://host:port"` is a service with workers on other
        machines. A dict says more: `{"url": ..., "job": ..., "late": "remake"|"wait"|"spill"|"skip", "visitation":
        "exactly_once"|"at_least_once"|"at_most_once", "target": "any"|"auto"|"local", "tag": ..., "compression":
        "none"|"lz4"|"zstd"|"auto", "credentials": ..., "token_file": ..., "tls_ca": ..., "tls_cert": ..., "tls_key":
        ...}`. `"forebay://auto"` is the service of this Slurm or torchrun job; what `forebay.ray.start` gives is
        taken as it is. Batches, order and state are the same whatever it is.
    metrics: shows figures to Prometheus at `http://HOST:PORT/metrics` from the first `iter` to `close`: an address
        such as `"127.0.0.1:9464"` (port 0 is any free one), or `{"listen": ..., "token_file": ...}` for readers on
        other machines. Ranks of one host listen at one port after the other. `"otlp"` pushes them to a collector of
        OpenTelemetry instead, where `OTEL_EXPORTER_OTLP_ENDPOINT` says; a dict with `listen` and `"otlp": True` does
        both.
    ranks_folder: a folder that all ranks of the job can write, such as `/dev/shm/job-17` for ranks of one host. They
        tell each other there how they go, a few times a second and without waiting for each other; `stats()` then names
        the rank that makes the others wait, with its late stage, and says what was waited for others
        (`others_seconds`).
    ranks_store: the same by a store of torch instead of a folder: `"torch"` for that of the process group, which must
        be initialised, or a `torch.distributed.Store` of your own.
    inflight: requests to the store at once. If not given, remote stores find out what fills the link, and 64 go to
        files of this machine.
    request_bytes: how much neighbours are read by one request; follows the link if not given.
    request_tries, request_timeout, request_deadline: how often a request to a remote store is made that gets a wrong
        answer (5), how many seconds one try may take (60) and all of them together (180). A store that is away is
        waited for until the latter.
    hedge: a second request is sent when the first one to a remote store takes suspiciously long; at most 4 % more.
    slow_start: begin with two batches ahead and take one more every so many steps, until `prefetch_batches` are; `None`
        begins with all.
    in_order: `False` delivers samples as they arrive, exactly once and inside their epoch.
    window: with `in_order=False`, by how many places a sample may be late; 1024 if not given, at most 8192.
    timeout: longest wait for a batch in seconds; 600 if not given, 0 or `None` for ever.
    rank, world_size: asked of `torch.distributed`, JAX, `RANK`/`WORLD_SIZE` or Slurm when both are `None`.
    on_error: what a bad sample does: `"raise"`, `"skip"` (its row is left out) or `"substitute"` (another sample takes
        its row). `errors()` lists them.
    max_errors: bad samples that one epoch may have: a count, or a share of the samples as a float.
    quarantine: a file that bad samples are written to, one JSON object a line. Samples of this dataset that are in it
        when the loader is made are not read: others stand in for them, the same on any number of ranks.
    ledger: a folder in which each rank writes down what its loop received, in files of its own; `forebay ledger check`
        proves from them that every sample came once, over all restarts. About eleven bytes a batch.
    output: `"numpy"`, `"torch"`, `"jax"`, or `"dlpack"` (objects with `__dlpack__`, which NumPy arrays are).
    epochs: after how many epochs nothing more is prefetched; iterating further is an error.
    block_bytes, group_blocks: size of a block (1 MiB) and blocks that are mixed (32) under `shuffle="block"`.
    processes: helper processes that call the recipe's functions, each of which must be importable by its module. `None`
        or 0 calls them in the preparing threads. Helpers are started when they are needed and end with the loader.
    collate: called with the list of a batch's samples, each a dict of its columns; what it gives is what the loop gets.
        It runs in the preparing threads, or in this process's loop with `via`.
    collate_fn: the same, by PyTorch's name.
    worker_init_fn: called in every preparing thread with its number before its first sample.
    pin_memory: with `output="torch"` and CUDA, tensors are copied into pinned memory. Otherwise without effect.
    generator: its `initial_seed()` is the seed, if `seed` is not given.
    persistent_workers, multiprocessing_context, pin_memory_device: taken for PyTorch's sake and without effect: threads
        live until `close`, and there are no processes.

    No thread runs before the first batch is asked for. `iter` begins the next epoch; only the newest iterator is
    live. A loader can be pickled, with its place; it cannot be used in a forked child once it was used.
    """

    def __init__(
        self,
        data: Dataset | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        recipe: RecipeLike,
        *,
        batch_size: int | Unset | None = UNSET,
        shuffle: bool | Literal["full", "block", "resample"] | Unset = UNSET,
        epoch_samples: int | Literal["first", "all"] | Unset | None = UNSET,
        mix_schedule: Sequence[Sequence[Any] | Mapping[str, Any]] | Unset | None = UNSET,
        sharding: str | Unset | None = UNSET,
        parts: int | Unset | None = UNSET,
        size_classes: int | Sequence[int | str] | Unset | None = UNSET,
        size_field: str | Unset | None = UNSET,
        bucket: float | Sequence[int | str] | Unset | None = UNSET,
        batch_bytes: int | str | Unset | None = UNSET,
        oversize: Literal["alone", "drop"] | Unset | None = UNSET,
        length_field: str | Unset | None = UNSET,
        seed: int | Unset | None = UNSET,
        drop_last: bool | Unset | None = UNSET,
        last_batch: Literal["drop", "partial", "pad", "wrap"] | Unset | None = UNSET,
        num_workers: int | Literal["auto"] | Unset | None = UNSET,
        prefetch_batches: int | Literal["auto"] | Unset | None = UNSET,
        prefetch_factor: int | Unset | None = UNSET,
        memory: int | str | Unset | None = UNSET,
        cache: int | str | Mapping[str, Any] | Unset | None = UNSET,
        via: str | Mapping[str, Any] | Service | Unset | None = UNSET,
        metrics: str | Mapping[str, Any] | Unset | None = UNSET,
        ranks_folder: str | os.PathLike[str] | Unset | None = UNSET,
        ranks_store: Any | Literal["torch"] | Unset | None = UNSET,
        inflight: int | Literal["auto"] | Unset | None = UNSET,
        request_bytes: int | str | Unset | None = UNSET,
        request_tries: int | Literal["auto"] | Unset | None = UNSET,
        request_timeout: float | Literal["auto"] | Unset | None = UNSET,
        request_deadline: float | Literal["auto"] | Unset | None = UNSET,
        hedge: bool | Unset = UNSET,
        slow_start: int | Unset | None = UNSET,
        in_order: bool | Unset = UNSET,
        window: int | Literal["auto"] | Unset | None = UNSET,
        timeout: float | Unset | None = UNSET,
        rank: int | Unset | None = UNSET,
        world_size: int | Unset | None = UNSET,
        on_error: Literal["raise", "skip", "substitute"] | Unset = UNSET,
        max_errors: int | float | Unset | None = UNSET,
        quarantine: str | os.PathLike[str] | Unset | None = UNSET,
        ledger: str | os.PathLike[str] | Unset | None = UNSET,
        output: Literal["numpy", "torch", "jax", "dlpack"] | Unset = UNSET,
        epochs: int | Unset | None = UNSET,
        block_bytes: int | str | Unset | None = UNSET,
        group_blocks: int | Unset | None = UNSET,
        pin_memory: bool | Unset = UNSET,
        persistent_workers: bool | Unset = UNSET,
        processes: int | Unset | None = UNSET,
        collate: Callable[[list[dict[str, Any]]], Any] | Unset | None = UNSET,
        collate_fn: Callable[[list[dict[str, Any]]], Any] | Unset | None = UNSET,
        worker_init_fn: Callable[[int], object] | Unset | None = UNSET,
        generator: Any | Unset | None = UNSET,
        multiprocessing_context: Any | Unset | None = UNSET,
        pin_memory_device: str | Unset | None = UNSET,
        **unknown: Any,
    ) -> None:
        given = {name: value for name, value in locals().items() if name in _config.ARGUMENTS}
        for name in unknown:
            _config.refuse(name)
        config = _config.resolve(given)
        self._data = data if isinstance(data, Dataset) else open_dataset(data)
        self._recipe = Recipe(recipe)
        self._settings = settings_of(config, self._data)
        self._single = config["batch_size"] is None
        self._output_name: str = config["output"]
        self._pin_memory: bool = config["pin_memory"]
        self._calls = self._made_calls(config)
        self._output: Output | None = None
        self._followers = weakref.WeakSet()
        self._start(used=False)
        _live.add(self)

    def _made_calls(self, config: Mapping[str, Any]) -> Calls:
        collate = config["collate"] or config["collate_fn"]
        if collate is not None and self._single:
            raise InvalidConfigError(
                "make loader: `collate` makes batches, and batch_size is None", hint="give a batch_size"
            )
        if self._settings["via"] is not None:
            if config["processes"]:
                raise InvalidConfigError(
                    "make loader: `processes` are of this process, and `via` makes batches elsewhere"
                )
            check_elsewhere(self._recipe)
        return Calls(self._recipe, config["processes"], collate, (self._output_name, self._pin_memory))

    def _told(self) -> dict[str, Any]:
        """What the native side is told: settings and functions."""
        changes = [*self._settings["mix_schedule"], *self._settings["mix_set"]]
        schedule = {"mix_schedule": json.dumps(changes) if changes else None}
        return {**self._settings, **schedule, **self._calls.settings()}

    def _start(self, *, used: bool) -> None:
        settings = {**self._told(), "ranks_store": _ranks.store_of(self._settings["ranks_store"])}
        self._native = _native.Loader(self._data.native, self._recipe.to_json(), settings)
        self._process = os.getpid()
        self._used = used
        self._resumed = False
        self._iteration = 0

    def _live_native(self) -> _native.Loader:
        """The native loader of this process: made again in a forked child, unless it was used before."""
        if self._process != os.getpid() and not self._used:
            cursor = self._native_cursor
            self._start(used=False)
            if cursor is not None:
                self._native.seek(cursor)
        return self._native

    _native_cursor: str | None = None
    """Where to begin, when something was loaded and no batch was taken since."""

    _told_of_cut_off = False
    """Whether the loop knows of tokens that packing cuts off."""

    _followers: weakref.WeakSet[Turns]
    """Told where the loader was sent, because others read in its place."""

    def _in_turn(self, number: int, of: int) -> Loader:
        """A loader of every `of`-th batch from batch `number` on, for one of several processes asked in turn."""
        if self._output_name == "jax":
            raise UnsupportedError(
                "make JAX arrays in a DataLoader process: JAX lives in one process",
                hint='give DataLoader num_workers=0, or the loader output="numpy"',
            )
        if self._settings["ledger"] is not None:
            raise UnsupportedError(
                "write a ledger inside several DataLoader processes: none of them knows what the loop received",
                hint="give DataLoader num_workers=0, or leave `ledger` out",
            )
        threads = self._settings["threads"] or max(1, _native.available_threads() // of)
        shared = {"threads": threads, "local_ranks": self._settings["local_ranks"] * of}
        settings = {**self._settings, **shared, "turn": (number, of), "window": None, **_ALONE}
        how = (settings, *self._how()[1:])
        return _rebuild(self._data, self._recipe, how, None)

    # Iterating.

    def __iter__(self) -> Iterator[Batch]:
        """Begins the next epoch, or the rest of one after a resume."""
        native = self._live_native()
        epochs = self._settings["epochs"]
        if epochs is not None and native.epoch() >= epochs:
            raise InvalidConfigError(
                f"begin epoch {native.epoch()}: the loader was made for epochs={epochs}",
                hint="raise `epochs`, or leave it out",
            )
        self._calls.open()
        native.begin()
        self._tell_of_cut_off()
        self._resumed = False
        self._iteration += 1
        return _Iterator(self, self._iteration)

    def _tell_of_cut_off(self) -> None:
        # Once for each loader: it is about the same in every epoch.
        if self._told_of_cut_off or '"pack"' not in self._recipe.to_json():
            return
        if not (tokens := self.stats()["cut_off_tokens"]):
            return
        self._told_of_cut_off = True
        warnings.warn(
            f"pack documents: {tokens:,} tokens are cut off, their documents are longer than all rows of a batch; "
            'raise batch_size, or open the dataset with tokens={"window": N, "target": False}, '
            "N being batch_size times the length of a row",
            UserWarning,
            stacklevel=3,
        )

    def _next(self, iteration: int) -> Any:
        if iteration != self._iteration:
            raise InvalidConfigError(
                "take batch: a newer iterator of this loader, `close`, `set_epoch` or `load_state_dict` ended this one",
                hint="iterate over the loader again",
            )
        native = self._live_native()
        if self._output is None:
            self._output = output_named(self._output_name, pin_memory=self._pin_memory)
        self._used = True
        taken = native.next()
        # A single sample that a filter left out is no sample at all.
        while self._single and taken is not None and taken[2] == 0:
            taken = native.next()
        if taken is None:
            raise StopIteration
        batch = wrap(taken, self._output, single=self._single) if taken[-1] is None else taken[-1]
        native.transferred()
        return batch

    def __len__(self) -> int:
        """Batches of a whole epoch on this rank. After a resume those before it count too, as trainers expect that
        keep their own count of steps; `remaining` is what is left."""
        return self._live_native().epoch_steps()

    @property
    def remaining(self) -> int:
        """Batches of the epoch that are still to be taken on this rank."""
        native = self._live_native()
        return native.steps(native.cursor())

    @property
    def epoch(self) -> int:
        """The epoch that the next batch belongs to."""
        return self._live_native().epoch()

    def set_epoch(self, epoch: int) -> None:
        """The next iteration reads epoch `epoch`. Not needed: every iteration is the next epoch by itself.

        After a resume inside `epoch` it changes nothing, so that loops which always call it go on where they were.
        """
        native = self._live_native()
        if self._resumed and native.epoch() == epoch:
            return
        native.seek_epoch(epoch)
        self._seeked(native.cursor())

    def _seeked(self, cursor: str) -> None:
        self._native_cursor = cursor
        self._iteration += 1
        for turns in self._followers:
            turns.seek(cursor)

    # Resuming.

    def state_dict(self) -> dict[str, Any]:
        """Where the loop stands, by what it received, not by what was prefetched: plain, JSON-able, below 4 KB.

        In plan order it is the same on every rank, and can be loaded on any number of ranks. With `in_order=False` keep
        the states of all ranks and load them as a list.
        """
        return self._state_at(self._live_native().cursor())

    def state_after(self, batch: Batch) -> dict[str, Any]:
        """The state of a loop that received `batch` last, by the batch's own epoch and step.

        For loops that get their batches by other ways than from this loader, such as the processes of a torch
        `DataLoader`. In plan order; after a resume inside an epoch it counts from where this loader was told to go on.
        """
        native = self._live_native()
        if batch.epoch < 0 or batch.step < 0:
            raise InvalidConfigError(
                "find the place after a batch: it does not know its epoch and step",
                hint="keep `batch.epoch` and `batch.step` before a framework makes the batch anew",
            )
        return self._state_at(native.cursor_after(batch.epoch, batch.step, self._native_cursor))

    def set_weights(
        self, weights: Sequence[float], *, epoch: int | None = None, position: int | None = None
    ) -> tuple[int, int]:
        """Other weights of the mix from now on, or from a place on. Gives epoch and position from which they hold.

        They hold from the next 1024 positions of which the loop received nothing, through all epochs after them; from
        the next epoch on where `bucket`, `batch_bytes` or `in_order=False` move samples. What was made ahead is made
        anew. Every rank has to do this at the same step. States carry it: a loader made as this one was goes on with
        these weights, on any number of ranks.

        weights: one for every dataset of the mix; 0 leaves it out.
        epoch, position: from where on, which must not have been received; the beginning of an epoch without `position`.
        """
        if position is not None and epoch is None:
            raise InvalidConfigError("change the weights of a mix: position is given without its epoch")
        if any(turns.begun() is not None for turns in self._followers):
            raise UnsupportedError(
                "change the weights of a mix: DataLoader processes make the batches, and have some ready",
                hint="give DataLoader num_workers=0, or the loader a `mix_schedule`",
            )
        shared = self._data.native.mix_weights([float(weight) for weight in weights])
        place = None if epoch is None else (epoch, position or 0)
        held = self._live_native().change_weights(shared, place)
        change = {"epoch": held[0], "position": held[1], "weights": shared}
        others = (other for other in self._settings["mix_set"] if (other["epoch"], other["position"]) != held)
        self._settings = {**self._settings, "mix_set": [*others, change]}
        return held

    def _follow_schedule(self, states: Sequence[Mapping[str, Any]], cursor: str, strict: bool) -> None:
        """Takes over the weights that were set in a run, if what it received is what it would have been here."""
        (given, set_later), own = schedule_of(states), self._settings["mix_schedule"]
        if not (given or set_later or own or self._settings["mix_set"]):
            return
        native, after = self._live_native(), json.dumps([*own, *set_later])
        try:
            native.check_mix_changes(json.dumps([*given, *set_later]), after, cursor)
        except StaleError as problem:
            if strict:
                raise
            _log.warning("load state into loader of `%s`: %s", self._data.url, problem)
        native.replace_mix_changes(after)
        self._settings = {**self._settings, "mix_set": set_later}

    def _state_at(self, cursor: str) -> dict[str, Any]:
        given, set_later = self._settings["mix_schedule"], self._settings["mix_set"]
        schedule = {"mix_schedule": {"given": given, "set": set_later}} if given or set_later else {}
        return {
            **schedule,
            "format": FORMAT,
            "dataset": self._data.version,
            "samples": len(self._data),
            "recipe": self._recipe.fingerprint,
            "seed": self._settings["seed"],
            "shuffle": order_text(self._settings, self._data, self._recipe),
            "cursor": cursor,
        }

    def load_state_dict(
        self, state_dict: Mapping[str, Any] | Sequence[Mapping[str, Any]], strict: bool = True
    ) -> None:
        """Goes on from a state, or from the list of the states of all ranks, at the next `iter`.

        A state of another dataset, recipe, seed or order raises `StaleError`, which says what differs; with
        `strict=False` it is logged and the place is taken over as it is.
        """
        states = [state_dict] if isinstance(state_dict, Mapping) else list(state_dict)
        for state in states:
            check_state(state, self.state_dict(), url=self._data.url, strict=strict)
        cursors = [str(state["cursor"]) for state in states]
        native = self._live_native()
        cursor = cursors[0] if len(cursors) == 1 else _native.merge_cursors(cursors, native.epoch_samples())
        self._follow_schedule(states, cursor, strict)
        native.seek(cursor)
        self._seeked(cursor)
        self._resumed = True

    def get_state(self) -> dict[str, Any]:
        """The same as `state_dict`."""
        return self.state_dict()

    def set_state(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """The same as `load_state_dict`."""
        self.load_state_dict(state)

    # Looking.

    def stats(self) -> Stats:
        """Everything measured so far. `print` it for a table of where the time went."""
        return Stats(json.loads(self._live_native().stats()))

    def timeline(self, by: Literal["step", "epoch"] = "step") -> list[dict[str, Any]]:
        """Where the time went in each of the last 1,024 steps, or of the last 64 epochs, the newest last.

        Each has `epoch`, `step` (of an epoch its last), `batches`, `samples`, `bytes` and the parts in seconds:
        `step_seconds`, `fetch_stall_seconds`, `prep_stall_seconds`, `queue_seconds`, `transfer_seconds`. A step is the
        wait for a batch and what was then done with it. `others_seconds` is the part of `step_seconds` in which other
        ranks were waited for, when ranks tell each other how they go.
        """
        if by not in ("step", "epoch"):
            raise InvalidConfigError(f"list where the time went by `{by}`: it is `step` or `epoch`")
        return list(json.loads(self._live_native().timeline(by == "epoch")))

    @property
    def metrics_url(self) -> str | None:
        """Where figures are shown, while they are: `http://127.0.0.1:9464/metrics`."""
        address = self._live_native().metrics_address()
        return None if address is None else f"http://{address}/metrics"

    def phase(self, name: str) -> Phase:
        """Times a part of your loop: `with loader.phase("forward"): ...`. `stats()` shows it with its percentiles.

        At most 32 names. What a device does after a call has returned is not in it: wait for the device inside of the
        phase to have that too. As a decorator it times every call of a function: `@loader.phase("augment")`.
        """
        return Phase(self._live_native(), name)

    def resize_cache(self, cache: int | str | Mapping[str, Any]) -> None:
        """Changes how much the cache may hold, at once: sizes as for `cache=`, directories stay what they are.

        With less room payloads are let go until the rest fits; with more the next epoch fills it.
        """
        resolved = _config.resolve({"cache": cache})["cache"]
        self._live_native().resize_cache(resolved)
        self._settings["cache"] = resolved

    def errors(self) -> list[BadSample]:
        """Bad samples so far, in the order in which their batches were handed over; at most ten thousand are kept."""
        return [BadSample(*fault) for fault in self._live_native().faults()]  # type: ignore[arg-type]

    def skipped(self) -> list[SkippedBatch]:
        """Batches that `late="skip"` or `visitation="at_most_once"` left out so far, in order.

        The first ten thousand are kept, and no more once they have a million samples together;
        `stats()["skipped_batches"]` counts all, so what it counts beyond this list is not named.
        """
        return [SkippedBatch(epoch, step, tuple(ids)) for epoch, step, ids in self._live_native().skipped()]

    def show(self, epoch: int, batch: int) -> Batch:
        """Makes one batch of this rank again, in plan order, without touching this loader's place."""
        told = {
            **self._told(),
            "collate": None,
            "window": None,
            "epochs": epoch + 1,
            "prefetch_batches": 1,
            "via": None,
            "cache": None,
            **_ALONE,
        }
        self._calls.open()
        native = _native.Loader(self._data.native, self._recipe.to_json(), told)
        output = output_named(self._output_name, pin_memory=self._pin_memory)
        try:
            native.seek_batch(epoch, batch)
            native.begin()
            taken = native.next()
        finally:
            native.close()
        if taken is None:
            raise InvalidConfigError(f"show batch {batch} of epoch {epoch}: there is none")
        shown = wrap(taken, output, single=self._single)
        shown.step = batch
        return shown

    @property
    def dataset(self) -> Dataset:
        """The dataset."""
        return self._data

    @property
    def recipe(self) -> Recipe:
        """The recipe."""
        return self._recipe

    @property
    def batch_size(self) -> int | None:
        """Samples per batch and rank; `None` when single samples are yielded."""
        return None if self._single else int(self._settings["batch_size"])

    @property
    def rank(self) -> int:
        """This rank."""
        return int(self._settings["rank"])

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return int(self._settings["world_size"])

    # Ending.

    def close(self) -> None:
        """Stops all threads and gives memory back. May be called any number of times; iterating starts anew."""
        if self._process != os.getpid():
            return
        self._iteration += 1
        # First, so that no thread is left waiting for a helper.
        self._calls.close()
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        s = self._settings
        batch = "single samples" if self._single else f"batches of {s['batch_size']}"
        if s["batch_bytes"] is not None:
            batch = f"batches of up to {s['batch_bytes']} bytes"
        order = order_text(s, self._data, self._recipe)
        return (
            f"<forebay.Loader {self._data.url}: {batch}, shuffle {order}, seed {s['seed']}, "
            f"rank {s['rank']} of {s['world_size']}>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (self._data, self._recipe, self._how(), self._live_native().cursor()))

    def _how(self) -> tuple[Any, ...]:
        """All that a copy of this loader needs beside dataset, recipe and place."""
        calls = (self._calls.processes, self._calls.collate)
        return (self._settings, self._single, self._output_name, self._pin_memory, calls)


class _Iterator(Iterator[Batch]):
    """One pass over an epoch. Keeps its loader alive."""

    def __init__(self, loader: Loader, iteration: int) -> None:
        self._loader = loader
        self._iteration = iteration
        self._ended = False

    def __next__(self) -> Batch:
        if self._ended:
            raise StopIteration
        try:
            batch: Batch = self._loader._next(self._iteration)
            return batch
        except StopIteration:
            self._ended = True
            raise

    def __len__(self) -> int:
        return len(self._loader)


def show(
    data: Dataset | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    recipe: RecipeLike,
    *,
    epoch: int = 0,
    batch: int = 0,
    **arguments: Any,
) -> Batch:
    """Makes any batch again: `fb.show(data, recipe, epoch=3, batch=917, batch_size=256, shuffle=True, seed=0)`.

    The other arguments are those of the loader that first made it. Gives the same bytes on any machine.
    """
    with Loader(data, recipe, **arguments) as loader:
        return loader.show(epoch, batch)


def _rebuild(data: Dataset, recipe: Recipe, how: tuple[Any, ...], cursor: str | None) -> Loader:
    loader = Loader.__new__(Loader)
    loader._data, loader._recipe = data, recipe
    loader._settings, loader._single, loader._output_name, loader._pin_memory, (processes, collate) = how
    loader._calls = Calls(recipe, processes, collate, (loader._output_name, loader._pin_memory))
    loader._output = None
    loader._followers = weakref.WeakSet()
    loader._start(used=False)
    if cursor is not None:
        loader._native.seek(cursor)
        loader._native_cursor, loader._resumed = cursor, True
    _live.add(loader)
    return loader


_live: weakref.WeakSet[Loader] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Threads that call into Python must be gone before the interpreter is."""
    for loader in list(_live):
        loader.close()
