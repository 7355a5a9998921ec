"""The store node: files of a folder over HTTP with byte ranges. A stand-in for an object store."""

from __future__ import annotations

import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Store(BaseHTTPRequestHandler):
    """Answers `GET` and `HEAD` of files in the folder that the server serves."""

    protocol_version = "HTTP/1.1"
    folder: Path

    def do_GET(self) -> None:
        """A file, or a range of it."""
        self._answer(body=True)

    def do_HEAD(self) -> None:
        """Its size."""
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        path = self.folder / Path(self.path).name
        if not path.is_file():
            self.send_error(404)
            return
        size = path.stat().st_size
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        first = int(wanted[1]) if wanted else 0
        last = min(int(wanted[2]), size - 1) if wanted and wanted[2] else size - 1
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Content-Length", str(last - first + 1))
        self.send_header("ETag", f'"{path.name}-{size}"')
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        if body:
            with path.open("rb") as file:
                file.seek(first)
                self.wfile.write(file.read(last - first + 1))

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


class Server(ThreadingHTTPServer):
    """Clients may hang up in the middle of an answer."""

    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Says nothing."""


def main() -> None:
    """`store.py ADDRESS PORT FOLDER`: serves until it is ended."""
    address, port, folder = sys.argv[1:]
    Store.folder = Path(folder)
    server = Server((address, int(port)), Store)
    print("ready", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
