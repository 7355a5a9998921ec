"""PyTorch Lightning takes the loader as it is; its checkpoints hold the loader's place."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import forebay as fb
import lightning
import numpy as np
import torch


def decode(payload: bytes) -> np.ndarray:
    return np.frombuffer(payload, np.uint8)[:16].astype(np.float32) / 255


class Module(lightning.LightningModule):
    def __init__(self, save_at: int = -1, path: Path | None = None) -> None:
        super().__init__()
        self.model = torch.nn.Linear(16, 4)
        self.seen: list[int] = []
        self.save_at, self.path = save_at, path

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        self.seen += batch["id"].tolist()
        return torch.nn.functional.cross_entropy(self.model(batch["x"]), batch["cls"])

    def on_train_batch_end(self, *_: Any) -> None:
        if self.trainer.global_step == self.save_at:
            self.trainer.save_checkpoint(self.path)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def make_loader() -> fb.Loader:
    data = fb.synthetic(1000, bytes=64, classes=4, shards=4)
    recipe = [
        fb.raw("bin").map(decode, shape=(16,), dtype="f32").named("x"),
        fb.label("cls"),
        # Lightning makes batches anew on their device: what is to stay with them is a column.
        fb.map_batch(lambda batch: {**batch, "id": batch.ids.astype(np.int64)}),
    ]
    return fb.Loader(data, recipe, batch_size=50, shuffle=True, output="torch")


def fit(module: Module, folder: Path, **arguments: Any) -> list[int]:
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    with make_loader() as loader:
        trainer.fit(module, loader, **arguments)
    return module.seen


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "middle.ckpt"
        whole = fit(Module(7, path), Path(name))
        rest = fit(Module(), Path(name), ckpt_path=path, weights_only=False)
    assert sorted(whole) == list(range(1000))
    assert rest == whole[7 * 50 :]
    print(f"saw {len(whole)} samples; the checkpoint of step 7 went on with the {len(rest)} that were left")


if __name__ == "__main__":
    main()
