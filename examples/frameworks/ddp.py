"""PyTorch DistributedDataParallel: `torchrun --nproc-per-node 2 ddp.py`. Rank and world size are found."""

from __future__ import annotations

import forebay as fb
import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def decode(payload: bytes) -> np.ndarray:
    return np.frombuffer(payload, np.uint8)[:16].astype(np.float32) / 255


def main() -> None:
    dist.init_process_group("gloo")
    data = fb.synthetic(1003, bytes=64, classes=4, shards=4)
    recipe = [fb.raw("bin").map(decode, shape=(16,), dtype="f32").named("x"), fb.label("cls")]
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with fb.Loader(data, recipe, batch_size=32, shuffle=True, last_batch="pad", output="torch") as loader:
        seen = torch.zeros(len(data), dtype=torch.int64)
        for _ in range(2):
            # Every rank has the same number of steps, so that no collective waits for ever.
            for batch in loader:
                loss = torch.nn.functional.cross_entropy(model(batch["x"]), batch["cls"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                seen[torch.from_numpy(batch.ids[~batch.padding].astype(np.int64))] += 1
    dist.all_reduce(seen)
    weights = next(model.parameters()).detach().clone()
    mean = weights.clone()
    dist.all_reduce(mean)
    assert torch.allclose(weights * dist.get_world_size(), mean)
    assert bool((seen == 2).all())
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} ranks saw {int(seen.sum())} samples in 2 epochs, each once an epoch")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
