"""Batches on a device: exact states whatever was copied ahead, memory used again only when its copy is done."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import forebay as fb
import made
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from forebay._device import DeviceBatches  # noqa: E402

RECIPE = [fb.npy("npy").ragged(), fb.raw("npy").named("stored"), fb.label("cls")]


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> fb.Dataset:
    """Arrays of many lengths."""
    rng = np.random.default_rng(5)
    samples = [
        {
            "npy": made.npy(rng.integers(0, 9, rng.integers(0, 40)).astype(np.int32)),
            "cls": b"%d" % (number % 7),
        }
        for number in range(230)
    ]
    return fb.open(made.write_shards(tmp_path_factory.mktemp("arrays"), samples, 3))


def loader(data: fb.Dataset, **arguments: Any) -> fb.Loader:
    given = {"batch_size": 10, "shuffle": True, "seed": 3, "output": "torch", **arguments}
    return fb.Loader(data, RECIPE, **given)


class Late:
    """A device whose copies are done no sooner than somebody waits for them: what is used too soon is wrong."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, Any]] = []
        self.done = 0
        self.sizes: list[int] = []
        self.inside = False

    def pinned(self, size: int) -> Any:
        self.sizes.append(size)
        return torch.full((size,), 0xEE, dtype=torch.uint8)

    @contextlib.contextmanager
    def copying(self) -> Any:
        self.inside = True
        yield
        self.inside = False

    def copy(self, target: Any, source: Any) -> None:
        assert self.inside
        self.asked.append((target, source))

    def mark(self) -> int:
        return len(self.asked)

    def hand_over(self, mark: int, tensors: Sequence[Any]) -> None:
        self.wait(mark)
        assert all(any(target is tensor for target, _ in self.asked) for tensor in tensors)

    def wait(self, mark: int) -> None:
        for target, source in self.asked[self.done : mark]:
            target.copy_(source)
        self.done = max(self.done, mark)


def on_device(source: fb.Loader, ahead: int, lane: Late | None = None) -> Any:
    if lane is None:
        return fb.torch.to_device(source, "cpu", ahead=ahead)
    return DeviceBatches(source, torch.device("cpu"), ahead, lane)


def held(batch: fb.Batch) -> tuple[Any, ...]:
    return (
        batch.epoch,
        batch.step,
        batch.ids.tolist(),
        [row.tolist() for row in batch["npy"]],
        list(batch["stored"]),
        batch["cls"].tolist(),
    )


@pytest.mark.parametrize("ahead", [1, 2, 5, 64])
@pytest.mark.parametrize("late", [False, True])
def test_p058_batches_on_a_device_are_those_of_the_loader_with_exact_states(
    arrays: fb.Dataset, ahead: int, late: bool
) -> None:
    with loader(arrays) as plain:
        straight = [[held(batch) for batch in plain] for _ in range(2)]
    lane = Late() if late else None
    states = []
    with on_device(loader(arrays), ahead, lane) as batches:
        assert len(batches) == 23
        for epoch in range(2):
            states.append(batches.state_dict())
            for number, batch in enumerate(batches):
                assert held(batch) == straight[epoch][number]
                assert type(batch["stored"]) is fb.Payloads
                states.append(batches.state_dict())
    if lane is not None:
        assert len(lane.sizes) <= 6 * (ahead + 1), "memory is taken again and again"
    flat = [*straight[0], *straight[1]]
    for at in (0, 1, 7, 22, 23, 30, 45):
        # The state in front of an epoch is also that behind the one before it.
        state = states[at if at <= 23 else at + 1]
        with loader(arrays) as again:
            again.load_state_dict(state)
            rest = [held(batch)[2:] for batch in again]
        end = 23 if at < 23 else 46
        assert rest == [one[2:] for one in flat[at:end]], at


def test_p058_a_state_taken_here_goes_on_on_other_ranks(arrays: fb.Dataset) -> None:
    parts = [on_device(loader(arrays, rank=rank, world_size=2), 4) for rank in range(2)]
    seen: list[int] = []
    for batches in parts:
        for step, batch in enumerate(batches):
            seen += batch.ids.tolist()
            if step == 4:
                break
    assert parts[0].state_dict() == parts[1].state_dict()
    state = parts[0].state_dict()
    for batches in parts:
        batches.close()
        assert batches.state_dict() == state, "closing keeps the place"
    for rank in range(3):
        with on_device(loader(arrays, rank=rank, world_size=3), 2) as batches:
            batches.load_state_dict(state)
            seen += made.ids(batches)
    assert sorted(seen) == list(range(len(arrays)))


def test_a_loop_that_leaves_early_goes_on_as_with_the_loader_itself(arrays: fb.Dataset) -> None:
    def walk(batches: Any) -> list[Any]:
        seen = [next(iter(batches)).ids.tolist()]
        seen.append([batch.ids.tolist() for batch in batches])
        iter(batches)
        seen.append([batch.ids.tolist() for batch in batches])
        batches.set_epoch(7)
        seen.append([batch.epoch for batch in batches])
        batches.close()
        seen.append([batch.ids.tolist() for batch in batches])
        return seen

    with loader(arrays) as plain, on_device(loader(arrays), 3) as batches:
        assert walk(batches) == walk(plain)


def test_an_older_iterator_ends_with_a_reason(arrays: fb.Dataset) -> None:
    with on_device(loader(arrays), 2) as batches:
        older = iter(batches)
        next(older)
        iter(batches)
        with pytest.raises(fb.InvalidConfigError, match="newer iterator"):
            next(older)


def test_errors_come_behind_the_batches_before_them(tmp_path: Any) -> None:
    samples = [{"npy": made.npy(np.arange(3)), "cls": b"1"} for _ in range(40)]
    samples[25]["cls"] = b"no number"
    data = fb.open(made.write_shards(tmp_path, samples, 1))
    for ahead in (1, 3, 8):
        with on_device(loader(data, shuffle=False, num_workers=1), ahead) as batches:
            came = iter(batches)
            assert [next(came).ids[0] for _ in range(2)] == [0, 10]
            state = batches.state_dict()
            for _ in range(2):
                with pytest.raises(fb.CorruptError):
                    next(came)
            assert batches.state_dict() == state


class Pair(NamedTuple):
    """What a collating function may make."""

    first: Any
    rest: Any


def nested(samples: list[dict[str, Any]]) -> Any:
    one = torch.zeros(0, 3, dtype=torch.bfloat16)
    deep = [{"cls": samples[0]["cls"].clone(), "empty": one}, (None, "text", np.arange(2))]
    return Pair(deep, {"flag": torch.tensor([True, False]), "sparse": torch.eye(2).to_sparse()})


@pytest.mark.parametrize("late", [False, True])
def test_tensors_are_found_in_what_collate_makes_and_all_else_stays(arrays: fb.Dataset, late: bool) -> None:
    source = loader(arrays, collate=nested)
    with on_device(source, 2, Late() if late else None) as batches:
        for made_of in batches:
            assert isinstance(made_of, Pair)
            (columns, (nothing, text, array)), rest = made_of
            assert columns["cls"].shape == ()
            assert columns["empty"].shape == (0, 3)
            assert columns["empty"].dtype == torch.bfloat16
            assert (nothing, text) == (None, "text")
            assert isinstance(array, np.ndarray)
            assert rest["flag"].tolist() == [True, False]
            assert rest["sparse"].is_sparse


def test_arrays_of_numpy_and_senseless_depths_are_refused(arrays: fb.Dataset) -> None:
    with (
        loader(arrays, output="numpy") as source,
        pytest.raises(fb.InvalidConfigError, match="arrays of numpy"),
    ):
        fb.torch.to_device(source, "cpu")
    with loader(arrays) as source, pytest.raises(fb.InvalidConfigError, match="ahead is 0"):
        fb.torch.to_device(source, "cpu", ahead=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA here")
def test_cuda_batches_are_those_of_the_loader(arrays: fb.Dataset) -> None:
    with loader(arrays) as plain:
        straight = [held(batch) for batch in plain]
    with fb.torch.to_device(loader(arrays), "cuda", ahead=3) as batches:
        for batch, wanted in zip(batches, straight, strict=True):
            assert batch["cls"].is_cuda
            assert batch["npy"].values.is_cuda
            assert held(batch) == wanted
