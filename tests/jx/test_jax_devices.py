"""A rank with several local devices."""

from typing import Any

import check_jax  # noqa: F401  # skips
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import horovod.jax as hvd

TWO_DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}


def ranks_reduce_over_devices_first() -> None:
    hvd.init()
    size, rank = hvd.size(), hvd.rank()
    mesh = Mesh(np.array(jax.local_devices()), ("batch",))
    split, everywhere = (NamedSharding(mesh, spec) for spec in (PartitionSpec("batch"), PartitionSpec()))
    batches = [np.random.default_rng(each).normal(size=(8, 3)) for each in range(size)]
    w = jax.device_put(np.ones(3), everywhere)
    x = jax.device_put(batches[rank], split)

    def loss(w: Any, x: Any) -> Any:
        return ((x @ w) ** 2).mean()

    gradients = jax.jit(jax.grad(loss))(w, x)
    reduced = hvd.allreduce({"w": gradients})["w"]
    assert len(x.sharding.device_set) == 2 and reduced.sharding == gradients.sharding
    expected = sum(2 * (batch @ np.ones(3)) @ batch / 8 for batch in batches) / size
    np.testing.assert_allclose(reduced, expected, 1e-12)
    np.testing.assert_allclose(hvd.allreduce(x, op=hvd.Sum), sum(batches), 1e-12)

    for inside in (jax.jit(hvd.allreduce), jax.pmap(hvd.allreduce)):
        with pytest.raises(ValueError, match=r"horovod\.jax.*call hvd outside of it"):
            inside(jax.device_put(jnp.ones((2, 3)), split))
    np.testing.assert_array_equal(jax.jit(hvd.allreduce)(jnp.ones(3)), np.ones(3))  # on one of them


def test_the_devices_of_a_rank_are_reduced_over_first(run_ranks) -> None:
    run_ranks(2, ranks_reduce_over_devices_first, env=TWO_DEVICES)


def program_for_a_gpu() -> None:
    hvd.init()
    arrays = [jax.ShapeDtypeStruct((1 << 20,), jnp.float32)] * 3  # on a CPU they travel in parts
    handler = jax.export.DisabledSafetyCheck.custom_call("horovod_collective")
    export = jax.export.export(jax.jit(hvd.grouped_allreduce), platforms=["cuda"], disabled_checks=[handler])
    program = export(arrays).mlir_module()
    assert program.count("@horovod_collective(") == 1 and "@horovod_start" not in program, program


def test_a_program_for_a_gpu_calls_as_one_what_travels_through_the_host(run_ranks) -> None:
    run_ranks(2, program_for_a_gpu, hosts=[0, 1])
