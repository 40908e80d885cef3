"""Trains a small network on scikit-learn's digits with JAX and optax:

horovodrun -np 2 python examples/jax_digits.py
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import horovod.jax as hvd


def parse() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32, help="of one rank")
    return parser.parse_args()


def make_parameters() -> list[dict[str, jax.Array]]:
    """Of two layers."""
    keys = jax.random.split(jax.random.PRNGKey(hvd.rank()))
    sizes = [(64, 128), (128, 10)]
    return [
        {"w": jax.random.normal(key, size) / np.sqrt(size[0]), "b": jnp.zeros(size[1])}
        for key, size in zip(keys, sizes, strict=True)
    ]


def predict(params: list[dict[str, jax.Array]], x: jax.Array) -> jax.Array:
    """The logits."""
    hidden = jax.nn.relu(x @ params[0]["w"] + params[0]["b"])
    return hidden @ params[1]["w"] + params[1]["b"]


def main() -> None:
    options = parse()
    hvd.init()
    images, labels = load_digits(return_X_y=True)
    x, y = (images / 16).astype(np.float32), labels.astype(np.int32)
    count = len(x) // hvd.size()  # as many samples on each rank
    mine = np.arange(count) * hvd.size() + hvd.rank()

    params = hvd.broadcast_parameters(make_parameters(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(optax.sgd(0.05 * hvd.size(), momentum=0.9))
    state = optimizer.init(params)

    def loss(params, x, y):
        return optax.softmax_cross_entropy_with_integer_labels(predict(params, x), y).mean()

    @jax.jit
    def step(params, state, x, y):
        gradients = jax.grad(loss)(params, x, y)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    for epoch in range(1, options.epochs + 1):
        begin = time.perf_counter()
        order = np.random.default_rng([epoch, hvd.rank()]).permutation(mine)
        for first in range(0, count - options.batch_size + 1, options.batch_size):
            batch = order[first : first + options.batch_size]
            params, state = step(params, state, x[batch], y[batch])
        accuracy = (predict(params, x).argmax(1) == y).mean()
        if hvd.rank() == 0:  # all ranks hold the same model
            seconds = time.perf_counter() - begin
            print(f"epoch {epoch}  accuracy {accuracy:.1%}  seconds {seconds:.2f}")


if __name__ == "__main__":
    main()
