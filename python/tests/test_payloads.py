"""Columns of payloads: a sequence of `bytes` that copies nothing until it is asked to."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import forebay as fb
import made
import numpy as np
import pytest

LARGE, SMALL = 40_000, 100


def payload(number: int) -> bytes:
    """Large ones stay where they came to lie, small ones are put together."""
    length = LARGE + number if number % 2 else SMALL + number
    return bytes((number + at) % 251 for at in range(length))


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    made.write_tar(tmp_path / "a.tar", [{"bin": payload(number)} for number in range(24)], 0)
    return tmp_path / "a.tar"


def batches(shards: Path, **arguments: Any) -> list[fb.Batch]:
    with fb.Loader(shards, [fb.raw("bin")], batch_size=8, **arguments) as loader:
        return list(loader)


def address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).__array_interface__["data"][0])


def test_it_is_a_sequence_of_bytes(shards: Path) -> None:
    payloads = batches(shards)[1]["bin"]
    expected = [payload(number) for number in range(8, 16)]
    assert isinstance(payloads, fb.Payloads)
    assert len(payloads) == 8
    assert payloads == expected
    assert expected == payloads
    assert payloads == tuple(expected)
    assert payloads != expected[1:]
    assert payloads != [*expected[1:], b""]
    assert payloads != "text"
    assert list(payloads) == [*payloads] == expected
    assert payloads[::-1] == expected[::-1]
    assert all(type(one) is bytes for one in payloads)
    assert (payloads[0], payloads[-1]) == (expected[0], expected[-1])
    for cut in (slice(2, 5), slice(None, None, -2), slice(-3, None), slice(7, 2), slice(0, 100)):
        assert isinstance(payloads[cut], fb.Payloads)
        assert payloads[cut] == expected[cut]
    for beyond in (8, -9, 2**40):
        with pytest.raises(IndexError):
            payloads[beyond]
    with pytest.raises(TypeError):
        payloads["a"]
    with pytest.raises(TypeError):
        hash(payloads)
    assert expected[3] in payloads
    assert b"none" not in payloads
    assert 7 not in payloads
    assert payloads.index(expected[3]) == 3
    assert payloads.count(expected[3]) == 1
    with pytest.raises(ValueError, match="no such payload"):
        payloads.index(b"none")
    assert payloads + [b"more"] == [*expected, b"more"]  # noqa: RUF005
    assert [b"more"] + payloads == [b"more", *expected]  # noqa: RUF005
    assert payloads + payloads == [*expected, *expected]
    assert b"".join(payloads) == b"".join(expected)
    assert payloads.lengths() == [len(one) for one in expected]
    assert payloads.nbytes == sum(len(one) for one in expected)
    assert repr(payloads) == f"<forebay.Payloads: 8 payloads, {payloads.nbytes} bytes>"


def test_views_copy_nothing_and_cannot_be_written_to(shards: Path) -> None:
    payloads = batches(shards)[0]["bin"]
    views = payloads.views()
    assert [bytes(view) for view in views] == list(payloads)
    for number, view in enumerate(views):
        assert view.readonly
        assert len(view) == len(payloads[number])
        # However it is asked for, it is the same memory.
        assert address(view) == address(payloads.view(number)) == address(payloads[number:].view(0))
        with pytest.raises(TypeError):
            view[0] = 1
    assert not np.frombuffer(views[1], np.uint8).flags.writeable
    with pytest.raises(IndexError):
        payloads.view(8)


def test_p040_hits_from_memory_are_handed_over_where_the_cache_has_them(shards: Path) -> None:
    # A loader looks about an epoch of these batches ahead, so that in the last two all payloads are kept long since.
    with fb.Loader(shards, [fb.raw("bin")], batch_size=1, cache="1MiB", epochs=6) as loader:
        epochs = [[batch["bin"] for batch in loader] for _ in range(6)]
        assert loader.stats()["cache_memory_hits"] >= 48
    for number, (one, other) in enumerate(zip(*epochs[-2:], strict=True)):
        same = address(one.view(0)) == address(other.view(0))
        assert same == (number % 2 == 1), "large payloads are the cache's own, small ones are copies"
        assert other[0] == payload(number)


@pytest.mark.parametrize("cache", [None, "1MiB"])
def test_views_stay_valid_when_the_loader_and_its_cache_are_gone(shards: Path, cache: str | None) -> None:
    with fb.Loader(shards, [fb.raw("bin")], batch_size=24, cache=cache, epochs=3) as loader:
        views = [batch["bin"].views() for _ in range(2) for batch in loader][1]
        held = views[1:4]
        del views
        if cache is not None:
            loader.resize_cache("1B")
        for _ in loader:
            pass
    assert [bytes(view) for view in held] == [payload(number) for number in (1, 2, 3)]


def test_it_is_pickled_and_copied(shards: Path) -> None:
    batch = batches(shards)[0]
    again = pickle.loads(pickle.dumps(batch["bin"]))
    assert isinstance(again, fb.Payloads)
    assert again == batch["bin"]
    assert copy.copy(batch["bin"]) is batch["bin"]
    assert copy.deepcopy(batch["bin"]) == batch["bin"]
    assert fb.Payloads() == []
    assert fb.Payloads([b"a", b""]) == [b"a", b""]
    with pytest.raises(TypeError):
        fb.Payloads([1])  # type: ignore[list-item]


def _compare(pipe: Any, payloads: Any, view: Any) -> None:
    pipe.send((payloads == [payload(number) for number in range(8)], bytes(view) == payload(1)))


# JAX, when another test has imported it, warns of every fork.
@pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called:RuntimeWarning")
def test_a_forked_child_reads_what_its_parent_holds(shards: Path) -> None:
    payloads = batches(shards)[0]["bin"]
    view = payloads.view(1)
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    child = fork.Process(target=_compare, args=(theirs, payloads, view))
    child.start()
    assert ours.poll(60)
    assert ours.recv() == (True, True)
    child.join()
    assert child.exitcode == 0
    assert payloads[1] == payload(1)


def test_frameworks_hand_it_on_as_it_is(shards: Path) -> None:
    torch = pytest.importorskip("torch")
    with fb.Loader(shards, [fb.raw("bin")], batch_size=8) as loader:
        wrapped = torch.utils.data.DataLoader(fb.torch.dataset(loader), batch_size=None)
        for number, batch in enumerate(wrapped):
            assert isinstance(batch["bin"], fb.Payloads)
            assert batch["bin"] == [payload(number * 8 + row) for row in range(8)]
    batch = batches(shards)[0]
    accelerate = pytest.importorskip("accelerate.utils")
    assert accelerate.send_to_device(batch, "cpu")["bin"] is batch["bin"]
    lightning = pytest.importorskip("lightning.fabric.utilities")
    assert lightning.move_data_to_device(batch, "cpu")["bin"] is batch["bin"]


def test_small_payloads_do_not_keep_what_they_came_with(tmp_path: Path) -> None:
    """A few bytes out of every read: copies of them are all that is left when the rest is let go."""
    small = [bytes([number % 256]) * 64 for number in range(512)]
    made.write_tar(tmp_path / "a.tar", [{"bin": one} for one in small], 0)
    with fb.Loader(tmp_path / "a.tar", [fb.raw("bin")], batch_size=512) as loader:
        payloads = next(iter(loader))["bin"]
    starts = [address(view) for view in payloads.views()]
    assert starts == [starts[0] + 64 * number for number in range(512)], (
        "one behind the other, without headers"
    )
    assert payloads == small
