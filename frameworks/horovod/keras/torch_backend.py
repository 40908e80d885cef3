"""torch as the backend of the Keras parts."""

from __future__ import annotations

import enum
import weakref
from collections.abc import Sequence
from typing import Any

import keras
import torch

import horovod.torch as hvd
from horovod._keras import optimizer as keras3_optimizer
from horovod._keras.backend import REMEDY, Backend, Plan
from horovod.common.collective.compression import resolve_plain_compression
from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set
from horovod.common.set_agreement import exchange
from horovod.common.training import step_checks
from horovod.common.training.agreement import Reduced, agree_on_gradients, job
from horovod.common.training.gradient_buckets import Bucket
from horovod.common.training.gradient_options import takes_part
from horovod.common.training.gradient_pipeline import Pipeline
from horovod.common.training.gradient_reductions import GradientReductions
from horovod.common.training.gradient_status import ABSENT, DENSE, FROZEN
from horovod.common.training.present_gradients import OF_THIS_RANK
from horovod.torch.elastic.state import settle
from horovod.torch.gradient_hooks import GradientHook
from horovod.torch.gradient_reducer import cut_parameters
from horovod.torch.operations import ops
from horovod.torch.step_checks import contents_of, kind_of


class TorchBackend(Backend):
    """See ``horovod._keras.backend.Backend``."""

    name = "torch"
    hvd = hvd

    def distribute(self, optimizer: Any, plan: Plan) -> Any:
        """See ``Backend``."""
        if keras3_optimizer.keras_of(optimizer) is not keras:
            raise ValueError(
                "This is an optimizer of tf_keras, which computes by TensorFlow, and keras by torch."
            )
        return keras3_optimizer.distribute(optimizer, plan, keras)

    @torch.compiler.disable
    def expect_gradients(self, plan: Plan) -> None:
        """See ``Backend``."""
        reducer = _reducers.get(plan)
        if reducer is not None and reducer.job == job():
            reducer.expect()

    @torch.compiler.disable
    def reduce_gradients(self, gradients: Sequence[Any], variables: Sequence[Any], plan: Plan) -> list[Any]:
        """All travel at once, or have left in the backward pass. Where torch keeps them as gradients of
        parameters, they are overwritten.
        """
        if not takes_part(plan.settings.process_set):
            return list(gradients)
        reduced = _described(variables)
        agree_on_gradients(plan.name, plan.settings, reduced, variables, _identity)
        looks = _check(gradients, variables, reduced, plan)
        return _reducer_of(variables, plan, looks).reduce(gradients) if variables else []

    def scale(self, gradient: Any, factor: float) -> Any:
        """See ``Backend``."""
        return gradient * factor

    def broadcast_variables(
        self, variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set
    ) -> None:
        """See ``Backend``."""
        tensors = [_tensor(variable).detach() for variable in variables]
        hvd.broadcast_parameters(tensors, root_rank, process_set)

    def broadcast_global_variables(self, root_rank: int) -> None:
        """RuntimeError: torch has no global variables."""
        raise RuntimeError(
            "hvd.broadcast_global_variables() is for graphs of TensorFlow. Use hvd.broadcast_variables(), or "
            "hvd.callbacks.BroadcastGlobalVariablesCallback(0) instead."
        )

    def settle(self) -> None:
        """See ``Backend``."""
        settle()

    def tensor(self, value: Any) -> Any:
        """A variable stands for its value, of which the result is no function."""
        tensor = keras.ops.convert_to_tensor(value)
        return tensor.detach() if isinstance(value, keras.Variable) else tensor


class _Overlap(enum.Enum):
    """Whether gradients leave in the backward pass. They may if the program does nothing to them between that
    pass and ``apply``: the second step shows it.
    """

    TRIAL = "the ranks look whether they may"
    ON = "they leave as soon as they are made"
    OFF = "they leave when they are applied"


class _Hook(GradientHook):
    """A variable of Keras. What it is given as a gradient is reduced, trained or not."""

    __slots__ = ()

    def __call__(self, _: object = None) -> None:
        reducer: Any = self.bucket.pipeline
        if reducer.overlap is _Overlap.TRIAL:
            reducer.is_free &= self.sent is None  # of several passes that make one step, the first has no sum
            self.remember()
        super().__call__()

    def attach(self) -> None:
        """See ``Variable``."""
        if self.parameter.requires_grad and self.parameter.is_leaf:
            super().attach()

    @property
    def kind(self) -> int:
        """See ``Variable``."""
        kind = super().kind
        return (ABSENT if self.is_missing else DENSE) if kind == FROZEN else kind

    def lend(self, gradient: Any) -> Any:
        """Makes ``gradient`` that of the parameter until the result is there; returns what was."""
        before = self.parameter.grad
        if gradient is not before:
            owned = gradient is None or gradient.is_sparse
            self.parameter.grad = gradient if owned else gradient.detach().clone()
        return before


class _Reducer(Pipeline[Any]):
    """Reduces the gradients of ``variables``, when Keras applies them or, if they may, earlier. ``is_free``:
    this step has given no reason against it.
    """

    remedy = (
        "In the second step the program left gradients alone until optimizer.apply(), so they leave while "
        "the backward pass runs. Do the same in all steps, or clip by an argument of the optimizer such as "
        "clipnorm."
    )

    def __init__(self, variables: Sequence[Any], plan: Plan, looks: bool) -> None:
        resolve_plain_compression(plan.settings.compression, "the gradients of Keras")
        super().__init__(GradientReductions(ops, plan.settings), plan.settings, wants_sparse=False)
        self.prefix = plan.name
        self.paused = True
        self.overlap = _Overlap.OFF if looks else _Overlap.TRIAL
        self.is_free = False
        self.job = job()
        named = [
            (f"{place}.{v.name}", _tensor(v)) for place, v in enumerate(variables) if v is not OF_THIS_RANK
        ]
        self.buckets = [
            Bucket(label, members, self)
            for label, members in cut_parameters(named, plan.settings.groups, _identity)
        ]
        made = {id(hook.parameter): hook for bucket in self.buckets for hook in bucket.members}
        self._hooks = list(made.values())
        self._places: list[Any] = [made.get(_identity(variable)) for variable in variables]
        for hook in self._hooks:
            hook.attach()

    def is_of(self, variables: Sequence[Any]) -> bool:
        """Whether it is these variables' own, and of this job."""
        mine = [id(None if hook is None else hook.parameter) for hook in self._places]
        theirs = [id(None if each is OF_THIS_RANK else _tensor(each)) for each in variables]
        return self.job == job() and mine == theirs

    def variable(self, name: str, parameter: Any, bucket: Bucket[Any]) -> _Hook:
        """See ``Pipeline``."""
        return _Hook(name, parameter, bucket)

    def begin(self) -> None:
        """See ``Pipeline``."""
        self.begin_step()

    def newcomers(self) -> list[str]:
        """None: Keras makes another reducer for other variables."""
        return []

    def expect(self) -> None:
        """A backward pass begins whose gradients will be applied."""
        self.forget_gradients()  # of a pass whose gradients were not
        self.paused = self.overlap is not _Overlap.ON
        if self.overlap is _Overlap.TRIAL:
            self.is_free = True
            for hook in self._hooks:
                hook.sent = None

    def reduce(self, gradients: Sequence[Any]) -> list[Any]:
        """The reduced gradients, in the order of the variables; None for those of this rank alone."""
        pairs = [(hook, each) for hook, each in zip(self._places, gradients, strict=True) if hook is not None]
        if self.overlap is _Overlap.TRIAL and self.rounds == 1:
            self._judge(pairs)
        before = [hook.lend(gradient) for hook, gradient in pairs]
        try:
            self.synchronize()
            return [None if hook is None else hook.parameter.grad for hook in self._places]
        finally:
            self.paused = True
            for (hook, _), gradient in zip(pairs, before, strict=True):
                hook.parameter.grad = gradient

    def _judge(self, pairs: Sequence[tuple[_Hook, Any]]) -> None:
        """All ranks let gradients leave in backward passes from now on, or none."""
        for hook, gradient in pairs:
            self.is_free &= gradient is hook.sent and not hook.is_changed(False)
            hook.sent = None
        number = check_process_set(self.reductions.process_set)
        told = exchange(self.is_free, f"{self.prefix}: comparison of the ways of gradients", number)
        self.overlap = _Overlap.ON if all(told.values()) else _Overlap.OFF


_reducers: weakref.WeakKeyDictionary[Plan, _Reducer] = weakref.WeakKeyDictionary()


def _reducer_of(variables: Sequence[Any], plan: Plan, looks: bool) -> _Reducer:
    known = _reducers.get(plan)
    if known is None or not known.is_of(variables):
        if known is not None:
            _release(known)
        known = _reducers[plan] = _Reducer(variables, plan, looks)
    return known


def _release(reducer: _Reducer) -> None:
    """Has its variables report to it no longer."""
    reducer.abandon()
    for bucket in reducer.buckets:
        bucket.release()


def _described(variables: Sequence[Any]) -> tuple[Reduced, ...]:
    return tuple(Reduced(v.name, str(v.dtype), tuple(v.shape)) for v in variables)


def _check(
    gradients: Sequence[Any], variables: Sequence[Any], reduced: tuple[Reduced, ...], plan: Plan
) -> bool:
    """The checks of a step; see ``common.training.step_checks``. Whether they look at gradients."""
    checks = step_checks.of_steps(plan.settings.process_set, plan.name, reduced, REMEDY)
    if checks is None:
        return False
    shared = [variable for variable in variables if variable is not OF_THIS_RANK]
    if checks.nonfinite and not plan.loss_is_scaled:
        pairs = zip(variables, gradients, strict=True)
        checks.note_first((v.path, kind_of(gradient)) for v, gradient in pairs if gradient is not None)
    checks.before_update(contents_of([(v.path, _tensor(v)) for v in shared]))
    return checks.nonfinite and not plan.loss_is_scaled


def _tensor(variable: Any) -> Any:
    """The torch tensor inside of a Keras variable; anything else as it is."""
    inner = getattr(variable, "value", None)
    return variable if inner is None else inner


def _identity(variable: Any) -> int:
    return id(_tensor(variable))


backend = TorchBackend()
