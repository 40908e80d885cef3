"""Optimizers that reduce gradients over all ranks: those of ``tf.compat.v1``, and the way to those of
Keras.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common.basics import rank
from horovod.common.compression import Compressor
from horovod.common.gradient_options import Groups, check_passes, resolve_groups
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Adasum, Average
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.gradient_aggregation import GradientAggregation, LocalGradientAggregationHelper
from horovod.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager
from horovod.tensorflow.gradient_reduction import GradientReducer, make_reducer

_V1Optimizer: Any = tf.compat.v1.train.Optimizer


class _DistributedOptimizer(_V1Optimizer):
    """Reduces what the wrapped optimizer's ``compute_gradients`` returns; slots and steps are the wrapped
    one's.
    """

    def __init__(
        self, optimizer: Any, name: str, use_locking: bool, aggregation: GradientAggregation
    ) -> None:
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer
        self._aggregation = aggregation
        # None where each pass makes a step, as with Keras optimizers.
        self._agg_helper = aggregation if aggregation.backward_passes_per_step > 1 else None

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """The reduced gradients, each with its variable. Arguments are those of the wrapped optimizer's,
        which may need no loss.
        """
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        if not pairs:
            return pairs
        gradients, variables = zip(*pairs, strict=True)
        reduced = self._aggregation.compute_gradients(list(gradients), list(variables))
        return list(zip(reduced, variables, strict=True))

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """The wrapped optimizer's step; with ``backward_passes_per_step``, only after the last pass."""
        pairs = list(grads_and_vars)
        return self._aggregation.apply_gradients(
            lambda: self._optimizer.apply_gradients(pairs, global_step, name), self._optimizer, pairs
        )

    def register_local_var(self, var: Any) -> None:
        """Keeps the gradients of the variable ``var`` on their rank."""
        self._aggregation.register_local_var(var)

    def get_slot(self, var: Any, name: str) -> Any:
        """The wrapped optimizer's slot."""
        return self._optimizer.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """The wrapped optimizer's slot names."""
        return self._optimizer.get_slot_names()

    def variables(self) -> list[Any]:
        """The wrapped optimizer's variables."""
        return self._optimizer.variables()


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] | None = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Wraps ``optimizer`` so that gradients are reduced over all ranks before each step.

    ``optimizer``: one of ``tf.compat.v1.train``, or of Keras, which ``horovod.tensorflow.keras`` wraps;
    ValueError for anything else. ``name``: of the optimizer, and the beginning of the names of its
    operations; by default Distributed before that of its class. ``use_locking``: as for
    ``tf.compat.v1.train`` optimizers. ``backward_passes_per_step``: how many gradients are added up locally
    before they travel; ``average_aggregated_gradients`` divides them by that number. Other arguments as for
    ``DistributedGradientTape``. ``op=hvd.Adasum`` combines the gradients; ValueError along with
    ``average_aggregated_gradients``.
    """
    groups = resolve_groups(groups, num_groups)
    check_passes(backward_passes_per_step)
    if op == Adasum and average_aggregated_gradients:
        raise ValueError("Adasum does not support average_aggregated_gradients == True")
    if isinstance(optimizer, _DistributedOptimizer):
        raise ValueError("The optimizer is a DistributedOptimizer already.")
    if isinstance(optimizer, _V1Optimizer):
        name = name or f"Distributed{type(optimizer).__name__}"
        reducer = make_reducer(
            name,
            device_dense,
            device_sparse,
            compression,
            sparse_as_dense,
            op,
            gradient_predivide_factor,
            groups,
            process_set,
            {
                "backward_passes_per_step": backward_passes_per_step,
                "average_aggregated_gradients": average_aggregated_gradients,
            },
        )
        aggregation = _aggregation(
            reducer, backward_passes_per_step, average_aggregated_gradients, scale_local_gradients
        )
        return _DistributedOptimizer(optimizer, name, use_locking, aggregation)
    if not _is_keras(optimizer):
        raise ValueError(
            "Provided optimizer doesn't inherit from either legacy TensorFlow or Keras optimizer: "
            f"{type(optimizer).__name__}"
        )
    from horovod.tensorflow import keras  # late: who has an optimizer of tf.compat.v1 needs no Keras

    return keras.DistributedOptimizer(
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
        scale_local_gradients=scale_local_gradients,
    )


def _aggregation(
    reducer: GradientReducer, passes: int, average: bool, scale_local_gradients: bool
) -> GradientAggregation:
    if tf.executing_eagerly():
        return LocalGradientAggregationHelperEager(
            passes, reducer, reducer.sparse_as_dense, average, reducer.process_set, scale_local_gradients
        )
    return LocalGradientAggregationHelper(
        passes,
        reducer,
        reducer.sparse_as_dense,
        average,
        rank(),
        LocalGradientAggregationHelper._OPTIMIZER_TYPE_LEGACY,
        reducer.process_set,
        scale_local_gradients,
        reducer.name,
    )


def _is_keras(optimizer: Any) -> bool:
    modules: Sequence[str] = [base.__module__ for base in type(optimizer).__mro__]
    return any(
        module.partition(".")[0] in {"keras", "tf_keras"} or module.startswith("tensorflow.python.keras")
        for module in modules
    )
