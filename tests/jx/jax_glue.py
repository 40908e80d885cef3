"""The cases of ``operations`` in JAX: outside of compiled functions, and inside."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from check_jax import jax
from framework import Framework
from operations import Running

import horovod.jax as hvd

jnp = jax.numpy


class JaxRunning(Running):
    """Each at once; the ranks meet in one order."""

    def __init__(self, case: Any) -> None:
        super().__init__(case)
        case.wait = True

    def tensor(self, array: np.ndarray, dtype: str) -> Any:
        return jax.device_put(array.astype(jnp.dtype(dtype)))

    def array(self, tensor: Any) -> np.ndarray:
        array = np.asarray(tensor)
        return array if array.dtype.isbuiltin == 1 else array.astype(np.float32)

    def dtype(self, tensor: Any) -> str:
        return np.dtype(tensor.dtype).name

    def call(self, tensors: Any, options: dict[str, Any]) -> Any:
        return getattr(hvd, self.case.kind)(tensors, **options)


def run_compiled(window: Sequence[Running]) -> None:
    """All in one function that XLA compiles."""
    together = jax.jit(lambda given: [one.called_with(mine) for one, mine in zip(window, given, strict=True)])
    results = together([running.mine for running in window])
    for running, called in zip(window, results, strict=True):
        running.called = called


def is_even(running: Running) -> bool:
    """Whether all ranks bring as many rows, as they must in a compiled function."""
    gathers = running.case.kind in ("allgather", "grouped_allgather")
    return not gathers and "splits" not in running.plan.options


class Jax(Framework):
    """What the shared tests need."""

    hvd = hvd
    running = JaxRunning
    disagreement = hvd.TensorMismatchError
    gone = hvd.HorovodInternalError
    mistake = (ValueError, TypeError)

    def tensor(self, array: np.ndarray) -> Any:
        return jax.device_put(array)

    def array(self, tensor: Any) -> np.ndarray:
        return np.asarray(tensor)

    def concatenated(self, tensors: Sequence[Any]) -> Any:
        return jnp.concatenate(tensors)

    def gradient(
        self, call: Callable[[Any], Any], weights: np.ndarray, array: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        def loss(given: Any) -> Any:
            result = call(given)
            return (result * weights).sum(), result

        gradient, result = jax.grad(loss, has_aux=True)(self.tensor(array))
        return np.asarray(result), np.asarray(gradient)


framework = Jax()
