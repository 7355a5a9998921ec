"""A real data-parallel run, killed in the middle of an epoch and resumed on other numbers of ranks."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import forebay as fb
import pytest

SCRIPT = """
    import json, os, sys, time
    import torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    import forebay as fb

    folder, kill_at = sys.argv[1], int(sys.argv[2])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    data = fb.open("synthetic://?samples=1003&bytes=24&shards=4")
    loader = fb.Loader(data, [fb.raw("bin"), fb.label("cls")], batch_size=16, shuffle=True, seed=7)
    assert (loader.rank, loader.world_size) == (rank, dist.get_world_size())
    model = DistributedDataParallel(torch.nn.Linear(24, 10))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    checkpoint = os.path.join(folder, "checkpoint.pt")
    if os.path.exists(checkpoint):
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        loader.load_state_dict(saved["data"])
        model.train()
    log = open(os.path.join(folder, f"seen-{os.environ['RUN']}-{rank}.jsonl"), "a")
    step = 0
    for batch in loader:
        x = torch.stack([torch.frombuffer(bytearray(b), dtype=torch.uint8).float() / 255 for b in batch["bin"]])
        loss = torch.nn.functional.cross_entropy(model(x), torch.from_numpy(batch["cls"]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if kill_at == 0 or step <= kill_at:
            real = batch.ids[~batch.padding].tolist()
            log.write(json.dumps({"step": step, "ids": real}) + "\\n")
            log.flush()
        if kill_at and step == kill_at:
            if rank == 0:
                torch.save({"model": model.state_dict(), "data": loader.state_dict()}, checkpoint + ".new")
                os.replace(checkpoint + ".new", checkpoint)
            dist.barrier()
            open(os.path.join(folder, f"saved-{rank}"), "w").close()
    dist.destroy_process_group()
"""


def launch(folder: Path, run: str, ranks: int, kill_at: int = 0) -> list[subprocess.Popen[bytes]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "RUN": run}
    return [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", textwrap.dedent(SCRIPT), str(folder), str(kill_at)],
            env={
                **os.environ,
                **common,
                "RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "LOCAL_RANK": str(rank),
            },
        )
        for rank in range(ranks)
    ]


def seen(folder: Path, run: str) -> list[int]:
    lines = [line for path in folder.glob(f"seen-{run}-*.jsonl") for line in path.read_text().splitlines()]
    return [sample for line in lines for sample in json.loads(line)["ids"]]


@pytest.mark.timeout(600)
def test_p059_a_killed_data_parallel_run_goes_on_with_one_and_with_three_ranks(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    first = launch(tmp_path, "first", 2, kill_at=11)
    try:
        deadline = time.monotonic() + 240
        while not all((tmp_path / f"saved-{rank}").exists() for rank in range(2)):
            assert time.monotonic() < deadline, "the first run did not come to its checkpoint"
            assert all(process.poll() in (None, 0) for process in first)
            time.sleep(0.02)
    finally:
        for process in first:
            process.send_signal(signal.SIGKILL)
            process.wait()
    before = seen(tmp_path, "first")
    assert len(before) == 11 * 2 * 16
    for ranks in (1, 3):
        processes = launch(tmp_path, f"on-{ranks}", ranks)
        try:
            assert [process.wait(timeout=240) for process in processes] == [0] * ranks
        finally:
            for process in processes:
                process.kill()
        assert sorted(before + seen(tmp_path, f"on-{ranks}")) == list(range(1003))
    assert len(fb.open("synthetic://?samples=1003&bytes=24&shards=4")) == 1003
