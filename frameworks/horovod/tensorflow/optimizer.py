"""Optimizers that reduce gradients over all ranks: those of ``tf.compat.v1``, and the way to those of
Keras.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common.collective.compression import Compressor
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Average
from horovod.common.training.gradient_options import GradientSettings, Groups
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.gradient_aggregation import GradientAggregation, make_aggregation
from horovod.tensorflow.gradient_reduction import GradientReducer

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
    """Makes an optimizer one that reduces gradients over all ranks before each step. All other arguments are
    those of ``DistributedGradientTape``.

    Args:
        optimizer: One of ``tf.compat.v1.train``, or of Keras, which ``horovod.tensorflow.keras`` wraps.
        name: Of the optimizer, and the beginning of the names of its operations; by default Distributed
            before that of its class.
        use_locking: As for optimizers of ``tf.compat.v1.train``.
        backward_passes_per_step: How many gradients are added up locally before they travel.
        op: The reduction; Adasum combines the gradients.
        average_aggregated_gradients: Divides the sums by ``backward_passes_per_step``; not with Adasum.

    Returns:
        A wrapper of ``optimizer``, or for Keras a new optimizer of its class name.

    Raises:
        ValueError: For what is no optimizer, and for options that exclude each other.
    """
    settings = GradientSettings.among(locals())
    if isinstance(optimizer, _DistributedOptimizer):
        raise ValueError("The optimizer is a DistributedOptimizer already.")
    if isinstance(optimizer, _V1Optimizer):
        name = name or f"Distributed{type(optimizer).__name__}"
        reducer = GradientReducer(name, settings)
        aggregation = make_aggregation(reducer, settings, reducer.name, not tf.executing_eagerly())
        return _DistributedOptimizer(optimizer, name, use_locking, aggregation)
    if not _is_keras(optimizer):
        raise ValueError(
            "Provided optimizer doesn't inherit from either legacy TensorFlow or Keras optimizer: "
            f"{type(optimizer).__name__}"
        )
    from horovod.tensorflow.keras import backend  # late: an optimizer of tf.compat.v1 needs no Keras

    return backend.adapter.distributed(optimizer, settings, name)


def _is_keras(optimizer: Any) -> bool:
    modules: Sequence[str] = [base.__module__ for base in type(optimizer).__mro__]
    return any(
        module.partition(".")[0] in {"keras", "tf_keras"} or module.startswith("tensorflow.python.keras")
        for module in modules
    )
