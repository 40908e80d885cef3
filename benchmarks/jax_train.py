"""A training step of JAX in two processes: compiled with our allreduce in it, and by JAX's own collectives.

horovodrun -np 2 python benchmarks/jax_train.py

"psum" is one program over the devices of both processes, whose collectives JAX runs by gloo. "outside"
compiles the gradients and the update, and reduces between them. "alone" takes the same steps at the same time
without exchanging gradients: the ceiling. "ResNet-50" has the sizes of its 161 parameters, and next to
nothing to compute.
"""

import functools
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from samples import OURS, Row, interleave, load
from session import Session, session
from sizes import resnet50

import horovod.jax as hvd
from horovod.common.collective.byte_objects import objects

SHAPES: dict[str, list[tuple[int, ...]]] = {
    "20 x 256x256": 20 * [(256, 256)],
    "100 x 64x64": 100 * [(64, 64)],
    "8 x 1024x1024": 8 * [(1024, 1024)],
    "ResNet-50, 161": [(size,) for size in resnet50()],
}
BATCH = 32
STEPS_PER_ROUND = 10
RATE = 0.01

Parameters = list[Any]
Stepper = Callable[[Parameters, Any], Parameters]


@contextmanager
def jax_of_all(_: Path, rank: int, size: int) -> Iterator[None]:
    """JAX with the devices of all processes, for the peer; ours uses that of its own process."""
    with socket.socket() as probe:  # free now, and most probably a moment later
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(objects.broadcast_object(address, 0), size, rank)
    yield


def loss(parameters: Parameters, inputs: Any) -> Any:
    if parameters[0].ndim == 1:
        return sum((weights * inputs.mean() + weights**2).mean() for weights in parameters)
    for weights in parameters:
        inputs = jnp.tanh(inputs @ weights)
    return (inputs**2).mean()


def updated(parameters: Parameters, gradients: Parameters) -> Parameters:
    return [weights - RATE * gradient for weights, gradient in zip(parameters, gradients, strict=True)]


def compiled() -> Stepper:
    return jax.jit(lambda parameters, x: updated(parameters, hvd.allreduce(jax.grad(loss)(parameters, x))))


def outside() -> Stepper:
    gradients, update = jax.jit(jax.grad(loss)), jax.jit(updated)
    return lambda parameters, x: update(parameters, hvd.allreduce(gradients(parameters, x)))


def alone() -> Stepper:
    return jax.jit(lambda parameters, x: updated(parameters, jax.grad(loss)(parameters, x)))


def by_psum(mesh: Mesh) -> Stepper:
    def step(parameters: Parameters, x: Any) -> Parameters:
        gradients = jax.grad(loss)(parameters, x)
        return updated(parameters, [jax.lax.pmean(gradient, "rank") for gradient in gradients])

    everywhere = PartitionSpec()
    shard = functools.partial(jax.shard_map, mesh=mesh, out_specs=everywhere, check_vma=False)
    return jax.jit(shard(step, in_specs=(everywhere, PartitionSpec("rank"))))


def sampler(run: Session, step: Stepper, parameters: Parameters, x: Any) -> Callable[[], list[float]]:
    """Seconds of each step of a round, on the slowest rank."""
    kept = jax.block_until_ready(step(parameters, x))

    def sample() -> list[float]:
        nonlocal kept
        times = []
        for _ in range(STEPS_PER_ROUND):
            run.board.barrier()
            start = time.perf_counter()
            kept = jax.block_until_ready(step(kept, x))
            times.append(run.board.max(time.perf_counter() - start))
        return times

    return sample


def measure(run: Session, case: str) -> None:
    made = [
        np.random.default_rng(i).normal(size=shape) * shape[0] ** -0.5 for i, shape in enumerate(SHAPES[case])
    ]
    parameters = [weights.astype(np.float32) for weights in made]
    x = np.random.default_rng(1000 + run.rank).normal(size=(BATCH, SHAPES[case][0][0])).astype(np.float32)
    mesh = Mesh(np.array(jax.devices()), ("rank",))

    def on(spec: PartitionSpec, array: np.ndarray) -> Any:
        return jax.make_array_from_process_local_data(NamedSharding(mesh, spec), array)

    everywhere = [on(PartitionSpec(), weights) for weights in parameters]
    samplers = {
        OURS: sampler(run, compiled(), parameters, x),
        "outside": sampler(run, outside(), parameters, x),
        "psum": sampler(run, by_psum(mesh), everywhere, on(PartitionSpec("rank"), x)),
        "alone": sampler(run, alone(), parameters, x),
    }
    run.rows.append(Row("jax", case, run.size, interleave(samplers, run.rounds), load()))


def main() -> None:
    with session(__doc__.splitlines()[0], jax_of_all) as run:
        for case in list(SHAPES)[:1] if run.quick else SHAPES:
            measure(run, case)


if __name__ == "__main__":
    main()
