"""Data-parallel training for PyTorch::

    import horovod.torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

Tensors may lie in host memory or on a CUDA device. What an operation does and which errors it raises is said
in ``horovod.common.collective.collectives``. A tensor over memory that the operating system protects against
writing must not be reduced in place: torch cannot tell, and the process would crash.
"""

from horovod.common.collective import exports as _exports
from horovod.common.collective.exports import *
from horovod.search import TrialPruned, search
from horovod.torch import elastic, metric
from horovod.torch.compiling import mark_functions as _mark_functions_outside_of_graphs
from horovod.torch.compression import Compression
from horovod.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from horovod.torch.mpi_ops import *
from horovod.torch.optimizer import DistributedOptimizer
from horovod.torch.sync_batch_norm import SyncBatchNorm, convert_sync_batchnorm

_mark_functions_outside_of_graphs(globals(), __name__.partition(".")[0])

_MPI_LIB_AVAILABLE = True  # scripts ask it to learn whether the compiled module could be loaded


def _check_has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


__all__ = [
    *_exports.public_names(globals()),
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "Compression",
    "convert_sync_batchnorm",
    "DistributedOptimizer",
    "elastic",
    "metric",
    "search",
    "sparse_allreduce_async",
    "SyncBatchNorm",
    "TrialPruned",
]


def __dir__() -> list[str]:
    return sorted(__all__)
