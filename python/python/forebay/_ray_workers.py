"""The worker actors of a service on Ray: how many there are, and how those go that are too many.

How many there should be is decided elsewhere; what a worker does, too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Workers", "kill", "target"]

_log = logging.getLogger("forebay")

_DRAIN_SECONDS = 60.0
"""How long a worker may take to finish what it has."""


def target(scale: Mapping[str, Any], present: int) -> int:
    """How many actors there should be, from what the dispatcher wants and how many were started.

    While nobody reads the dispatcher wants what it sees; that is no reason to stop those that it does not see yet.
    """
    wanted, seen = int(scale["workers"]), int(scale["seen"]["workers"])
    if scale["why"] == "idle" and seen <= wanted < present:
        return present
    return wanted


class Workers:
    """Actors that `start` makes, as many as were set. Safe to call from several threads."""

    def __init__(self, ray: Any, start: Callable[[], Any]) -> None:
        self._ray, self._start = ray, start
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._actors: list[tuple[Any, Any]] = []
        """Each with the answer that is there once the actor is."""
        self._leaving: list[threading.Thread] = []

    def __len__(self) -> int:
        """Those that drain do not count."""
        with self._lock:
            return len(self._actors)

    def answers(self) -> list[Any]:
        """What each says when it is there."""
        with self._lock:
            return [answer for _, answer in self._actors]

    def set(self, wanted: int) -> None:
        """Starts as many as are missing, or lets those go that are too many."""
        with self._lock:
            if self._stopped.is_set():
                return
            while len(self._actors) < wanted:
                actor = self._start()
                self._actors.append((actor, actor.where.remote()))
            # Those that are not there yet go first, since they have nothing to finish; then the newest.
            ready = self._ready()
            there = [pair for pair in self._actors if pair[1] in ready]
            coming = [pair for pair in self._actors if pair[1] not in ready]
            self._actors, gone = (there + coming)[:wanted], (there + coming)[wanted:]
            self._leaving = [thread for thread in self._leaving if thread.is_alive()]
            for actor, answer in gone:
                if answer in ready:
                    self._let_go(actor)
                else:
                    kill(self._ray, actor)

    def stop(self) -> None:
        """Ends all of them, at once."""
        self._stopped.set()
        with self._lock:
            actors, self._actors = self._actors, []
        for actor, _ in actors:
            kill(self._ray, actor)
        for thread in self._leaving:
            thread.join()

    def _ready(self) -> list[Any]:
        answers = [answer for _, answer in self._actors]
        if not answers:
            return []
        ready: list[Any] = self._ray.wait(answers, num_returns=len(answers), timeout=0)[0]
        return ready

    def _let_go(self, actor: Any) -> None:
        """Lets a worker finish what it has, in a thread: nobody waits for that."""

        def drain() -> None:
            until = time.monotonic() + _DRAIN_SECONDS + 10
            try:
                left = actor.drain.remote(_DRAIN_SECONDS)
                while not self._stopped.is_set() and time.monotonic() < until:
                    if self._ray.wait([left], timeout=0.2)[0]:
                        break
            except Exception:
                # It is gone already, and others make its batches.
                _log.debug("a worker did not drain", exc_info=True)
            kill(self._ray, actor)

        thread = threading.Thread(target=drain, name="forebay-ray-drain", daemon=True)
        thread.start()
        self._leaving.append(thread)


def kill(ray: Any, actor: Any) -> None:
    """Ends an actor, and its process with it."""
    try:
        ray.kill(actor, no_restart=True)
    except Exception:
        # Ray was shut down, and its actors with it.
        _log.debug("an actor is gone already", exc_info=True)
