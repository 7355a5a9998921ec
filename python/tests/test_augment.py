"""Ops that blur, bend and recolor: against torchvision's transforms v2 on the same pixels."""

from __future__ import annotations

from typing import Any

import forebay as fb
import made
import numpy as np
import pytest
import torch
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as their

SIZES = [(133, 97), (64, 64), (7, 31)]


def ours(picture: Any, column: fb.Image, samples: int = 1) -> np.ndarray:
    data = fb.synthetic(samples, templates=[made.encoded(picture, "PNG")], field="png")
    with fb.Loader(data, [column.layout("hwc")], batch_size=samples) as loader:
        return np.asarray(next(iter(loader))["png"])


def tensor(picture: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous()


def theirs(made_of: torch.Tensor) -> np.ndarray:
    return made_of.permute(1, 2, 0).numpy()


def image() -> fb.Image:
    return fb.image("png")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("column", "reference"),
    [
        (image().solarize(100, p=1), lambda x: their.solarize(x, 100)),
        (image().posterize(3, p=1), lambda x: their.posterize(x, 3)),
        (image().equalize(p=1), their.equalize),
        (image().autocontrast(p=1), their.autocontrast),
    ],
    ids=["solarize", "posterize", "equalize", "autocontrast"],
)
def test_levels_are_exactly_torchvisions(column: fb.Image, reference: Any, size: tuple[int, int]) -> None:
    picture = made.picture(5, *size)
    np.testing.assert_array_equal(ours(picture, column)[0], theirs(reference(tensor(picture))))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("column", "reference"),
    [
        (image().gaussian_blur(5, 1.3), lambda x: their.gaussian_blur(x, [5, 5], [1.3, 1.3])),
        (image().sharpness(1.9, p=1), lambda x: their.adjust_sharpness(x, 1.9)),
        (image().sharpness(0.3, p=1), lambda x: their.adjust_sharpness(x, 0.3)),
        (
            image().affine((20, 20), scale=(0.8, 0.8), shear=(5, 5), interpolation="bilinear", fill=7),
            lambda x: their.affine(
                x, 20, [0, 0], 0.8, [5.0, 0.0], interpolation=v2.InterpolationMode.BILINEAR, fill=7
            ),
        ),
    ],
    ids=["gaussian_blur", "sharper", "smoother", "affine"],
)
def test_blends_are_torchvisions_within_a_level(
    column: fb.Image, reference: Any, size: tuple[int, int]
) -> None:
    picture = made.picture(6, *size)
    apart = np.abs(ours(picture, column)[0].astype(int) - theirs(reference(tensor(picture))))
    assert apart.max() <= 1
    assert np.mean(apart > 0) < 0.02


@pytest.mark.parametrize("size", SIZES)
def test_bending_takes_the_pixels_that_torchvision_takes(size: tuple[int, int]) -> None:
    picture = made.picture(7, *size)
    expected = theirs(their.affine(tensor(picture), 33, [0, 0], 1.1, [0.0, 0.0]))
    made_here = ours(picture, image().affine((33, 33), scale=(1.1, 1.1)))[0]
    # Where a place lies between two pixels the last bit of torch's product decides.
    assert np.mean((made_here != expected).any(-1)) < 0.005


@pytest.mark.parametrize(
    ("column", "reference"),
    [
        (image().rand_augment(1, 9), v2.RandAugment(num_ops=1, magnitude=9)),
        (image().rand_augment(1, 23), v2.RandAugment(num_ops=1, magnitude=23)),
        (image().trivial_augment(bins=4), v2.TrivialAugmentWide(num_magnitude_bins=4)),
    ],
    ids=["rand_augment_9", "rand_augment_23", "trivial_augment"],
)
def test_policies_make_the_images_that_torchvision_makes(column: fb.Image, reference: v2.Transform) -> None:
    """Every image of ours is one of theirs, every one of theirs is among ours."""
    picture = made.picture(8, 61, 47)
    torch.manual_seed(3)
    original = tensor(picture)
    known = np.unique(np.stack([theirs(reference(original)) for _ in range(1500)]), axis=0).astype(np.int16)
    found = np.unique(ours(picture, column, 1500), axis=0).astype(np.int16)

    def like(one: np.ndarray, others: np.ndarray) -> bool:
        differ = (np.abs(others - one) > 1).any(-1).mean((1, 2))
        return bool(differ.min() < 0.02)

    assert [at for at, one in enumerate(found) if not like(one, known)] == []
    assert [at for at, one in enumerate(known) if not like(one, found)] == []
