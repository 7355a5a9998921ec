"""A service on Ray: the dispatcher and its workers are actors, which Ray places and starts again.

    cluster = forebay.ray.start(workers=4)
    loader = fb.Loader(data, recipe, batch_size=256, via=cluster)
    ...
    cluster.stop()

An actor owns one `forebay dispatcher` or `forebay worker` process, which ends with it; the service is the same as one
that was started by hand. Where an actor runs, and that it comes back, is Ray's business. How many workers there should
be is the dispatcher's (`forebay scale`); with `workers=(least, most)` a thread here asks it, and starts or drains
actors. Importing this module does not import Ray, `start` does.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from forebay import _native
from forebay._ray_actors import ForebayDispatcher, ForebayWorker
from forebay._ray_workers import Workers, kill, target
from forebay._service import Service
from forebay.errors import (
    ExhaustedError,
    ForebayError,
    InvalidConfigError,
    UnavailableError,
    UnsupportedError,
)

__all__ = ["Cluster", "Service", "start"]

_log = logging.getLogger("forebay")

_HEAD = "node:__internal_head__"
"""A resource that only the node with Ray's own head has."""
_LITTLE = 0.001
"""As much of a resource as says where to run, and takes it from nobody."""
_LOOK_SECONDS = 1.0
"""How often the wanted number of workers is asked for; the dispatcher decides as often."""
_CREDENTIAL_DAYS = 365


def start(
    workers: int | tuple[int, int] = 2,
    *,
    num_cpus: float = 1.0,
    threads: int | None = None,
    memory: int | None = None,
    resources: Mapping[str, float] | None = None,
    near: str | Mapping[str, str] | None = None,
    spread: bool = True,
    runtime_env: Mapping[str, Any] | None = None,
    max_restarts: int = -1,
    state: str | os.PathLike[str] | None = None,
    waiting_share: float = 0.05,
    options: Mapping[str, str | int | float] | None = None,
    tls: bool | None = None,
    timeout: float = 120.0,
) -> Cluster:
    """Starts a dispatcher and workers as Ray actors: what `Loader(via=...)` takes, until `stop`.

    Ray is found as `ray.init()` finds it, unless it was initialised already.

    workers: how many, or the least and the most. Between these the number follows what jobs need: more while they wait
        for batches, fewer when fewer have been enough for a while.
    num_cpus: processors that Ray sets aside for each worker.
    threads: preparing threads of each worker; one for each of its processors if not given.
    memory: bytes of memory that Ray sets aside for each worker.
    resources: more that each worker asks of Ray.
    near: runs workers only on nodes with this custom resource (`ray start --resources '{"near_store": 1}'`), or with
        these labels when it is a dict (`ray start --labels zone=a`).
    spread: over as many nodes as there are; `False` fills one node after the other.
    runtime_env: the environment of the workers, as Ray takes it.
    max_restarts: how often Ray starts an actor again that ended; -1 is always.
    state: a folder for the dispatcher's journal on Ray's head node, kept after `stop`; a temporary one if not given.
    waiting_share: share of their time that jobs may wait before more workers are wanted.
    options: more flags of `forebay worker`, such as `{"staging": "8GiB", "cache": "64GiB"}`.
    tls: whether everything is encrypted, with certificates made for this service. If not given: when Ray has more than
        one node now. Without it nothing listens beyond this machine. There is a token in any case.
    timeout: seconds until the dispatcher and all workers must be there.
    """
    ray = _ray()
    least, most = _bounds(workers)
    if not ray.is_initialized():
        ray.init()
    nodes = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
    tls = len(nodes) > 1 if tls is None else tls
    credentials = _native.make_credentials(_CREDENTIAL_DAYS)
    if not tls:
        credentials = {"token": credentials["token"]}
    until = time.monotonic() + timeout
    folder = (
        os.fspath(state) if state is not None else f"{tempfile.gettempdir()}/forebay-ray-{uuid.uuid4().hex}"
    )
    scale = {"least_workers": least, "most_workers": most, "waiting_share": waiting_share}
    dispatcher = (
        ray.remote(ForebayDispatcher)
        .options(num_cpus=0, resources={_HEAD: _LITTLE}, max_restarts=max_restarts)
        .remote(folder, uuid.uuid4().hex, credentials, tls, _flags(scale), state is None)
    )
    cluster = None
    try:
        url = _await(dispatcher.url.remote(), "start the dispatcher on Ray", until)
        how: dict[str, Any] = {
            "num_cpus": num_cpus,
            "max_restarts": max_restarts,
            "scheduling_strategy": "SPREAD" if spread else "DEFAULT",
            "resources": dict(resources or {}),
        }
        if isinstance(near, str):
            how["resources"][near] = _LITTLE
        elif near is not None:
            how["label_selector"] = dict(near)
        if memory is not None:
            how["memory"] = memory
        if runtime_env is not None:
            how["runtime_env"] = dict(runtime_env)
        flags = _flags({"threads": threads or max(1, round(num_cpus)), **(options or {})})
        maker = ray.remote(ForebayWorker).options(**how)
        hands = Workers(ray, lambda: maker.remote(url, credentials, tls, flags))
        cluster = Cluster(url, credentials, dispatcher, hands, follows=least < most)
        hands.set(least)
        cluster._await_workers(until)
    except BaseException:
        if cluster is not None:
            cluster.stop()
        else:
            kill(ray, dispatcher)
        raise
    cluster._begin()
    return cluster


class Cluster(Service):
    """A service on Ray, as `start` made it. Sent to another process it is a `Service`: what loaders take there.

    Also a context manager: `with forebay.ray.start(workers=4) as cluster:` stops it at the end. It ends with the
    process that started it, too.
    """

    def __init__(
        self, url: str, credentials: Mapping[str, str], dispatcher: Any, workers: Workers, *, follows: bool
    ) -> None:
        super().__init__(url, credentials)
        self._actor, self._workers = dispatcher, workers
        self._follows = follows
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def workers(self) -> int:
        """Actors that make batches or are being started; those that drain do not count."""
        return len(self._workers)

    def scale(self, workers: int) -> None:
        """Sets the number of workers. Those that are too many finish what they have before they go: nothing is lost."""
        if self._follows:
            raise InvalidConfigError(
                "set the number of workers: it follows what jobs need",
                hint="start it with `workers=4`, not a range",
            )
        self._workers.set(_bounds(workers)[0])

    def stop(self) -> None:
        """Ends all actors, at once. A job that still reads waits for a service that does not come back."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        self._workers.stop()
        ray = _ray()
        try:
            ray.get(self._actor.end.remote(), timeout=10)
        except Exception:
            _log.debug("the dispatcher did not say goodbye", exc_info=True)
        kill(ray, self._actor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _await_workers(self, until: float) -> None:
        answers = self._workers.answers()
        doing = f"start {len(answers)} workers on Ray"
        for answer in answers:
            _await(answer, doing, until)
        # They say where they are before the dispatcher has heard of them.
        while len(self.status(wait=max(0.1, until - time.monotonic()))["workers"]) < len(answers):
            if time.monotonic() > until:
                raise UnavailableError(f"{doing}: they did not reach the dispatcher")
            time.sleep(0.05)

    def _begin(self) -> None:
        if self._follows:
            self._thread = threading.Thread(target=self._follow, name="forebay-ray-scale", daemon=True)
            self._thread.start()

    def _follow(self) -> None:
        """Does what the dispatcher wants, until `stop`."""
        while not self._stopped.wait(_LOOK_SECONDS):
            try:
                scale = self.status(wait=1.0)["scale"]
                present = self.workers
                wanted = target(scale, present)
                if wanted != present:
                    _log.info("%d workers instead of %d: %s", wanted, present, scale["why"])
                    self._workers.set(wanted)
            except ForebayError:
                # The dispatcher is being started again. Workers go on as they are.
                continue
            except Exception:
                # Ray is not reached, or no longer there; the next look tries again.
                _log.warning("the number of workers could not be set", exc_info=True)


def _ray() -> Any:
    try:
        import ray
    except ImportError as problem:
        raise UnsupportedError("use Ray: it is not installed", hint="pip install 'forebay[ray]'") from problem
    return ray


def _bounds(workers: Any) -> tuple[int, int]:
    bounds = workers if isinstance(workers, tuple) else (workers, workers)
    whole = len(bounds) == 2 and all(isinstance(n, int) and not isinstance(n, bool) for n in bounds)
    if not whole or not 1 <= bounds[0] <= bounds[1]:
        raise InvalidConfigError(
            f"start workers on Ray: workers is {workers!r}",
            hint="give a number, or the least and the most: (1, 8)",
        )
    return bounds[0], bounds[1]


def _flags(options: Mapping[str, str | int | float]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def _await(answer: Any, doing: str, until: float) -> Any:
    """The answer of an actor that is being started, or why there is none."""
    ray = _ray()
    try:
        return ray.get(answer, timeout=max(0.0, until - time.monotonic()))
    except ray.exceptions.GetTimeoutError as problem:
        free = {name: amount for name, amount in ray.available_resources().items() if ":" not in name}
        raise ExhaustedError(
            f"{doing}: they are not there in time", hint=f"Ray has this left for what they ask for: {free}"
        ) from problem
    except ray.exceptions.RayError as problem:
        # The whole of it is in the cause; what was raised in the actor is named last.
        lines = [line for line in str(problem).splitlines() if line.strip()]
        told = [line for line in lines if "forebay.errors." in line]
        raise UnavailableError(
            f"{doing}: {(told or lines or ['no reason was given'])[-1].strip()}"
        ) from problem
