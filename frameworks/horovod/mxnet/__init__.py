"""Data-parallel training for MXNet::

    import horovod.mxnet as hvd

    hvd.init()
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.01 * hvd.size()})
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)

Import it before MXNet: with numpy 1.24 and later MXNet cannot be imported without it. What an operation does
and which errors it raises is said in ``horovod.mxnet.mpi_ops``.
"""

from horovod.common.collective import exports as _exports
from horovod.common.collective.exports import *
from horovod.mxnet import elastic, metric
from horovod.mxnet.compression import Compression
from horovod.mxnet.functions import allgather_object, broadcast_object, broadcast_parameters
from horovod.mxnet.mpi_ops import *
from horovod.mxnet.optimizer import DistributedOptimizer, DistributedTrainer
from horovod.search import TrialPruned, search


def _check_has_gpu() -> bool:
    from horovod.mxnet.native import mx

    return mx.context.num_gpus() > 0


__all__ = [
    *_exports.public_names(globals()),
    "allgather_object",
    "broadcast_object",
    "broadcast_parameters",
    "Compression",
    "DistributedOptimizer",
    "DistributedTrainer",
    "elastic",
    "metric",
    "search",
    "TrialPruned",
]


def __dir__() -> list[str]:
    return sorted(__all__)
