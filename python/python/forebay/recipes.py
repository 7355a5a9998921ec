"""Recipes by name: what papers and torchvision's references do, as plain recipes to read, print and change.

    print(fb.recipes.imagenet_train(224))

prints TOML. Each function gives an `fb.Recipe`; `entries()` of it is plain data.
"""

from __future__ import annotations

from typing import Literal

from forebay._audio import audio
from forebay._tokens import tokens
from forebay.recipe import IMAGENET, Filter, Recipe, image, label

__all__ = ["imagenet_train", "imagenet_val", "lm_pack", "simclr", "speech_logmel"]


def imagenet_train(
    size: int = 224, *, field: str = "jpg", label_field: str = "cls", filter: Filter = "bilinear"
) -> Recipe:
    """Images to train on: a random crop of any size and aspect, mirrored half of the time, normalized; and labels."""
    crop = image(field).random_resized_crop(size, filter=filter).flip()
    return Recipe([crop.normalize(IMAGENET), label(label_field)])


def imagenet_val(
    size: int = 224,
    *,
    resize: int | None = None,
    field: str = "jpg",
    label_field: str = "cls",
    filter: Filter = "bilinear",
) -> Recipe:
    """Images to validate on: the short side scaled, the middle cut out, normalized; and labels.

    resize: short side before the cut; 8/7 of `size` when not given, 256 for 224.
    """
    middle = image(field).resize(resize or round(size * 8 / 7), filter=filter).center_crop(size)
    return Recipe([middle.normalize(IMAGENET), label(label_field)])


def simclr(
    size: int = 224,
    *,
    views: int = 2,
    strength: float = 1.0,
    field: str = "jpg",
    label_field: str | None = None,
) -> Recipe:
    """Views of each image as SimCLR draws them: columns `jpg_0`, `jpg_1` and so on, each with its own crop, mirror,
    colors and blur.

    views: number of views.
    strength: how much colors change.
    label_field: field of labels, when they are wanted too.
    """
    amount = 0.8 * strength
    view = (
        image(field)
        .random_resized_crop(size)
        .flip()
        .color_jitter(amount, amount, amount, 0.2 * strength)
        .grayscale(0.2)
        .gaussian_blur(size // 10 // 2 * 2 + 1, (0.1, 2.0), p=0.5)
        .normalize(IMAGENET)
    )
    labels = [] if label_field is None else [label(label_field)]
    return Recipe([*view.views(views), *labels])


def speech_logmel(
    seconds: float = 1.0,
    *,
    rate: int = 16_000,
    n_mels: int = 80,
    train: bool = True,
    field: str = "wav;flac;mp3;ogg;opus",
    labels: str | None = "cls",
) -> Recipe:
    """Log-mel spectra of speech: `[1, n_mels, frames]` in a column `audio`, windows of 25 ms every 10 ms.

    For training a part of `seconds` is cut at random, its loudness changes, and spans of it are masked; otherwise the
    middle is taken. `labels` is the field of a class beside the audio, or `None`.
    """
    column = audio(field).named("audio").mono().resample(rate)
    column = column.random_crop(seconds=seconds) if train else column.center_crop(seconds=seconds)
    if train:
        column = column.gain((-6, 6))
    window, hop = round(rate * 0.025), round(rate * 0.01)
    column = column.log_mel(n_fft=window, hop_length=hop, n_mels=n_mels, f_min=20.0, floor=1e-6)
    if train:
        frames = 1 + round(seconds * rate) // hop
        column = column.spec_augment(time_mask_param=max(1, frames // 5), freq_mask_param=max(1, n_mels // 5))
    return Recipe([column] if labels is None else [column, label(labels)])


def lm_pack(
    length: int = 2048,
    *,
    field: str = "tokens",
    fit: Literal["greedy", "best"] = "best",
    value: int = 0,
) -> Recipe:
    """Documents packed into rows of `length` tokens, with the labels of a language model.

    The batch has `tokens`, `tokens_labels` (the next token, -100 where there is none), `tokens_position`,
    `tokens_segment` and `tokens_cu_seqlens`. The loader's `batch_size` is the number of rows.
    """
    return Recipe([tokens(field).named("tokens").pack(length, fit=fit, value=value, labels=True)])
