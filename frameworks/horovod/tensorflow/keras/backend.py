"""TensorFlow as the backend of the Keras parts, whichever Keras it is that runs on it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod._keras.backend import GradientSettings
from horovod._keras.means import mean
from horovod.common import basics
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow import functions
from horovod.tensorflow.gradient_reduction import GradientReducer, make_reducer


class TensorFlowBackend:
    """See ``horovod._keras.backend.Backend``."""

    name = "tensorflow"

    def reduce_gradients(
        self, gradients: Sequence[Any], variables: Sequence[Any], settings: GradientSettings
    ) -> list[Any]:
        """Also ValueError in a function that XLA is to compile."""
        if basics.size() > 1 and _is_compiled_by_xla():
            raise ValueError(
                "A training step with a DistributedOptimizer cannot be compiled by XLA. Leave jit_compile "
                "away or give compile() jit_compile=False; in a loop of your own, "
                "tf.function(jit_compile=False)."
            )
        return _reducer(settings)(gradients, variables)

    def scale(self, gradient: Any, factor: float) -> Any:
        """See ``Backend``."""
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(gradient.values * factor, gradient.indices, gradient.dense_shape)
        return gradient * factor

    def broadcast_variables(
        self, variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set
    ) -> None:
        """See ``Backend``."""
        functions.broadcast_variables(variables, root_rank, process_set)

    mean = staticmethod(mean)
    rank = staticmethod(basics.rank)
    size = staticmethod(basics.size)


@functools.lru_cache(maxsize=64)  # of the optimizers that still run; an evicted one makes its own anew
def _reducer(settings: GradientSettings) -> GradientReducer:
    return make_reducer(
        settings.name,
        settings.device_dense,
        settings.device_sparse,
        settings.compression,
        settings.sparse_as_dense,
        settings.op,
        settings.gradient_predivide_factor,
        settings.groups,
        settings.process_set,
        {
            "backward_passes_per_step": settings.passes,
            "average_aggregated_gradients": settings.average_passes,
        },
        settings.loss_is_scaled,
    )


def _is_compiled_by_xla() -> bool:
    """Whether the function being traced was made with ``jit_compile=True``; no public call tells."""
    graph: Any = tf.compat.v1.get_default_graph() if not tf.executing_eagerly() else None
    while graph is not None:
        context = graph._get_control_flow_context()
        while context is not None:
            if context.IsXLAContext():
                return True
            context = context.outer_context
        graph = getattr(graph, "outer_graph", None)
    return False


backend = TensorFlowBackend()
