"""Boxes, masks and keypoints that follow an image, views, recipes by name: against torchvision's transforms v2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import forebay as fb
import made
import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms.v2 import functional as their

WIDTH, HEIGHT = 80, 60
BOXES = [[20.0, 10.0, 50.0, 34.0], [30.0, 20.0, 45.0, 55.0], [25.0, 25.0, 40.0, 35.0]]
KEYPOINTS = [[25.0, 15.0, 2], [44.0, 30.0, 1]]


def sample(number: int, boxes: list[list[float]] = BOXES) -> dict[str, bytes]:
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    for label, (left, top, right, bottom) in enumerate(boxes, 1):
        mask[int(top) : int(bottom), int(left) : int(right)] = label
    annotations = [
        {
            "bbox": [x, y, to_x - x, to_y - y],
            "category_id": label,
            "keypoints": [*KEYPOINTS[0], *KEYPOINTS[1]],
        }
        for label, (x, y, to_x, to_y) in enumerate(boxes, 1)
    ]
    return {
        "png": made.encoded(made.picture(number, WIDTH, HEIGHT), "PNG"),
        "mask.png": made.encoded(Image.fromarray(mask), "PNG"),
        "json": json.dumps({"annotations": annotations}).encode(),
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> fb.Dataset:
    samples = [sample(number, BOXES[: 1 + number % 3]) for number in range(30)]
    return fb.open(made.write_shards(tmp_path_factory.mktemp("follow"), samples, 2))


def columns(column: fb.Image, **rule: Any) -> list[Any]:
    boxes = fb.boxes("json", follow="png", **rule)
    mask = fb.image("mask.png", mode="gray", follow="png").named("mask").layout("hwc")
    return [column.layout("hwc"), mask, boxes, boxes.labels(), boxes.keypoints()]


def first(folder: Path, column: fb.Image, **rule: Any) -> dict[str, np.ndarray]:
    with fb.Loader(
        made.write_shards(folder, [sample(0)], 1), columns(column, **rule), batch_size=1
    ) as loader:
        return {name: np.asarray(value)[0] for name, value in next(iter(loader)).items()}


@pytest.mark.parametrize(
    ("column", "reference"),
    [
        (fb.image("png").flip(1), their.horizontal_flip),
        (fb.image("png").flip(1, direction="vertical"), their.vertical_flip),
        (fb.image("png").resize((90, 100)), lambda x: their.resize(x, [90, 100])),
        (fb.image("png").center_crop((40, 60)), lambda x: their.center_crop(x, [40, 60])),
        (fb.image("png").pad((3, 1, 4, 2)), lambda x: their.pad(x, [3, 1, 4, 2])),
        (
            fb.image("png").affine((20, 20), scale=(0.7, 0.7), shear=(5, 5, 0, 0)),
            lambda x: their.affine(x, 20, [0, 0], 0.7, [5.0, 0.0]),
        ),
    ],
    ids=["flip", "vertical", "resize", "crop", "pad", "affine"],
)
def test_boxes_and_keypoints_go_where_torchvisions_go(
    column: fb.Image, reference: Any, tmp_path: Path
) -> None:
    found = first(tmp_path, column)
    size = (HEIGHT, WIDTH)
    boxes = tv_tensors.BoundingBoxes(torch.tensor(BOXES), format="XYXY", canvas_size=size)
    points = tv_tensors.KeyPoints(torch.tensor([point[:2] for point in KEYPOINTS]), canvas_size=size)
    theirs = their.clamp_bounding_boxes(reference(boxes))
    np.testing.assert_allclose(found["boxes"], theirs.numpy(), atol=1e-3)
    expected = reference(points).numpy()
    if reference in (their.horizontal_flip, their.vertical_flip):
        # They count pixels there, from 0 to 79: places between the edges, 0 to 80, are one further.
        expected[:, 0 if reference is their.horizontal_flip else 1] += 1
    np.testing.assert_allclose(found["keypoints"][0, :, :2], expected, atol=1e-3)
    assert found["keypoints"][0, :, 2].tolist() == [2, 1]
    assert found["labels"].tolist() == [1, 2, 3]
    assert found["mask"].shape[:2] == found["png"].shape[:2]


def test_boxes_hold_what_their_masks_show_and_ragged_batches_are_padded(data: fb.Dataset) -> None:
    column = fb.image("png").random_resized_crop(48, scale=(0.2, 1)).flip().affine(20).perspective(0.3, 1)
    recipe = columns(column, min_area=9, min_visibility=0.05)
    recipe[2:] = [part.pad_batch(-1) for part in recipe[2:]]
    dropped = 0
    with fb.Loader(data, recipe, batch_size=10, shuffle=True, seed=2) as loader:
        for batch in [batch for _ in range(3) for batch in loader]:
            assert batch["boxes"].shape[:2] == batch["labels"].shape == batch["keypoints"].shape[:2]
            assert (batch["boxes_length"] == batch["labels_length"]).all()
            for row, count in enumerate(batch["boxes_length"]):
                dropped += 1 + int(batch.ids[row]) % 3 - count
                boxes = batch["boxes"][row, :count]
                assert (boxes >= 0).all()
                assert (boxes <= 48).all()
                assert (boxes[:, 2:] > boxes[:, :2]).all()
                assert (batch["labels"][row, count:] == -1).all()
                for box, label in zip(boxes, batch["labels"][row], strict=False):
                    y, x = np.nonzero(batch["mask"][row, ..., 0] == label)
                    left, top, right, bottom = box
                    assert (x >= left - 1.5).all()
                    assert (x <= right + 0.5).all()
                    assert (y >= top - 1.5).all()
                    assert (y <= bottom + 0.5).all()
    assert dropped > 0


def test_what_follows_is_the_same_behind_a_cache_and_in_any_order_of_columns(data: fb.Dataset) -> None:
    recipe = columns(fb.image("png").resize((40, 50)).center_crop(32).affine(30))
    how: dict[str, Any] = {"batch_size": 6, "seed": 1}

    def contents(recipe: list[Any], **more: Any) -> list[Any]:
        with fb.Loader(data, recipe, **how, **more) as loader:
            epochs = [list(loader), list(loader)]
        names = ("png", "mask", "boxes", "labels", "keypoints")
        parts = [batch[name] for epoch in epochs for batch in epoch for name in names]
        return [[np.asarray(one).tolist() for one in part] for part in parts]

    wanted = contents(recipe)
    assert contents(recipe, cache={"memory": "64MiB", "at": "decode"}) == wanted
    assert contents([recipe[0], *recipe[:0:-1]]) == wanted
    with (
        pytest.raises(fb.InvalidConfigError, match="cached at"),
        fb.Loader(data, recipe, cache={"memory": "64MiB", "at": "center_crop"}, **how) as loader,
    ):
        next(iter(loader))


def test_what_cannot_be_followed_is_said() -> None:
    boxes = fb.boxes("json", follow="png")
    for recipe, why in [
        ([boxes], "`png` is no other column of images"),
        ([fb.label("png"), boxes], "`png` is no other column of images"),
        ([fb.image("png").aug_mix(), boxes], "has `aug_mix`"),
        (
            [fb.image("png"), fb.image("mask", follow="png").flip()],
            "`flip` cannot be done to a column that follows",
        ),
        ([fb.image("png"), {"field": "json", "decode": "boxes"}], "boxes need it"),
        ([fb.image("png"), fb.boxes("json", follow="png", min_visibility=2)], "min_visibility: 2"),
    ]:
        with pytest.raises(fb.InvalidConfigError, match=why):
            fb.Recipe(recipe)


def test_columns_print_and_travel() -> None:
    boxes = fb.boxes("json", follow="png", min_area=4, format="cxcywh")
    all_of_them = [
        fb.image("png").perspective(0.2).auto_augment("svhn"),
        fb.image("mask.png", mode="gray", follow="png").pad_batch(),
        boxes.pad_batch(),
        boxes.labels().pad_batch(-1),
        boxes.keypoints("points", swap=[(0, 1)]),
    ]
    names = {"image": fb.image, "boxes": fb.boxes}
    for column in all_of_them:
        assert eval(repr(column), names) == column
    recipe = fb.Recipe(all_of_them)
    assert fb.Recipe(str(recipe)) == recipe


def test_views_of_one_image_draw_differently(data: fb.Dataset) -> None:
    recipe = [*fb.image("png").random_resized_crop(16).flip().views(2), fb.raw("json")]
    with fb.Loader(data, recipe, batch_size=30) as loader:
        batch = next(iter(loader))
    assert list(batch) == ["png_0", "png_1", "json"]
    assert (batch["png_0"] != batch["png_1"]).any((1, 2, 3)).all()
    named = fb.image("png").views(["a", "b"])
    assert [column.to_dict()["name"] for column in named] == ["a", "b"]


def test_recipes_by_name_are_plain_and_print_as_toml(data: fb.Dataset) -> None:
    train = fb.recipes.imagenet_train(224)
    by_hand = [fb.image("jpg").random_resized_crop(224).flip().normalize(fb.IMAGENET), fb.label("cls")]
    assert train == fb.Recipe(by_hand)
    assert str(train).startswith("[[recipe]]")
    assert fb.Recipe(str(train)) == train
    val = fb.recipes.imagenet_val(224).entries()[0]["ops"]
    assert [(op["op"], op.get("size")) for op in val[:2]] == [("resize", 256), ("center_crop", 224)]
    assert fb.recipes.simclr(224).entries()[0]["ops"][4]["kernel"] == 23
    with fb.Loader(data, fb.recipes.simclr(32, field="png"), batch_size=8) as loader:
        batch = next(iter(loader))
    assert list(batch) == ["png_0", "png_1"]
    assert batch["png_0"].shape == (8, 3, 32, 32)
