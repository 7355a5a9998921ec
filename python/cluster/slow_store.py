"""An object store in which every payload takes a given time: as much of S3, path style, as reading needs.

A process of its own, so that the training loop of a test and its store do not wait for each other. Prints its port.
Whoever asks for one after the other on a connection gets 1 / seconds payloads a second, however many others there
are: the time between asking and getting is shorter by what passed since the last one, as at a disk that reads ahead.

    python slow_store.py SAMPLES SECONDS
"""

from __future__ import annotations

import asyncio
import sys
from urllib.parse import unquote, urlsplit

BODY = b"x" * 256


def listing(samples: int) -> bytes:
    items = "".join(
        f"<Contents><Key>o/{sample:06}.bin</Key><Size>{len(BODY)}</Size><ETag>&quot;1&quot;</ETag>"
        f"<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
        for sample in range(samples)
    )
    text = (
        f"<?xml version='1.0'?><ListBucketResult><IsTruncated>false</IsTruncated>{items}</ListBucketResult>"
    )
    return text.encode()


async def serve(samples: int, seconds: float) -> None:
    keys = listing(samples)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop, due = asyncio.get_running_loop(), 0.0
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
                key = unquote(urlsplit(path).path).removeprefix("/bucket").removeprefix("/")
                body, status = keys if not key else BODY, "200 OK"
                extra = ""
                if key and b"\r\nrange: bytes=" in head.lower():
                    wanted = head.lower().split(b"\r\nrange: bytes=", 1)[1].split(b"\r\n", 1)[0].decode()
                    first, last = (int(number) for number in wanted.split("-"))
                    last = min(last, len(BODY) - 1)
                    body, status = BODY[first : last + 1], "206 Partial Content"
                    extra = f"Content-Range: bytes {first}-{last}/{len(BODY)}\r\n"
                if key and method == "GET":
                    # Who was away for longer than one payload takes has missed it.
                    due = max(due + seconds, loop.time())
                    await asyncio.sleep(due - loop.time())
                lines = f'HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nETag: "1"\r\n{extra}\r\n'
                writer.write(lines.encode() + (b"" if method == "HEAD" else body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
