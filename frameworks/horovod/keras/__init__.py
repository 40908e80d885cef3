"""Data-parallel training for the package ``keras``, whether it computes by TensorFlow or by torch::

    import horovod.keras as hvd

    hvd.init()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3)), loss="mse")
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    model.fit(dataset, callbacks=callbacks)

See docs/keras.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import keras as _keras

from horovod._keras.loading import load_model as _load_model
from horovod._keras.plan import make_plan
from horovod.common import exports as _exports
from horovod.common.byte_objects import objects as _objects
from horovod.common.compression import Compressor, NoneCompressor
from horovod.common.exports import *
from horovod.common.gradient_options import Groups
from horovod.keras import callbacks, metric
from horovod.keras.backend import adapter as _adapter
from horovod.keras.backend import backend as _backend
from horovod.keras.values import (
    allgather,
    allreduce,
    barrier,
    broadcast,
    broadcast_global_variables,
    broadcast_variables,
    join,
    reducescatter,
)


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

    Returns a new optimizer of the same class name, with the configuration and the state of ``optimizer``;
    give it to ``compile``. A model that is saved with it can be loaded without this library, by
    ``keras.models.load_model``, then with the plain optimizer; ``hvd.load_model`` makes it distributed again.

    ``optimizer``: also a LossScaleOptimizer; ValueError for what is no optimizer of Keras. ``name`` begins
    the names of the operations. ``device_dense``, ``device_sparse``: where TensorFlow places the operations.
    ``compression``: how gradients travel. ``sparse_as_dense``: makes sparse gradients dense first.
    ``gradient_predivide_factor`` f: gradients are divided by f before they are added up and by size / f
    afterwards; only with ``op=hvd.Average``. ``groups``: a number of groups, or lists of variables, whose
    gradients travel as one operation each (``num_groups`` is its deprecated form). For more options see
    ``PartialDistributedOptimizer``.
    """
    plan = make_plan(
        _backend,
        optimizer,
        name=name,
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        num_groups=num_groups,
        groups=groups,
    )
    return _adapter().distribute(optimizer, plan)


def PartialDistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] | None = NoneCompressor,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """As ``DistributedOptimizer``, but the gradients of ``local_layers``, one layer or several, stay on their
    rank. ValueError for what is no layer.

    ``scale_local_gradients`` divides them by the number of ranks, and so those of variables that were given
    to the optimizer's ``register_local_var``. ``backward_passes_per_step``: how many gradients are added up
    locally before they travel and are applied; ``average_aggregated_gradients`` divides them by that number.
    ``process_set``: the ranks that train together; on every other rank the optimizer does what ``optimizer``
    would.
    """
    plan = make_plan(
        _backend,
        optimizer,
        name=name,
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        groups=groups,
        process_set=process_set,
        local_layers=local_layers,
        scale_local_gradients=scale_local_gradients,
    )
    return _adapter().distribute(optimizer, plan)


def load_model(
    filepath: Any,
    custom_optimizers: Iterable[type] | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    compression: type[Compressor] | None = NoneCompressor,
    legacy_opts: bool = False,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
) -> Any:
    """Loads a model that ``model.save`` has saved, with its optimizer as a DistributedOptimizer that goes on
    where the saved one stopped.

    ``custom_optimizers``: classes of optimizers that Keras does not know. ``custom_objects``: whatever else
    it does not know, by name. ``compression``: how gradients travel. ``legacy_opts``: the optimizer is one of
    ``keras.optimizers.legacy``; ValueError for Keras 3, which has none.
    ``backward_passes_per_step``, ``average_aggregated_gradients``: as for the optimizer that was saved. The
    file does not say them, so that it can be loaded without this library.
    """

    def wrap(optimizer: Any) -> Any:
        return PartialDistributedOptimizer(
            optimizer,
            compression=compression,
            backward_passes_per_step=backward_passes_per_step,
            average_aggregated_gradients=average_aggregated_gradients,
        )

    return _load_model(_keras, wrap, filepath, custom_optimizers, custom_objects, legacy_opts)


broadcast_object = _objects.broadcast_object
allgather_object = _objects.allgather_object


def __getattr__(name: str) -> Any:
    if name == "Compression":  # of the framework by which Keras computes
        return _adapter().Compression
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    *_exports.__all__,
    "allgather",
    "allgather_object",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "Compression",
    "DistributedOptimizer",
    "join",
    "load_model",
    "metric",
    "PartialDistributedOptimizer",
    "reducescatter",
]


def __dir__() -> list[str]:
    return sorted(__all__)
