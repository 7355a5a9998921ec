"""Mixup and cutmix: torchvision's for the same draw, and the same batches wherever they are made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import forebay as fb
import made
import numpy as np
import pytest
import served
import torch
from torchvision.transforms import v2

CLASSES = 5


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> fb.Dataset:
    samples = [
        {"jpg": made.encoded(made.picture(n), quality=90), "cls": str(n % CLASSES).encode()}
        for n in range(43)
    ]
    return fb.open(made.write_shards(tmp_path_factory.mktemp("mixing"), samples, 2))


def recipe(*ops: fb.SampleOp) -> list[Any]:
    return [fb.image("jpg").random_resized_crop((12, 18)).normalize(fb.IMAGENET), fb.label("cls"), *ops]


HOW: dict[str, Any] = {"batch_size": 8, "shuffle": True, "seed": 5}
BOTH = fb.mixup_or_cutmix(CLASSES, mixup_alpha=0.4)


def contents(loader: fb.Loader) -> dict[tuple[int, ...], tuple[bytes, bytes]]:
    return {tuple(b.ids.tolist()): (b["jpg"].tobytes(), b["cls"].tobytes()) for b in loader}


@pytest.mark.parametrize("op", [fb.mixup(CLASSES, alpha=0.4), fb.cutmix(CLASSES), BOTH])
def test_batches_are_what_torchvision_makes_of_them(data: fb.Dataset, op: fb.SampleOp) -> None:
    blend, cut = v2.MixUp(alpha=1.0, num_classes=CLASSES), v2.CutMix(alpha=1.0, num_classes=CLASSES)
    with fb.Loader(data, recipe(), **HOW) as plain, fb.Loader(data, recipe(op), **HOW) as mixed:
        for one, two in zip(plain, mixed, strict=True):
            rows = len(one.ids)
            images, labels = torch.from_numpy(one["jpg"].copy()), torch.from_numpy(one["cls"].copy())
            assert two["cls"].dtype == np.float32
            assert two["cls"].shape == (rows, CLASSES)
            found = []
            # What was drawn is seen in the result: the partner, and the share or the box.
            for back in range(1, rows):
                order = (np.arange(rows) - back) % rows
                changed = (one["jpg"] != two["jpg"]).any((0, 1))
                ours, other = np.eye(CLASSES)[one["cls"]], np.eye(CLASSES)[one["cls"][order]]
                differ = (ours != other).any(1)
                shares = ((two["cls"] - other)[differ] * (ours - other)[differ]).sum(1) / 2
                if not differ.any() or np.ptp(shares) > 1e-5:
                    continue
                share = float(shares[0])
                if not np.allclose(share * ours + (1 - share) * other, two["cls"], atol=1e-5):
                    continue
                if not changed.all():
                    y, x = np.nonzero(changed)
                    box = (0, 0, 0, 0) if not len(x) else (x.min(), y.min(), x.max() + 1, y.max() + 1)
                    params: dict[str, Any] = {"box": box, "lam_adjusted": share}
                    expected = images.clone()
                    x1, y1, x2, y2 = box
                    expected[..., y1:y2, x1:x2] = images.roll(back, 0)[..., y1:y2, x1:x2]
                    if back == 1:
                        params |= {"labels": labels, "batch_size": rows}
                        assert torch.equal(cut.transform(images, params), expected)
                    assert abs(1 - (x2 - x1) * (y2 - y1) / (12 * 18) - share) < 1e-5 or not len(x)
                else:
                    expected = images.roll(back, 0).mul(1 - share).add(images.mul(share))
                    if back == 1:
                        params = {"lam": share, "labels": labels, "batch_size": rows}
                        assert torch.equal(blend.transform(images, params), expected)
                found.append(float((expected - torch.from_numpy(two["jpg"])).abs().max()))
            assert min(found) < 2e-6, found


def test_a_batch_is_mixed_alike_on_any_ranks_threads_and_after_a_resume(data: fb.Dataset) -> None:
    with fb.Loader(data, recipe(BOTH), **HOW) as loader:
        wanted = contents(loader)
        again = contents(loader)
    assert len(wanted) == 6
    assert len(min(wanted, key=len)) == 3
    assert all(again.get(ids) != batch for ids, batch in wanted.items()), "another epoch draws anew"
    for rank in range(2):
        with fb.Loader(data, recipe(BOTH), rank=rank, world_size=2, num_workers=3, **HOW) as loader:
            for ids, batch in contents(loader).items():
                assert ids not in wanted or wanted[ids] == batch
    with fb.Loader(data, recipe(BOTH), **HOW) as loader:
        steps = iter(loader)
        next(steps), next(steps)
        state = loader.state_dict()
    with fb.Loader(data, recipe(BOTH), **HOW) as loader:
        loader.load_state_dict(state)
        rest = contents(loader)
    assert len(rest) == 4
    assert all(wanted[ids] == batch for ids, batch in rest.items())


@pytest.mark.timeout(200)
def test_other_processes_mix_as_this_one_does(data: fb.Dataset, tmp_path: Path) -> None:
    with fb.Loader(data, recipe(BOTH), **HOW) as loader:
        wanted = contents(loader)
    with (
        served.Process("share", "--socket", str(tmp_path / "share.sock")) as share,
        fb.Loader(data, recipe(BOTH), via=str(share.said["url"]), **HOW) as loader,
    ):
        assert contents(loader) == wanted
    with served.service(tmp_path) as (url, _, _), fb.Loader(data, recipe(BOTH), via=url, **HOW) as loader:
        assert contents(loader) == wanted


def test_a_cache_keeps_pixels_from_before_and_saving_refuses(data: fb.Dataset, tmp_path: Path) -> None:
    fixed = [fb.image("jpg").resize((12, 18)), fb.label("cls"), BOTH]
    with fb.Loader(data, fixed, **HOW) as loader:
        wanted = [contents(loader), contents(loader)]
    with fb.Loader(data, fixed, cache={"memory": "64MiB", "at": "resize"}, **HOW) as loader:
        assert [contents(loader), contents(loader)] == wanted
    with pytest.raises(fb.UnsupportedError, match="`mixup_or_cutmix` is of whole batches"):
        fb.materialize(data, fixed, tmp_path / "out", **HOW)


def test_filters_leave_short_batches_and_single_samples_as_they_are(data: fb.Dataset) -> None:
    one = [
        fb.image("jpg").resize((8, 8)),
        fb.label("cls").filter(lambda label: label == 0),
        fb.mixup(CLASSES),
    ]
    lengths = set()
    with fb.Loader(data, one, batch_size=4) as loader:
        for batch in loader:
            lengths.add(len(batch.ids))
            assert batch["cls"].shape == (len(batch.ids), CLASSES)
            assert np.array_equal(batch["cls"], np.eye(CLASSES, dtype=np.float32)[[0] * len(batch.ids)])
    assert lengths <= {0, 1}
    assert 1 in lengths
    wrong = [fb.image("jpg").resize((8, 8)), fb.label("cls"), fb.mixup(3)]
    with (
        fb.Loader(data, wrong, batch_size=8) as loader,
        pytest.raises(fb.CorruptError, match="none of 3 classes"),
    ):
        next(iter(loader))


def test_ops_print_and_travel() -> None:
    whole = fb.Recipe([fb.image("jpg").resize((8, 8)), fb.label("cls"), BOTH])
    assert fb.Recipe(str(whole)) == whole
    assert "mixup_or_cutmix(image='jpg'" in repr(whole)
