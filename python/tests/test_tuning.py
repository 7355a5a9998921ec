"""What a loader finds out by itself, and what it says about steps."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import forebay as fb
import pytest


def test_p066_threads_that_were_not_set_are_added_when_the_loop_waits_for_them_and_the_table_says_why() -> (
    None
):
    data = fb.synthetic(4000, bytes=64)
    with fb.Loader(data, [fb.raw("bin").delay(0.02)], batch_size=8) as loader:
        for _ in loader:
            stats = loader.stats()
            if stats["tuned"]:
                break
        first = stats["tuned"][0]
        assert stats["threads"] == first["threads"]
        assert "busy" in first["why"]
        assert first["why"] in str(stats)
    with fb.Loader(
        data, [fb.raw("bin").delay(0.002)], batch_size=8, num_workers=1, prefetch_batches=1
    ) as loader:
        for _, batch in zip(range(60), loader, strict=False):
            assert len(batch.ids) == 8
        assert loader.stats()["tuned"] == []
        assert loader.stats()["threads"] == 1


def test_p070_step_time_against_batch_length_is_part_of_the_table(tmp_path: Path) -> None:
    folder = tmp_path / "class"
    folder.mkdir()
    for sample in range(60):
        (folder / f"{sample:03}.bin").write_bytes(bytes(1000 * (1 + sample % 12)))
    data = fb.open(tmp_path, extensions=["bin"], manifest_dir=tmp_path / "kept")
    with fb.Loader(data, [fb.raw("bin")], batch_size=1) as loader:
        for _ in loader:
            # What the line through the steps is worth is shown in virtual time; here only that it is told.
            time.sleep(0.001)
        by_length = loader.stats()["step_by_length"]
        assert by_length["steps"] == 60
        assert 0 <= by_length["explained"] <= 1
        assert "step by batch length" in str(loader.stats())
        assert {one["bytes"] for one in loader.timeline()} == {1000 * n for n in range(1, 13)}
    with fb.Loader(fb.synthetic(64, bytes=8), [fb.raw("bin")], batch_size=2) as loader:
        for _ in loader:
            pass
        assert loader.stats()["step_by_length"] is None


def test_a_phase_times_every_call_of_a_function_that_it_decorates() -> None:
    with fb.Loader(fb.synthetic(8, bytes=8), [fb.raw("bin")], batch_size=2) as loader:

        @loader.phase("double")
        def double(number: int) -> int:
            return 2 * number

        assert [double(step) for step, _ in enumerate(loader)] == [0, 2, 4, 6]
        assert double.__name__ == "double"
        assert loader.stats()["phases"]["double"]["count"] == 4


@pytest.mark.timeout(300)
def test_lightning_tells_forward_backward_and_update(tmp_path: Path) -> None:
    warnings.simplefilter("ignore")
    lightning = pytest.importorskip("lightning")
    torch = pytest.importorskip("torch")
    from forebay.lightning import Phases

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            time.sleep(0.002)
            return self.layer(torch.ones(1, 1)).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    with fb.Loader(fb.synthetic(40, bytes=8), [fb.raw("bin")], batch_size=4) as loader:
        trainer = lightning.Trainer(
            max_epochs=1,
            callbacks=[Phases()],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
            default_root_dir=tmp_path,
            accelerator="cpu",
        )
        trainer.fit(Module(), loader)
        stats = loader.stats()
    phases = stats["phases"]
    assert {name: phase["count"] for name, phase in phases.items()} == {
        "forward": 10,
        "backward": 10,
        "update": 10,
    }
    assert phases["forward"]["seconds"] >= 0.02
    # Lightning asks for one batch more before the last step of ten, which therefore comes after the end.
    assert sum(phase["seconds"] for phase in phases.values()) <= stats["step_seconds"] * 1.25
