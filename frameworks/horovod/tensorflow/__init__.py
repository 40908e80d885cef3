"""Data-parallel training for TensorFlow::

    import horovod.tensorflow as hvd

    hvd.init()
    with tf.GradientTape() as tape:
        loss = ...
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    if first_step:
        hvd.broadcast_variables(model.weights, root_rank=0)
        hvd.broadcast_variables(optimizer.variables, root_rank=0)

Everything works eagerly, in a ``tf.function`` and in graphs of ``tf.compat.v1``. What the operations do in
each, and which errors they raise, is said in ``horovod.tensorflow.mpi_ops``. For ``model.fit`` see
``horovod.tensorflow.keras``.
"""

from __future__ import annotations

from typing import Any

from horovod.common.collective import exports as _exports
from horovod.common.collective.exports import *
from horovod.common.util import gpu_available
from horovod.common.util import num_rank_is_power_2 as check_num_rank_power_of_2
from horovod.search import TrialPruned, search
from horovod.tensorflow import autograd as _autograd  # noqa: F401  # registers those of the operations
from horovod.tensorflow import elastic, metric
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.functions import (
    BroadcastGlobalVariablesHook,
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from horovod.tensorflow.gradient_tape import DistributedGradientTape, PartialDistributedGradientTape
from horovod.tensorflow.mpi_ops import *
from horovod.tensorflow.optimizer import DistributedOptimizer
from horovod.tensorflow.reductions import *

# Other libraries import these from here.
from horovod.tensorflow.util import (  # noqa: F401
    _cache,
    _executing_eagerly,
    _make_subgraph,
    refs_to_vars,
    vars_to_refs,
)

_MPI_LIB_AVAILABLE = True  # scripts ask it to learn whether the compiled operations could be loaded


def __getattr__(name: str) -> Any:
    if name == "SyncBatchNormalization":  # late: it is a layer of whichever Keras is in use
        from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization

        return SyncBatchNormalization
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _check_has_gpu() -> bool:
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


__all__ = [
    *_exports.public_names(globals()),
    "allgather_object",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "BroadcastGlobalVariablesHook",
    "check_num_rank_power_of_2",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "elastic",
    "gpu_available",
    "handle_average_backwards_compatibility",
    "local_rank_op",
    "local_size_op",
    "metric",
    "PartialDistributedGradientTape",
    "process_set_included_op",
    "rank_op",
    "search",
    "size_op",
    "SyncBatchNormalization",
    "TrialPruned",
]


def __dir__() -> list[str]:
    return sorted(__all__)
