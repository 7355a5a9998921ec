"""A training loop of Ray Train that reads through a service on the same Ray cluster.

    python train.py

Rank and world size are found by the loader, because Ray Train has set up `torch.distributed` when the loop begins.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

BATCH = 10


def loop(config: dict[str, Any]) -> None:
    """What runs on every rank."""
    import forebay as fb
    import torch
    import torch.distributed

    model = torch.nn.Linear(1, 1)
    ids: list[int] = []
    data = fb.synthetic(config["samples"], bytes=64, shards=3)
    recipe = [fb.raw("bin"), fb.label("cls")]
    # What was sent here knows where the service is, and how to be let in.
    with fb.Loader(
        data, recipe, batch_size=BATCH, shuffle=True, epochs=1, output="torch", via=config["cluster"]
    ) as loader:
        for batch in loader:
            loss = model(batch["cls"].float().reshape(-1, 1)).square().mean()
            loss.backward()
            ids.extend(int(i) for i in batch.ids)
        steps = len(loader)
    rank = torch.distributed.get_rank()
    told = {"rank": rank, "steps": steps, "ids": ids}
    (Path(config["folder"]) / f"rank-{rank}.json").write_text(json.dumps(told))


def run(cluster: Any, *, samples: int, ranks: int, folder: Path) -> list[dict[str, Any]]:
    """Trains one epoch; what each rank received."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    trainer = TorchTrainer(
        loop,
        train_loop_config={"cluster": cluster, "samples": samples, "folder": str(folder)},
        scaling_config=ScalingConfig(num_workers=ranks, resources_per_worker={"CPU": 0.5}),
        run_config=RunConfig(storage_path=str(folder / "results")),
    )
    trainer.fit()
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(ranks)]


def main() -> None:
    import forebay.ray

    with forebay.ray.start(workers=2) as cluster, tempfile.TemporaryDirectory() as folder:
        told = run(cluster, samples=3000, ranks=2, folder=Path(folder))
    for one in told:
        print(f"rank {one['rank']}: {len(one['ids'])} samples in {one['steps']} steps")


if __name__ == "__main__":
    main()
