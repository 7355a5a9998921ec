"""Recipes: plain data, built in Python, checked natively, all faults at once."""

from __future__ import annotations

import json
import pickle

import forebay as fb
import numpy as np
import pytest

FULL = [
    fb.image("jpg;png", mode="rgb", orientation="apply", max_pixels=10_000_000)
    .resize(64)
    .random_crop((40, 48), padding=4)
    .random_resized_crop(32, scale=(0.2, 1.0), ratio=(0.5, 2.0), filter="bicubic")
    .flip(0.3, direction="vertical")
    .pad(2)
    .center_crop(32)
    .color_jitter(0.4, 0.4, 0.4, 0.1)
    .grayscale(0.2)
    .normalize(fb.IMAGENET)
    .random_erasing(0.1)
    .delay(0.0)
    .dtype("f16")
    .layout("hwc")
    .named("picture"),
    fb.label("cls"),
    fb.text("txt"),
    fb.json("json"),
    fb.npy("npy", shape=(2, 3), dtype="f32"),
    fb.raw("bin"),
]


def test_a_recipe_is_the_same_however_it_is_written() -> None:
    recipe = fb.Recipe(FULL)
    ways = [
        recipe.to_json(),
        recipe.to_toml(),
        json.loads(recipe.to_json()),
        {"recipe": json.loads(recipe.to_json())},
        [column.to_dict() for column in FULL],
        recipe,
        "# a comment\n" + recipe.to_toml(),
    ]
    for way in ways:
        assert fb.Recipe(way) == recipe
        assert fb.Recipe(way).fingerprint == recipe.fingerprint
    assert fb.Recipe(FULL[:5]).fingerprint != recipe.fingerprint
    assert pickle.loads(pickle.dumps(recipe)) == recipe


def test_the_repr_of_a_column_makes_it_again() -> None:
    names = {name: getattr(fb, name) for name in ("image", "label", "text", "json", "npy", "raw")}
    for column in FULL:
        assert eval(repr(column), names) == column


def test_columns_never_change() -> None:
    column = fb.image("jpg")
    column.resize(32).named("x")
    assert column == fb.image("jpg")
    with pytest.raises(AttributeError, match="never changes"):
        column.name = "x"  # type: ignore[attr-defined]
    column.to_dict()["field"] = "png"
    assert column.to_dict()["field"] == "jpg"
    assert len({column, fb.image("jpg"), column.resize(3)}) == 2


def test_numpy_numbers_are_numbers() -> None:
    sizes = np.array([3, 4])
    assert fb.image("jpg").resize(tuple(sizes)) == fb.image("jpg").resize((3, 4))


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(fb.InvalidConfigError) as caught:
        fb.Recipe([fb.image("jpg").resize(0).flip(1.5), fb.label("cls").dtype("f99")])  # type: ignore[arg-type]
    text = str(caught.value)
    assert "recipe[0]" in text
    assert "recipe[1]" in text
    assert "3 faults" in text


def test_what_is_no_column_is_named() -> None:
    with pytest.raises(fb.InvalidConfigError, match="`function`"):
        fb.Recipe([lambda x: x])  # type: ignore[list-item]
    with pytest.raises(fb.InvalidConfigError, match="mean and std"):
        fb.image("jpg").normalize(mean=[0.5])
