"""Arguments: from the call, from the environment, from PyTorch's vocabulary; ranks from whoever knows."""

from __future__ import annotations

import inspect
import logging
import sys
import types
from typing import Any

import forebay as fb
import made
import pytest
from forebay import _config

RAW = [fb.raw("bin"), fb.label("cls")]
SMALL = fb.synthetic(40, bytes=10)


def test_every_argument_of_the_loader_is_known_to_the_config() -> None:
    parameters = set(inspect.signature(fb.Loader).parameters) - {"data", "recipe", "unknown"}
    assert parameters == set(_config.ARGUMENTS)
    documented = fb.Loader.__doc__ or ""
    assert not [name for name in parameters if name not in documented]


def test_the_environment_speaks_and_the_argument_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_BATCH_SIZE", "7")
    monkeypatch.setenv("FOREBAY_SHUFFLE", "full")
    monkeypatch.setenv("FOREBAY_SEED", "11")
    monkeypatch.setenv("FOREBAY_DROP_LAST", "yes")
    monkeypatch.setenv("FOREBAY_MEMORY", "2GiB")
    monkeypatch.setenv("FOREBAY_NUM_WORKERS", "auto")
    monkeypatch.setenv("FOREBAY_TIMEOUT", "none")
    with (
        fb.Loader(SMALL, RAW) as loader,
        fb.Loader(SMALL, RAW, batch_size=4, seed=11, drop_last=False) as other,
    ):
        assert loader.batch_size == 7
        assert len(loader) == 5
        assert other.batch_size == 4
        assert len(other) == 10
        order = made.ids(loader)
    with fb.Loader(SMALL, RAW, batch_size=7, shuffle="full", seed=11, drop_last=True) as same:
        assert made.ids(same) == order


def test_faults_of_arguments_are_reported_at_once_with_their_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_IN_ORDER", "perhaps")
    with pytest.raises(fb.InvalidConfigError) as caught:
        fb.Loader(SMALL, RAW, batch_size=0, shuffle="sideways", memory="12 parsecs", max_errors=1.5)  # type: ignore[arg-type]
    text = str(caught.value)
    for part in (
        "batch_size is 0",
        "shuffle is 'sideways'",
        "memory is",
        "max_errors is 1.5",
        "FOREBAY_IN_ORDER",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"sampler": []}, fb.UnsupportedError, "`sampler`"),
        ({"batch_sampler": []}, fb.UnsupportedError, "`batch_sampler`"),
        ({"collate": 3}, fb.InvalidConfigError, "collate is 3"),
        ({"batchsize": 3}, fb.InvalidConfigError, "`batchsize`"),
        ({"window": 5}, fb.InvalidConfigError, "order is by plan"),
        ({"window": 9000, "in_order": False}, fb.InvalidConfigError, "at most 8192"),
        ({"drop_last": True, "last_batch": "pad"}, fb.InvalidConfigError, "contradict"),
        ({"rank": 1}, fb.InvalidConfigError, "only rank=1"),
        ({"rank": 2, "world_size": 2}, fb.InvalidConfigError, "rank is 2"),
        ({"num_workers": -1}, fb.InvalidConfigError, "num_workers is -1"),
        ({"batch_size": 2.5}, fb.InvalidConfigError, "whole number"),
        ({"timeout": -3}, fb.InvalidConfigError, "timeout is -3"),
        ({"output": "tensorflow"}, fb.InvalidConfigError, "output is 'tensorflow'"),
        ({"worker_init_fn": 3}, fb.InvalidConfigError, "worker_init_fn is 3"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: dict[str, Any], error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        fb.Loader(SMALL, RAW, **arguments)


def test_p039_the_arguments_of_a_torch_loader_are_taken() -> None:
    import torch

    generator = torch.Generator().manual_seed(77)
    with fb.Loader(
        SMALL,
        RAW,
        batch_size=4,
        shuffle=True,
        num_workers=0,
        pin_memory=True,
        drop_last=True,
        timeout=0,
        worker_init_fn=lambda number: None,
        multiprocessing_context=None,
        generator=generator,
        prefetch_factor=2,
        persistent_workers=True,
        pin_memory_device="",
        in_order=True,
        output="torch",
    ) as loader:
        order = made.ids(loader)
    with fb.Loader(SMALL, RAW, batch_size=4, shuffle=True, seed=77) as same:
        assert made.ids(same) == order
    known = set(inspect.signature(torch.utils.data.DataLoader).parameters) - {"dataset"}
    refused = {"sampler", "batch_sampler"}
    assert known - refused <= set(_config.ARGUMENTS)


def test_ranks_are_found_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def found() -> tuple[int, int]:
        with fb.Loader(SMALL, RAW) as loader:
            return loader.rank, loader.world_size

    monkeypatch.setitem(sys.modules, "torch.distributed", None)
    monkeypatch.setitem(sys.modules, "jax", None)
    assert found() == (0, 1)
    monkeypatch.setenv("SLURM_PROCID", "3")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    assert found() == (3, 4)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with caplog.at_level(logging.INFO, logger="forebay"):
        assert found() == (1, 2)
    assert "rank 1 of 2, from RANK and WORLD_SIZE" in caplog.text
    jax = types.SimpleNamespace(
        distributed=types.SimpleNamespace(is_initialized=lambda: True),
        process_index=lambda: 5,
        process_count=lambda: 6,
    )
    monkeypatch.setitem(sys.modules, "jax", jax)
    assert found() == (5, 6)
    distributed = types.SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 7, get_world_size=lambda: 8
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    assert found() == (7, 8)
    with fb.Loader(SMALL, RAW, rank=0, world_size=3) as loader:
        assert (loader.rank, loader.world_size) == (0, 3)
    monkeypatch.setitem(sys.modules, "torch.distributed", None)
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(fb.InvalidConfigError, match="RANK=`first`"):
        found()


def test_p078_too_little_memory_says_need_limit_and_advice() -> None:
    data = fb.synthetic(100, bytes=1_000_000)
    with pytest.raises(fb.ExhaustedError) as caught:
        fb.Loader(data, [fb.raw("bin")], batch_size=64, memory="1MiB")
    text = f"{caught.value} {caught.value.hint}"
    assert "1 MB was allowed" in text
    assert "one batch of 64 samples takes up to 64 MB" in text
    assert "at least 65 MB" in text
    assert "batch_size" in text
    with fb.Loader(data, [fb.raw("bin")], batch_size=1, memory="16MiB") as loader:
        made.ids(loader)
        stats = loader.stats()
    assert stats["memory_limit_bytes"] <= 16 << 20
    assert stats["payload_peak_bytes"] <= (16 << 20) + 1_000_000


def test_a_batch_that_does_not_come_times_out_with_a_reason() -> None:
    with (
        fb.Loader(SMALL, [fb.raw("bin").delay(5.0)], batch_size=4, timeout=0.3) as loader,
        pytest.raises(fb.UnavailableError, match=r"0\.3 s") as caught,
    ):
        made.ids(loader)
    assert isinstance(caught.value, ConnectionError)
    assert "timeout" in str(caught.value.hint)
