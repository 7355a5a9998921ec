"""Inside other people's loops: torch's DataLoader, Lightning, Accelerate. Nothing of theirs is changed."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import forebay as fb
import made
import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader  # noqa: E402

RECIPE = [fb.npy("npy", shape=(2, 3), dtype="f32"), fb.label("cls")]


class Stored(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
    """The same samples for torch's own loader."""

    def __init__(self, data: fb.Dataset) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> dict[str, Any]:
        import io

        sample = self.data[index]
        return {"npy": np.load(io.BytesIO(sample["npy"])), "cls": int(sample["cls"])}  # type: ignore[arg-type]


@pytest.mark.parametrize("drop_last", [False, True])
def test_p039_batches_equal_those_of_a_torch_loader(shards: str, drop_last: bool) -> None:
    data = fb.open(shards)
    theirs = DataLoader(Stored(data), batch_size=32, num_workers=0, drop_last=drop_last)
    with fb.Loader(data, RECIPE, batch_size=32, num_workers=0, drop_last=drop_last, output="torch") as ours:
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert torch.equal(one["npy"], other["npy"])
            assert torch.equal(one["cls"], other["cls"])
            assert one["npy"].dtype == other["npy"].dtype
            assert one["cls"].dtype == other["cls"].dtype


class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(6, 10)

    def forward(self, x: Any) -> Any:
        return self.layer(x.flatten(1))


def train(batches: Any, epochs: int = 2) -> int:
    """A training loop that knows nothing of who makes its batches."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    steps = 0
    for epoch in range(epochs):
        if hasattr(batches, "set_epoch"):
            batches.set_epoch(epoch)
        for batch in batches:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch["npy"]), batch["cls"]).backward()
            optimizer.step()
            steps += 1
        assert steps == (epoch + 1) * len(batches)
    return steps


def test_p039_an_unmodified_loop_trains_on_it(shards: str) -> None:
    with fb.Loader(shards, RECIPE, batch_size=64, shuffle=True, output="torch") as loader:
        assert train(loader) == 32


def test_it_is_an_iterable_dataset_of_a_torch_loader(shards: str) -> None:
    with fb.Loader(shards, RECIPE, batch_size=64, shuffle=True, output="torch") as loader:
        wrapped = fb.torch.dataset(loader)
        assert isinstance(wrapped, torch.utils.data.IterableDataset)
        batches = DataLoader(wrapped, batch_size=None, num_workers=0)
        assert len(batches) == len(loader) == 16
        assert train(batches) == 32
        state = wrapped.state_dict()
        assert state == loader.state_dict()
        wrapped.load_state_dict(state)
        wrapped.set_epoch(5)
        batch = next(iter(batches))
        assert batch.epoch == 5


@pytest.mark.timeout(300)
def test_accelerate_trains_on_it_unmodified(shards: str) -> None:
    accelerate = pytest.importorskip("accelerate")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        accelerator = accelerate.Accelerator(cpu=True)
        for wrap in (False, True):
            with fb.Loader(shards, RECIPE, batch_size=64, shuffle=True, output="torch") as loader:
                batches = DataLoader(fb.torch.dataset(loader), batch_size=None) if wrap else loader
                model = Model()
                optimizer = torch.optim.SGD(model.parameters(), 1e-6)
                model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
                seen = 0
                for _ in range(2):
                    for batch in batches:
                        optimizer.zero_grad()
                        loss = torch.nn.functional.cross_entropy(model(batch["npy"]), batch["cls"])
                        accelerator.backward(loss)
                        optimizer.step()
                        seen += len(batch["cls"])
                assert seen == 2006


def test_accelerate_keeps_the_place_of_a_loader_that_it_was_told_of(shards: str, tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    arguments: dict[str, Any] = {"batch_size": 64, "shuffle": True, "output": "torch"}
    with warnings.catch_warnings(), fb.Loader(shards, RECIPE, **arguments) as loader:
        warnings.simplefilter("ignore")
        accelerator = accelerate.Accelerator(cpu=True)
        accelerator.register_for_checkpointing(loader)
        iterator = iter(loader)
        for _ in range(5):
            next(iterator)
        accelerator.save_state(str(tmp_path))
        expected = [batch.ids.tolist() for batch in iterator]
        accelerator.load_state(str(tmp_path))
        assert [batch.ids.tolist() for batch in loader] == expected
        assert len(expected) == 11


@pytest.mark.timeout(300)
def test_trainer_of_transformers_trains_on_it_and_goes_on_after_a_checkpoint(
    shards: str, tmp_path: Path
) -> None:
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")

    class Scored(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()
            self.seen: list[int] = []

        def forward(self, npy: Any, cls: Any) -> dict[str, Any]:
            self.seen += cls.tolist()
            return {"loss": torch.nn.functional.cross_entropy(self.model(npy), cls)}

    class Trainer(transformers.Trainer):  # type: ignore[misc, name-defined]
        def get_train_dataloader(self) -> Any:
            return loader

    def train(**arguments: Any) -> list[int]:
        settings = transformers.TrainingArguments(
            output_dir=str(tmp_path),
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            save_strategy="no",
            **arguments,
        )
        model = Scored()
        Trainer(model=model, args=settings).train()
        return model.seen

    arguments: dict[str, Any] = {"batch_size": 64, "shuffle": True, "output": "torch"}
    with fb.Loader(shards, RECIPE, **arguments) as loader:
        whole = train(num_train_epochs=2)
        assert len(whole) == 2006
    with fb.Loader(shards, RECIPE, **arguments) as loader:
        before = train(max_steps=5)
        state = loader.state_dict()
    with fb.Loader(shards, RECIPE, **arguments) as loader:
        loader.load_state_dict(state)
        after = train(num_train_epochs=1)
    assert len(before) == 5 * 64
    assert before + after == whole[:1003]


@pytest.mark.timeout(300)
def test_lightning_trains_on_it_unmodified_and_keeps_its_place(shards: str, tmp_path: Path) -> None:
    warnings.simplefilter("ignore")
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()
            self.seen: list[int] = []

        def training_step(self, batch: Any, _number: int) -> Any:
            self.seen += batch["cls"].tolist()
            return torch.nn.functional.cross_entropy(self.model(batch["npy"]), batch["cls"])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 1e-6)

    def trainer(**arguments: Any) -> Any:
        return lightning.Trainer(
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
            enable_checkpointing=False,
            **arguments,
        )

    arguments: dict[str, Any] = {"batch_size": 64, "shuffle": True, "output": "torch"}
    with fb.Loader(shards, RECIPE, **arguments) as loader:
        module = Module()
        trainer(max_epochs=2).fit(module, loader)
        assert len(module.seen) == 2006
        assert loader.epoch == 2

    # Its own checkpoint holds the loader's state.
    class Saving(Module):
        def on_train_batch_end(self, *_: Any) -> None:
            if self.trainer.global_step == 7:
                self.trainer.save_checkpoint(tmp_path / "middle.ckpt")

    with fb.Loader(shards, RECIPE, **arguments) as loader:
        first = Saving()
        trainer(max_epochs=1).fit(first, loader)
    with fb.Loader(shards, RECIPE, **arguments) as loader:
        second = Module()
        trainer(max_epochs=1).fit(second, loader, ckpt_path=tmp_path / "middle.ckpt", weights_only=False)
    assert len(first.seen) == 1003
    # Lightning adds the seven batches that were done to those it takes now and compares the sum with `len(loader)`.
    assert second.seen == first.seen[7 * 64 :]


def test_batches_survive_what_frameworks_do_to_them(shards: str) -> None:
    from torch.utils.data._utils.collate import default_convert

    with fb.Loader(shards, RECIPE, batch_size=4) as loader:
        batch = next(iter(loader))
    moved = type(batch)({name: value * 1 for name, value in batch.items()})
    assert len(moved.ids) == 0
    assert moved.size == 4
    converted = default_convert(batch)
    assert torch.is_tensor(converted["npy"])
    assert converted.ids.tolist() == [0, 1, 2, 3]


def test_tqdm_knows_the_length(shards: str) -> None:
    tqdm = pytest.importorskip("tqdm")
    with (
        fb.Loader(shards, RECIPE, batch_size=64) as loader,
        tqdm.tqdm(loader, disable=None, file=None) as bar,
    ):
        assert bar.total == 16
        assert made.ids(bar) == list(range(1003))


def test_jax_trains_on_it(shards: str) -> None:
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    @jax.jit
    def loss(weights: Any, x: Any, y: Any) -> Any:
        scores = jax.nn.log_softmax(x.reshape(x.shape[0], -1) @ weights)
        return -jnp.take_along_axis(scores, y[:, None], 1).mean()

    weights = jnp.zeros((6, 10))
    with fb.Loader(shards, RECIPE, batch_size=64, output="jax", drop_last=True) as loader:
        before = None
        for _ in range(2):
            for batch in loader:
                value, gradient = jax.value_and_grad(loss)(weights, batch["npy"] / 1000, batch["cls"])
                weights -= 0.01 * gradient
                before = value if before is None else before
    assert float(value) < float(before)
