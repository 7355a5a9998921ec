"""Memory: no copy between the batch and the array, yours to write and keep, used again when you let go."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import forebay as fb
import made
import numpy as np
import pytest


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def native_address(array: np.ndarray) -> int:
    """The address that the native side gave, found behind the array's views."""
    base: Any = array
    while not hasattr(base, "address"):
        base = base.obj if isinstance(base, memoryview) else base.base
    return int(base.address)


@pytest.fixture
def loader(tree: Path) -> Any:
    with fb.Loader(
        tree, [fb.image("jpg").resize((32, 32)).normalize(fb.IMAGENET), fb.label("cls")], batch_size=4
    ) as it:
        yield it


def test_p040_numpy_arrays_look_at_native_memory(loader: fb.Loader) -> None:
    for batch in loader:
        for name in ("jpg", "cls"):
            assert address(batch[name]) == native_address(batch[name])
            assert address(batch[name]) % 64 == 0
            assert batch[name].flags.writeable
            assert batch[name].flags.c_contiguous
        assert batch.ids.flags.writeable


def test_p040_dlpack_export_is_pointer_equal(loader: fb.Loader) -> None:
    batch = next(iter(loader))
    array = batch["jpg"]
    assert array.__dlpack_device__()[0] == 1
    imported = np.from_dlpack(array)
    assert address(imported) == native_address(array)


def test_p040_torch_tensors_look_at_native_memory(tree: Path) -> None:
    import torch

    recipe = [
        fb.image("jpg").resize((32, 32)).normalize(fb.IMAGENET).dtype("bf16"),
        fb.image("jpg").resize((8, 8)).named("small"),
        fb.label("cls"),
    ]
    with (
        fb.Loader(tree, recipe, batch_size=4, output="torch") as loader,
        fb.Loader(tree, recipe, batch_size=4) as plain,
    ):
        for batch, arrays in zip(loader, plain, strict=True):
            assert batch["jpg"].dtype == torch.bfloat16
            assert batch["small"].dtype == torch.uint8
            assert batch["cls"].dtype == torch.int64
            assert batch["cls"].tolist() == arrays["cls"].tolist()
            bits = batch["jpg"].view(torch.uint16).numpy()
            assert np.array_equal(bits, arrays["jpg"].view(np.uint16))
            array = arrays["small"]
            assert torch.from_numpy(array).data_ptr() == native_address(array)
            assert torch.from_dlpack(array).data_ptr() == native_address(array)
            assert address(batch["small"].numpy()) % 4096 == 0
            batch["small"].add_(1)


def test_p040_jax_arrays_look_at_native_memory(tree: Path) -> None:
    import jax
    import jax.numpy as jnp

    recipe = [
        fb.image("jpg").resize((32, 32)).normalize(fb.IMAGENET).layout("hwc"),
        fb.image("jpg").resize((32, 32)).normalize(fb.IMAGENET).dtype("bf16").named("half"),
        fb.label("cls"),
    ]
    with fb.Loader(tree, recipe, batch_size=4) as loader:
        for batch in loader:
            array = batch["jpg"]
            assert jax.dlpack.from_dlpack(array, copy=False).unsafe_buffer_pointer() == native_address(array)
            for name in ("jpg", "half"):
                put = jax.device_put(batch[name], may_alias=True)
                assert put.unsafe_buffer_pointer() == native_address(batch[name])
    with (
        fb.Loader(tree, recipe, batch_size=4, output="jax") as loader,
        fb.Loader(tree, recipe, batch_size=4) as plain,
    ):
        for batch, arrays in zip(loader, plain, strict=True):
            assert isinstance(batch["jpg"], jax.Array)
            assert batch["half"].dtype == jnp.bfloat16
            assert batch["jpg"].unsafe_buffer_pointer() % 4096 == 0
            assert np.array_equal(np.asarray(batch["jpg"]), arrays["jpg"])
            assert np.asarray(batch["cls"]).tolist() == arrays["cls"].tolist()


def test_p040_dlpack_output_is_taken_by_frameworks(tree: Path) -> None:
    import torch

    with fb.Loader(tree, [fb.image("jpg").resize((8, 8))], batch_size=4, output="dlpack") as loader:
        batch = next(iter(loader))
    assert torch.from_dlpack(batch["jpg"]).shape == (4, 3, 8, 8)


def test_bfloat16_without_ml_dtypes_is_its_bits() -> None:
    code = """
        import sys
        sys.modules["ml_dtypes"] = None
        import numpy as np, forebay as fb
        data = fb.synthetic(4, templates=[%r], field="png")
        recipe = [fb.image("png").normalize(mean=[0, 0, 0], std=[1, 1, 1]).dtype("bf16")]
        batch = next(iter(fb.Loader(data, recipe, batch_size=4)))
        assert batch["png"].dtype == np.uint16
        values = (batch["png"].astype(np.uint32) << 16).view(np.float32)
        assert abs(values.max() - 1.0) < 0.01, values.max()
    """
    white = made.encoded(made.picture(0, 8, 8).point(lambda level: 255), "PNG")
    done = made.run_python(code % white)
    assert done.returncode == 0, done.stderr


def test_arrays_stay_valid_after_the_loader_moved_on_and_was_closed(tree: Path) -> None:
    recipe = [fb.image("jpg").resize((32, 32)), fb.label("cls")]
    loader = fb.Loader(tree, recipe, batch_size=4)
    kept = [batch for _ in range(3) for batch in loader]
    copies = [{name: array.copy() for name, array in batch.items()} for batch in kept]
    addresses = [address(batch["jpg"]) for batch in kept]
    assert len(set(addresses)) == len(addresses)
    loader.close()
    del loader
    gc.collect()
    for batch, copy in zip(kept, copies, strict=True):
        for name in batch:
            assert np.array_equal(batch[name], copy[name])
            batch[name][...] = 1


def test_memory_goes_back_to_the_pool_when_python_lets_go(numbers: fb.Dataset, tree: Path) -> None:
    recipe = [fb.image("jpg").resize((64, 64))]
    seen = []
    with fb.Loader(tree, recipe, batch_size=4, prefetch_batches=2) as loader:
        for _ in range(10):
            for batch in loader:
                seen.append(address(batch["jpg"]))
                del batch
        assert len(seen) == 30
        # Two ready, one being made, one in hand, one on its way back.
        assert len(set(seen)) <= 5
        view = next(iter(loader))["jpg"][1:3, :, ::2]
        held = native_address(view)
        for _ in range(5):
            for batch in loader:
                assert address(batch["jpg"]) != held
