"""Data-parallel training for ``tf.keras``, be it Keras 3 or Keras 2::

    import horovod.tensorflow.keras as hvd

    hvd.init()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3)), loss="mse")
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    model.fit(dataset, callbacks=callbacks)

See docs/keras.md.
"""

from horovod.common.collective import exports as _exports
from horovod.common.collective.exports import *
from horovod.search import TrialPruned, search
from horovod.tensorflow import metric
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.functions import allgather_object, broadcast_object
from horovod.tensorflow.keras import callbacks, elastic
from horovod.tensorflow.keras.backend import adapter as _adapter

DistributedOptimizer = _adapter.DistributedOptimizer
PartialDistributedOptimizer = _adapter.PartialDistributedOptimizer
load_model = _adapter.load_model
broadcast_global_variables = _adapter.broadcast_global_variables
broadcast_variables = _adapter.broadcast_variables
allreduce = _adapter.allreduce
allgather = _adapter.allgather
broadcast = _adapter.broadcast
reducescatter = _adapter.reducescatter
barrier = _adapter.barrier
join = _adapter.join

__all__ = [
    *_exports.public_names(globals()),
    "allgather_object",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "Compression",
    "DistributedOptimizer",
    "elastic",
    "load_model",
    "metric",
    "PartialDistributedOptimizer",
    "search",
    "TrialPruned",
]


def __dir__() -> list[str]:
    return sorted(__all__)
