"""Columns of video: which frames are taken and what is done to each, as plain data.

    fb.video("avi").clip(16, stride=4).random_resized_crop(112).flip().normalize(fb.IMAGENET)

Nothing is computed here.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from forebay.recipe import Image

__all__ = ["Video", "video"]


class Video(Image):
    """A column of videos: frames behind each other, as `[frames, channels, height, width]`, or with the channels last.

    The ops are those of images. What is drawn at random is drawn once for a sample, so all frames of a clip are
    cropped, mirrored and colored alike. When `clip` and the ops fix the shape, values are written straight into the
    batch.
    """

    __slots__ = ()

    def clip(
        self,
        frames: int,
        *,
        stride: int = 1,
        place: Literal["random", "center", "start"] = "random",
        short: Literal["repeat", "loop", "refuse"] = "repeat",
    ) -> Self:
        """Takes `frames` frames, every `stride`th, from a part of the video that is drawn anew in every epoch, from its
        middle, or from its start. Comes first: other frames are not decoded.

        short: of a video that is shorter, the last frame is repeated, or it begins again, or it is a bad sample.
        """
        return self._op("clip", frames=frames, stride=stride, place=place, short=short)


def video(
    field: str = "avi",
    *,
    mode: Literal["rgb", "gray", "rgba"] = "rgb",
    max_pixels: int | None = None,
) -> Video:
    """A column of videos: Motion JPEG in AVI, or a field for each frame.

    field: field of the sample; alternatives are separated by `;`. A `*` stands for the frames' numbers: with
        `"frame*.jpg"`, the fields `frame0.jpg`, `frame1.jpg` and so on are the video, in the order of their numbers,
        and each may be JPEG, PNG or WebP. Give such a column a name with `named`.
    mode: channels of the result.
    max_pixels: pixels of all decoded frames of a sample together above which it is refused; 2^29 when not given.

    Other codecs are `UnsupportedError`, with the command that converts such a file once.
    """
    decode: dict[str, Any] = {"kind": "video", "mode": mode}
    if max_pixels is not None:
        decode["max_pixels"] = max_pixels
    return Video({"field": field, "decode": decode})
