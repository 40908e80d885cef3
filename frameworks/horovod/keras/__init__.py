"""Data-parallel training for the package ``keras``, whether it computes by TensorFlow or by torch::

    import horovod.keras as hvd

    hvd.init()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3)), loss="mse")
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    model.fit(dataset, callbacks=callbacks)

See docs/keras.md.
"""

from __future__ import annotations

from typing import Any

from horovod.common.collective import exports as _exports
from horovod.common.collective.byte_objects import objects as _objects
from horovod.common.collective.compression import Compressor, NoneCompressor
from horovod.common.collective.exports import *
from horovod.common.training.gradient_options import GradientSettings, Groups
from horovod.keras import callbacks, elastic, metric
from horovod.keras.backend import adapter as _adapter
from horovod.keras.backend import backend as _backend
from horovod.search import TrialPruned, search

PartialDistributedOptimizer = _adapter.PartialDistributedOptimizer
load_model = _adapter.load_model
broadcast_global_variables = _adapter.broadcast_global_variables
broadcast_variables = _adapter.broadcast_variables
allgather = _adapter.allgather
broadcast = _adapter.broadcast
reducescatter = _adapter.reducescatter
broadcast_object = _objects.broadcast_object
allgather_object = _objects.allgather_object


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] | None = NoneCompressor,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    num_groups: int = 0,
    groups: Groups = None,
) -> Any:
    """Makes an optimizer of Keras one that reduces gradients over all ranks before it does anything else.

    Give the result to ``compile``. A model that is saved with it can be loaded without this library, by
    ``keras.models.load_model``, then with the plain optimizer; ``hvd.load_model`` makes it distributed again.
    All other arguments are those of ``PartialDistributedOptimizer``, which has more of them.

    Args:
        optimizer: Of Keras 3, also a LossScaleOptimizer.
        num_groups: The deprecated form of ``groups``.

    Returns:
        A new optimizer of the same class name, with the configuration and the state of ``optimizer``.

    Raises:
        ValueError: For what is no optimizer of Keras, and for options that exclude each other.
    """
    settings = GradientSettings.among(locals())
    return _adapter.distributed(optimizer, settings, name)


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool = True,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: type[Compressor] | None = NoneCompressor,
) -> Any:
    """Reduces a value over all ranks.

    Args:
        value: A number, a numpy array or a tensor.
        name: Of the operation, equal on all ranks.
        average: False is the deprecated form of ``op=hvd.Sum``.
        prescale_factor: Each element is multiplied by it before the reduction.
        postscale_factor: Each element is multiplied by it afterwards.
        op: The reduction; Average by default.
        compression: How the value travels.

    Returns:
        The reduction, as a tensor of the framework by which Keras computes.
    """
    given = None if average else False  # True is what everybody gives, knowingly or not
    return _adapter.allreduce(value, name, given, prescale_factor, postscale_factor, op, compression)


def join() -> int:
    """Says that this rank has no more data, and waits until every rank has said so. Until then it takes part
    in every operation with data that changes nothing.

    Returns:
        The last rank to do so.
    """
    return int(_adapter.join())


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until every rank of a process set has called it.

    Args:
        process_set: These ranks.
    """
    _adapter.barrier(process_set)


def __getattr__(name: str) -> Any:
    if name == "Compression":  # of the framework by which Keras computes
        return _backend.hvd.Compression
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
