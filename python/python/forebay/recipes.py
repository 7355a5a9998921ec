"""Recipes by name: what papers and torchvision's references do, as plain recipes to read, print and change.

    print(fb.recipes.imagenet_train(224))

prints TOML. Each function gives an `fb.Recipe`; `entries()` of it is plain data.
"""

from __future__ import annotations

from forebay.recipe import IMAGENET, Filter, Recipe, image, label

__all__ = ["imagenet_train", "imagenet_val", "simclr"]


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
