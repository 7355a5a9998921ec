"""An object store of a known rate: as much of S3 as a loader needs, answering so many requests in a second.

For benches that must know how fast fetching can be. Requests wait for their turn one after the other, whoever asks.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

_STAMP = "2026-01-01T00:00:00.000Z"


class KnownStore(ThreadingHTTPServer):
    """``samples`` objects of ``size`` bytes, of which ``per_second`` are given in a second."""

    # Python lets five callers wait. The sixth would be late by a second, and nobody would know the rate.
    request_queue_size = 128
    daemon_threads = True

    def __init__(self, samples: int, size: int, per_second: float) -> None:
        self.keys = [f"o/{sample:06}.bin" for sample in range(samples)]
        self.body = bytes(size)
        self.pause = 1 / per_second
        self._lock = threading.Lock()
        self._free_at = 0.0
        super().__init__(("127.0.0.1", 0), _Answers)

    def wait_for_turn(self) -> None:
        """Until this request is the next that may be answered."""
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic()) + self.pause
            until = self._free_at
        time.sleep(max(0.0, until - time.monotonic()))

    def listing(self) -> bytes:
        """All objects, on one page."""
        items = "".join(
            f"<Contents><Key>{key}</Key><Size>{len(self.body)}</Size><ETag>&quot;1&quot;</ETag>"
            f"<LastModified>{_STAMP}</LastModified></Contents>"
            for key in self.keys
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{items}</ListBucketResult>".encode()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A loader that is closed hangs up: nothing to print."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body would else be two packets, of which the second waits for an answer to the first.
    wbufsize = -1
    disable_nagle_algorithm = True
    server: KnownStore

    def do_GET(self) -> None:
        key = unquote(urlsplit(self.path).path).removeprefix("/bucket").removeprefix("/")
        if not key:
            self.send(200, self.server.listing())
            return
        self.server.wait_for_turn()
        body = self.server.body
        span = self.headers.get("Range", "").removeprefix("bytes=")
        if not span:
            self.send(200, body)
            return
        first, last = span.split("-")
        end = min(int(last or len(body) - 1), len(body) - 1)
        self.send(206, body[int(first) : end + 1], f"bytes {first}-{end}/{len(body)}")

    def send(self, status: int, body: bytes, content_range: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        if content_range:
            self.send_header("Content-Range", content_range)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: figures alone are printed."""


@contextmanager
def serving(samples: int, size: int, per_second: float) -> Iterator[dict[str, object]]:
    """A store on loopback for as long as it is needed: the storage options that reach it at ``s3://bucket/o/``."""
    store = KnownStore(samples, size, per_second)
    thread = threading.Thread(target=store.serve_forever, daemon=True)
    thread.start()
    try:
        yield {"endpoint": f"http://127.0.0.1:{store.server_port}", "anonymous": True}
    finally:
        store.shutdown()
        store.server_close()
        thread.join()
