"""Data-parallel training for TensorFlow::

    import horovod.tensorflow as hvd

    hvd.init()
    with tf.GradientTape() as tape:
        loss = ...
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    if first_step:
        hvd.broadcast_variables(model.variables, root_rank=0)
        hvd.broadcast_variables(optimizer.variables, root_rank=0)

Everything works eagerly, in a ``tf.function`` and in graphs of ``tf.compat.v1``. What the operations do in
each, and which errors they raise, is said in ``horovod.tensorflow.mpi_ops``. For ``model.fit`` see
``horovod.tensorflow.keras``.
"""

from __future__ import annotations

from typing import Any

from horovod.common.basics import (
    counters,
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    is_master,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from horovod.common.builds import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rocm_built,
)
from horovod.common.exceptions import HorovodInternalError, TensorMismatchError
from horovod.common.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from horovod.common.reduce_ops import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    handle_average_backwards_compatibility,
)
from horovod.common.stacks import stacks
from horovod.common.util import gpu_available
from horovod.common.util import num_rank_is_power_2 as check_num_rank_power_of_2
from horovod.tensorflow import gradients as _gradients  # noqa: F401  # registers those of the operations
from horovod.tensorflow import metric
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
from horovod.tensorflow.mpi_ops import (
    allgather,
    alltoall,
    barrier,
    broadcast,
    broadcast_,
    grouped_allgather,
    join,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    size_op,
)
from horovod.tensorflow.optimizer import DistributedOptimizer
from horovod.tensorflow.reductions import (
    allreduce,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)
from horovod.version import __version__

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
    "__version__",
    "Adasum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "Average",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "BroadcastGlobalVariablesHook",
    "ccl_built",
    "check_num_rank_power_of_2",
    "Compression",
    "counters",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "gpu_available",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "handle_average_backwards_compatibility",
    "HorovodInternalError",
    "init",
    "is_homogeneous",
    "is_initialized",
    "is_master",
    "join",
    "local_rank",
    "local_rank_op",
    "local_size",
    "local_size_op",
    "Max",
    "metric",
    "Min",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "PartialDistributedGradientTape",
    "process_set_included_op",
    "ProcessSet",
    "Product",
    "rank",
    "rank_op",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "size_op",
    "stacks",
    "start_timeline",
    "stop_timeline",
    "Sum",
    "SyncBatchNormalization",
    "TensorMismatchError",
]
