"""Distributed optimizers for Keras 2: those of ``tf_keras.optimizers`` and of ``tf_keras.optimizers.legacy``.

Keras computes gradients, aggregates them and applies them in three calls, which a program may also make
itself. Gradients are reduced once on that way: where they are computed by the optimizer, otherwise where they
are aggregated. Loss scaling checks after that whether they are finite, so it may be inside or outside.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from horovod._keras.backend import Plan
from horovod._keras.optimizer_variables import config_of
from horovod._keras.subclassing import save_as
from horovod.common.exceptions import TensorMismatchError
from horovod.common.training.agreement import Reduced, agree_on_gradients, at_construction
from horovod.common.training.gradient_options import takes_part
from horovod.tensorflow.gradient_aggregation import GradientAggregation, make_aggregation
from horovod.tensorflow.graph import identity

Pairs = list[tuple[Any, Any]]

_SCALING_AROUND = (
    "A LossScaleOptimizer around the DistributedOptimizer leaves out the variables that have no gradient on "
    "its rank. Write it the other way round: hvd.DistributedOptimizer(LossScaleOptimizer(optimizer))."
)


class DistributedKeras2Optimizer:
    """Placed before the wrapped optimizer's class. What both generations have in common."""

    _HAS_AGGREGATE_GRAD = True  # Keras leaves aggregating to the optimizer
    _plan: Plan

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Its variables are none of the optimizer's, and no part of a checkpoint.
        self._hvd = _Reduction(self._plan)

    @property
    def _agg_helper(self) -> GradientAggregation | None:
        passes = self._plan.settings.backward_passes_per_step
        return self._hvd.aggregation if passes > 1 else None

    def register_local_var(self, var: Any) -> None:
        """The gradient of ``var`` stays on this rank; it is divided by the number of ranks where
        ``scale_local_gradients`` says so.
        """
        self._hvd.aggregation.register_local_var(var)

    def _local_variables(self) -> list[Any]:
        """What is this rank's own."""
        return self._hvd.aggregation.local_variables()

    def _apply(self, pairs: Pairs, apply: Callable[[], Any]) -> Any:
        """``apply`` after the last of the passes that make a step, with the variables made before."""
        if self._agg_helper is None or not pairs:
            return apply()
        return self._agg_helper.apply_gradients(apply, self, [gradient for gradient, _ in pairs])


class DistributedOptimizerV3(DistributedKeras2Optimizer):
    """For ``tf_keras.optimizers.Optimizer``."""

    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> Pairs:
        """The reduced gradients, each with its variable."""
        return self._hvd.computed(super().compute_gradients(loss, var_list, tape))  # type: ignore[misc]

    def build(self, var_list: Any) -> None:
        """Loss scaling around this optimizer tells it of all variables here, before it drops any; so may the
        program.
        """
        if not getattr(self, "_built", False):
            self._hvd.know(var_list)
        super().build(var_list)  # type: ignore[misc]

    def aggregate_gradients(self, grads_and_vars: Any) -> Pairs:
        """Reduces gradients, unless ``compute_gradients`` has."""
        return self._hvd.aggregated(grads_and_vars)

    def apply_gradients(
        self,
        grads_and_vars: Any,
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Reduces the gradients, unless told to skip that, and applies them."""
        pairs = list(grads_and_vars)
        if kwargs.pop("experimental_aggregate_gradients", True) and not skip_gradients_aggregation:
            pairs = self._hvd.aggregated(pairs)
        if self._agg_helper is not None:
            with tf.init_scope():
                self.build([variable for _, variable in pairs])
        apply = functools.partial(super().apply_gradients, pairs, name, skip_gradients_aggregation=True)  # type: ignore[misc]
        return self._apply(pairs, functools.partial(apply, **kwargs))


class DistributedOptimizerV2(DistributedKeras2Optimizer):
    """For ``tf_keras.optimizers.legacy.Optimizer``."""

    def _compute_gradients(self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None) -> Pairs:
        pairs = super()._compute_gradients(loss, var_list, grad_loss, tape)  # type: ignore[misc]
        return self._hvd.computed(pairs)

    def get_gradients(self, loss: Any, params: Any) -> list[Any]:
        """The reduced gradients of ``loss`` by ``params``."""
        gradients = super().get_gradients(loss, params)  # type: ignore[misc]
        pairs = self._hvd.computed(list(zip(gradients, tf.nest.flatten(params), strict=True)))
        return [gradient for gradient, _ in pairs]

    def _aggregate_gradients(self, grads_and_vars: Any) -> Pairs:
        """For loss scaling around this optimizer, which has dropped what has no gradient on this rank."""
        pairs = list(grads_and_vars)
        try:
            self._hvd.know_alike([variable for _, variable in pairs])
            return self._hvd.aggregated(pairs)
        except TensorMismatchError as error:
            raise TensorMismatchError(f"{error} {_SCALING_AROUND}") from error

    def apply_gradients(
        self, grads_and_vars: Any, name: str | None = None, experimental_aggregate_gradients: bool = True
    ) -> Any:
        """Reduces the gradients, unless told not to, and applies them."""
        pairs = list(grads_and_vars)
        apply = super().apply_gradients  # type: ignore[misc]
        if experimental_aggregate_gradients:  # now, since Keras first drops what has no gradient here
            pairs = self._hvd.aggregated(pairs)
        if self._agg_helper is not None:
            with tf.init_scope():
                self._create_all_weights([variable for gradient, variable in pairs if gradient is not None])  # type: ignore[attr-defined]
        return self._apply(pairs, lambda: apply(pairs, name, experimental_aggregate_gradients=False))


class _LossScalingV3:
    """Placed before ``tf_keras.mixed_precision.LossScaleOptimizer``, which drops what has no gradient on this
    rank before it has the others aggregated.
    """

    def apply_gradients(
        self, grads_and_vars: Any, skip_gradients_aggregation: bool = False, **kwargs: Any
    ) -> Any:
        """As the class's, after the gradients are reduced."""
        pairs = list(grads_and_vars)
        if kwargs.pop("experimental_aggregate_gradients", True) and not skip_gradients_aggregation:
            pairs = self.inner_optimizer._hvd.aggregated(pairs)  # type: ignore[attr-defined]
        return super().apply_gradients(pairs, skip_gradients_aggregation=True, **kwargs)  # type: ignore[misc]


class _LossScalingV2:
    """The same for the one around ``tf_keras.optimizers.legacy.Optimizer``."""

    def apply_gradients(
        self, grads_and_vars: Any, name: str | None = None, experimental_aggregate_gradients: bool = True
    ) -> Any:
        """As the class's, after the gradients are reduced."""
        pairs = list(grads_and_vars)
        if experimental_aggregate_gradients:
            pairs = self.inner_optimizer._hvd.aggregated(pairs)  # type: ignore[attr-defined]
        return super().apply_gradients(pairs, name, experimental_aggregate_gradients=False)  # type: ignore[misc]


class _Reduction:
    """Reduces the gradients of one optimizer, and each of them once."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._done: tuple[Any, list[int]] | None = None
        self._known: dict[int, Any] = {}
        reduce = functools.partial(plan.backend.reduce_gradients, plan=plan)
        in_session = not tf.compat.v1.executing_eagerly_outside_functions()
        self.aggregation = make_aggregation(reduce, plan.settings, plan.name, in_session)
        self.aggregation.keep_local(plan.local_layers)

    def computed(self, pairs: Pairs) -> Pairs:
        """Reduces what the optimizer has computed, and notes that."""
        reduced = self._reduce(pairs)
        self._done = self._what(reduced)
        return reduced

    def know(self, variables: Iterable[Any]) -> None:
        """These are trained, whether they have a gradient on this rank or not; in one order on all ranks."""
        self._known.update((identity(variable), variable) for variable in variables)

    def know_alike(self, variables: Sequence[Any]) -> None:
        """The same where others may have been left out: the ranks compare the names, so that none takes
        another variable of equal shape for one of these.
        """
        new = [variable for variable in variables if identity(variable) not in self._known]
        settings = self._plan.settings
        if new and at_construction() and takes_part(settings.process_set):
            described = tuple(Reduced(v.name, v.dtype.name, tuple(v.shape)) for v in new)
            name = f"{self._plan.name} within a LossScaleOptimizer"
            agree_on_gradients(name, settings, described, new, identity)
        self.know(new)

    def aggregated(self, grads_and_vars: Any) -> Pairs:
        """Reduces what has not been reduced where it was computed. What is known and left out may have a
        gradient on another rank.
        """
        pairs = list(grads_and_vars)
        done, self._done = self._done, None
        if done == self._what(pairs):
            return pairs
        own = {identity(variable): gradient for gradient, variable in pairs}
        if not own.keys() < self._known.keys():
            return self._reduce(pairs)
        reduced = self._reduce([(own.get(key), variable) for key, variable in self._known.items()])
        return [(g, variable) for g, variable in reduced if g is not None or identity(variable) in own]

    def _what(self, pairs: Pairs) -> tuple[Any, list[int]]:
        # By variables: loss scaling has made other tensors of the gradients in between.
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        return graph, [identity(variable) for gradient, variable in pairs if gradient is not None]

    def _reduce(self, pairs: Pairs) -> Pairs:
        if not pairs:
            return pairs
        gradients, variables = zip(*pairs, strict=True)
        reduced: Sequence[Any] = self.aggregation.compute_gradients(list(gradients), list(variables))
        return list(zip(reduced, variables, strict=True))


def distribute(optimizer: Any, plan: Plan, keras: Any) -> Any:
    """A distributed copy of an optimizer of Keras 2, of its class name, configuration and state; ``keras`` is
    its package.
    """
    if isinstance(getattr(optimizer, "inner_optimizer", optimizer), DistributedKeras2Optimizer):
        raise ValueError("The optimizer is a DistributedOptimizer already.")
    if isinstance(optimizer, keras.mixed_precision.LossScaleOptimizer):
        return _distribute_scaling(optimizer, plan, keras)
    newer = hasattr(optimizer, "aggregate_gradients")
    part = DistributedOptimizerV3 if newer else DistributedOptimizerV2
    made = _subclass(part, type(optimizer), keras, _plan=plan)
    copy = made.from_config(config_of(optimizer))
    return _sharing(optimizer, copy, "_hvd") if _has_state(optimizer) else copy


def _distribute_scaling(optimizer: Any, plan: Plan, keras: Any) -> Any:
    inner = distribute(optimizer.inner_optimizer, plan.with_scaled_loss(), keras)
    config = config_of(optimizer)
    names = ("dynamic", "initial_scale", "dynamic_growth_steps")
    if not _has_state(inner):
        optimizer = keras.mixed_precision.LossScaleOptimizer(inner, **{name: config[name] for name in names})
    part = _LossScalingV3 if hasattr(inner, "aggregate_gradients") else _LossScalingV2
    copy = object.__new__(_subclass(part, type(optimizer), keras))
    copy.__dict__.update(optimizer.__dict__, _optimizer=inner, _trackable=inner)
    return copy


def _subclass(part: type, base: type, keras: Any, **namespace: Any) -> Any:
    """A class with the name of ``base``, whose methods come from ``part`` first; it is saved as ``base``."""
    metaclass: Any = type(base)
    own = {"__module__": base.__module__, "__doc__": base.__doc__}
    made = metaclass(base.__name__, (part, base), {**own, **namespace})
    save_as(base, made, keras)
    return made


def _has_state(optimizer: Any) -> bool:
    """Whether it has been built: later optimizers say so, earlier ones have weights then."""
    return bool(getattr(optimizer, "_built", False) or getattr(optimizer, "_weights", None))


def _sharing(optimizer: Any, copy: Any, own: str) -> Any:
    """``copy`` with the variables of ``optimizer``, which cannot be made anew: Keras 2 does not say which
    variables of the model they belong to. ``own``: the attribute that is not shared.
    """
    kept = copy.__dict__[own]
    copy.__dict__.update(optimizer.__dict__)
    copy.__dict__[own] = kept
    return copy
