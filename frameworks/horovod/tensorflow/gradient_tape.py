"""Gradient tapes whose ``gradient`` returns the gradients of the whole job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common.collective.compression import Compressor
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Average
from horovod.common.training.gradient_options import GradientSettings, Groups
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.gradient_reduction import GradientReducer, LocalSources
from horovod.tensorflow.graph import as_written

_NAME = "DistributedGradientTape"


class _DistributedTape:
    """Put before the class of a tape. Shares all state with the tape itself, so it does not matter which of
    the two recorded, or records more.
    """

    __slots__ = ("_hvd_local", "_hvd_reducer", "_hvd_tape")
    _hvd_local: LocalSources
    _hvd_reducer: GradientReducer
    _hvd_tape: tf.GradientTape

    @as_written
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        unconnected_gradients: tf.UnconnectedGradients = tf.UnconnectedGradients.NONE,
    ) -> Any:
        """Differentiates, and reduces the gradients over all ranks. Those of local sources are not reduced.

        Args:
            target, sources, output_gradients, unconnected_gradients: As for ``tf.GradientTape.gradient``.
            use_generic_names: Operations are named by the positions of the sources alone.

        Returns:
            The gradients, in the structure of ``sources``.
        """
        flat = self._reduced(target, sources, output_gradients, use_generic_names, unconnected_gradients)
        return tf.nest.pack_sequence_as(sources, flat)

    @as_written
    def get_local_and_global_gradients(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        unconnected_gradients: tf.UnconnectedGradients = tf.UnconnectedGradients.NONE,
    ) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
        """As ``gradient``, with the local sources apart.

        Args:
            target, sources, output_gradients, use_generic_names, unconnected_gradients: As for ``gradient``.

        Returns:
            Two flat lists of pairs (variable, gradient): of the local sources, and of all others, each in the
            order of ``sources``.
        """
        flat = self._reduced(target, sources, output_gradients, use_generic_names, unconnected_gradients)
        pairs = list(zip(tf.nest.flatten(sources), flat, strict=True))
        local = [pair for pair in pairs if pair[0] in self._hvd_local]
        return local, [pair for pair in pairs if pair[0] not in self._hvd_local]

    def register_local_source(self, source: Any) -> None:
        """Keeps the gradients of a variable on their rank.

        Args:
            source: The variable.
        """
        self._hvd_local.register(source)

    # They differentiate row by row through `gradient`, which must not reduce each row.
    def jacobian(self, *args: Any, **kwargs: Any) -> Any:
        """As that of ``tf.GradientTape``: of this rank alone."""
        return self._hvd_tape.jacobian(*args, **kwargs)

    def batch_jacobian(self, *args: Any, **kwargs: Any) -> Any:
        """As that of ``tf.GradientTape``: of this rank alone."""
        return self._hvd_tape.batch_jacobian(*args, **kwargs)

    def _reduced(
        self, target: Any, sources: Any, output_gradients: Any, generic: bool, unconnected: Any
    ) -> list[Any]:
        own = self._hvd_tape.gradient(target, sources, output_gradients, unconnected_gradients=unconnected)
        flat_sources = tf.nest.flatten(sources)
        flat = tf.nest.flatten(own)

        def reduce(gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
            return self._hvd_reducer(gradients, variables, generic)

        return self._hvd_local.reduce(reduce, flat, flat_sources)


def _wrap(gradtape: tf.GradientTape, settings: GradientSettings, layers: Iterable[Any]) -> tf.GradientTape:
    if not isinstance(gradtape, tf.GradientTape):
        raise ValueError(f"gradtape must be a tf.GradientTape, not {type(gradtape).__name__}")
    if isinstance(gradtape, _DistributedTape):
        raise ValueError("The tape is a DistributedGradientTape already.")
    base = type(gradtape)
    tape: Any = object.__new__(type(base.__name__, (_DistributedTape, base), {"__slots__": ()}))
    tape.__dict__ = gradtape.__dict__
    tape._hvd_tape = gradtape
    tape._hvd_reducer = GradientReducer(_NAME, settings)
    tape._hvd_local = LocalSources(settings.process_set, settings.scale_local_gradients, list(layers))
    return tape


@as_written
def DistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] | None = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> tf.GradientTape:
    """Wraps a tape so that its ``gradient`` reduces the gradients over all ranks. Jacobians stay local.

    Args:
        gradtape: The tape; the result goes on with what it has recorded.
        device_dense: Where the operations for dense gradients are placed.
        device_sparse: Where those for sparse gradients are placed.
        compression: How dense gradients travel.
        sparse_as_dense: Makes ``tf.IndexedSlices`` dense first; otherwise the slices of all ranks are
            gathered.
        op: Average, Sum, Adasum, Min, Max or Product.
        gradient_predivide_factor: With Average, gradients are divided by it before they are added up, and by
            size / factor afterwards.
        num_groups: The deprecated form of ``groups``.
        groups: A number of groups, or lists of variables, whose dense gradients travel as one operation each.
        process_set: The ranks that train together; other ranks keep their own gradients.
        scale_local_gradients: Divides the gradients of local sources by the number of ranks.

    Returns:
        A ``tf.GradientTape`` with the methods ``register_local_source`` and
        ``get_local_and_global_gradients``.

    Raises:
        ValueError: For what is no tape, and for options that exclude each other.
    """
    settings = GradientSettings.among(locals())
    return _wrap(gradtape, settings, [])


@as_written
def PartialDistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] | None = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> tf.GradientTape:
    """As ``DistributedGradientTape``, except that the gradients of some layers stay on their rank. All other
    arguments are those of ``DistributedGradientTape``.

    Args:
        gradtape: The tape; the result goes on with what it has recorded.
        local_layers: A Keras layer or several, whose gradients are not reduced.
        scale_local_gradients: Divides these gradients by the number of ranks.

    Returns:
        As ``DistributedGradientTape``.

    Raises:
        ValueError: As ``DistributedGradientTape``, and for what has no ``trainable_weights``.
    """
    settings = GradientSettings.among(locals())
    return _wrap(gradtape, settings, _checked_layers(local_layers))


def _checked_layers(local_layers: Any) -> list[Any]:
    """The layers as a list. ValueError for what is none."""
    if local_layers is None:
        return []
    layers = list(local_layers) if isinstance(local_layers, (list, tuple, set)) else [local_layers]
    for layer in layers:
        if not hasattr(layer, "trainable_weights"):
            raise ValueError(f"local_layers must be Keras layers, found {type(layer).__name__}")
    return layers
