"""Hits from a peer beside plain framed TCP, and how many copies four processes of a host keep."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Settings = dict[str, Any]
Ready = Callable[[], Iterator[int]]

_FRAME = struct.Struct("<IQ")
_PROCESSES = 4


def _loader(settings: Settings, cache: dict[str, Any], epochs: int) -> Any:
    import forebay as fb

    data = fb.open(f"{settings['path_shards']}/*.tar", manifest_dir=settings["path_manifests"])
    return fb.Loader(
        data, [fb.raw("jpg")], batch_size=settings["batch_size"], shuffle="full", cache=cache, epochs=epochs
    )


def _epoch(loader: Any) -> Iterator[int]:
    for batch in loader:
        yield sum(map(len, batch["jpg"].views()))


def _start(role: str, settings: Settings) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", __spec__.name if __spec__ else __name__, role, json.dumps(settings)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _told(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def _free_address(host: str) -> str:
    with socket.socket() as listener:
        listener.bind((host, 0))
        return f"{host}:{listener.getsockname()[1]}"


def cache_peer(settings: Settings) -> Ready:
    """A loader that keeps nothing and reads everything from the one node of its cache."""
    owner = _free_address("127.0.0.2")
    folder = tempfile.TemporaryDirectory()
    members = Path(folder.name) / "nodes"
    members.write_text(owner)
    peers = {"peers": f"@{members}", "peer_timeout_seconds": 30}
    node = _start("owner", {**settings, "cache": {**peers, "memory": "8GiB", "peer_address": owner}})
    _told(node)
    # Its own address is not among the nodes: it owns nothing.
    cache = {**peers, "memory": 1, "peer_address": _free_address("127.0.0.3")}
    loader = _loader(settings, cache, settings["epochs"] + 1)
    for _ in _epoch(loader):
        pass
    before = loader.stats()

    def run() -> Iterator[int]:
        for _ in range(settings["epochs"]):
            yield from _epoch(loader)
        stats = loader.stats()
        assert stats["payloads"] == before["payloads"], "some payloads came from the store"
        loader.close()
        node.communicate("", timeout=60)
        folder.cleanup()

    return run


def framed_tcp(settings: Settings) -> Ready:
    """The same payloads over a plain socket: a frame's head, then its bytes into a buffer of their own."""
    node = _start("sender", settings)
    port = _told(node)
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run() -> Iterator[int]:
        assert node.stdin is not None
        for epoch in range(settings["epochs"]):
            node.stdin.write(f"{epoch}\n")
            node.stdin.flush()
            head = memoryview(bytearray(_FRAME.size))
            while True:
                _fill(connection, head)
                _, length = _FRAME.unpack(head)
                if length == 0:
                    break
                payload = bytearray(length)
                _fill(connection, memoryview(payload))
                yield length
        node.communicate("", timeout=60)
        connection.close()

    return run


def _fill(connection: socket.socket, target: memoryview) -> None:
    while target:
        read = connection.recv_into(target)
        if read == 0:
            message = "the sender is gone"
            raise ConnectionError(message)
        target = target[read:]


def _owner(settings: Settings) -> None:
    loader = _loader(settings, settings["cache"], 1)
    for _ in _epoch(loader):
        pass
    print(json.dumps("ready"), flush=True)
    sys.stdin.read()
    loader.close()


def _sender(settings: Settings) -> None:
    with contextlib.closing(_loader(settings, {"memory": "8GiB"}, 1)) as loader:
        payloads = [bytes(payload) for batch in loader for payload in batch["jpg"]]
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(json.dumps(server.getsockname()[1]), flush=True)
        connection, _ = server.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for epoch in sys.stdin:
        random.Random(int(epoch)).shuffle(payloads)
        for number, payload in enumerate(payloads):
            head = _FRAME.pack(number, len(payload))
            sent = connection.sendmsg([head, payload])
            if sent < len(head) + len(payload):
                connection.sendall(memoryview(payload)[max(sent - len(head), 0) :])
        connection.sendall(_FRAME.pack(0, 0))
    connection.close()


def host_copies(settings: Settings) -> dict[str, float]:
    """Four processes that read everything from one host's cache: what each maps, and what it takes in all.

    `copies` is the memory of payloads that the kernel counts once however many processes map it (PSS of shared memory,
    the host's process included) over the bytes of the dataset.
    """
    with tempfile.TemporaryDirectory() as runtime:
        environment = {**os.environ, "XDG_RUNTIME_DIR": runtime}
        before, os.environ["XDG_RUNTIME_DIR"] = os.environ.get("XDG_RUNTIME_DIR"), runtime
        try:
            processes = [_start("mapper", settings) for _ in range(_PROCESSES)]
        finally:
            if before is None:
                del os.environ["XDG_RUNTIME_DIR"]
            else:
                os.environ["XDG_RUNTIME_DIR"] = before
        total = max(_told(process) for process in processes)
        pids = [process.pid for process in processes] + _hosts(environment["XDG_RUNTIME_DIR"])
        parts = [_smaps(pid) for pid in pids]
        for process in processes:
            process.communicate("", timeout=60)
    shared = [part.get("Pss_Shmem", 0) for part in parts]
    mapped = sum(part["Rss"] for part in parts)
    return {
        "copies": sum(shared) / total,
        "rss_copies": mapped / total,
        "pss_bytes": sum(part["Pss"] for part in parts),
        "dataset_bytes": total,
        "processes": len(parts),
    }


def _mapper(settings: Settings) -> None:
    loader = _loader(settings, {"memory": "8GiB", "share": "host"}, 3)
    total = 0
    for _ in range(3):
        total = 0
        for batch in loader:
            for payload in batch["jpg"]:
                # Looks at every page, so that it counts as mapped.
                bytes(payload)[::4096]
                total += len(payload)
    print(json.dumps(total), flush=True)
    sys.stdin.read()
    loader.close()


def _hosts(runtime: str) -> list[int]:
    """Processes that hold the memory behind sockets of this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if b"cache-host" in words and any(runtime.encode() in word for word in words):
                    found.append(int(entry.name))
    return found


def _smaps(pid: int) -> dict[str, int]:
    """Bytes by kind."""
    parts = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        parts[name] = int(rest.split()[0]) * 1024
    return parts


MOVES = {subject.__name__: subject for subject in (cache_peer, framed_tcp)}
FIGURES = {subject.__name__: subject for subject in (host_copies,)}
_ROLES = {"owner": _owner, "sender": _sender, "mapper": _mapper}

if __name__ == "__main__":
    _ROLES[sys.argv[1]](json.loads(sys.argv[2]))
