"""A service as an object: what loaders take, what crosses to another process, what `forebay.ray` says without Ray."""

from __future__ import annotations

import importlib.util
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import forebay as fb
import pytest
import served
from forebay import _native
from forebay._ray_workers import Workers, target
from forebay._service import Service, write_files
from forebay._supervised import Child

RECIPE = [fb.raw("bin")]


def test_a_loader_takes_a_service_and_so_does_one_that_got_it_by_pickle(tmp_path: Path) -> None:
    credentials = _native.make_credentials(1)
    folder = tmp_path / "credentials"
    folder.mkdir(mode=0o700)
    write_files(folder, credentials)
    with served.dispatcher(tmp_path / "state", credentials=str(folder)) as head:
        service = Service(str(head.said["url"]), credentials)
        with served.worker(service.url, credentials=str(folder)):
            served.eventually(lambda: len(service.status()["workers"]) == 1, "a worker")
            for via in (service, pickle.loads(pickle.dumps(service)), {**service.via, "job": "mine"}):
                with fb.Loader(
                    fb.synthetic(100, bytes=8), RECIPE, batch_size=10, epochs=1, via=via
                ) as loader:
                    assert sorted(i for batch in loader for i in batch.ids.tolist()) == list(range(100))
            with pytest.raises(fb.ForebayError):
                Service(service.url, _native.make_credentials(1)).status(wait=0.5)
    assert credentials["token"] not in repr(service)
    kept = Path(service.via["credentials"])
    assert kept.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in kept.iterdir()} == dict.fromkeys(
        credentials, 0o600
    )


def test_files_of_credentials_are_gone_with_the_process() -> None:
    script = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "from forebay import _native\nfrom forebay._service import Service\n"
        "print(Service('forebay://x:1', _native.make_credentials(1)).via['credentials'])\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert not Path(said.stdout.strip()).exists()


def test_a_child_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys, warnings; warnings.simplefilter('ignore')\n"
        "from forebay import _native\nfrom forebay._supervised import Child\n"
        "credentials = _native.make_credentials(1)\n"
        "child = Child('dispatcher', '--listen', '127.0.0.1:0', credentials=credentials, on_end=print)\n"
        "print(child.pid, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert said.returncode == -9, said.stderr
    served.eventually(lambda: served.state_of(int(said.stdout)) in ("", "Z"), "the child is gone")


def test_a_child_that_does_not_start_says_why_and_one_that_ends_is_noticed() -> None:
    credentials: dict[str, str] = {"token": "0123456789abcdef"}
    with pytest.raises(fb.UnavailableError, match=r"start `forebay worker`: .*--staging"):
        Child(
            *("worker", "--dispatcher", "127.0.0.1:1", "--staging", "much"),
            credentials=credentials,
            on_end=lambda code: None,
        )
    ended: list[int] = []
    words = ("dispatcher", "--listen", "127.0.0.1:0")
    child = Child(*words, credentials=credentials, on_end=ended.append)
    os.kill(child.pid, 9)
    served.eventually(lambda: ended == [-9], "its end is noticed")
    asked = Child(*words, credentials=credentials, on_end=ended.append)
    assert asked.end(30)
    assert ended == [-9]


@pytest.mark.parametrize(
    ("scale", "present", "wanted"),
    [
        ({"workers": 4, "why": "waiting", "seen": {"workers": 2}}, 2, 4),
        ({"workers": 2, "why": "spare", "seen": {"workers": 4}}, 4, 2),
        ({"workers": 2, "why": "link_bound", "seen": {"workers": 4}}, 4, 2),
        ({"workers": 2, "why": "enough", "seen": {"workers": 2}}, 2, 2),
        # Nobody reads for a moment while the third is being started: it stays. After a long time they go.
        ({"workers": 2, "why": "idle", "seen": {"workers": 2}}, 3, 3),
        ({"workers": 1, "why": "idle", "seen": {"workers": 3}}, 3, 1),
        ({"workers": 1, "why": "idle", "seen": {"workers": 0}}, 1, 1),
    ],
)
def test_actors_follow_what_the_dispatcher_wants(scale: dict[str, Any], present: int, wanted: int) -> None:
    assert target(scale, present) == wanted


class StandIn:
    """As much of Ray as says who was started, who was asked to drain and who was ended."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.there: set[object] = set()
        self.count = 0

    def start(self) -> Any:
        self.count += 1
        name = f"worker {self.count}"

        def method(word: str) -> Any:
            def remote(*_: object) -> str:
                if word == "drain":
                    self.said.append(f"drain {name}")
                    self.there.add(f"drained {name}")
                    return f"drained {name}"
                return name

            return type("Method", (), {"remote": staticmethod(remote)})

        return type("Actor", (), {"name": name, "where": method("where"), "drain": method("drain")})

    def wait(
        self, answers: list[str], *, timeout: float, num_returns: int = 1
    ) -> tuple[list[str], list[str]]:
        ready = [answer for answer in answers if answer in self.there]
        return ready, [answer for answer in answers if answer not in ready]

    def kill(self, actor: Any, *, no_restart: bool) -> None:
        assert no_restart
        self.said.append(f"end {actor.name}")


def test_workers_that_are_not_there_yet_go_first_and_the_others_drain() -> None:
    ray = StandIn()
    workers = Workers(ray, ray.start)
    workers.set(4)
    assert (len(workers), ray.said) == (4, [])
    ray.there |= {"worker 1", "worker 2", "worker 4"}
    workers.set(3)
    assert ray.said == ["end worker 3"], "it has nothing to finish"
    workers.set(1)
    served.eventually(lambda: len(ray.said) == 5, "two have drained and ended")
    assert sorted(ray.said[1:]) == ["drain worker 2", "drain worker 4", "end worker 2", "end worker 4"]
    assert (len(workers), workers.answers()) == (1, ["worker 1"])
    workers.stop()
    assert ray.said[-1] == "end worker 1"
    workers.set(3)
    assert len(workers) == 0, "nobody is started after the end"


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed here")
def test_without_ray_it_says_what_to_install() -> None:
    with pytest.raises(fb.UnsupportedError, match="use Ray: it is not installed") as problem:
        fb.ray.start(workers=2)
    assert problem.value.hint == "pip install 'forebay[ray]'"
