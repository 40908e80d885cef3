"""Batch normalisation over the batch of all ranks, as a layer of Keras 3 or of the older Keras: of whichever
``tf.keras`` is. The class is made when it is first asked for, because importing Keras settles which one.

The *moments* of a batch are, per channel, its count, its mean and the sum of squared distances from the mean.
Those of all ranks are combined by the formula of Chan, Golub and LeVeque, "Algorithms for Computing the
Sample Variance", 1983, which loses no digits where the mean is great and the variance small.
"""

from __future__ import annotations

from typing import Any, ClassVar

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set, with_ranks
from horovod.common.reduce_ops import Sum
from horovod.common.training.agreement import at_construction
from horovod.tensorflow.graph import is_compiled_by_xla
from horovod.tensorflow.mpi_ops import _allreduce, allgather
from horovod.tensorflow.topology import rank_op


def __getattr__(name: str) -> Any:
    if name != "SyncBatchNormalization":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, _layer_class())


class _OverAllRanks:
    """What the layer adds to the BatchNormalization of either Keras."""

    _unfused: ClassVar[dict[str, bool]] = {}  # how a Keras that would choose the fused form is told not to

    def __init__(
        self, fused: bool | None = False, process_set: ProcessSet = global_process_set, **kwargs: Any
    ) -> None:
        if fused is not False:
            raise ValueError("SyncBatchNormalization has no fused form; leave fused=False")
        super().__init__(**kwargs, **self._unfused)
        self.process_set = process_set

    def get_config(self) -> dict[str, Any]:
        """The arguments that make this layer again; of the process set, the ranks."""
        config = super().get_config()  # type: ignore[misc]
        if self.process_set is not global_process_set:
            config["process_set"] = list(self.process_set.ranks or ())
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """A layer with these arguments, on the registered process set of the ranks that they say."""
        return cls(**{**config, "process_set": with_ranks(config.get("process_set"))})

    def _is_alone(self) -> bool:
        """Whether this rank has nobody to normalise with. In an elastic job others may come, and a function
        that was traced before they did is kept.
        """
        may_grow = self.process_set is global_process_set and not at_construction()
        return self.process_set.size() == 1 and (not may_grow or is_compiled_by_xla())

    def _moments_of_all(
        self, inputs: tf.Tensor, axes: list[int], keep_dims: bool, mask: tf.Tensor | None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance over ``axes`` of the inputs of all ranks, in the type of ``inputs``."""
        local = _local_moments(inputs, axes, mask)
        count, mean, squares = _combined(local, self.process_set)
        variance = tf.math.divide_no_nan(squares, count)
        if not keep_dims:
            mean, variance = tf.squeeze(mean, axes), tf.squeeze(variance, axes)
        return tf.cast(mean, inputs.dtype), tf.cast(variance, inputs.dtype)


def _local_moments(inputs: tf.Tensor, axes: list[int], mask: tf.Tensor | None) -> tf.Tensor:
    """Count, mean and squares of this rank's batch: float64, (3, *shape of the inputs with ``axes`` of 1).
    ``mask``, of all dimensions but the last, says which elements count; None: all.
    """
    values = inputs if inputs.dtype == tf.float64 else tf.cast(inputs, tf.float32)
    weights = tf.ones_like(values[..., :1]) if mask is None else tf.cast(mask, values.dtype)[..., tf.newaxis]
    weights = tf.broadcast_to(weights, tf.shape(values))
    count = tf.reduce_sum(weights, axes, keepdims=True)
    mean = tf.math.divide_no_nan(tf.reduce_sum(weights * values, axes, keepdims=True), count)
    squares = tf.reduce_sum(weights * tf.square(values - mean), axes, keepdims=True)
    return tf.cast(tf.stack([count, mean, squares]), tf.float64)


def _combined(moments: tf.Tensor, process_set: ProcessSet) -> list[tf.Tensor]:
    """Count, mean and squares of the batches of all ranks together; the same bits on every rank."""
    counts, means, squares = tf.unstack(_gathered(moments, process_set), num=3, axis=1)
    count = tf.reduce_sum(counts, 0)
    mean = tf.math.divide_no_nan(tf.reduce_sum(counts * means, 0), count)
    return [count, mean, tf.reduce_sum(squares + counts * tf.square(means - mean), 0)]


def _gathered(moments: tf.Tensor, process_set: ProcessSet) -> tf.Tensor:
    """The ranks' moments, along a new first dimension. What a batch does to the output of the other ranks
    counts in its gradient in full, as if all were one process; that of ``allgather`` is an average.
    """

    @tf.custom_gradient
    def gathered(mine: tf.Tensor) -> tuple[tf.Tensor, Any]:
        # With the rank: one that has joined contributes no row.
        marked = tf.concat([tf.fill(tf.shape(mine[:1]), tf.cast(rank_op(), mine.dtype)), mine], 0)
        rows = allgather(marked[tf.newaxis], process_set=process_set)

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            ranks = tf.reshape(rows, [tf.shape(rows)[0], -1])[:, 0]
            place = tf.argmax(tf.equal(ranks, tf.cast(rank_op(), ranks.dtype)))
            return _allreduce(upstream, op=Sum, process_set=process_set)[place]

        return rows[:, 1:], gradient

    return gathered(moments)


def _layer_class() -> type:
    """SyncBatchNormalization for the Keras that ``tf.keras`` is."""
    version = getattr(tf.keras, "__version__", None)
    base = tf.keras.layers.BatchNormalization
    make = _for_keras_3 if (version or "2").startswith("3.") else _for_keras_2
    layer = make(base)
    layer.__doc__ = _DOC
    layer.__qualname__ = layer.__name__
    return tf.keras.utils.register_keras_serializable(package="horovod")(layer)


def _for_keras_3(base: type) -> type:
    class SyncBatchNormalization(_OverAllRanks, base):
        def _moments(self, inputs: tf.Tensor, mask: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
            if self._is_alone():
                return super()._moments(inputs, mask)
            return self._moments_of_all(inputs, self._reduction_axes, False, mask)

    return SyncBatchNormalization


def _for_keras_2(base: type) -> type:
    class SyncBatchNormalization(_OverAllRanks, base):
        _unfused: ClassVar[dict[str, bool]] = {"fused": False}

        def _moments(
            self,
            inputs: tf.Tensor,
            reduction_axes: list[int],
            keep_dims: bool,
            mask: tf.Tensor | None = None,
        ) -> tuple[tf.Tensor, tf.Tensor]:
            if self._is_alone():
                return super()._moments(inputs, reduction_axes, keep_dims, mask=mask)
            return self._moments_of_all(inputs, reduction_axes, keep_dims, mask)

    return SyncBatchNormalization


_DOC = """As ``tf.keras.layers.BatchNormalization``, with mean and variance of the ranks' batches together.

    Takes the arguments of that layer, and input of its shapes; the batches of the ranks may differ in size,
    and be empty. All ranks of ``process_set`` must run the layer equally often in training. Output, gradient
    of the input and moving statistics are those of the combined batch, on every rank. The gradients of gamma
    and beta are those of this rank's rows; DistributedOptimizer and DistributedGradientTape average them like
    all others. In evaluation, and in a set of one rank, it is the plain layer. ``fused`` must be False.
    """
