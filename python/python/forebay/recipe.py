"""Recipes: what is done to each field of a sample, as plain data.

A recipe is a list of columns, each begun by `image`, `label`, `text`, `json`, `npy` or `raw` and continued with ops:

    recipe = [fb.image("jpg").random_resized_crop(224).flip().normalize(fb.IMAGENET), fb.label("cls")]

Columns never change: every call gives a new one. The same recipe can be written as JSON or TOML; equal recipes have
equal fingerprints, however they were written. Nothing is computed here.
"""

from __future__ import annotations

import json as _json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self, TypeAlias

from forebay import _native
from forebay.errors import InvalidConfigError

__all__ = [
    "IMAGENET",
    "Column",
    "Image",
    "Normalization",
    "Recipe",
    "image",
    "json",
    "label",
    "npy",
    "raw",
    "text",
]

# A list of objects or an object; TOML begins with a name, a comment or a table in brackets.
_JSON = re.compile(r"\s*(\{|\[\s*[{\]])")

Size: TypeAlias = int | Sequence[int]
"""One side, or `(height, width)`."""
Dtype: TypeAlias = Literal[
    "bool", "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"
]
Filter: TypeAlias = Literal["nearest", "bilinear", "bicubic", "lanczos"]


class Normalization(NamedTuple):
    """Mean and standard deviation per channel, in units of 0 to 1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


IMAGENET = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""The figures that models pretrained on ImageNet expect."""


class Column:
    """How one column of the batch is made from one field of the sample."""

    __slots__ = ("_data",)
    _data: dict[str, Any]

    def __init__(self, data: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_data", dict(data))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a column never changes; each method returns a new one")

    def to_dict(self) -> dict[str, Any]:
        """The column as plain data, as JSON and TOML say it."""
        copy: dict[str, Any] = _json.loads(_json.dumps(self._data))
        return copy

    def named(self, name: str) -> Self:
        """Calls the column `name` in the batch; without this it has the name of its field."""
        return self._with(name=name)

    def dtype(self, dtype: Dtype) -> Self:
        """Element type of the column. Images are `u8`, `f32` after `normalize`; labels are `i64`."""
        return self._with(dtype=dtype)

    def delay(self, seconds: float) -> Self:
        """Waits without using the processor: stands for costly preparation in experiments."""
        return self._op("delay", seconds=seconds)

    def _with(self, **changes: Any) -> Self:
        return type(self)({**self._data, **changes})

    def _op(self, op: str, **parameters: Any) -> Self:
        given = {name: _plain(value) for name, value in parameters.items() if value is not None}
        return self._with(ops=[*self._data.get("ops", []), {"op": op, **given}])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Column) and self._data == other._data

    def __hash__(self) -> int:
        return hash(_json.dumps(self._data, sort_keys=True))

    def __repr__(self) -> str:
        decode = dict(self._data["decode"])
        kind = decode.pop("kind")
        arguments = [repr(self._data["field"]), *(f"{name}={value!r}" for name, value in decode.items())]
        text = f"{'raw' if kind == 'bytes' else kind}({', '.join(arguments)})"
        for op in self._data.get("ops", []):
            parameters = ", ".join(f"{name}={value!r}" for name, value in op.items() if name != "op")
            text += f".{op['op']}({parameters})"
        for name, method in (("dtype", "dtype"), ("layout", "layout"), ("name", "named")):
            if name in self._data:
                text += f".{method}({self._data[name]!r})"
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self._data,))


class Image(Column):
    """A column of images. Ops are carried out in the order in which they are written.

    Random ops draw from a stream of their own, keyed by seed, epoch, sample and place in the recipe: another draw in
    every epoch, the same draw on every machine and with any number of threads.
    """

    __slots__ = ()

    def resize(self, size: Size, *, filter: Filter = "bilinear") -> Self:
        """Scales the short side to `size` and keeps the aspect, or to exactly `(height, width)`. Antialiased."""
        return self._op("resize", size=size, filter=filter)

    def center_crop(self, size: Size) -> Self:
        """Cuts the middle; smaller images are padded with zeros."""
        return self._op("center_crop", size=size)

    def random_crop(self, size: Size, *, padding: int = 0) -> Self:
        """Cuts a window at random after adding `padding` zeros on every side."""
        return self._op("random_crop", size=size, padding=padding)

    def random_resized_crop(
        self,
        size: Size,
        *,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        filter: Filter = "bilinear",
    ) -> Self:
        """Cuts a window of random area (a share of the image's) and aspect, and scales it to `size`."""
        return self._op("random_resized_crop", size=size, scale=scale, ratio=ratio, filter=filter)

    def flip(self, p: float = 0.5, *, direction: Literal["horizontal", "vertical"] = "horizontal") -> Self:
        """Mirrors with probability `p`."""
        return self._op("flip", p=p, direction=direction)

    def pad(self, border: int | Sequence[int], *, value: int = 0) -> Self:
        """Adds a border: one width for all sides, `(x, y)`, or `(left, top, right, bottom)`."""
        sides = [border] if isinstance(border, int) else list(border)
        return self._op("pad", border=sides * (4 // len(sides)) if sides else sides, value=value)

    def color_jitter(
        self, brightness: float = 0, contrast: float = 0, saturation: float = 0, hue: float = 0
    ) -> Self:
        """Changes brightness, contrast and saturation by a factor from `1 - x` to `1 + x`, and turns the hue by up to
        `x` of the circle, in random order."""
        return self._op(
            "color_jitter", brightness=brightness, contrast=contrast, saturation=saturation, hue=hue
        )

    def grayscale(self, p: float = 1.0) -> Self:
        """Replaces color by luma in all channels, with probability `p`."""
        return self._op("grayscale", p=p)

    def random_erasing(
        self,
        p: float = 0.5,
        *,
        scale: tuple[float, float] = (0.02, 0.33),
        ratio: tuple[float, float] = (0.3, 3.3),
        value: float = 0,
    ) -> Self:
        """Blanks a random rectangle with probability `p`; after `normalize`, `value` is in normalized units."""
        return self._op("random_erasing", p=p, scale=scale, ratio=ratio, value=value)

    def normalize(
        self,
        normalization: Normalization | None = None,
        *,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> Self:
        """Scales to 0..1, subtracts the mean and divides by the deviation: `normalize(fb.IMAGENET)`, or by `mean=` and
        `std=`, one number per channel."""
        if normalization is not None:
            mean, std = normalization
        if mean is None or std is None:
            raise InvalidConfigError(
                "normalize: mean and std are needed", hint="write `normalize(fb.IMAGENET)` or give both"
            )
        return self._op("normalize", mean=mean, std=std)

    def layout(self, layout: Literal["chw", "hwc"]) -> Self:
        """Order of the axes: channels first, as PyTorch expects, or last."""
        return self._with(layout=layout)


def image(
    field: str = "jpg",
    *,
    mode: Literal["rgb", "gray", "rgba"] = "rgb",
    orientation: Literal["ignore", "apply"] = "ignore",
    max_pixels: int | None = None,
) -> Image:
    """A column of images: JPEG, PNG or WebP, told apart by their first bytes.

    field: field of the sample; alternatives are separated by `;`, as in `jpg;png;webp`, and the first present is read.
    mode: channels of the result.
    orientation: whether the EXIF orientation is applied.
    max_pixels: larger images are refused before they are decoded; about 179 million when not given.
    """
    decode: dict[str, Any] = {"kind": "image", "mode": mode, "orientation": orientation}
    if max_pixels is not None:
        decode["max_pixels"] = max_pixels
    return Image({"field": field, "decode": decode})


def label(field: str = "cls") -> Column:
    """A column of integers: decimal text in the sample, or a number known to the manifest."""
    return Column({"field": field, "decode": {"kind": "label"}})


def text(field: str = "txt") -> Column:
    """A column of strings: a list of `str`."""
    return Column({"field": field, "decode": {"kind": "text"}})


def json(field: str = "json") -> Column:
    """A column of JSON documents: a list of Python objects."""
    return Column({"field": field, "decode": {"kind": "json"}})


def npy(field: str = "npy", *, shape: Sequence[int] | None = None, dtype: Dtype | None = None) -> Column:
    """A column of NumPy arrays stored as `.npy`.

    With `shape` and `dtype` every array must have them, and is written straight into the batch. Without, arrays of
    one shape are stacked, and others are a list.
    """
    decode: dict[str, Any] = {"kind": "npy"}
    if shape is not None:
        decode["shape"] = list(shape)
    column = Column({"field": field, "decode": decode})
    return column if dtype is None else column.dtype(dtype)


def raw(field: str) -> Column:
    """A column of payloads as they are stored: `Payloads`, a sequence of `bytes`."""
    return Column({"field": field, "decode": {"kind": "bytes"}})


class Recipe:
    """A checked recipe. Two are equal when their fingerprints are.

    columns: columns, plain data as JSON says it, JSON text or TOML text.
    """

    __slots__ = ("_fingerprint", "_json")
    _json: str
    _fingerprint: str

    def __init__(self, columns: RecipeLike) -> None:
        if isinstance(columns, Recipe):
            self._json, self._fingerprint = columns._json, columns._fingerprint
        elif isinstance(columns, str):
            is_json = _JSON.match(columns) is not None
            self._json, self._fingerprint = _native.read_recipe(columns, toml=not is_json)
        else:
            entries: Iterable[Any]
            if isinstance(columns, Column):
                entries = [columns]
            elif isinstance(columns, Mapping):
                entries = columns.get("recipe", [columns])
            else:
                entries = columns
            self._json, self._fingerprint = _native.read_recipe(_json.dumps(list(entries), default=_entry))

    def to_json(self) -> str:
        """The recipe as JSON text."""
        return self._json

    def to_toml(self) -> str:
        """The recipe as TOML text, with one `[[recipe]]` table per column."""
        return _native.recipe_to_toml(self._json)

    @property
    def fingerprint(self) -> str:
        """A name for equal recipes: 32 hexadecimal digits."""
        return self._fingerprint

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and self._json == other._json

    def __hash__(self) -> int:
        return hash(self._json)

    def __repr__(self) -> str:
        columns = (Column(column) for column in _json.loads(self._json))
        return f"Recipe([{', '.join(map(repr, columns))}])"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Recipe, (self._json,))


RecipeLike: TypeAlias = Recipe | Column | Iterable[Column | Mapping[str, Any]] | Mapping[str, Any] | str
"""What a loader takes as a recipe."""


def _entry(value: object) -> Any:
    if isinstance(value, Column):
        return value._data
    raise InvalidConfigError(
        f"read recipe: `{type(value).__name__}` is no column",
        hint='a recipe is a list such as `[fb.image("jpg").resize(224), fb.label("cls")]`',
    )


def _plain(value: Any) -> Any:
    """Tuples and NumPy numbers as JSON has them."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.item() if hasattr(value, "item") else value
