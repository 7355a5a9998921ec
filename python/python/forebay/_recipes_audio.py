"""Recipes by name for audio: plain lists of columns, to be taken as they are or as a beginning."""

from __future__ import annotations

from forebay._audio import audio
from forebay.recipe import Column, label

__all__ = ["speech_logmel"]


def speech_logmel(
    seconds: float = 1.0,
    *,
    rate: int = 16_000,
    n_mels: int = 80,
    train: bool = True,
    field: str = "wav;flac;mp3;ogg",
    labels: str | None = "cls",
) -> list[Column]:
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
    return [column] if labels is None else [column, label(labels)]
