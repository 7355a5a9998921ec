"""Hugging Face Accelerate: the loader is prepared like any other object, and saved with the rest of the state."""

from __future__ import annotations

import tempfile

import forebay as fb
import numpy as np
import torch
from accelerate import Accelerator


def decode(payload: bytes) -> np.ndarray:
    return np.frombuffer(payload, np.uint8)[:16].astype(np.float32) / 255


def main() -> None:
    accelerator = Accelerator(cpu=True)
    data = fb.synthetic(1000, bytes=64, classes=4, shards=4)
    recipe = [fb.raw("bin").map(decode, shape=(16,), dtype="f32").named("x"), fb.label("cls")]
    with fb.Loader(data, recipe, batch_size=50, shuffle=True, output="torch") as loader:
        model = torch.nn.Linear(16, 4)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model, optimizer, batches = accelerator.prepare(model, optimizer, loader)
        accelerator.register_for_checkpointing(loader)
        seen: list[int] = []
        with tempfile.TemporaryDirectory() as folder:
            for step, batch in enumerate(batches):
                loss = torch.nn.functional.cross_entropy(model(batch["x"]), batch["cls"])
                optimizer.zero_grad()
                accelerator.backward(loss)
                optimizer.step()
                seen += batch.ids.tolist()
                if step == 6:
                    accelerator.save_state(folder)
            accelerator.load_state(folder)
        rest = [i for batch in loader for i in batch.ids.tolist()]
    assert sorted(seen) == list(range(1000))
    assert rest == seen[7 * 50 :]
    print(f"saw {len(seen)} samples; the state of step 7 goes on with the {len(rest)} that were left")


if __name__ == "__main__":
    main()
