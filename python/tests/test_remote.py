"""Datasets behind URLs, through the package: options, stats, faults. The engine's own tests are the thorough ones."""

from __future__ import annotations

import io
import re
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

import forebay as fb
import pytest
from slow_store import Listening

SAMPLES = 60


def payload(sample: int) -> bytes:
    return bytes((sample * 7 + at) % 256 for at in range(500))


def shard() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for sample in range(SAMPLES):
            member = tarfile.TarInfo(f"{sample:04}.bin")
            member.size = 500
            tar.addfile(member, io.BytesIO(payload(sample)))
    return buffer.getvalue()


class Objects(BaseHTTPRequestHandler):
    """As much of S3, path style, as reading needs. What is in `forbidden` is answered with 403."""

    protocol_version = "HTTP/1.1"
    objects: ClassVar[dict[str, bytes]] = {}
    forbidden: ClassVar[set[str]] = set()

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        url = urlsplit(self.path)
        key = unquote(url.path).removeprefix("/bucket").removeprefix("/")
        if not key:
            self.send(200, self.listing(parse_qs(url.query)))
        elif key in self.forbidden:
            self.send(403, b"")
        elif key not in self.objects:
            self.send(404, b"")
        else:
            self.send_object(self.objects[key])

    def listing(self, query: dict[str, list[str]]) -> bytes:
        prefix, after = query.get("prefix", [""])[0], query.get("start-after", [""])[0]
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        items = "".join(
            f"<Contents><Key>{key}</Key><Size>{len(self.objects[key])}</Size><ETag>&quot;1&quot;</ETag>"
            f"<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key in keys
        )
        text = f"<?xml version='1.0'?><ListBucketResult><IsTruncated>false</IsTruncated>{items}</ListBucketResult>"
        return text.encode()

    def send_object(self, body: bytes) -> None:
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if wanted is None:
            self.send(200, body)
            return
        first, last = int(wanted[1]), min(int(wanted[2]), len(body) - 1)
        self.send(206, body[first : last + 1], f"bytes {first}-{last}/{len(body)}")

    def send(self, status: int, body: bytes, content_range: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        if content_range is not None:
            self.send_header("Content-Range", content_range)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Objects.objects = {f"o/{sample:04}.bin": payload(sample) for sample in range(SAMPLES)}
    Objects.objects["s/train-0.tar"] = shard()
    Objects.forbidden = set()
    listening = Listening(("127.0.0.1", 0), Objects)
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.server_port}"
    listening.shutdown()
    listening.server_close()
    thread.join()


def samples(data: fb.Dataset, **settings: object) -> dict[int, bytes]:
    with fb.Loader(data, [fb.raw("bin")], batch_size=8, epochs=1, **settings) as loader:  # type: ignore[arg-type]
        return {
            int(i): bytes(raw) for batch in loader for i, raw in zip(batch.ids, batch["bin"], strict=True)
        }


def test_objects_of_a_bucket_are_samples(server: str, tmp_path: Path) -> None:
    options = {"endpoint": server, "anonymous": True}
    data = fb.open("s3://bucket/o/", storage_options=options, extensions=["bin"], manifest_dir=tmp_path)
    assert len(data) == SAMPLES
    assert samples(data, shuffle=True) == {sample: payload(sample) for sample in range(SAMPLES)}
    assert samples(data, shuffle=True, in_order=False, inflight=4) == samples(data)


def test_shards_behind_http_are_samples(server: str, tmp_path: Path) -> None:
    data = fb.open(f"{server}/bucket/s/train-{{0..0}}.tar", manifest_dir=tmp_path)
    assert samples(data, request_bytes="64KiB") == {sample: payload(sample) for sample in range(SAMPLES)}


def test_stats_tell_about_the_link(server: str, tmp_path: Path) -> None:
    data = fb.open(f"{server}/bucket/s/train-0.tar", manifest_dir=tmp_path)
    loader = fb.Loader(data, [fb.raw("bin")], batch_size=8, epochs=1)
    for _ in loader:
        pass
    stats = loader.stats()
    assert stats["requests"] >= 1
    assert stats["window_bytes"] > 0
    assert {"retries", "hedges", "throttled", "link_bytes_per_second", "link_delay_seconds"} <= stats.keys()
    loader.close()


def test_a_forbidden_object_is_a_bad_sample_with_its_url(server: str, tmp_path: Path) -> None:
    options = {"endpoint": server, "anonymous": True}
    data = fb.open("s3://bucket/o/", storage_options=options, extensions=["bin"], manifest_dir=tmp_path)
    Objects.forbidden = {"o/0003.bin"}
    with pytest.raises(fb.DeniedError, match=r"0003\.bin"):
        samples(data)
    assert samples(data, on_error="skip").keys() == set(range(SAMPLES)) - {3}


def test_words_that_a_store_does_not_know_are_refused_without_their_values(server: str) -> None:
    with pytest.raises(fb.InvalidConfigError, match="secret_acess_key") as caught:
        fb.open("s3://bucket/o/", storage_options={"endpoint": server, "secret_acess_key": "hunter2"})
    assert "hunter2" not in str(caught.value)
