"""Reducing the gradients of one step over all ranks: eagerly, in a ``tf.function`` or in a graph.

In a graph every gradient, or every group of them, is an operation of its own that waits for nothing else, so
that it travels while the rest of the backward pass is computed. Executing eagerly, and in what XLA compiles,
an operation ends before the next one begins, so all gradients that are not in other groups travel together.

A gradient is named by its position. In a graph that is the name of a node, to which TensorFlow adds where the
node is and whether it is the first of the name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common.collective.compression import resolve_plain_compression
from horovod.common.process_sets import ProcessSet
from horovod.common.training.agreement import Reduced, agree_on_gradients, at_construction, own_names
from horovod.common.training.gradient_options import (
    GradientSettings,
    cut_into_groups,
    group_name,
    takes_part,
)
from horovod.common.training.local_variables import LocalVariables
from horovod.common.training.present_gradients import PresentGradients
from horovod.tensorflow.graph import (
    as_node_name,
    as_written,
    identity,
    is_compiled_by_xla,
    one_step,
)
from horovod.tensorflow.reductions import allreduce, grouped_allreduce, size_of
from horovod.tensorflow.slots import absent, by_variable, place_of, slot_of, slots_of
from horovod.tensorflow.step_checks import checked

_REMEDY = "hvd.broadcast_variables(model.weights, root_rank=0)"

Reducer = Callable[[Sequence[Any], Sequence[Any]], list[Any]]


class GradientReducer:
    """A function of gradients and of the variables that they belong to, which returns the reduced gradients.

    On a rank that is not part of the process set, gradients stay what they are. Before the first step the
    ranks compare what they reduce and how: TensorMismatchError when they differ.

    Args:
        name: Begins the names of the operations; the position of a gradient tells it from others.
        settings: How the gradients are reduced. Passes are added up before, see ``gradient_aggregation``.
        loss_is_scaled: Gradients may be infinite, because loss scaling copes with that.
        remedy: What to add where the ranks start with different variables.
    """

    def __init__(
        self, name: str, settings: GradientSettings, loss_is_scaled: bool = False, remedy: str = _REMEDY
    ) -> None:
        self.name = as_node_name(name)
        self.settings = settings
        self._loss_is_scaled = loss_is_scaled
        self._remedy = remedy
        compression = resolve_plain_compression(settings.compression, "the gradients of TensorFlow")
        cut_into_groups([], settings.groups, identity)  # raises for what is no description of groups
        self._common: dict[str, Any] = {
            "op": settings.op,
            "process_set": settings.process_set,
            "device_dense": settings.device_dense,
            "device_sparse": settings.device_sparse,
        }
        self._dense: dict[str, Any] = {
            "compression": compression,
            "prescale_factor": settings.prescale,
            "postscale_factor": settings.postscale,
        }

    @as_written
    def __call__(
        self, gradients: Sequence[Any], variables: Sequence[Any], use_generic_names: bool = False
    ) -> list[Any]:
        """The reduced gradients, in the same order; None for what no rank has a gradient. In a graph that is
        decided when the ranks make it. ``use_generic_names``: without the variables' names.
        """
        results = [self._prepared(gradient) for gradient in gradients]
        if not takes_part(self.settings.process_set):
            return results
        labels = [""] * len(variables) if use_generic_names else list(map(as_node_name, own_names(variables)))
        reduced = tuple(map(_described, labels, variables))
        present = self._agree(reduced, variables)
        results = checked(
            results,
            variables,
            self.settings.process_set,
            self.name,
            reduced,
            finite=not self._loss_is_scaled,
            remedy=self._remedy,
        )
        names = [f"{self.name}.{index}.{label}".rstrip(".") for index, label in enumerate(labels)]
        own = {slot_of(i, gradient): gradient for i, gradient in enumerate(results) if gradient is not None}

        def reduce(slots: Iterable[int]) -> dict[int, Any]:
            """With zeros for those that this rank lacks."""
            sent = {i: own[i] if i in own else absent(i, variables[place_of(i)]) for i in sorted(slots)}
            return self._reduce(sent, names, variables)

        with one_step():
            if present is None or not variables:
                done = reduce(own)
            elif tf.executing_eagerly():  # the ranks tell each other meanwhile what they have
                done = present.reduce(own, slots_of(len(variables)), reduce)
            else:
                done = reduce(present.agreed(own))
        return by_variable(done, len(variables))

    def _agree(self, reduced: tuple[Reduced, ...], variables: Sequence[Any]) -> PresentGradients | None:
        """In a graph, while it is made. In an elastic job a rank that stays does not make its graphs anew:
        None.
        """
        if not at_construction() and not tf.executing_eagerly():
            return None
        return agree_on_gradients(self.name, self.settings, reduced, variables, identity)

    def _reduce(self, sent: dict[int, Any], names: Sequence[str], variables: Sequence[Any]) -> dict[int, Any]:
        """The reduced gradients of the slots ``sent``."""
        done = {}
        dense = []
        for slot, gradient in sent.items():
            if isinstance(gradient, tf.IndexedSlices):
                done[slot] = allreduce(gradient, name=names[place_of(slot)], **self._common)
            else:
                dense.append(slot)
        together, alone = self._grouped(dense, variables)
        for slot in alone:
            done[slot] = allreduce(sent[slot], name=names[place_of(slot)], **self._common, **self._dense)
        for group in together:
            members = [sent[slot] for slot in group]
            name = group_name([names[place_of(slot)] for slot in group])
            reduced = grouped_allreduce(members, name=name, **self._common, **self._dense)
            done.update(zip(group, reduced, strict=True))
        return done

    def _prepared(self, gradient: Any) -> Any:
        if gradient is None or (isinstance(gradient, tf.IndexedSlices) and not self.settings.sparse_as_dense):
            return gradient
        return tf.convert_to_tensor(gradient)

    def _grouped(self, dense: list[int], variables: Sequence[Any]) -> tuple[list[list[int]], list[int]]:
        together, alone = cut_into_groups(
            dense, self.settings.groups, identity, lambda slot: identity(variables[place_of(slot)])
        )
        if (tf.executing_eagerly() or is_compiled_by_xla()) and len(alone) > 1:
            return [*together, alone], []
        return together, alone


def _described(label: str, variable: Any) -> Reduced:
    return Reduced(label, _dtype(variable), _shape(variable))


def _dtype(variable: Any) -> str:
    dtype = getattr(variable, "dtype", "")
    return dtype if isinstance(dtype, str) else dtype.name


def _shape(variable: Any) -> tuple[int | None, ...] | None:
    shape = variable.shape
    if isinstance(shape, tuple):
        return shape
    return None if shape.rank is None else tuple(shape.as_list())


class LocalSources(LocalVariables):
    """The variables that are a rank's own: their gradients are not reduced, but divided by the size of the
    process set when ``scale_local_gradients``. ``layers``: whose weights are among them.
    """

    def __init__(
        self, process_set: ProcessSet, scale_local_gradients: bool, layers: Sequence[Any] = ()
    ) -> None:
        super().__init__(identity, layers, self._divided)
        self._process_set = process_set
        self._scale = scale_local_gradients

    def _divided(self, gradient: Any) -> Any:
        if not self._scale or not takes_part(self._process_set):
            return gradient
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(self._divided(gradient.values), gradient.indices, gradient.dense_shape)
        return gradient / size_of(self._process_set, gradient.dtype)
