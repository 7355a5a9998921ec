"""Starting and ending: no thread before use, everything gone after, through fork, spawn, Ctrl-C and exit."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forebay as fb
import made
import psutil
import pytest

RAW = [fb.raw("bin"), fb.label("cls")]


def tasks() -> int:
    return len(os.listdir("/proc/self/task"))


def our_threads() -> set[str]:
    """Threads of the loader, as `number name`; an opened dataset may keep some for reading."""
    threads = set()
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/comm") as comm:
            threads.add(f"{task} {comm.read().strip()}")
    return {thread for thread in threads if " forebay" in thread}


def wait_until(condition: Any, seconds: float = 2.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def test_no_thread_runs_before_the_first_batch_and_none_after_close() -> None:
    gc.collect()
    before = our_threads()
    data = fb.synthetic(1000, bytes=100)
    loader = fb.Loader(data, RAW, batch_size=10, num_workers=3)
    iterator = iter(loader)
    assert len(loader) == 100
    assert not our_threads() - before
    next(iterator)
    # A thread gives itself its name, perhaps after the first batch is there.
    assert wait_until(lambda: len(our_threads() - before) >= 4), our_threads()
    loader.close()
    assert wait_until(lambda: not our_threads() - before), our_threads()
    next(iter(loader))
    del loader, iterator
    gc.collect()
    assert wait_until(lambda: not our_threads() - before), our_threads()


@pytest.mark.parametrize("how", ["with", "break", "exception", "del"])
def test_p077_threads_are_gone_in_two_seconds(how: str) -> None:
    def use() -> None:
        loader = fb.Loader(
            fb.synthetic(5000, bytes=1000), [fb.raw("bin").delay(0.2)], batch_size=4, num_workers=8
        )
        if how == "with":
            with loader:
                next(iter(loader))
        elif how == "break":
            for _ in loader:
                break
        elif how == "exception":
            with loader:
                for _ in loader:
                    raise KeyError("mine")
        else:
            next(iter(loader))

    before = our_threads()
    if how == "exception":
        with pytest.raises(KeyError, match="mine"):
            use()
    else:
        use()
    gc.collect()
    assert wait_until(lambda: not our_threads() - before), our_threads()


LOOP = """
    import signal, sys, time
    import forebay as fb
    # As at a terminal: jobs in the background of a shell begin with Ctrl-C ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    data = fb.synthetic(10**6, bytes=1000)
    def init(number):
        pass
    loader = fb.Loader(data, [fb.raw("bin").delay({delay})], batch_size=8, num_workers=8, worker_init_fn=init)
    iterator = iter(loader)
    {body}
"""


def started(body: str, delay: float = 0.01) -> subprocess.Popen[str]:
    code = textwrap.dedent(LOOP).format(delay=delay, body=body)
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def ended(process: subprocess.Popen[str]) -> tuple[float, int, str]:
    """After how many seconds it ended, with which code, and what it said."""
    since = time.monotonic()
    _, stderr = process.communicate(timeout=60)
    return time.monotonic() - since, process.returncode, stderr


def ends_within_two_seconds(run: Callable[[], float]) -> bool:
    """Whether one of three runs does: a machine may hold one up, a loader that waits for its work holds up all."""
    return any(run() < 2.0 for _ in range(3))


@pytest.mark.parametrize(
    ("body", "delay"),
    [
        ("next(iterator); print('ready', flush=True)\nfor batch in iterator: pass", 0.01),
        ("print('ready', flush=True)\nfor batch in iterator: pass", 30.0),
        ("next(iterator); print('ready', flush=True)\ntime.sleep(60)", 0.01),
    ],
)
def test_p077_ctrl_c_ends_the_process_at_once(body: str, delay: float) -> None:
    def run() -> float:
        process = started(body, delay)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        seconds, code, stderr = ended(process)
        assert "KeyboardInterrupt" in stderr
        assert code in (-signal.SIGINT, 1)
        return seconds

    assert ends_within_two_seconds(run)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("next(iterator); print('ready', flush=True)", 0),
        ("next(iterator); print('ready', flush=True); sys.exit(7)", 7),
        ("next(iterator); print('ready', flush=True); raise KeyError", 1),
        ("next(iterator); keep = [next(iterator) for _ in range(3)]; print('ready', flush=True)", 0),
        ("next(iterator); iterator.cycle = loader; loader.me = iterator; print('ready', flush=True)", 0),
    ],
)
def test_p077_the_interpreter_ends_without_waiting(body: str, code: int) -> None:
    def run() -> float:
        seconds, ended_with, _ = ended(started(body))
        assert ended_with == code
        return seconds

    assert ends_within_two_seconds(run)


def test_p077_a_thousand_loaders_leak_nothing() -> None:
    data = fb.synthetic(64, bytes=1000)
    process = psutil.Process()

    def cycle() -> None:
        with fb.Loader(data, RAW, batch_size=16, num_workers=2) as loader:
            next(iter(loader))

    for _ in range(100):
        cycle()
    gc.collect()
    before = (process.memory_info().rss, process.num_fds(), tasks())
    for _ in range(1000):
        cycle()
    gc.collect()
    assert wait_until(lambda: tasks() <= before[2])
    grown = process.memory_info().rss - before[0]
    assert grown < 5 << 20, f"{grown / 2**20:.1f} MB"
    assert process.num_fds() <= before[1]


def test_other_threads_run_while_one_waits() -> None:
    data = fb.synthetic(8, bytes=10)
    counted = 0
    done = threading.Event()

    def count() -> None:
        nonlocal counted
        while not done.is_set():
            counted += 1
            time.sleep(0.001)

    with fb.Loader(data, [fb.raw("bin").delay(0.5)], batch_size=8, num_workers=1, timeout=60) as loader:
        thread = threading.Thread(target=count)
        thread.start()
        asked = threading.Thread(target=lambda: (time.sleep(0.3), answers.append(loader.stats()["batches"])))
        answers: list[float] = []
        asked.start()
        next(iter(loader))
        done.set()
        thread.join()
        asked.join()
    assert counted > 200
    assert answers == [0]


def test_two_threads_share_an_iterator(numbers: fb.Dataset) -> None:
    with fb.Loader(numbers, RAW, batch_size=7) as loader:
        iterator = iter(loader)
        seen: list[int] = []

        def take() -> None:
            for batch in iterator:
                seen.extend(batch.ids.tolist())

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(seen) == list(range(1003))


FORK = """
    import os, sys, forebay as fb
    data = fb.open({spec!r})
    data[3]
    loader = fb.Loader(data, [fb.text("txt")], batch_size=100, num_workers=2)
    loader.state_dict()
    {before}
    child = os.fork()
    if child == 0:
        try:
            {inside}
        except BaseException as error:
            print(type(error).__name__, error, flush=True)
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(sum(b.size for b in loader), os.waitstatus_to_exitcode(status), flush=True)
"""


def forked(spec: str, before: str, inside: str) -> list[str]:
    code = textwrap.dedent(FORK).format(spec=spec, before=before, inside=inside)
    done = made.run_python(code, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_fork_before_use_works(shards: str) -> None:
    lines = forked(shards, "", "print(sum(b.size for b in loader), data[5]['cls'], flush=True)")
    assert lines == ["1003 b'5'", "1003 0"]


def test_fork_after_use_is_a_clear_error_and_the_parent_goes_on(shards: str) -> None:
    before = "iterator = iter(loader); kept = next(iterator)"
    lines = forked(shards, before, "next(iterator)")
    assert lines[0].startswith("UnsupportedError use loader: this process was forked")
    assert lines[1] == "1003 1"
    lines = forked(shards, before, "del iterator, loader, kept; import gc; gc.collect(); print(len(data))")
    assert lines[-1] == "1003 0"
    lines = forked(
        shards, before, "print(sum(b.size for b in fb.Loader(data, [fb.text('txt')])), flush=True)"
    )
    assert lines == ["1003", "1003 0"]


START = """
    import multiprocessing, sys
    import forebay as fb

    def count(loader, queue):
        queue.put([int(i) for batch in loader for i in batch.ids])

    if __name__ == "__main__":
        context = multiprocessing.get_context(sys.argv[1])
        spec, text = sys.argv[2], [fb.text("txt")]
        loaders = [fb.Loader(spec, text, batch_size=50, rank=rank, world_size=2) for rank in range(2)]
        queue = context.Queue()
        processes = [context.Process(target=count, args=(loader, queue)) for loader in loaders]
        for process in processes:
            process.start()
        seen = [i for _ in processes for i in queue.get(timeout=60)]
        for process in processes:
            process.join(timeout=10)
            assert process.exitcode == 0, process.exitcode
        assert sorted(seen) == list(range(1003))
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_loaders_work_in_processes_of_every_start_method(method: str, shards: str, tmp_path: Path) -> None:
    # In an interpreter of its own: frameworks that other tests imported do not like to be forked.
    script = tmp_path / "start.py"
    script.write_text(textwrap.dedent(START))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script, method, shards], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr


def test_worker_init_fn_runs_once_in_each_thread_and_its_exception_is_the_cause() -> None:
    data = fb.synthetic(100, bytes=10)
    seen: list[int] = []
    with fb.Loader(data, RAW, batch_size=10, num_workers=4, worker_init_fn=seen.append) as loader:
        for _ in range(3):
            made.ids(loader)
    assert sorted(set(seen)) == sorted(seen)
    assert set(seen) <= set(range(4))

    def fails(number: int) -> None:
        raise KeyError(f"thread {number}")

    with (
        fb.Loader(data, RAW, batch_size=10, num_workers=2, worker_init_fn=fails) as loader,
        pytest.raises(fb.ForebayError, match="worker_init_fn") as caught,
    ):
        next(iter(loader))
    assert isinstance(caught.value.__cause__, KeyError)
