"""A loop without a framework: leave it anywhere, and go on with the sample after the last one."""

from __future__ import annotations

import forebay as fb
import numpy as np


def decode(payload: bytes) -> np.ndarray:
    """What a sample is to the model: sixteen numbers made of its bytes."""
    return np.frombuffer(payload, np.uint8)[:16].astype(np.float32) / 255


def main() -> None:
    data = fb.synthetic(1000, bytes=64, shards=4)
    recipe = [fb.raw("bin").map(decode, shape=(16,), dtype="f32").named("x"), fb.label("cls")]
    arguments = {"batch_size": 32, "shuffle": True, "seed": 1}
    seen: list[int] = []
    with fb.Loader(data, recipe, **arguments) as loader:
        for step, batch in enumerate(loader):
            seen += batch.ids.tolist()
            if step == 9:
                state = loader.state_dict()
                break
    with fb.Loader(data, recipe, **arguments) as loader:
        loader.load_state_dict(state)
        for batch in loader:
            assert batch["x"].shape[1:] == (16,)
            seen += batch.ids.tolist()
    assert sorted(seen) == list(range(1000))
    print(f"saw {len(seen)} samples, each once")


if __name__ == "__main__":
    main()
