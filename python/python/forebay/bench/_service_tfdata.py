"""tf.data service, as ``forebay bench service`` measures it: its servers as processes, and a client that counts.

Batches are noise and are not compressed, which is what the service does best on one machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator


def serve(role: str, dispatcher: str | None) -> None:
    """Runs a dispatcher, or a worker of one, until standard input closes."""
    import tensorflow as tf

    service = tf.data.experimental.service
    if role == "dispatcher":
        server = service.DispatchServer(service.DispatcherConfig(port=0))
        print(server.target.removeprefix("grpc://"), flush=True)
    else:
        # The address that clients are told needs a port that is known before; 0 is filled in by the server.
        server = service.WorkerServer(service.WorkerConfig(dispatcher_address=dispatcher, port=0))
        print("ready", flush=True)
    sys.stdin.read()
    del server


def batches(dispatcher: str, shape: tuple[int, ...]) -> Iterator[int]:
    """Bytes of one batch after the other."""
    import numpy as np
    import tensorflow as tf

    noise = np.random.default_rng(0).integers(0, 255, shape, dtype=np.uint8)
    service = tf.data.experimental.service
    distribute = service.distribute(
        processing_mode=service.ShardingPolicy.OFF, service=f"grpc://{dispatcher}", compression=None
    )
    data = tf.data.Dataset.from_tensors(tf.constant(noise)).repeat().apply(distribute)
    for batch in data:
        array = batch.numpy()
        int(array.reshape(-1)[::4096].sum())
        yield array.nbytes


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
