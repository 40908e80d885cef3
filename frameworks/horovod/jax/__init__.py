"""Data-parallel training for JAX::

    import horovod.jax as hvd

    hvd.init()
    params = hvd.broadcast_parameters(params, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optax.adam(1e-3))

Each rank is a process with one device. Operations take arrays and pytrees, eagerly and inside ``jax.jit``;
see docs/jax.md. What an operation does and which errors it raises is said in
``horovod.common.collective.collectives``.
"""

from horovod.common.collective import exports as _exports
from horovod.common.collective.exports import *
from horovod.jax import elastic, metric
from horovod.jax.compression import Compression
from horovod.jax.functions import allgather_object, broadcast_object, broadcast_parameters
from horovod.jax.mpi_ops import *
from horovod.jax.optimizer import DistributedOptimizer
from horovod.search import TrialPruned, search

__all__ = [
    *_exports.public_names(globals()),
    "allgather_object",
    "broadcast_object",
    "broadcast_parameters",
    "Compression",
    "DistributedOptimizer",
    "elastic",
    "metric",
    "search",
    "TrialPruned",
]


def __dir__() -> list[str]:
    return sorted(__all__)
