"""An object server of known rate and known faults, for tests that count for themselves: as much of S3 as they need."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


class Listening(ThreadingHTTPServer):
    """A server at which many may call at once: a caller beyond the five whom Python lets wait comes a second late."""

    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A loader that is closed hangs up: nothing to print."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class SlowStore:
    """Objects `o/0000.bin` and so on. Answers `per_second` requests for objects in a second, one after the other, and
    every `fail_every`-th object with 503 the first time."""

    def __init__(self, samples: int, size: int, *, per_second: float = 0.0, fail_every: int = 0) -> None:
        self.objects = {f"o/{sample:04}.bin": bytes([sample % 251]) * size for sample in range(samples)}
        self.per_second = per_second
        self.fail_every = fail_every
        self.answered: list[str] = []
        self.failed: list[str] = []
        self._lock = threading.Lock()
        self._free_at = 0.0

    def turn(self, key: str) -> bool:
        """Waits for its turn; whether the request succeeds."""
        with self._lock:
            if self.fail_every and int(key[2:6]) % self.fail_every == 0 and key not in self.failed:
                self.failed.append(key)
                return False
            self.answered.append(key)
            if not self.per_second:
                return True
            self._free_at = max(self._free_at, time.monotonic()) + 1 / self.per_second
            until = self._free_at
        time.sleep(max(0.0, until - time.monotonic()))
        return True

    def listing(self) -> bytes:
        items = "".join(
            f"<Contents><Key>{key}</Key><Size>{len(body)}</Size><ETag>&quot;1&quot;</ETag>"
            f"<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key, body in sorted(self.objects.items())
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{items}</ListBucketResult>".encode()


@contextmanager
def serving(store: SlowStore) -> Iterator[dict[str, object]]:
    """Storage options that reach the store."""

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            key = unquote(urlsplit(self.path).path).removeprefix("/bucket").removeprefix("/")
            if not key:
                self.send(200, store.listing())
            elif key not in store.objects:
                self.send(404, b"")
            elif not store.turn(key):
                self.send(503, b"")
            else:
                self.send_object(store.objects[key])

        def send_object(self, body: bytes) -> None:
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
            pass

    listening = Listening(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    try:
        yield {"endpoint": f"http://127.0.0.1:{listening.server_port}", "anonymous": True}
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()
