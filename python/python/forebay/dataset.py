"""Datasets: which samples exist and where each lies.

`open` turns a folder, tar shards or a manifest into a `Dataset`; `synthetic` makes one out of nothing, for tests and
measurements; `mix` makes one of several by weight, `join` one of several by key. A dataset is read by a `Loader`;
`dataset[i]` shows one sample as it is stored.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from forebay import _config, _native
from forebay.errors import ForebayError, InvalidConfigError, StaleError

__all__ = ["Dataset", "TokenOptions", "join", "mix", "open", "synthetic"]

_log = logging.getLogger("forebay")

# Seconds between two lines of the log while objects are listed.
_LOG_SECONDS = 5.0

Progress = Callable[[int, int, int, int], object]


class TokenOptions(TypedDict, total=False):
    """How files of tokens are cut into samples."""

    window: int
    """Tokens of a sample. Without it every document is one."""
    stride: int
    """Tokens from the beginning of one window to that of the next; the window by default."""
    target: bool
    """Whether a window has one token more, so that it holds the target of its last one. True by default."""
    documents: Literal["exact", "cross"]
    """Whether windows end with their document: `"exact"` where an index tells documents, else `"cross"`."""
    tail: Literal["keep", "drop"]
    """What becomes of less than a window: kept at the end of documents, dropped at the end of files by default."""
    dtype: Literal["u8", "u16", "u32", "i32", "i64"]
    """Element type of files whose name and index do not tell it."""


class Dataset:
    """A versioned set of samples. Made by `open`, `synthetic`, `mix` and `join`.

    It can be pickled: the copy opens the same spec again and refuses, with `StaleError`, when the data changed in
    between. In a forked child it opens itself again.
    """

    def __init__(
        self,
        how: tuple[str, dict[str, Any]],
        version: str | None = None,
        opened: _native.Dataset | None = None,
    ) -> None:
        self._how = how
        self._opened = _open_native(*how) if opened is None else opened
        self._process = os.getpid()
        for note in self._opened.notes():
            _log.warning("%s: %s", self.url, note)
        if version is not None and version != self.version:
            raise StaleError(
                f"open dataset `{self.url}` again: its version was {version} and is {self.version} now",
                hint="the data changed; make a new dataset and begin a new run",
            )

    @property
    def native(self) -> _native.Dataset:
        """The native dataset of this process. Not a public interface."""
        if self._process != os.getpid():
            # The threads and locks of the parent's store do not exist here.
            self._opened = _open_native(*self._how)
            self._process = os.getpid()
        return self._opened

    def __len__(self) -> int:
        return len(self.native)

    def __getitem__(self, sample_id: int) -> dict[str, bytes | int]:
        """One sample as it is stored: payloads as `bytes`, labels of the manifest as `int`.

        Read through the same store as by a loader. Negative numbers count from the end.
        """
        size = len(self)
        index = sample_id + size if sample_id < 0 else sample_id
        if not 0 <= index < size:
            raise IndexError(f"sample {sample_id} of `{self.url}`: it has {size} samples")
        return self.native.sample(index)

    def __iter__(self) -> Iterator[dict[str, bytes | int]]:
        return (self[sample_id] for sample_id in range(len(self)))

    def key(self, sample_id: int) -> str:
        """The key of a sample: its path or its name inside the shards, without the extension of the field."""
        if not 0 <= sample_id < len(self):
            raise IndexError(f"key of sample {sample_id} of `{self.url}`: it has {len(self)} samples")
        return self.native.key(sample_id)

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the stored fields, such as `jpg` and `cls`."""
        return tuple(name for name, _ in self.native.fields())

    @property
    def classes(self) -> list[str] | None:
        """Names of the classes in the order of their numbers, when the source has names."""
        return self.native.class_names()

    @property
    def version(self) -> str:
        """Equal for equal content: 32 hexadecimal digits."""
        return self.native.version()

    @property
    def url(self) -> str:
        """The spec as it was given."""
        return self.native.url()

    @property
    def kind(self) -> str:
        """How it is stored: as `open` names it, or `rows`, `synthetic`, `mix` or `join`."""
        return self.native.kind()

    @property
    def notes(self) -> list[str]:
        """What happened while opening that you may want to know; also logged."""
        return self.native.notes()

    @property
    def total_bytes(self) -> int:
        """Bytes of all payloads of all samples."""
        return self.native.total_bytes()

    def __repr__(self) -> str:
        fields = ", ".join(self.fields)
        return f"<forebay.Dataset {self.url}: {len(self):,} samples, {self.kind}, fields {fields}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Dataset, (self._how, self.version))


def open(
    spec: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    labels: str | os.PathLike[str] | None = None,
    kind: str | None = None,
    manifest_dir: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    local: str | os.PathLike[str] | None = None,
    follow: bool | None = None,
    extensions: Sequence[str] | None = None,
    tokens: TokenOptions | None = None,
    rebuild: bool | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Opens a dataset.

    Every argument but `spec` and `progress` can also be given as an environment variable `FOREBAY_` + its name in
    capitals (`storage_options` and `tokens` as JSON, `extensions` with commas); the argument wins.

    spec: a folder with one folder per class, a folder of files, tar shards such as `train-{000..146}.tar`, a manifest
        `x.fbm`, the same behind `s3://`, `https://`, `ais://`, `gs://` or `az://`, a table `cassandra://host/space/table`,
        or `synthetic://?samples=1000&bytes=4096`. Several parts may be given as a list or joined by `::`;
        braces, globs and `${NAME}` are replaced.
    labels: a CSV or JSONL file of labels for a folder of files. Looked for in the folder when not given.
    kind: `tar`, `tfrecord`, `jsonl`, `csv`, `zip`, `recordio`, `mds`, `litdata`, `tokens`, `parquet`, `tree` or
        `table`, when it should not be guessed.
    manifest_dir: where manifests are kept between runs.
    storage_options: what a remote store is told: `endpoint`, credentials, trust (`docs/guide/remote.md`). Files of this
        machine take none, but for tables whose rows name objects of remote stores.
    local: a folder that `forebay stage` filled with objects of this dataset, or with some of them. What is whole there,
        in the version that the store has now, is read there, the rest from the store. Nothing else changes.
    follow: open what `materialize` has written so far: the shards from the first on without a gap, as a dataset of its
        own with a version of its own. Without it one that is not whole is refused.
    extensions: extensions of the files of a folder that are samples, without the dot.
    tokens: how files of tokens (`.bin` with its `.idx`, `.bin`, `.u16`, `.u32`) are cut into samples, such as
        `{"window": 2048}`; without it every document is one.
    rebuild: build the manifest anew even if a kept one still fits.
    progress: called now and then while a manifest is built, with objects done, objects in all, samples and bytes. While
        objects are still listed none is done, and objects in all are those found so far; a long listing is logged too.

    The manifest is built once, without reading payloads, and kept; when the data changed it is built again and
    `Dataset.notes` says so.
    """
    labels, kind = _given("labels", labels), _given("kind", kind)
    manifest_dir, local = _given("manifest_dir", manifest_dir), _given("local", local)
    storage_options = _given("storage_options", storage_options, _read_object)
    extensions = _given("extensions", extensions, lambda text: [part.strip() for part in text.split(",")])
    tokens = _given("tokens", tokens, _read_object)
    rebuild = bool(_given("rebuild", rebuild, _read_switch))
    follow = bool(_given("follow", follow, _read_switch))
    parts = [spec] if isinstance(spec, str | os.PathLike) else list(spec)
    options: dict[str, Any] = {
        "spec": [os.fspath(part) for part in parts],
        "labels": None if labels is None else Path(labels),
        "kind": kind,
        "manifest_dir": None if manifest_dir is None else Path(manifest_dir),
        "extensions": None if extensions is None else list(extensions),
        "storage_options": _texts(storage_options or {}),
        "local": None if local is None else Path(local),
        "tokens": None if tokens is None else json.dumps(dict(tokens)),
    }
    told = _logged("::".join(options["spec"]), progress)
    opened = _native.open(**options, follow=follow, rebuild=rebuild, progress=told)
    if follow:
        # Whoever opens it again, such as an unpickled copy, means what is there now.
        options["spec"] = [opened.url()]
    return Dataset(("open", options), opened=opened)


def _logged(url: str, progress: Progress | None) -> Progress:
    """Hands numbers on, and says in the log how far a listing has come that lasts."""
    begun = due = time.monotonic()

    def told(done: int, total: int, samples: int, size: int) -> None:
        nonlocal due
        now = time.monotonic()
        if done == 0 and now - due >= _LOG_SECONDS:
            due = now
            _log.info("listing %s: %d objects found in %.0f s", url, total, now - begun)
        if progress is not None:
            progress(done, total, samples, size)

    return told


def synthetic(
    samples: int = 1000,
    *,
    bytes: int = 4096,
    templates: Sequence[bytes] | None = None,
    field: str = "bin",
    classes: int = 10,
    shards: int = 1,
    seed: int = 0,
) -> Dataset:
    """Makes a dataset that needs no storage: noise, or payloads drawn from a few templates.

    samples: number of samples.
    bytes: bytes of each payload, when it is noise.
    templates: each sample is one of these, drawn by the seed; for example a few encoded images.
    field: name of the payload's field. Labels are in `cls`.
    classes: labels are below this.
    shards: noise is spread over so many shards.
    seed: decides every byte and every label.
    """
    options: dict[str, Any] = {
        "samples": samples,
        "bytes": bytes,
        "templates": None if templates is None else list(templates),
        "field": field,
        "classes": classes,
        "shards": shards,
        "seed": seed,
    }
    return Dataset(("synthetic", options))


def mix(
    parts: Mapping[str, float]
    | Mapping[Dataset, float]
    | Sequence[tuple[Dataset | str | os.PathLike[str], float]],
) -> Dataset:
    """One dataset out of several, each with its share: `fb.mix({"web-*.tar": 0.7, "books/": 0.3})`.

    parts: datasets, or what `open` takes, with their weights. Weights are relative and above 0: 7 and 3 are 0.7 and
        0.3. Their order counts: sample ids of the first come first.

    A loader of a mix needs `shuffle=True`. Every thousand samples have the datasets in these shares; each dataset is
    read in an order of its own, pass after pass. `epoch_samples` of the loader says how long an epoch is; see
    `docs/concepts/mixing.md`.
    """
    pairs: list[Any] = list(parts.items()) if isinstance(parts, Mapping) else list(parts)
    opened: list[tuple[Dataset, float]] = []
    for pair in pairs:
        try:
            data, weight = pair
            opened.append((data if isinstance(data, Dataset) else open(data), float(weight)))
        except (TypeError, ValueError) as problem:
            if isinstance(problem, ForebayError):
                raise
            raise InvalidConfigError(
                f"mix datasets: {pair!r} is not a dataset with a weight",
                hint='write `fb.mix([(data, 0.7), ("other.tar", 0.3)])`',
            ) from None
    return Dataset(
        ("mix", {"parts": [(part._how, part.version, weight) for part, weight in opened]}),
        opened=_native.mix([(part.native, weight) for part, weight in opened]),
    )


def join(
    *parts: Dataset | str | os.PathLike[str],
    missing: Literal["refuse", "skip", "keep"] = "refuse",
    any_order: bool = False,
) -> Dataset:
    """One dataset whose samples have the fields of all: `fb.join("images-*.tar", "captions-*.tar")`.

    parts: datasets, or what `open` takes. Samples with one key belong together. The first says which samples there are
        and in which order they lie; a field that several have is that of the first of them.
    missing: what becomes of a sample that one of them lacks. `"refuse"` is an error that names the keys, `"skip"`
        leaves it out, `"keep"` keeps it without those fields; what the first lacks is left out. `notes` says how many.
    any_order: whether the others may hold their samples in another order than the first. Then what is one sequential
        read of the first is many small ones of the others, so it is an error unless it is asked for.
    """
    opened = [part if isinstance(part, Dataset) else open(part) for part in parts]
    native = _native.join([part.native for part in opened], missing=missing, any_order=any_order)
    how = {
        "parts": [(part._how, part.version) for part in opened],
        "missing": missing,
        "any_order": any_order,
    }
    return Dataset(("join", how), opened=native)


def _given(name: str, value: Any, read: Callable[[str], Any] = str) -> Any:
    """An argument of `open`, or what the environment says in its place."""
    text = os.environ.get(f"FOREBAY_{name.upper()}", "").strip()
    if value is not None or not text:
        return value
    try:
        return read(text)
    except ValueError as problem:
        raise InvalidConfigError(
            f"open dataset: {name} is {text!r} (from FOREBAY_{name.upper()}): {problem}"
        ) from None


def _read_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError('write it as JSON, such as {"endpoint": "http://127.0.0.1:9000"}')
    return value


def _read_switch(text: str) -> bool:
    value = _config.read_bool(text)
    if not isinstance(value, bool):
        raise ValueError("give true or false")
    return value


def _texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Options as the native side reads them: `True` is `true`, numbers are their digits."""
    return {
        str(name): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
        if value is not None
    }


def _open_native(how: str, options: dict[str, Any]) -> _native.Dataset:
    if how == "mix":
        parts = [(Dataset(part, version), weight) for part, version, weight in options["parts"]]
        return _native.mix([(part.native, weight) for part, weight in parts])
    if how == "join":
        joined = [Dataset(part, version).native for part, version in options["parts"]]
        return _native.join(joined, missing=options["missing"], any_order=options["any_order"])
    return _native.open(**options) if how == "open" else _native.synthetic(**options)
