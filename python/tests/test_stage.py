"""A copy on the local disk, through the package: `forebay stage` fills it, `open(local=...)` reads from it."""

from __future__ import annotations

import io
import json
import pickle
import re
import subprocess
import sys
import tarfile
import threading
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import ClassVar

import forebay as fb
import pytest
from slow_store import Listening

SHARDS, EACH = 3, 10


def payload(sample: int) -> bytes:
    return bytes((sample * 11 + at) % 256 for at in range(700))


def shard(number: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for sample in range(number * EACH, (number + 1) * EACH):
            member = tarfile.TarInfo(f"{sample:04}.bin")
            member.size = 700
            tar.addfile(member, io.BytesIO(payload(sample)))
    return buffer.getvalue()


class Objects(BaseHTTPRequestHandler):
    """Ranges of a few objects; counts the bytes of bodies before they are sent."""

    protocol_version = "HTTP/1.1"
    objects: ClassVar[dict[str, bytes]] = {}
    sent: ClassVar[int] = 0

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        whole = self.objects.get(self.path.removeprefix("/"))
        body, status, headers = whole or b"", 200 if whole is not None else 404, {}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if whole is not None and wanted is not None:
            first, last = int(wanted[1]), min(int(wanted[2]), len(whole) - 1)
            body, status = whole[first : last + 1], 206
            headers["Content-Range"] = f"bytes {first}-{last}/{len(whole)}"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{zlib.crc32(whole or b""):08x}"')
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            Objects.sent += len(body)
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    Objects.objects = {f"train-{number}.tar": shard(number) for number in range(SHARDS)}
    Objects.sent = 0
    listening = Listening(("127.0.0.1", 0), Objects)
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.server_port}/train-{{0..2}}.tar"
    listening.shutdown()
    listening.server_close()
    thread.join()


def stage(url: str, folder: Path) -> dict[str, object]:
    code = "import sys; from forebay._cli import main; sys.exit(main())"
    command = [sys.executable, "-W", "ignore", "-c", code, "stage", url, str(folder), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, object] = json.loads(done.stdout)
    return told


def batches(data: fb.Dataset) -> list[tuple[list[int], list[bytes]]]:
    with fb.Loader(data, [fb.raw("bin")], batch_size=4, shuffle=True, seed=3, epochs=1) as loader:
        return [([int(i) for i in batch.ids], [bytes(raw) for raw in batch["bin"]]) for batch in loader]


def test_p049_a_copy_gives_the_same_batches_without_the_store(url: str, tmp_path: Path) -> None:
    plain = fb.open(url, manifest_dir=tmp_path / "one")
    expected = batches(plain)
    told = stage(url, tmp_path / "copy")
    assert (told["copied"], told["bytes"]) == (SHARDS, sum(map(len, Objects.objects.values())))
    before = Objects.sent
    local = fb.open(url, local=tmp_path / "copy", manifest_dir=tmp_path / "two")
    assert local.version == plain.version
    assert any("3 of 3 objects" in note for note in local.notes)
    assert batches(local) == expected
    assert batches(pickle.loads(pickle.dumps(local))) == expected
    assert Objects.sent == before


def test_p049_a_shard_that_changed_is_read_from_the_store(url: str, tmp_path: Path) -> None:
    stage(url, tmp_path / "copy")
    Objects.objects["train-1.tar"] = shard(7)
    local = fb.open(url, local=str(tmp_path / "copy"), manifest_dir=tmp_path / "one")
    assert any("2 of 3 objects" in note for note in local.notes)
    found = {i: raw for ids, raws in batches(local) for i, raw in zip(ids, raws, strict=True)}
    assert found[EACH] == payload(7 * EACH)
    assert found[0] == payload(0)


def test_p049_a_copy_of_something_else_is_refused(url: str, tmp_path: Path) -> None:
    stage(url, tmp_path / "copy")
    with pytest.raises(fb.UnsupportedError):
        fb.open("synthetic://?samples=3", local=tmp_path / "copy")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.npy").write_bytes(b"x")
    with pytest.raises(fb.InvalidConfigError, match="holds a copy of"):
        fb.open(tmp_path / "a", local=tmp_path / "copy", manifest_dir=tmp_path / "two")
