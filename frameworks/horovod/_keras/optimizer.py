"""Distributed optimizers for Keras 3, on any backend."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

from horovod._keras.backend import Plan
from horovod._keras.gradients import GradientAccumulation
from horovod._keras.optimizer_variables import config_of
from horovod._keras.subclassing import carry_over, remade, subclass_of
from horovod.common.training.local_variables import LocalVariables
from horovod.common.util import level_of_the_program

_PACKAGES = ("keras", "tf_keras")
_FRAMES = 8  # how far up to look for a LossScaleOptimizer; decorators may be between its build and ours


class SchedulesByPass:
    """Placed before an optimizer's class. Several passes make one iteration, but schedules of the learning
    rate go on with every pass, as they do when Keras accumulates gradients.
    """

    _keras: Any
    _accumulation: GradientAccumulation | None = None

    def _get_current_learning_rate(self) -> Any:
        rate = self._learning_rate  # type: ignore[attr-defined]
        by_pass = isinstance(rate, self._keras.optimizers.schedules.LearningRateSchedule)
        if self._accumulation is None or not by_pass:
            return super()._get_current_learning_rate()  # type: ignore[misc]
        return rate(self._accumulation.passes_before(self._iterations))  # type: ignore[attr-defined]


class DistributedKerasOptimizer(SchedulesByPass):
    """Placed before the wrapped optimizer's class: gradients are reduced before anything else is done with
    them, such as checking that they are finite, clipping, accumulating or averaging of weights.
    """

    built: bool
    _plan: Plan
    _scales_by_itself = False  # not the user, but the dtype policy has asked for loss scaling

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings = self._plan.settings
        self._local = LocalVariables(self._var_key, self._plan.local_layers, self._scaled)  # type: ignore[attr-defined]
        self._loss_is_scaled = False
        self._agg_helper = None
        if (passes := settings.backward_passes_per_step) > 1:
            average = settings.average_aggregated_gradients
            self._agg_helper = GradientAccumulation(self._keras, passes, average, self._plan.backend.is_eager)
            getattr(self, "inner_optimizer", self)._accumulation = self._agg_helper

    def register_local_var(self, var: Any) -> None:
        """The gradient of ``var`` stays on this rank; it is divided by the number of ranks where
        ``scale_local_gradients`` says so.
        """
        self._local.register(var)

    def _local_variables(self) -> list[Any]:
        """What is this rank's own."""
        return list(self._local)

    def _scaled(self, gradient: Any) -> Any:
        """The gradient of a variable of this rank's own."""
        settings = self._plan.settings
        process_set = settings.process_set
        if not settings.scale_local_gradients or not process_set.included():
            return gradient
        return self._plan.backend.divided(gradient, process_set)

    def __reduce__(self) -> Any:
        base: Any = type(self).__bases__[1]
        warnings.warn(
            f"A DistributedOptimizer is copied and pickled as the {base.__name__} that it wraps, which "
            "reduces nothing: give the copy to hvd.DistributedOptimizer.",
            stacklevel=level_of_the_program(),
        )
        made: Any = super().__reduce__()
        if not isinstance(made, tuple) or not hasattr(base, "_unpickle_model"):
            return made  # of a Keras that does not save optimizers in this way
        return base._unpickle_model, *made[1:]

    def build(self, variables: Sequence[Any]) -> None:
        """As the wrapped optimizer's. ValueError below a LossScaleOptimizer."""
        self._refuse_loss_scaling_around()
        super().build(variables)  # type: ignore[misc]
        if self._agg_helper is not None:
            self._agg_helper.build(variables)

    def scale_loss(self, loss: Any) -> Any:
        """As the wrapped optimizer's."""
        self._loss_is_scaled = True
        return super().scale_loss(loss)  # type: ignore[misc]

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        """Reduces the gradients over all ranks, then does what the wrapped optimizer does."""
        gradients = list(grads)
        if trainable_variables is not None and not self.built:
            with self._keras.name_scope(self.name):  # type: ignore[attr-defined]
                self.build(list(trainable_variables))
            self.built = True
        given = self._trainable_variables if trainable_variables is None else trainable_variables  # type: ignore[attr-defined]
        variables = list(given)
        asked = variables
        gradients, variables = self._completed(gradients, asked)
        update = super().apply  # type: ignore[misc]
        if self._scales_by_itself and not self._loss_is_scaled:
            update = self.inner_optimizer.apply  # type: ignore[attr-defined]

        def reduce_and_update(local: Sequence[Any]) -> None:
            reduced = self._reduced(local, variables)
            if variables is asked:
                update(reduced, variables)
                return
            keys = set(map(self._var_key, asked))  # type: ignore[attr-defined]
            both = zip(reduced, variables, strict=True)
            pairs = [(g, v) for g, v in both if g is not None or self._var_key(v) in keys]  # type: ignore[attr-defined]
            update([g for g, _ in pairs], [v for _, v in pairs])

        if len(gradients) != len(variables) or not gradients:
            update(gradients, trainable_variables)  # nothing to do, or an error of the wrapped optimizer's
        elif self._agg_helper is None:
            reduce_and_update(gradients)
        else:
            positions = [self._get_variable_index(variable) for variable in variables]  # type: ignore[attr-defined]
            self._agg_helper.add(positions, gradients, reduce_and_update)

    def stateless_apply(
        self, optimizer_variables: Sequence[Any], grads: Sequence[Any], trainable_variables: Sequence[Any]
    ) -> Any:
        """As the wrapped optimizer's, which calls ``apply``, unless it is one that scales the loss."""
        inner = getattr(self, "inner_optimizer", None)
        if inner is None or not self.built:
            return super().stateless_apply(optimizer_variables, grads, trainable_variables)  # type: ignore[misc]
        reduced = self._reduced(list(grads), list(self._trainable_variables))  # type: ignore[attr-defined]
        if not self._scales_by_itself or self._loss_is_scaled:
            return super().stateless_apply(optimizer_variables, reduced, trainable_variables)  # type: ignore[misc]
        theirs = len(optimizer_variables) - len(inner.variables)  # those of the inner one come last
        trained, state = inner.stateless_apply(optimizer_variables[theirs:], reduced, trainable_variables)
        return trained, [*optimizer_variables[:theirs], *state]

    def _reduced(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """The gradients of the whole job, and those of variables of this rank's own."""
        plan = self._plan
        return self._local.reduce(
            lambda own, theirs: plan.backend.reduce_gradients(own, theirs, plan), gradients, variables
        )

    def _completed(self, gradients: list[Any], variables: list[Any]) -> tuple[list[Any], list[Any]]:
        """With None for variables that the program has left out, as some do with those that have no gradient
        on this rank: another rank may have one.
        """
        trained = list(self._trainable_variables)  # type: ignore[attr-defined]
        if not gradients or len(gradients) != len(variables) or len(variables) >= len(trained):
            return gradients, variables
        key = self._var_key  # type: ignore[attr-defined]
        given = {key(variable): gradient for gradient, variable in zip(gradients, variables, strict=True)}
        if not given.keys() < set(map(key, trained)):
            return gradients, variables
        return [given.get(key(variable)) for variable in trained], trained

    def _refuse_loss_scaling_around(self) -> None:
        """It would judge by this rank's gradients, so that the ranks would not all go on to reduce them.
        Keras tells an optimizer nothing of one around it, but that one calls its ``build``.
        """
        frame: Any = sys._getframe(1)
        for _ in range(_FRAMES):
            if frame is None:
                return
            outer = frame.f_locals.get("self")
            if outer is not self and getattr(outer, "inner_optimizer", None) is self:
                raise ValueError(
                    "A LossScaleOptimizer is around the DistributedOptimizer, but each rank would check its "
                    "own gradients then, and the ranks would not agree on whether to apply them. Write it "
                    "the other way round: "
                    "hvd.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(optimizer)). "
                    "compile() adds one around any other optimizer of a model of mixed_float16 unless it is "
                    "given auto_scale_loss=False."
                )
            frame = frame.f_back


def distribute(optimizer: Any, plan: Plan, keras: Any) -> Any:
    """A distributed copy of an optimizer of Keras 3; ``keras`` is its package.

    The copy has the class name, configuration and state of ``optimizer``. Under the dtype policy
    mixed_float16 it has loss scaling around it, as ``compile`` would add, but on reduced gradients; it has no
    effect in loops that do not call ``scale_loss``.
    """
    if isinstance(optimizer, DistributedKerasOptimizer):
        raise ValueError("The optimizer is a DistributedOptimizer already.")
    innermost = getattr(optimizer, "inner_optimizer", optimizer)
    if plan.settings.backward_passes_per_step > 1 and getattr(innermost, "gradient_accumulation_steps", None):
        raise ValueError(
            "backward_passes_per_step > 1 and the optimizer's gradient_accumulation_steps both accumulate "
            "gradients; use one of them."
        )
    if plan.backend.name == "tensorflow":
        _keep_from_compiling(keras)
    scaling = keras.optimizers.LossScaleOptimizer
    if isinstance(optimizer, scaling):
        return _distribute_scaling(optimizer, plan, keras, automatic=False)
    if keras.config.dtype_policy().name == "mixed_float16":
        return _distribute_scaling(
            scaling(optimizer, name="loss_scale_optimizer"), plan, keras, automatic=True
        )
    made = subclass_of(DistributedKerasOptimizer, optimizer, keras, _plan=plan, _keras=keras)
    copy = remade(optimizer, made)
    carry_over(optimizer, copy, keras)
    return copy


def _distribute_scaling(optimizer: Any, plan: Plan, keras: Any, automatic: bool) -> Any:
    inner = optimizer.inner_optimizer
    inner_class = type(inner)
    if plan.settings.backward_passes_per_step > 1:
        inner_class = subclass_of(SchedulesByPass, inner, keras, _keras=keras)
    made = subclass_of(
        DistributedKerasOptimizer,
        optimizer,
        keras,
        _plan=plan.with_scaled_loss(),
        _keras=keras,
        _scales_by_itself=automatic,
    )
    config = {key: value for key, value in config_of(optimizer).items() if key != "inner_optimizer"}
    copy = made(remade(inner, inner_class), **config)
    carry_over(optimizer, copy, keras)
    return copy


def package_of(kind: type) -> Any:
    """The Keras that a class belongs to: keras, which may be Keras 2, or tf_keras. None: to neither."""
    names = [base.__module__.partition(".")[0] for base in kind.__mro__]
    return next((sys.modules[name] for name in names if name in _PACKAGES), None)


def keras_of(optimizer: Any) -> Any:
    """The package of the optimizer. Raises ValueError when it is no optimizer of Keras."""
    keras = package_of(type(optimizer))
    if keras is None or not hasattr(optimizer, "apply_gradients"):
        raise ValueError(
            "DistributedOptimizer needs an optimizer of Keras such as keras.optimizers.Adam(), "
            f"found {optimizer!r}."
        )
    return keras


def check_is_of(keras: Any, optimizer: Any, framework: str) -> None:
    """Raises ValueError when the optimizer is none of ``keras``, which computes by ``framework``."""
    if keras_of(optimizer) is not keras:
        raise ValueError(
            f"This is an optimizer of tf_keras, which computes by TensorFlow, and keras by {framework}."
        )


def is_keras_3(keras: Any) -> bool:
    """Whether it is Keras 3 or later."""
    return int(keras.__version__.partition(".")[0]) >= 3


def _keep_from_compiling(keras: Any) -> None:
    """Makes ``jit_compile="auto"``, which Keras takes for True where there is a GPU, mean False for models
    with a distributed optimizer: XLA knows none of our operations. Keras asks the optimizer nothing about it.
    """
    resolve = getattr(keras.Model, "_resolve_auto_jit_compile", None)
    if resolve is None or hasattr(resolve, "keeps_from_compiling"):
        return

    def resolve_auto(model: Any) -> bool:
        distributed = isinstance(getattr(model, "optimizer", None), DistributedKerasOptimizer)
        return not distributed and resolve(model)

    resolve_auto.keeps_from_compiling = True  # type: ignore[attr-defined]
    keras.Model._resolve_auto_jit_compile = resolve_auto
