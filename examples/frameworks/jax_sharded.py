"""JAX: every batch becomes one `jax.Array` that is divided among the devices, here two of the processor."""

from __future__ import annotations

import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"

import forebay as fb
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def decode(payload: bytes) -> np.ndarray:
    return np.frombuffer(payload, np.uint8)[:16].astype(np.float32) / 255


def brightest(payload: bytes) -> int:
    """A class that can be learned from what `decode` makes: which of the first four numbers is the largest."""
    return int(np.frombuffer(payload, np.uint8)[:4].argmax())


@jax.jit
def step(weights: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    def loss(weights: jax.Array) -> jax.Array:
        scores = jax.nn.log_softmax(x @ weights)
        return -jnp.take_along_axis(scores, y[:, None], 1).mean()

    value, gradient = jax.value_and_grad(loss)(weights)
    return weights - 0.5 * gradient, value


def main() -> None:
    mesh = Mesh(jax.devices(), ("data",))
    rows, whole = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    data = fb.synthetic(1000, bytes=64, shards=4)
    recipe = [
        fb.raw("bin").map(decode, shape=(16,), dtype="f32").named("x"),
        fb.raw("bin").map(brightest, shape=(), dtype="i32").named("y"),
    ]
    weights = jax.device_put(jnp.zeros((16, 4)), whole)
    losses = []
    # Every batch is full, so that its rows divide evenly and nothing is compiled twice.
    with fb.Loader(data, recipe, batch_size=50, shuffle=True, drop_last=True) as loader:
        for _ in range(2):
            for batch in loader:
                x, y = jax.device_put((batch["x"], batch["y"]), rows)
                assert len(x.addressable_shards) == len(jax.devices())
                assert x.addressable_shards[0].data.shape == (50 // len(jax.devices()), 16)
                weights, loss = step(weights, x, y)
                losses.append(float(loss))
    assert np.mean(losses[-10:]) < np.mean(losses[:10])
    print(f"{len(losses)} steps over {len(jax.devices())} devices")


if __name__ == "__main__":
    main()
