"""Inside the processes of a torch `DataLoader`: the same batches in the same order, however they are started."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import forebay as fb
import made
import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader  # noqa: E402

RECIPE = [fb.npy("npy", shape=(2, 3), dtype="f32"), fb.label("cls")]

Seen = tuple[int, int, list[int], list[bool], list[float]]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def seen(batch: Any) -> Seen:
    rows = batch["npy"][:, 0, 0].tolist()
    return batch.epoch, batch.step, batch.ids.tolist(), batch.padding.tolist(), rows


def loader(shards: str, **arguments: Any) -> fb.Loader:
    settings = {
        "batch_size": 48,
        "shuffle": True,
        "seed": 5,
        "num_workers": 1,
        "output": "torch",
        **arguments,
    }
    return fb.Loader(shards, RECIPE, **settings)


def alone(shards: str, epochs: int, **arguments: Any) -> list[Seen]:
    """What the loop gets without processes."""
    with loader(shards, **arguments) as one:
        return [seen(batch) for _ in range(epochs) for batch in one]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("stay", [False, True])
def test_p039_processes_give_the_same_batches_in_the_same_order(shards: str, start: str, stay: bool) -> None:
    with loader(shards) as one:
        batches = DataLoader(
            fb.torch.dataset(one),
            batch_size=None,
            num_workers=2,
            multiprocessing_context=start,
            persistent_workers=stay,
        )
        assert len(batches) == len(one) == 21
        got = [seen(batch) for _ in range(3) for batch in batches]
    assert got == alone(shards, 3)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("last_batch", ["drop", "partial", "pad", "wrap"])
@pytest.mark.parametrize("processes", [2, 5])
def test_p026_every_policy_and_rank_is_the_same_in_processes(
    shards: str, last_batch: Any, processes: int
) -> None:
    union = []
    for rank in range(2):
        who = {"last_batch": last_batch, "rank": rank, "world_size": 2, "batch_size": 64}
        with loader(shards, **who) as one:
            batches = DataLoader(fb.torch.dataset(one), batch_size=None, num_workers=processes)
            got = [seen(batch) for batch in batches]
            assert len(got) == len(batches)
        assert got == alone(shards, 1, **who)
        union += [i for _, _, ids, padding, _ in got for i, p in zip(ids, padding, strict=True) if not p]
    assert len(union) == len(set(union))
    assert len(union) == (896 if last_batch == "drop" else 1003)


@pytest.mark.parametrize(
    "order",
    [
        {"size_classes": 3},
        {"sharding": "data", "parts": 3},
        {"in_order": False, "shuffle": False},
        {"shuffle": "resample", "epoch_samples": 700},
    ],
)
def test_every_order_is_the_same_in_processes(shards: str, order: dict[str, Any]) -> None:
    with loader(shards, **order) as one:
        batches = DataLoader(fb.torch.dataset(one), batch_size=None, num_workers=2)
        got = [seen(batch) for batch in batches]
    # By arrival the order is free; processes keep to the plan.
    assert got == alone(shards, 1, **{**order, "in_order": True})


@pytest.mark.timeout(200)
@pytest.mark.parametrize("stay", [False, True])
@pytest.mark.parametrize("processes", [0, 2, 3])
def test_p058_a_loop_resumes_after_the_batch_it_received_last(
    shards: str, stay: bool, processes: int
) -> None:
    wanted = alone(shards, 3)
    with loader(shards) as one:
        data = fb.torch.dataset(one)
        batches = DataLoader(data, batch_size=None, num_workers=3, persistent_workers=stay)
        steps = iter(batches)
        for _ in range(8):
            last = next(steps)
        with pytest.raises(fb.UnsupportedError, match="only the loop knows") as caught:
            data.state_dict()
        assert "state_after" in str(caught.value.hint)
        state = data.state_after(last)
        del steps, batches
    again = {"num_workers": processes, "persistent_workers": stay and processes > 0}
    with loader(shards) as one:
        data = fb.torch.dataset(one)
        data.load_state_dict(state)
        assert data.state_dict() == state
        batches = DataLoader(data, batch_size=None, **again)
        assert (len(batches), one.remaining) == (21, 13)
        rest = [seen(batch) for batch in batches]
        assert [one[2:] for one in rest] == [one[2:] for one in wanted[8:21]]
        # Counted from the resume; and from there another place can be found.
        assert [one[1] for one in rest] == list(range(13))
        steps = iter(batches)
        last = next(steps)
        assert (last.epoch, len(batches)) == (1, 21)
        assert seen(last)[2:] == wanted[21][2:]
        state = data.state_after(last)
    with loader(shards) as one:
        one.load_state_dict(state)
        assert [seen(batch)[2:] for batch in one] == [one[2:] for one in wanted[22:42]]


@pytest.mark.parametrize("stay", [False, True])
def test_set_epoch_reaches_the_processes(shards: str, stay: bool) -> None:
    wanted = alone(shards, 5)
    with loader(shards) as one:
        data = fb.torch.dataset(one)
        batches = DataLoader(data, batch_size=None, num_workers=2, persistent_workers=stay)
        for epoch in (3, 0, 4):
            data.set_epoch(epoch)
            assert [seen(batch) for batch in batches] == wanted[epoch * 21 : epoch * 21 + 21]
        # Left early, an iteration is over: the next one is the next epoch. In this process too.
        data.set_epoch(0)
        assert next(iter(batches)).epoch == 0
        assert next(iter(batches)).epoch == 1
        assert next(iter(DataLoader(data, batch_size=None))).epoch == 2
        assert next(iter(batches)).epoch == 3


def test_iterations_with_one_seed_are_still_different_epochs(shards: str) -> None:
    with loader(shards) as one:
        epochs = []
        for _ in range(3):
            generator = torch.Generator()
            generator.manual_seed(3)
            data = DataLoader(fb.torch.dataset(one), batch_size=None, num_workers=2, generator=generator)
            epochs += [{batch.epoch for batch in data}]
        assert epochs == [{0}] * 3, "another dataset begins where its loader stands"
        data = fb.torch.dataset(one)
        epochs = []
        for _ in range(3):
            generator.manual_seed(3)
            epochs += [
                {b.epoch for b in DataLoader(data, batch_size=None, num_workers=2, generator=generator)}
            ]
        assert epochs == [{0}, {1}, {2}]


@pytest.mark.timeout(200)
def test_processes_are_warned_of_once(shards: str) -> None:
    done = made.run_python(
        f"""
        import forebay as fb
        from torch.utils.data import DataLoader

        with fb.Loader({shards!r}, [fb.label("cls")], batch_size=64, output="torch") as loader:
            batches = DataLoader(fb.torch.dataset(loader), batch_size=None, num_workers=2)
            print([next(iter(batches)).epoch for _ in range(2)])
        """
    )
    assert done.stdout.strip() == "[0, 1]", done.stderr
    assert done.stderr.count("RuntimeWarning: 2 DataLoader processes make the batches") == 1, done.stderr
    assert "num_workers=0 is faster" in done.stderr


def test_numpy_and_single_samples_come_out_of_processes(shards: str) -> None:
    with loader(shards, output="numpy", batch_size=None, shuffle=False) as one:
        batches = DataLoader(fb.torch.dataset(one), batch_size=None, num_workers=2)
        for number, sample in zip(range(20), batches, strict=False):
            assert sample.ids.tolist() == [number]
            assert np.asarray(sample["npy"]).tolist() == np.full((2, 3), number).tolist()


def test_what_processes_cannot_do_is_said(shards: str) -> None:
    for arguments, why in [
        ({"output": "jax"}, "JAX lives in one process"),
        ({"via": "auto"}, "makes the batches already"),
    ]:
        with loader(shards, **arguments) as one:
            batches = DataLoader(fb.torch.dataset(one), batch_size=None, num_workers=2)
            with pytest.raises(NotImplementedError, match=why):
                next(iter(batches))
    with loader(shards, max_errors=0, on_error="skip") as one:
        with pytest.raises(fb.InvalidConfigError, match="does not know its epoch"):
            one.state_after(fb.Batch({"npy": [1]}))
        with pytest.raises(fb.InvalidConfigError, match="after batch 21 of epoch 0: there are 21"):
            one.state_after(fb.Batch({}, epoch=0, step=21))
    with loader(shards, in_order=False) as one, pytest.raises(fb.UnsupportedError, match="by arrival"):
        one.state_after(next(iter(one)))
