"""Training data, ready before the accelerator asks.

    import forebay as fb

    data = fb.open("shards/train-{000000..000146}.tar")
    recipe = [fb.image("jpg").random_resized_crop(224).flip().normalize(fb.IMAGENET), fb.label("cls")]
    with fb.Loader(data, recipe, batch_size=256, shuffle=True, output="torch") as loader:
        for epoch in range(90):
            for batch in loader:
                step(batch["jpg"], batch["cls"])

Neither torch nor JAX is imported before a loader with such an output is used.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

from forebay import recipes
from forebay._audio import Audio, audio
from forebay._materialize import materialize
from forebay._native import DEBUG_BUILD as _DEBUG_BUILD
from forebay._native import __version__
from forebay._sample_ops import cutmix, filter, map, map_batch, mixup, mixup_or_cutmix
from forebay._tokens import Text, Tokens, tokens
from forebay._video import Video, video
from forebay.analysis import Analysis, analyze
from forebay.batch import Batch, Payloads
from forebay.dataset import Dataset, TokenOptions, join, mix, open, synthetic
from forebay.errors import (
    CancelledError,
    CorruptError,
    DeniedError,
    ExhaustedError,
    ForebayError,
    FunctionError,
    InternalError,
    InvalidConfigError,
    NotFoundError,
    StaleError,
    UnavailableError,
    UnsupportedError,
)
from forebay.loader import BadSample, Loader, SkippedBatch, show
from forebay.ragged import Ragged
from forebay.recipe import (
    IMAGENET,
    Boxes,
    Column,
    Image,
    Normalization,
    Recipe,
    SampleOp,
    boxes,
    image,
    json,
    label,
    npy,
    raw,
    text,
)
from forebay.stats import Stats

if TYPE_CHECKING:
    from forebay import ray as ray
    from forebay import torch as torch

__all__ = [
    "IMAGENET",
    "Analysis",
    "Audio",
    "BadSample",
    "Batch",
    "Boxes",
    "CancelledError",
    "Column",
    "CorruptError",
    "Dataset",
    "DeniedError",
    "ExhaustedError",
    "ForebayError",
    "FunctionError",
    "Image",
    "InternalError",
    "InvalidConfigError",
    "Loader",
    "Normalization",
    "NotFoundError",
    "Payloads",
    "Ragged",
    "Recipe",
    "SampleOp",
    "SkippedBatch",
    "StaleError",
    "Stats",
    "Text",
    "TokenOptions",
    "Tokens",
    "UnavailableError",
    "UnsupportedError",
    "Video",
    "__version__",
    "analyze",
    "audio",
    "boxes",
    "cutmix",
    "filter",
    "image",
    "join",
    "json",
    "label",
    "map",
    "map_batch",
    "materialize",
    "mix",
    "mixup",
    "mixup_or_cutmix",
    "npy",
    "open",
    "raw",
    "recipes",
    "show",
    "synthetic",
    "text",
    "tokens",
    "video",
]

if _DEBUG_BUILD:
    warnings.warn(
        "this is a debug build of forebay: many times slower, not for measurements",
        RuntimeWarning,
        stacklevel=2,
    )


def __getattr__(name: str) -> Any:
    if name in ("ray", "torch"):
        return importlib.import_module(f"forebay.{name}")
    raise AttributeError(f"module `forebay` has no attribute `{name}`")
