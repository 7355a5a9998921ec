"""Every order, policy and kind of dataset through other processes: the same batches as in this one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forebay as fb
import made
import numpy as np
import pytest
import served

RECIPE = [fb.raw("bin"), fb.label("cls")]
POLICIES = ["off", "dynamic", "file", "data", "file_or_data", "hint:cls"]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with two workers, for tests that kill nobody."""
    with served.service(tmp_path_factory.mktemp("service")) as (url, _, _):
        yield url


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> fb.Dataset:
    """600 samples with texts of 20, 300 or 4000 bytes in three shards."""
    sizes = [20, 300, 4000]
    samples = [{"txt": b"x" * sizes[number * 7 % 3], "cls": b"1"} for number in range(600)]
    return fb.open(made.write_shards(tmp_path_factory.mktemp("texts"), samples, 3))


def _share(folder: Path, *options: str) -> served.Process:
    return served.Process("share", "--socket", str(folder / "share.sock"), *options)


def _staging(process: served.Process) -> dict[str, int]:
    [feed] = served.status(str(process.said["url"]))["feeds"]
    staging: dict[str, int] = feed["staging"]
    return staging


def _ids(loader: fb.Loader) -> list[list[int]]:
    return [batch.ids.tolist() for batch in loader]


# Figures.


def test_stats_have_the_same_names_wherever_batches_are_made(
    url: str, numbers: fb.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(run))
    monkeypatch.setenv("FOREBAY_SHARE_GRACE", "0.2")
    names = []
    for via in (None, "auto", url):
        with fb.Loader(numbers, RECIPE, batch_size=50, epochs=1, via=via) as loader:
            before = list(loader.stats())
            assert sum(batch.size for batch in loader) == len(numbers)
            stats = loader.stats()
        assert list(stats) == before, "a name is there before the first batch"
        assert (stats["batches"], stats["samples"], stats["skipped_batches"]) == (21, len(numbers), 0)
        assert (stats["workers"] > 0) == (via is not None), via
        names.append(before)
    assert names[0] == names[1] == names[2]
    served.eventually(lambda: not (run / "forebay" / "share.sock").exists(), "the process has left")


# Orders.


@pytest.mark.parametrize("policy", POLICIES)
def test_p055_ranks_of_a_service_receive_what_the_policy_says(
    url: str, numbers: fb.Dataset, policy: str
) -> None:
    received: list[int] = []
    for rank in range(3):
        arguments: dict[str, Any] = {
            "batch_size": 50, "seed": 3, "rank": rank, "world_size": 3, "sharding": policy, "parts": 4,
            "shuffle": True, "epochs": 1,
        }  # fmt: skip
        with fb.Loader(numbers, RECIPE, **arguments) as here:
            wanted = _ids(here)
        via = {"url": url, "job": f"policy {policy}"}
        with fb.Loader(numbers, RECIPE, via=via, **arguments) as there:
            assert _ids(there) == wanted
        with fb.Loader(numbers, RECIPE, **arguments) as here:
            received += made.ids(here)
    times = 4 if policy == "off" else 1
    assert sorted(received) == sorted(list(range(len(numbers))) * times)


def test_p055_too_few_files_are_told_before_anybody_is_asked(url: str, numbers: fb.Dataset) -> None:
    with pytest.raises(fb.InvalidConfigError, match="4 objects hold samples, there are 5 parts"):
        fb.Loader(numbers, RECIPE, sharding="file", parts=5, via=url)


def test_p060_rounds_through_a_service(url: str, texts: fb.Dataset) -> None:
    arguments: dict[str, Any] = {"batch_size": 8, "shuffle": True, "seed": 2, "world_size": 3, "epochs": 1}
    arguments |= {"size_classes": [100, "1KiB"], "size_field": "txt", "via": {"url": url, "job": "rounds"}}

    def loader(rank: int) -> fb.Loader:
        return fb.Loader(texts, [fb.raw("txt")], rank=rank, **arguments)

    def sizes(batch: fb.Batch) -> set[int]:
        return {len(payload) for payload in batch["txt"]}

    consumers = [loader(rank) for rank in range(3)]
    loops = [iter(consumer) for consumer in consumers]
    received: list[int] = []
    mixed = 0
    try:
        for step in range(25):
            if step == 12:
                # The second is started again, and joins at the round that the others are in.
                state = consumers[0].state_dict()
                consumers[1].close()
                consumers[1] = loader(1)
                consumers[1].load_state_dict(state)
                loops[1] = iter(consumers[1])
            batches = []
            for rank, loop in enumerate(loops):
                if rank == 2 and step % 5 == 0:
                    time.sleep(0.05)  # A late consumer mixes nothing.
                batches.append(next(loop))
            received += [int(i) for batch in batches for i in batch.ids[~batch.padding]]
            mixed += len(set.union(*map(sizes, batches))) > 1
        assert all(next(loop, None) is None for loop in loops)
        stats = consumers[2].stats()
    finally:
        for consumer in consumers:
            consumer.close()
    assert sorted(received) == list(range(600))
    assert (stats["rounds"], stats["mixed_rounds"]) == (25, mixed)
    assert mixed <= 2
    assert stats["padding_waste"] < 0.05
    assert stats["padding_waste_shuffled"] > 0.4


@pytest.mark.parametrize("sharding", [None, "file"])
def test_p058_step_51_follows_step_50_of_95_on_every_rank(url: str, sharding: str | None) -> None:
    data = fb.synthetic(1900, bytes=20, shards=4)
    for rank in range(2):
        arguments: dict[str, Any] = {
            "batch_size": 10, "shuffle": True, "seed": 7, "epochs": 1, "rank": rank, "world_size": 2,
        }  # fmt: skip
        if sharding is not None:
            arguments |= {"sharding": sharding, "parts": 2}
        with fb.Loader(data, RECIPE, **arguments) as here:
            wanted = _ids(here)
        assert len(wanted) == 95
        via = {"url": url, "job": f"resumes {sharding}"}
        with fb.Loader(data, RECIPE, via=via, **arguments) as there:
            loop = iter(there)
            assert [next(loop).ids.tolist() for _ in range(50)] == wanted[:50]
            state = json.loads(json.dumps(there.state_dict()))
        with fb.Loader(data, RECIPE, via=via, **arguments) as again:
            again.load_state_dict(state)
            assert _ids(again) == wanted[50:]


def test_p029_p058_a_mix_through_other_processes_is_the_mix_made_here(url: str, tmp_path: Path) -> None:
    def shards(name: str, samples: int, size: int) -> fb.Dataset:
        payloads = [{"bin": bytes([n % 251]) * size, "cls": str(n % 7).encode()} for n in range(samples)]
        return fb.open(made.write_shards(tmp_path / name, payloads, 2))

    data = fb.mix([(shards("few", 120, 40), 1), (shards("many", 900, 16), 3)])
    arguments: dict[str, Any] = {
        "batch_size": 20,
        "shuffle": True,
        "seed": 7,
        "epoch_samples": 1000,
        "epochs": 1,
    }

    def content(batch: fb.Batch) -> tuple[Any, ...]:
        return (
            batch.epoch,
            batch.ids.tolist(),
            batch["cls"].tolist(),
            [bytes(payload) for payload in batch["bin"]],
        )

    with fb.Loader(data, RECIPE, **arguments) as here:
        wanted = [content(batch) for batch in here]
    share = sum(i < 120 for batch in wanted for i in batch[1]) / 1000
    assert abs(share - 0.25) <= 0.02
    with _share(tmp_path) as process:
        for via in (url, str(process.said["url"])):
            with fb.Loader(data, RECIPE, via=via, **arguments) as there:
                loop = iter(there)
                found = [content(next(loop)) for _ in range(20)]
                state = json.loads(json.dumps(there.state_dict()))
            with fb.Loader(data, RECIPE, via=via, **arguments) as again:
                again.load_state_dict(state)
                assert found + [content(batch) for batch in again] == wanted


@pytest.mark.parametrize("ranks", [2, 8])
def test_p059_four_ranks_go_on_as_two_or_eight_through_a_service(url: str, ranks: int) -> None:
    data = fb.synthetic(1280, bytes=40, shards=2)
    arguments: dict[str, Any] = {"batch_size": 10, "shuffle": True, "epochs": 1}
    seen: list[int] = []
    states = []
    for rank in range(4):
        via = {"url": url, "job": f"four to {ranks}"}
        with fb.Loader(data, RECIPE, rank=rank, world_size=4, via=via, **arguments) as loader:
            loop = iter(loader)
            for _ in range(12):
                seen += next(loop).ids.tolist()
            states.append(loader.state_dict())
    assert all(state == states[0] for state in states)
    for rank in range(ranks):
        with fb.Loader(data, RECIPE, rank=rank, world_size=ranks, via=via, **arguments) as loader:
            loader.load_state_dict(states[0])
            seen += [int(i) for batch in loader for i in batch.ids[~batch.padding]]
    assert sorted(seen) == list(range(1280))


def test_p059_resuming_at_90_percent_makes_nothing_of_what_was_passed(tmp_path: Path) -> None:
    data = fb.synthetic(100_000, bytes=16, shards=4)
    arguments: dict[str, Any] = {"batch_size": 100, "shuffle": True, "epochs": 1, "prefetch_batches": 2}
    with fb.Loader(data, RECIPE, **arguments) as loader:
        loop = iter(loader)
        for _ in range(900):
            next(loop)
        state = loader.state_dict()
    with (
        _share(tmp_path) as process,
        fb.Loader(data, RECIPE, via=str(process.said["url"]), **arguments) as loader,
    ):
        loader.load_state_dict(state)
        left = sum(len(batch.ids) for batch in loader)
        staging = _staging(process)
    assert left == 10_000
    # A batch is made whole or not at all: 1 % of the 900 that were passed would be nine.
    assert staging["made"] - left // 100 < 9


# Jobs of different speed.


def _run(
    job: str, url: str, data: fb.Dataset, step_seconds: float, into: dict[str, Any], **more: Any
) -> None:
    via = {"url": url, "job": job, "late": more.pop("late")}
    with fb.Loader(data, RECIPE, shuffle=True, epochs=1, prefetch_batches=1, via=via, **more) as loader:
        ids: list[int] = []
        for batch in loader:
            ids += batch.ids.tolist()
            time.sleep(step_seconds)
        into[job] = (ids, int(loader.stats()["skipped_batches"]), loader.skipped())


def _both(url: str, data: fb.Dataset, late: str, **more: Any) -> dict[str, Any]:
    """Two jobs, the second at half the speed of the first."""
    into: dict[str, Any] = {}
    jobs = [
        threading.Thread(target=_run, args=(job, url, data, seconds, into), kwargs={"late": late, **more})
        for job, seconds in (("fast", 0.01), ("slow", 0.02))
    ]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(served.DEADLINE)
    return into


@pytest.mark.parametrize("late", ["remake", "wait", "spill"])
def test_p051_p053_jobs_of_speed_1_and_a_half_are_both_exact(tmp_path: Path, late: str) -> None:
    (tmp_path / "spill").mkdir()
    options = ("--staging", "2MiB", "--spill", str(tmp_path / "spill"))
    data = fb.synthetic(2000, bytes=10_000, shards=2)
    with _share(tmp_path, *options) as process:
        into = _both(str(process.said["url"]), data, late, batch_size=20)
        staging = _staging(process) if served.status(str(process.said["url"]))["feeds"] else {}
    for ids, skipped, named in into.values():
        assert sorted(ids) == list(range(2000))
        assert (skipped, named) == (0, [])
    assert staging["peak_bytes"] <= 2 << 20
    assert staging["given"] == 200
    if late == "wait":
        assert staging["made"] <= 100 + 2, "the fast one waits, and nothing is made twice once both are there"
    if late == "spill":
        assert staging["spilled"] > 0
        assert staging["made"] <= 100 + 2


def test_p061_a_window_of_100_batches_reports_exactly_what_the_slow_job_missed(tmp_path: Path) -> None:
    data = fb.synthetic(4000, bytes=1000, shards=2)
    # Ids, padding and payloads of ten samples, with what it takes to hold them.
    with _share(tmp_path, "--staging", str(100 * 10 * 1100)) as process:
        into = _both(str(process.said["url"]), data, "skip", batch_size=10)
        staging = _staging(process)
    fast, slow = into["fast"], into["slow"]
    assert sorted(fast[0]) == list(range(4000))
    assert fast[1:] == (0, [])
    received, count, named = slow
    missed = set(range(4000)) - set(received)
    assert len(missed) == 10 * count > 0
    assert max(Counter(received).values()) == 1
    assert staging["skipped"] == count
    assert sorted(i for one in named for i in one.ids) == sorted(missed)
    with fb.Loader(data, RECIPE, shuffle=True, epochs=1, batch_size=10) as here:
        planned = _ids(here)
    assert [(one.epoch, list(one.ids)) for one in named] == [(0, planned[one.step]) for one in named]
    assert [i for one in named for i in one.ids] == [i for batch in planned for i in batch if i in missed]
    assert staging["peak_bytes"] <= 100 * 10 * 1100


def test_p052_a_job_that_joins_at_the_next_epoch_shares_all_of_it(tmp_path: Path) -> None:
    data = fb.synthetic(500, bytes=100)
    arguments: dict[str, Any] = {"batch_size": 10, "shuffle": True, "prefetch_batches": 1}
    with _share(tmp_path) as process:
        via = {"url": str(process.said["url"]), "late": "wait"}
        with (
            fb.Loader(data, RECIPE, epochs=2, via={**via, "job": "first"}, **arguments) as first,
            fb.Loader(data, RECIPE, epochs=2, via={**via, "job": "second"}, **arguments) as second,
        ):
            loop = iter(first)
            for _ in range(25):
                next(loop)
            second.set_epoch(1)
            joined = iter(second)
            assert sum(1 for _ in loop) == 25
            loop = iter(first)
            seen: list[list[int]] = [[], []]
            for _ in range(50):
                for number, one in enumerate((loop, joined)):
                    batch = next(one)
                    assert batch.epoch == 1
                    seen[number] += batch.ids.tolist()
            staging = _staging(process)
    assert all(sorted(ids) == list(range(500)) for ids in seen)
    # What the first job had asked for ahead before the second one came is made again for it; the rest is shared.
    assert 100 <= staging["made"] <= 110, "two epochs of fifty, hardly a batch twice"
    assert staging["given"] == 150


# Places with little room.


def test_p050_shared_batches_work_where_dev_shm_has_64_mb(tmp_path: Path) -> None:
    enter = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    mount = "mount -t tmpfs -o size=64m none /dev/shm"
    if shutil.which("unshare") is None or subprocess.run([*enter, mount], capture_output=True).returncode:
        pytest.skip("needs a mount namespace of its own")
    script = textwrap.dedent("""
        import os, sys, numpy as np, forebay as fb
        size = os.statvfs("/dev/shm")
        assert size.f_blocks * size.f_frsize == 64 << 20
        data = fb.synthetic(320, bytes=1_000_000)
        with fb.Loader(data, [fb.raw("bin"), fb.label("cls")], batch_size=32, epochs=1, via="auto") as loader:
            held = list(loader)
        assert sum(len(payload) for batch in held for payload in batch["bin"]) == 320_000_000
        assert sorted(i for batch in held for i in batch.ids.tolist()) == list(range(320))
        print("all held")
    """)
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    done = subprocess.run(
        [*enter, f'{mount} && exec "$0" -c "$1"', sys.executable, script],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(run), "FOREBAY_SHARE_GRACE": "0.2"},
    )
    assert done.stdout == "all held\n", done.stderr


def test_arrays_shared_on_a_host_are_numpy_arrays_that_may_be_written(tmp_path: Path) -> None:
    for number in range(16):
        np.save(tmp_path / f"{number:02}.npy", np.full((8, 8), number, np.float32))
    with (
        _share(tmp_path) as process,
        fb.Loader(tmp_path, [fb.npy("npy")], batch_size=8, epochs=1, via=str(process.said["url"])) as loader,
    ):
        for batch in loader:
            batch["npy"] += 1
            assert (batch["npy"][:, 0, 0] == batch.ids + 1).all()
