"""Recipes: what is done to each field of a sample, as plain data.

A recipe is a list of columns, each begun by `image`, `label`, `text`, `json`, `npy` or `raw` and continued with ops:

    recipe = [fb.image("jpg").random_resized_crop(224).flip().normalize(fb.IMAGENET), fb.label("cls")]

Columns never change: every call gives a new one. The same recipe can be written as JSON or TOML; equal recipes have
equal fingerprints, however they were written. Nothing is computed here.
"""

from __future__ import annotations

import json as _json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeAlias

from forebay import _native
from forebay._functions import check_source, named_in
from forebay._source import fingerprint, import_named, is_importable, name_of, takes_generator
from forebay.errors import InvalidConfigError

if TYPE_CHECKING:
    from forebay._tokens import Text

__all__ = [
    "IMAGENET",
    "Boxes",
    "Column",
    "Image",
    "Normalization",
    "Recipe",
    "SampleOp",
    "boxes",
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
Interpolation: TypeAlias = Literal["nearest", "bilinear"]
BoxFormat: TypeAlias = Literal["xyxy", "xywh", "cxcywh"]


Function: TypeAlias = Callable[..., Any] | str
"""A function, or `"module:name"`."""
Called: TypeAlias = Callable[..., Any] | None
"""A function that was given; `None` is one that plain data names."""


class Normalization(NamedTuple):
    """Mean and standard deviation per channel, in units of 0 to 1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


IMAGENET = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""The figures that models pretrained on ImageNet expect."""


class Column:
    """How one column of the batch is made from one field of the sample."""

    __slots__ = ("_data", "_functions")
    _data: dict[str, Any]
    _functions: tuple[Called, ...]
    """What its ops call, in their order."""

    def __init__(self, data: Mapping[str, Any], functions: Sequence[Called] | None = None) -> None:
        object.__setattr__(self, "_data", dict(data))
        if functions is None:
            functions = [None] * len(named_in([self._data]))
        object.__setattr__(self, "_functions", tuple(functions))

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

    def pad_batch(
        self, value: int = 0, *, multiple: int = 1, to: Size | None = None, mask: bool = False
    ) -> Self:
        """Makes one tensor of values of different sizes: each batch is as long as its longest value, filled with
        `value` behind. Comes last, after `npy` without `shape`, images without a fixed size, or a function.

        Arrays may differ in their first axis, images in height and width. Lengths are rounded up to a `multiple`, or
        are `to` in every batch, which no value may exceed. A column `NAME_length` has the real lengths (of images
        height and width); with `mask` a column `NAME_mask` is true where values are real.
        """
        return self._op("pad_batch", value=value, multiple=multiple, to=to, mask=mask)

    def ragged(self, *, offsets: Literal["i32", "i64"] = "i64") -> Self:
        """Puts values of different lengths one behind the other in one array, with nothing filled up: a `Ragged` of
        `values` and `offsets`. Comes last; on tokens, arrays, audio, boxes, texts and payloads (as bytes, `u8`), and
        on what a function makes.

        Values may differ in their first axis only, waveforms and spectra in that of time. `offsets` are `i64`, which
        nested tensors of torch take, or `i32`, which most attention kernels do.
        """
        return self._op("ragged", offsets=offsets)

    def delay(self, seconds: float) -> Self:
        """Waits without using the processor: stands for costly preparation in experiments."""
        return self._op("delay", seconds=seconds)

    def map(
        self, function: Function, *, shape: Sequence[int] | None = None, dtype: Dtype | None = None
    ) -> Self:
        """Replaces the value by what `function` makes of it.

        It is given what the batch would hold for one sample: an array, `bytes`, `str`, or the object of a JSON
        document. With a second argument it also gets a `numpy.random.Generator`, seeded by seed, epoch, sample and
        place in the recipe, whichever thread or machine calls it. It may give an array, a number, `str`, `bytes` or
        what JSON can say; arrays of one shape are stacked, and others are a list. With `shape` and `dtype` every result
        must have them, and is written straight into the batch. Native ops come before functions.

        function: something to call, or `"module:name"`.
        """
        return self._call("map", function, shape=None if shape is None else list(shape), dtype=dtype)

    def filter(self, function: Function) -> Self:
        """Leaves out samples for which `function` does not say yes; it is given what `map` would give it.

        The positions of a batch stay what they are, so a batch becomes shorter, and is empty when nothing of it is
        left. Columns that come after this one are not made for samples that are left out.
        """
        return self._call("filter", function)

    def _call(self, op: str, function: Function, **parameters: Any) -> Self:
        called, named = _named(function)
        column = self._op(op, function=named, **parameters)
        return type(self)(column._data, (*self._functions, called))

    def _with(self, **changes: Any) -> Self:
        return type(self)({**self._data, **changes}, self._functions)

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
        part, swap = (
            (decode.pop("part", "boxes"), decode.pop("swap", [])) if kind == "boxes" else ("boxes", [])
        )
        arguments = [repr(self._data["field"]), *(f"{name}={value!r}" for name, value in decode.items())]
        if "follow" in self._data:
            arguments.append(f"follow={self._data['follow']!r}")
        text = f"{'raw' if kind == 'bytes' else kind}({', '.join(arguments)})"
        if part != "boxes":
            text += f".{part}({f'swap={swap!r}' if swap else ''})"
        for op in self._data.get("ops", []):
            named = [repr(_name_in(op))] if "function" in op else []
            given = [f"{name}={value!r}" for name, value in op.items() if name not in ("op", "function")]
            text += f".{op['op']}({', '.join(named + given)})"
        for name, method in (("dtype", "dtype"), ("layout", "layout"), ("name", "named")):
            if name in self._data:
                text += f".{method}({self._data[name]!r})"
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self._data, self._functions))


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

    def gaussian_blur(
        self, kernel: int, sigma: float | tuple[float, float] = (0.1, 2.0), *, p: float = 1.0
    ) -> Self:
        """Blurs with probability `p` by a Gaussian of `kernel` taps, an odd number, whose deviation is drawn from
        `sigma`, or is that number."""
        low, high = (sigma, sigma) if isinstance(sigma, (int, float)) else sigma
        return self._op("gaussian_blur", kernel=kernel, sigma=(low, high), p=p)

    def solarize(self, threshold: float, p: float = 0.5) -> Self:
        """Inverts levels of `threshold` and more, 0 to 255, with probability `p`."""
        return self._op("solarize", threshold=threshold, p=p)

    def posterize(self, bits: int, p: float = 0.5) -> Self:
        """Keeps the high `bits` of every level, with probability `p`."""
        return self._op("posterize", bits=bits, p=p)

    def equalize(self, p: float = 0.5) -> Self:
        """Makes the levels of each channel about equally frequent, with probability `p`."""
        return self._op("equalize", p=p)

    def autocontrast(self, p: float = 0.5) -> Self:
        """Stretches the levels of each channel to the whole range, with probability `p`."""
        return self._op("autocontrast", p=p)

    def sharpness(self, factor: float, p: float = 0.5) -> Self:
        """Smooths (0) or sharpens (above 1) by `factor`, with probability `p`."""
        return self._op("sharpness", factor=factor, p=p)

    def affine(
        self,
        degrees: float | tuple[float, float],
        *,
        translate: tuple[float, float] = (0.0, 0.0),
        scale: tuple[float, float] = (1.0, 1.0),
        shear: float | Sequence[float] = 0.0,
        interpolation: Interpolation = "nearest",
        fill: int = 0,
    ) -> Self:
        """Rotates by an angle from `degrees`, or from minus to plus that number, moves by up to a share of width and
        height, scales, and shears: by up to a number of degrees along x, or from `(x_low, x_high)`, or from `(x_low,
        x_high, y_low, y_high)`. The size stays; `fill` is where there was no image."""
        # Not -0.0, which would be another recipe.
        turn = (0.0 - degrees, degrees) if isinstance(degrees, (int, float)) else degrees
        sheared = [0.0 - shear, shear] if isinstance(shear, (int, float)) else list(shear)
        if len(sheared) == 2:
            sheared += [0.0, 0.0]
        return self._op(
            "affine",
            degrees=turn,
            translate=translate,
            scale=scale,
            shear=sheared,
            interpolation=interpolation,
            fill=fill,
        )

    def rand_augment(
        self,
        n: int = 2,
        magnitude: int = 9,
        *,
        bins: int = 31,
        interpolation: Interpolation = "nearest",
        fill: int = 0,
    ) -> Self:
        """RandAugment: `n` ops drawn from torchvision's list, each of strength `magnitude` of `bins`."""
        return self._op(
            "rand_augment", n=n, magnitude=magnitude, bins=bins, interpolation=interpolation, fill=fill
        )

    def trivial_augment(
        self, *, bins: int = 31, interpolation: Interpolation = "nearest", fill: int = 0
    ) -> Self:
        """TrivialAugment (wide): one op drawn from torchvision's list, of a strength drawn from `bins`."""
        return self._op("trivial_augment", bins=bins, interpolation=interpolation, fill=fill)

    def perspective(
        self,
        distortion: float = 0.5,
        p: float = 0.5,
        *,
        interpolation: Interpolation = "bilinear",
        fill: int = 0,
    ) -> Self:
        """Looks at the image from the side with probability `p`: each corner moves inwards by up to `distortion` of
        half a side. The size stays; `fill` is where there was no image."""
        return self._op("perspective", distortion=distortion, p=p, interpolation=interpolation, fill=fill)

    def auto_augment(
        self,
        policy: Literal["imagenet", "cifar10", "svhn"] = "imagenet",
        *,
        interpolation: Interpolation = "nearest",
        fill: int = 0,
    ) -> Self:
        """AutoAugment: two ops of fixed strengths, drawn from the list that was found for this dataset."""
        return self._op("auto_augment", policy=policy, interpolation=interpolation, fill=fill)

    def aug_mix(
        self,
        severity: int = 3,
        *,
        width: int = 3,
        depth: int = 0,
        alpha: float = 1.0,
        all_ops: bool = True,
        interpolation: Interpolation = "bilinear",
        fill: int = 0,
    ) -> Self:
        """AugMix: the image laid over what `width` chains of `depth` ops made of it; a depth of 0 draws one to three.
        Ops have one of `severity` of ten strengths, shares are drawn with `alpha`; without `all_ops`, brightness,
        color, contrast and sharpness are left out."""
        return self._op(
            "aug_mix",
            severity=severity,
            width=width,
            depth=depth,
            alpha=alpha,
            all_ops=all_ops,
            interpolation=interpolation,
            fill=fill,
        )

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

    def views(self, names: int | Sequence[str]) -> list[Self]:
        """This column several times, each with draws of its own, as contrastive learning takes it: `[*view.views(2),
        fb.label()]` has the columns `jpg_0` and `jpg_1`.

        names: names of the columns, or how many; then they are `NAME_0` and so on.
        """
        if isinstance(names, int):
            own = str(self._data.get("name", self._data["field"].split(";")[0]))
            names = [f"{own}_{number}" for number in range(names)]
        return [self.named(name) for name in names]


class Boxes(Column):
    """A column of boxes that moves with the geometry of an image, and the columns that belong to it."""

    __slots__ = ()

    def labels(self, name: str = "labels") -> Self:
        """A column of the labels of the boxes that are left: `i64`, one for each box."""
        return self._part("labels").named(name)

    def keypoints(self, name: str = "keypoints", *, swap: Sequence[Sequence[int]] = ()) -> Self:
        """A column of the keypoints of the boxes that are left: `f32`, `[boxes, keypoints, 3]`, of `x`, `y` and
        visibility. Points that are not seen any more are all zero.

        name: name of the column.
        swap: pairs of keypoints that change places when the image is mirrored, such as left and right eye.
        """
        pairs = {"swap": [list(pair) for pair in swap]} if swap else {}
        return self._part("keypoints", **pairs).named(name)

    def _part(self, part: str, **parameters: Any) -> Self:
        plain = {name: value for name, value in self._data.items() if name not in ("ops", "dtype")}
        column = type(self)(plain, ())
        return column._with(decode={**self._data["decode"], "part": part, **parameters})


def image(
    field: str = "jpg",
    *,
    mode: Literal["rgb", "gray", "rgba"] = "rgb",
    orientation: Literal["ignore", "apply"] = "ignore",
    max_pixels: int | None = None,
    follow: str | None = None,
) -> Image:
    """A column of images: JPEG, PNG or WebP, told apart by their first bytes.

    field: field of the sample; alternatives are separated by `;`, as in `jpg;png;webp`, and the first present is read.
    mode: channels of the result.
    orientation: whether the EXIF orientation is applied.
    max_pixels: larger images are refused before they are decoded; about 179 million when not given.
    follow: name of another column of images. This one is a mask of it, of the same size, and goes through the same
        geometry: pixels as they are, 0 where there was no image. Only `pad_batch` and functions may be added.
    """
    decode: dict[str, Any] = {"kind": "image", "mode": mode, "orientation": orientation}
    if max_pixels is not None:
        decode["max_pixels"] = max_pixels
    return Image({"field": field, "decode": decode} | ({} if follow is None else {"follow": follow}))


def boxes(
    field: str = "json",
    *,
    follow: str,
    stored: BoxFormat = "xywh",
    format: BoxFormat = "xyxy",
    min_area: float = 0.0,
    min_visibility: float = 0.0,
) -> Boxes:
    """A column of boxes that go where the pixels of an image go: crop, flip, resize, pad, `affine`, `perspective`, and
    what policies draw of these. `f32`, `[boxes, 4]`; with `pad_batch` one tensor, and lengths beside it.

    The field holds JSON: a list of annotations as COCO has them (`bbox`, `category_id`, `keypoints`), an object with
    such a list under `annotations`, or an object of lists, `boxes`, `labels` and `keypoints`. Coordinates are pixels
    of the stored image, from its left and top edge. Boxes of which nothing is seen are dropped, and so are those
    below the limits; `labels()` and `keypoints()` are columns that drop the same.

    follow: name of the column of images.
    stored: what the four numbers are: `xywh` as COCO has it, `xyxy`, or `cxcywh`.
    format: what they are in the batch.
    min_area: least area of a box in the batch, in pixels.
    min_visibility: least share of a box that is still seen.
    """
    decode = {"kind": "boxes", "stored": stored, "format": format}
    rule = {"min_area": min_area, "min_visibility": min_visibility}
    return Boxes({"field": field, "name": "boxes", "decode": decode | rule, "follow": follow})


def label(field: str = "cls") -> Column:
    """A column of integers: decimal text in the sample, or a number known to the manifest."""
    return Column({"field": field, "decode": {"kind": "label"}})


def text(field: str = "txt") -> Text:
    """A column of strings: a list of `str`; `tokenize` and `byte_tokens` make tokens of them."""
    from forebay._tokens import Text

    return Text({"field": field, "decode": {"kind": "text"}})


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


class SampleOp:
    """What is done to whole samples, once their columns are made, or to whole batches: see `map`, `filter`,
    `map_batch`, `mixup`, `cutmix` and `mixup_or_cutmix` of this package."""

    __slots__ = ("_data", "_function")

    def __init__(self, op: str, function: Function | None, **parameters: Any) -> None:
        self._function: Called = None
        self._data: dict[str, Any] = {"op": op}
        if function is not None:
            self._function, self._data["function"] = _named(function)
        self._data.update({name: _plain(value) for name, value in parameters.items()})

    def to_dict(self) -> dict[str, Any]:
        """The op as plain data, as JSON and TOML say it."""
        copy: dict[str, Any] = _json.loads(_json.dumps(self._data))
        return copy

    def __repr__(self) -> str:
        return _repr_op(self._data)

    def __reduce__(self) -> tuple[Any, ...]:
        parameters = {name: value for name, value in self._data.items() if name not in ("op", "function")}
        return (_sample_op, (self._data["op"], self._function, parameters))


class Recipe:
    """A checked recipe. Two are equal when their fingerprints are.

    columns: columns and then ops on whole samples, plain data as JSON says it, JSON text or TOML text.
    functions: what plain data and text may call: they name functions, and nothing is imported because a text says so.
    """

    __slots__ = ("_fingerprint", "_functions", "_json")
    _json: str
    _fingerprint: str
    _functions: tuple[Callable[..., Any], ...]

    def __init__(self, columns: RecipeLike, *, functions: Iterable[Function] = ()) -> None:
        if isinstance(columns, Recipe):
            self._json, self._fingerprint = columns._json, columns._fingerprint
            self._functions = columns._functions
            return
        given: list[Called] = []
        if isinstance(columns, str):
            text, toml = columns, _JSON.match(columns) is None
        else:
            entries: Iterable[Any]
            if isinstance(columns, Column | SampleOp):
                entries = [columns]
            elif isinstance(columns, Mapping):
                entries = columns.get("recipe", [columns])
            else:
                entries = columns
            entries = list(entries)
            text, toml = _json.dumps(entries, default=_entry), False
            given = _given(entries)
        self._json, self._fingerprint = _native.read_recipe(text, toml=toml)
        self._functions = ()
        if '"function"' in self._json:
            self._find(given, functions)

    def _find(self, given: Sequence[Called], offered: Iterable[Function] = ()) -> None:
        """Takes functions that are only named from those that were offered, and tells the recipe what they are."""
        entries = _json.loads(self._json)
        by_name = {named["name"]: (called, named) for called, named in map(_named, offered)}
        functions = []
        for number, function in enumerate(named_in(entries)):
            called = given[number] if number < len(given) else None
            if called is None:
                if function["name"] not in by_name:
                    raise InvalidConfigError(
                        f"read recipe: it names the function `{function['name']}`, which was not given",
                        hint="`fb.Recipe(text, functions=[...])` says what a text may call",
                    )
                called, named = by_name[function["name"]]
                check_source(function, called)
                function.update(named)
            functions.append(called)
        self._functions = tuple(functions)
        self._json, self._fingerprint = _native.read_recipe(_json.dumps(entries))

    def to_json(self) -> str:
        """The recipe as JSON text."""
        return self._json

    def to_toml(self) -> str:
        """The recipe as TOML text, with one `[[recipe]]` table per column."""
        return _native.recipe_to_toml(self._json)

    def __str__(self) -> str:
        """The recipe as TOML, as `to_toml` gives it."""
        return self.to_toml()

    def entries(self) -> list[dict[str, Any]]:
        """The recipe as plain data, with all defaults."""
        return list(_json.loads(self._json))

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """What the recipe calls: functions of columns, then of samples and batches, each in order."""
        return self._functions

    @property
    def fingerprint(self) -> str:
        """A name for equal recipes: 32 hexadecimal digits."""
        return self._fingerprint

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and self._json == other._json

    def __hash__(self) -> int:
        return hash(self._json)

    def __repr__(self) -> str:
        entries = _json.loads(self._json)
        shown = [_repr_op(entry) if "op" in entry else repr(Column(entry)) for entry in entries]
        return f"Recipe([{', '.join(shown)}])"

    def __reduce__(self) -> tuple[Any, ...]:
        if not self._functions:
            return (Recipe, (self._json,))
        return (_restored, (self._json, self._functions))


RecipeLike: TypeAlias = (
    Recipe | Column | SampleOp | Iterable[Column | SampleOp | Mapping[str, Any]] | Mapping[str, Any] | str
)
"""What a loader takes as a recipe."""


def _entry(value: object) -> Any:
    if isinstance(value, Column | SampleOp):
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


def _named(function: Function) -> tuple[Callable[..., Any], dict[str, Any]]:
    """A function and how a recipe names it."""
    name = None
    if isinstance(function, str):
        name, function = function, import_named(function)
    if not callable(function):
        raise InvalidConfigError(f"read recipe: `{type(function).__name__}` cannot be called")
    named: dict[str, Any] = {"name": name or name_of(function), "source": fingerprint(function)}
    if takes_generator(function):
        named["random"] = True
    return function, named


def _given(entries: Iterable[Any]) -> list[Called]:
    """Functions of entries, in the order of calls; `None` for those that are only named."""
    of_columns: list[Called] = []
    of_samples: list[Called] = []
    for entry in entries:
        if isinstance(entry, Column):
            of_columns += entry._functions
        elif isinstance(entry, SampleOp):
            of_samples += [entry._function] if "function" in entry._data else []
        elif isinstance(entry, Mapping):
            (of_samples if "op" in entry else of_columns).extend([None] * len(named_in([entry])))
    return of_columns + of_samples


def _restored(json: str, functions: Sequence[Callable[..., Any]]) -> Recipe:
    recipe = Recipe.__new__(Recipe)
    recipe._json = json
    for function, named in zip(functions, named_in(recipe.entries()), strict=True):
        if is_importable(function):
            check_source(named, function)
    recipe._find(functions)
    return recipe


def _sample_op(op: str, function: Function | None, parameters: dict[str, Any]) -> SampleOp:
    return SampleOp(op, function, **parameters)


def _name_in(op: Mapping[str, Any]) -> str:
    function = op["function"]
    return str(function if isinstance(function, str) else function["name"])


def _repr_op(op: Mapping[str, Any]) -> str:
    given = [f"{name}={value!r}" for name, value in op.items() if name not in ("op", "function")]
    named = [repr(_name_in(op))] if "function" in op else []
    return f"{op['op']}({', '.join([*named, *given])})"
