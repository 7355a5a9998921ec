"""Batches made elsewhere: by a process of the host that jobs share, and by workers of a service."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forebay as fb
import numpy as np
import pytest
import served
from forebay.errors import DeniedError, InvalidConfigError, StaleError, UnsupportedError

RECIPE = [fb.raw("bin"), fb.label("cls")]

FAILURE_SECONDS = 10.0
"""What is silent for this long counts as lost, unless `--worker-timeout` says otherwise."""


def _bytes(batch: fb.Batch) -> tuple[Any, ...]:
    """Everything a batch holds."""
    values = (batch[name] for name in batch)
    columns = [value.tobytes() if isinstance(value, np.ndarray) else list(value) for value in values]
    return (batch.epoch, batch.ids.tolist(), batch.padding.tolist(), columns)


@pytest.fixture
def share(tmp_path: Path) -> Iterator[served.Process]:
    with served.Process("share", "--socket", str(tmp_path / "share.sock")) as process:
        yield process


def _url(process: served.Process) -> str:
    return str(process.said["url"])


# One host.


def test_p050_shared_batches_equal_those_made_here(shards: str, share: served.Process) -> None:
    recipe = [fb.npy("npy"), fb.text("txt"), fb.label("cls"), fb.raw("json")]
    arguments = {"batch_size": 32, "shuffle": True, "seed": 3}
    with fb.Loader(shards, recipe, epochs=2, **arguments) as here:
        wanted = [_bytes(batch) for _ in range(2) for batch in here]
    with fb.Loader(shards, recipe, via=_url(share), epochs=2, **arguments) as there:
        assert [_bytes(batch) for _ in range(2) for batch in there] == wanted
        stats = there.stats()
    assert stats["batches"] == len(wanted)
    assert stats["workers"] == 1


def test_p050_four_jobs_see_every_sample_once_and_each_batch_is_made_once(share: served.Process) -> None:
    data = fb.synthetic(1000, bytes=200, shards=3)
    arguments: dict[str, Any] = {"batch_size": 20, "shuffle": True, "epochs": 3, "prefetch_batches": 1}
    jobs = [
        fb.Loader(data, RECIPE, via={"url": _url(share), "job": f"job-{k}", "late": "wait"}, **arguments)
        for k in range(4)
    ]
    try:
        for epoch in range(3):
            loops = [iter(job) for job in jobs]
            seen: list[list[int]] = [[] for _ in jobs]
            for _ in range(50):
                for number, loop in enumerate(loops):
                    batch = next(loop)
                    assert batch.epoch == epoch
                    seen[number].extend(batch.ids.tolist())
            assert all(sorted(ids) == list(range(1000)) for ids in seen)
            assert all(next(loop, None) is None for loop in loops)
        [feed] = served.status(_url(share))["feeds"]
    finally:
        for job in jobs:
            job.close()
    # Who joins after others took their first batches gets these made again, no more than were ready: three for each of
    # three. Then all meet, and nothing is made twice.
    assert 150 <= feed["staging"]["made"] <= 150 + 9, "three epochs of fifty batches, however many jobs"
    assert feed["staging"]["given"] == 600


def test_shared_arrays_are_ones_own(share: served.Process) -> None:
    pixels = np.zeros((64, 64, 3), np.uint8)
    data = fb.synthetic(64, bytes=pixels.nbytes)
    recipe = [fb.raw("bin"), fb.label("cls")]
    arguments: dict[str, Any] = {"batch_size": 16, "epochs": 1}
    with (
        fb.Loader(data, recipe, via={"url": _url(share), "job": "a"}, **arguments) as one,
        fb.Loader(data, recipe, via={"url": _url(share), "job": "b"}, **arguments) as other,
    ):
        for mine, theirs in zip(one, other, strict=True):
            kept = theirs["cls"].copy()
            mine["cls"][:] = -1
            assert (theirs["cls"] == kept).all()


def test_p052_a_killed_job_holds_nobody_up(share: served.Process, tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import sys, forebay as fb
        data = fb.synthetic(2000, bytes=500)
        via = {"url": sys.argv[1], "job": "doomed", "late": "wait"}
        loop = iter(fb.Loader(data, [fb.raw("bin"), fb.label("cls")], batch_size=10, shuffle=True, via=via))
        for _ in range(5):
            next(loop)
        print("five", flush=True)
        sys.stdin.read()
    """)
    doomed = subprocess.Popen(
        [sys.executable, "-c", script, _url(share)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert doomed.stdout is not None
    assert doomed.stdout.readline() == b"five\n"
    via = {"url": _url(share), "job": "lives", "late": "wait"}
    with fb.Loader(
        fb.synthetic(2000, bytes=500), RECIPE, batch_size=10, shuffle=True, via=via, epochs=1
    ) as loader:
        loop = iter(loader)
        ids = next(loop).ids.tolist()
        doomed.kill()
        doomed.communicate()
        killed = time.monotonic()
        for batch in loop:
            ids.extend(batch.ids.tolist())
        # Its socket says so at once; nothing waits for a time-out.
        assert time.monotonic() - killed < 2 * FAILURE_SECONDS
    assert sorted(ids) == list(range(2000))
    # A new job joins at once, in the middle of what others have done.
    via = {"url": _url(share), "job": "late"}
    with fb.Loader(
        fb.synthetic(2000, bytes=500), RECIPE, batch_size=10, shuffle=True, via=via, epochs=1
    ) as loader:
        assert sorted(i for batch in loader for i in batch.ids.tolist()) == list(range(2000))


def test_auto_starts_a_process_that_leaves_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(run))
    monkeypatch.setenv("FOREBAY_SHARE_GRACE", "0.2")
    with fb.Loader(fb.synthetic(100, bytes=50), RECIPE, batch_size=10, via="auto", epochs=1) as loader:
        assert sorted(i for batch in loader for i in batch.ids.tolist()) == list(range(100))
    socket = run / "forebay" / "share.sock"
    served.eventually(lambda: not socket.exists(), "the process has left")


def test_a_shared_process_that_is_killed_is_started_again_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(run))
    monkeypatch.setenv("FOREBAY_SHARE_GRACE", "0.2")
    data = fb.synthetic(2000, bytes=50, shards=2)
    ids: list[int] = []
    before = set(served.children())
    with fb.Loader(data, RECIPE, batch_size=10, shuffle=True, via="auto", epochs=1) as loader:
        for step, batch in enumerate(loader):
            ids.extend(batch.ids.tolist())
            if step in (20, 90):
                [share] = set(served.children()) - before
                os.kill(share, signal.SIGKILL)
                served.eventually(lambda gone=share: gone not in served.children(), "it is gone")
    assert sorted(ids) == list(range(2000))
    socket = run / "forebay" / "share.sock"
    served.eventually(lambda: not socket.exists(), "the last one has left")


def test_batches_of_a_shared_process_need_no_dev_shm(share: served.Process) -> None:
    def shm_of(pid: int | str) -> list[str]:
        return [line for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "/dev/shm" in line]

    data = fb.synthetic(64, bytes=200_000)
    recipe = [fb.raw("bin"), fb.label("cls")]
    names = sorted(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else []
    # Other libraries of this process may have mapped something there.
    before = shm_of("self")
    with fb.Loader(data, recipe, batch_size=16, epochs=1, via=_url(share)) as loader:
        held = list(loader)
        assert len(held) == 4
        assert shm_of("self") == before
        assert shm_of(share.pid) == []
        assert names == (sorted(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else [])


# A service.


def test_p054_two_clients_of_two_workers_see_ten_thousand_ids_once(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import json, sys, forebay as fb
        data = fb.synthetic(10_000, bytes=64, shards=5)
        loader = fb.Loader(data, [fb.raw("bin"), fb.label("cls")], batch_size=50, shuffle=True, epochs=1,
                           sharding="dynamic", via={"url": sys.argv[1], "job": "both"},
                           rank=int(sys.argv[2]), world_size=2)
        with loader:
            print(json.dumps([i for batch in loader for i in batch.ids.tolist()]))
    """)
    with served.service(tmp_path) as (url, _, _):
        clients = [
            subprocess.Popen([sys.executable, "-c", script, url, str(rank)], stdout=subprocess.PIPE)
            for rank in range(2)
        ]
        ids = [json.loads(client.communicate(timeout=120)[0]) for client in clients]
    assert [len(part) for part in ids] == [5000, 5000]
    assert sorted(ids[0] + ids[1]) == list(range(10_000))


def test_p058_resume_through_a_service_equals_resume_here(tmp_path: Path) -> None:
    shards, recipe = fb.synthetic(950, bytes=300, shards=3), RECIPE
    arguments: dict[str, Any] = {"batch_size": 10, "shuffle": True, "seed": 7}
    with fb.Loader(shards, recipe, epochs=1, **arguments) as here:
        wanted = [_bytes(batch) for batch in here]
    assert len(wanted) == 95
    with served.service(tmp_path) as (url, _, _):
        with fb.Loader(shards, recipe, via=url, epochs=1, **arguments) as there:
            loop = iter(there)
            assert [_bytes(next(loop)) for _ in range(50)] == wanted[:50]
            state = json.loads(json.dumps(there.state_dict()))
        with fb.Loader(shards, recipe, via=url, epochs=1, **arguments) as again:
            again.load_state_dict(state)
            assert [_bytes(batch) for batch in again] == wanted[50:]
        with fb.Loader(shards, recipe, epochs=1, **arguments) as local:
            local.load_state_dict(state)
            assert [_bytes(batch) for batch in local] == wanted[50:]


def test_p059_a_run_on_four_ranks_goes_on_with_two_through_a_service(tmp_path: Path) -> None:
    data = fb.synthetic(1200, bytes=40, shards=2)

    def loader(rank: int, world_size: int) -> fb.Loader:
        return fb.Loader(
            data, RECIPE, batch_size=10, shuffle=True, epochs=1, rank=rank, world_size=world_size,
            via={"url": url, "job": f"of-{world_size}"},
        )  # fmt: skip

    with served.service(tmp_path) as (url, _, _):
        seen: list[int] = []
        states = []
        for rank in range(4):
            with loader(rank, 4) as one:
                loop = iter(one)
                for _ in range(10):
                    seen.extend(next(loop).ids.tolist())
                states.append(one.state_dict())
        assert all(state == states[0] for state in states)
        for rank in range(2):
            with loader(rank, 2) as one:
                one.load_state_dict(states[0])
                seen.extend(i for batch in one for i in batch.ids.tolist())
    assert sorted(seen) == list(range(1200))


@pytest.mark.parametrize("visitation", ["exactly_once", "at_least_once", "at_most_once"])
def test_p056_a_worker_that_is_killed_takes_no_sample_with_it(tmp_path: Path, visitation: str) -> None:
    data = fb.synthetic(3000, bytes=100, shards=3)
    with (
        served.service(tmp_path) as (url, _, workers),
        fb.Loader(
            data, RECIPE, batch_size=10, shuffle=True, epochs=1, via={"url": url, "visitation": visitation}
        ) as loader,
    ):
        ids: list[int] = []
        for step, batch in enumerate(loader):
            ids.extend(batch.ids.tolist())
            if step == 60:
                workers[0].kill()
        skipped, named = int(loader.stats()["skipped_batches"]), loader.skipped()
    assert max(Counter(ids).values()) == 1
    assert len(named) == skipped
    if visitation == "at_most_once":
        assert sorted(ids + [i for one in named for i in one.ids]) == list(range(3000))
    else:
        assert sorted(ids) == list(range(3000))
        assert skipped == 0


def test_a_drained_worker_answers_what_it_has_and_leaves(tmp_path: Path) -> None:
    data = fb.synthetic(2000, bytes=100)
    with (
        served.service(tmp_path) as (url, _, workers),
        fb.Loader(data, RECIPE, batch_size=10, shuffle=True, epochs=1, via=url) as loader,
    ):
        ids: list[int] = []
        for step, batch in enumerate(loader):
            ids.extend(batch.ids.tolist())
            if step == 30:
                workers[0].signal(signal.SIGTERM)
        assert workers[0].wait() == 0
    assert sorted(ids) == list(range(2000))


def test_arrival_order_through_a_service_is_exact(tmp_path: Path) -> None:
    data = fb.synthetic(1003, bytes=100, shards=4)
    arguments: dict[str, Any] = {"batch_size": 10, "shuffle": True, "in_order": False, "window": 60}
    with served.service(tmp_path) as (url, _, _):
        with fb.Loader(data, RECIPE, via=url, epochs=1, **arguments) as loader:
            loop = iter(loader)
            first = [i for _ in range(40) for i in next(loop).ids.tolist()]
            state = loader.state_dict()
        with fb.Loader(data, RECIPE, via=url, epochs=1, **arguments) as loader:
            loader.load_state_dict(state)
            rest = [i for batch in loader for i in batch.ids.tolist()]
    assert sorted(first + rest) == list(range(1003))


def test_p062_compression_changes_what_crosses_and_nothing_else(tmp_path: Path) -> None:
    for number in range(40):
        np.save(tmp_path / f"{number:02}.npy", np.full((64, 64), number, np.float32))
    head = served.dispatcher(tmp_path / "state")
    url = _url(head)
    with head, served.worker(url, same_host="tcp"):
        crossed = {}
        for compression in ("none", "lz4", "zstd", "auto"):
            via = {"url": url, "compression": compression, "job": compression}
            with fb.Loader(tmp_path, [fb.npy("npy")], batch_size=8, epochs=1, via=via) as loader:
                values = np.concatenate([batch["npy"] for batch in loader])
                assert (values == np.arange(40, dtype=np.float32)[:, None, None]).all()
                crossed[compression] = loader.stats()["wire_bytes"]
    assert crossed["none"] >= 40 * 64 * 64 * 4
    assert all(crossed[word] < crossed["none"] / 4 for word in ("lz4", "zstd", "auto"))


def test_batches_of_a_worker_on_this_machine_come_as_shared_memory(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(40):
        np.save(folder / f"{number:02}.npy", np.full((64, 64), number, np.float32))
    with (
        served.service(tmp_path, workers=1) as (url, _, _),
        fb.Loader(folder, [fb.npy("npy")], batch_size=8, epochs=1, via=url) as loader,
    ):
        values = np.concatenate([batch["npy"] for batch in loader])
        assert (values == np.arange(40, dtype=np.float32)[:, None, None]).all()
        assert loader.stats()["wire_bytes"] < 1000
        assert loader.stats()["workers"] == 1


# What goes wrong is said.


def test_bad_samples_are_reported_as_they_are_here(tmp_path: Path, share: served.Process) -> None:
    for number in range(20):
        np.save(tmp_path / f"{number:02}.npy", np.full((4,), number, np.float32))
    (tmp_path / "07.npy").write_bytes(b"not an array")
    with fb.Loader(tmp_path, [fb.npy("npy")], batch_size=5, epochs=1, via=_url(share)) as loader:
        loop = iter(loader)
        next(loop)
        with pytest.raises(fb.errors.CorruptError, match="07") as caught:
            next(loop)
        assert caught.value.sample_id == 7
    arguments: dict[str, Any] = {"batch_size": 5, "epochs": 1, "on_error": "skip", "max_errors": 3}
    with fb.Loader(tmp_path, [fb.npy("npy")], via=_url(share), **arguments) as loader:
        assert [i for batch in loader for i in batch.ids.tolist()] == [n for n in range(20) if n != 7]
        assert [bad.sample_id for bad in loader.errors()] == [7]


def test_a_dataset_that_changed_is_not_read(tmp_path: Path, share: served.Process) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(8):
        np.save(folder / f"{number}.npy", np.full((4,), number, np.float32))
    data = fb.open(folder)
    np.save(folder / "8.npy", np.zeros(4, np.float32))
    with (
        fb.Loader(data, [fb.npy("npy")], batch_size=4, via=_url(share)) as loader,
        pytest.raises(StaleError, match=data.version),
    ):
        next(iter(loader))


def test_what_cannot_go_elsewhere_says_so(share: served.Process) -> None:
    data = fb.synthetic(10, bytes=0, templates=[b"abc"])
    with pytest.raises(UnsupportedError, match="only in this"):
        fb.Loader(data, RECIPE, via=_url(share))
    with pytest.raises(UnsupportedError, match="worker_init_fn"):
        fb.Loader(fb.synthetic(10, bytes=5), RECIPE, via=_url(share), worker_init_fn=print)
    for bad in ("http://x", "unix://x", {"job": "a"}, {"url": "auto", "late": "never"}):
        with pytest.raises(InvalidConfigError, match="via"):
            fb.Loader(fb.synthetic(10, bytes=5), RECIPE, via=bad)


def test_a_wrong_token_is_refused(tmp_path: Path) -> None:
    token, other = tmp_path / "token", tmp_path / "other"
    token.write_text("the token of this service\n")
    other.write_text("the token of another one\n")
    head = served.dispatcher(tmp_path / "state", token_file=str(token))
    url = str(head.said["url"])
    with head, served.worker(url, token_file=str(token)):
        data = fb.synthetic(100, bytes=20)
        good = {"url": url, "token_file": str(token)}
        with fb.Loader(data, RECIPE, batch_size=10, epochs=1, via=good) as loader:
            assert sorted(i for batch in loader for i in batch.ids.tolist()) == list(range(100))
        for bad in (url, {"url": url, "token_file": str(other)}):
            with (
                fb.Loader(data, RECIPE, batch_size=10, via=bad) as loader,
                pytest.raises(DeniedError, match="token"),
            ):
                next(iter(loader))


def test_no_thread_or_descriptor_is_left_behind(share: served.Process) -> None:
    data = fb.synthetic(40, bytes=20)

    def once() -> None:
        with fb.Loader(data, RECIPE, batch_size=10, epochs=1, via=_url(share)) as loader:
            assert sum(len(batch.ids) for batch in loader) == 40

    def held() -> tuple[int, int]:
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

    once()
    before = held()
    for _ in range(50):
        once()
    served.eventually(
        lambda: all(now <= then for now, then in zip(held(), before, strict=True)), "all is given back"
    )
