"""The optimizer that averages gradients over all ranks while the backward pass still runs."""

from __future__ import annotations

import contextlib
import enum
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from horovod.common.collective.compression import AnyCompressor, resolve_plain_compression
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Adasum, Average, Sum
from horovod.common.training import step_checks
from horovod.common.training.differences import Facts
from horovod.common.training.gradient_buckets import Bucket
from horovod.common.training.gradient_options import GradientSettings, takes_part
from horovod.torch.adasum_optimizer import DistributedAdasumOptimizer
from horovod.torch.bucket_owners import bucket_of, release
from horovod.torch.compiling import methods_outside_of_graphs
from horovod.torch.compression import Compression
from horovod.torch.gradient_reducer import GradientReducer
from horovod.torch.operations import ops
from horovod.torch.reduced_once import ReducedOnce
from horovod.torch.step_checks import watch_steps
from horovod.torch.step_methods import makes_state_only, waiting_methods, without_hooks
from horovod.torch.wrapping import (
    NamedParameters,
    WrappedOptimizer,
    settings_of_copy,
    subclass_of,
    weakly,
)


class _Reduced(enum.Enum):
    """Whether the gradients of this step have been reduced, and who has asked for it."""

    NOT_YET = "nobody"
    BY_PROGRAM = "the program, by synchronize()"
    BY_ITSELF = "GradScaler, the backward pass, or a method that uses gradients"


@methods_outside_of_graphs
class _DistributedOptimizer(WrappedOptimizer):
    """Reduces gradients while the backward pass makes them; ``step`` waits for them."""

    _reducer: GradientReducer | None  # None on a rank that has nobody to reduce gradients with

    def _distribute(self, parameters: NamedParameters, settings: GradientSettings, copied: bool) -> None:
        self._begin_step()
        self._should_synchronize = True
        self._provisional = False  # the state, which no step of the training has made
        self._reducer = None
        if not takes_part(settings.process_set):
            return
        self._settings = settings
        facts, find_added = weakly(self._facts), weakly(self._newcomers)
        sparse = isinstance(self._wrapped, torch.optim.SparseAdam)
        self._reducer = reducer = GradientReducer(settings, parameters, facts, find_added, sparse, copied)
        self._agreement = reducer.agreement
        weakref.finalize(self, release, reducer).atexit = False
        if settings.synchronize_in_backward:
            reducer.finish_in_backward(weakly(self._finish_in_backward))

    def _facts(self) -> Facts:
        return {"the optimizer": self._base.__name__, **self._settings.facts(), **self._described()}

    def _begin_step(self) -> None:
        self._reduced = _Reduced.NOT_YET
        self._asked = False  # by GradScaler, after which it makes the step or leaves it out
        self._once = ReducedOnce()

    @property
    def _buckets(self) -> list[Bucket]:
        return [] if self._reducer is None else self._reducer.buckets

    def _allreduce_grad_async(self, p: torch.Tensor) -> tuple[int | None, Any]:
        """Submits the gradient of ``p`` now, with those that travel together with it. Returns the handle
        (None when there is not just one) and a context, which is None.
        """
        bucket = bucket_of(p)
        if bucket is None:
            return None, None
        bucket.submit_incomplete()
        return bucket.handle, None

    def set_backward_passes_per_step(self, passes: int) -> None:
        super().set_backward_passes_per_step(passes)
        if self._reducer is not None:
            self._reducer.set_passes(passes)

    def synchronize(self) -> None:
        """Waits until all gradients are reduced; ``step`` calls it, unless within ``skip_synchronize()``.

        Parameters that have no gradient take part with zeros; those that have none on any rank are left
        without one, as in a program of one process. Does nothing when the backward pass has waited
        (``synchronize_in_backward``).

        Raises:
            TensorMismatchError: the ranks do not train the same parameters, or their gradients differ in
                shape or type; on all ranks.
            HorovodInternalError: a rank is gone, or Horovod was shut down since the backward pass.
            RuntimeError: the program has changed gradients while they were being reduced, a rank has given
                the step up, or a newer optimizer has taken over the parameters.
        """
        itself = self._reduced is _Reduced.BY_ITSELF
        if itself and not self._asked and not self._is_due():  # a second sum would be twice the sum
            return
        if self._reducer is not None:
            self._reducer.synchronize()
        if not itself:
            self._reduced = _Reduced.BY_PROGRAM
        self._asked = False

    @classmethod
    def added_methods(cls, base: type[torch.optim.Optimizer]) -> dict[str, Callable[..., Any]]:
        return {name: each for name, each in waiting_methods(base).items() if not hasattr(cls, name)}

    def _wait_for_gradients(self) -> None:
        """For what uses gradients and is no ``step``: waits for those that are being reduced."""
        if self._should_synchronize and self._reducer is not None and self._reducer.pending:
            self._synchronize_itself()

    def _finish_in_backward(self) -> None:
        if self._should_synchronize:
            self._once.check()
            self._synchronize_itself()
            if self._reducer is not None:
                self._once.note(self._reducer.reductions.op, self._buckets)

    def _synchronize_itself(self) -> None:
        self.synchronize()
        self._reduced = _Reduced.BY_ITSELF

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        """Within it, backward passes accumulate gradients locally, and do not count for
        ``backward_passes_per_step``. The next backward pass outside, or ``step``, reduces the sum.
        """
        return contextlib.nullcontext() if self._reducer is None else self._reducer.accumulating()

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within it, ``step`` takes the gradients as they are: for use after ``synchronize``, to clip them,
        say.
        """
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Reduces the gradients, then makes the wrapped optimizer's step.

        Args:
            closure: recomputes loss and gradients, which are reduced each time after it has run. So is the
                loss for LBFGS, whose steps depend on it.

        Returns:
            What the wrapped optimizer's step returns.

        Raises:
            As ``synchronize``.
        """
        if closure is not None:
            self._wait_for_gradients()
            loss = super().step(self._reducing(closure))  # type: ignore[misc]
        elif self._makes_state_only():
            return without_hooks(self._base.step)(self)
        else:
            if self._should_synchronize:
                self._synchronize_once()
            self._refuse_unreduced()
            self._begin_step()
            loss = super().step()  # type: ignore[misc]
        self._note_step()
        return loss

    # The wrapped step runs the hooks registered on step; marked, this one does not run them again.
    step.hooked = True  # type: ignore[attr-defined]

    # GradScaler.step asks for it before it looks at the gradients, so that is when they must be reduced.
    @property
    def _step_supports_amp_scaling(self) -> bool:
        if _asked_by_grad_scaler() and self._should_synchronize:
            if self._asked or self._is_due():  # asked again: the step before was left out
                self._synchronize_itself()
            self._asked = True
        return self.__dict__.get("_step_supports_amp_scaling", False)

    @_step_supports_amp_scaling.setter
    def _step_supports_amp_scaling(self, value: bool) -> None:
        self.__dict__["_step_supports_amp_scaling"] = value

    def _take_in(self) -> None:
        """Sees which parameters have come into the groups; their gradients are reduced from now on."""
        added = self._newcomers()
        if self._reducer is not None and added:
            self._reducer.add(added)

    def _refuse_unreduced(self) -> None:
        self._take_in()
        added = [] if self._reducer is None else self._reducer.added
        names = [name for name, parameter in added if parameter.grad is not None]
        if names:
            raise RuntimeError(
                f"{names[0]!r} was added to the optimizer after its gradients had been reduced. Add "
                "parameters before the backward pass."
            )

    def _makes_state_only(self) -> bool:
        """Whether this is no step of the training, so that one rank may make it alone. The state it makes is
        taken away again before the first step that is, unless one was loaded meanwhile.
        """
        self._drop_provisional()
        if self._reducer is None or self._reducer.touched:
            return False
        self._provisional = makes_state_only(self._wrapped)
        return self._provisional

    def _drop_provisional(self) -> None:
        if self._provisional:
            self._provisional = False
            self.state.clear()

    def _is_due(self) -> bool:
        """Whether there are gradients that were not reduced: also after ``synchronize``, where the program
        has left the step out and made another backward pass.
        """
        return self._reduced is _Reduced.NOT_YET or (self._reducer is not None and self._reducer.touched)

    def _synchronize_once(self) -> None:
        if self._is_due():
            self.synchronize()
        elif self._reduced is _Reduced.BY_PROGRAM:
            warnings.warn(
                "optimizer.step() called without optimizer.skip_synchronize() context after "
                "optimizer.synchronize(). The gradients are not reduced again; use the context to say so.",
                stacklevel=3,
            )

    def _reducing(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def reduce_after() -> Any:
            loss = closure()
            if self._should_synchronize and (self._is_due() or self._reduced is _Reduced.BY_PROGRAM):
                self.synchronize()
            self._begin_step()
            return self._common_loss(loss) if isinstance(self, torch.optim.LBFGS) else loss

        return reduce_after

    def _common_loss(self, loss: Any) -> Any:
        """The loss of all ranks, so that all of them search along the line in the same way."""
        if self._reducer is None or loss is None:
            return loss
        reducer = self._reducer
        op = Sum if reducer.reductions.op == Sum else Average
        value = loss.detach().clone() if isinstance(loss, torch.Tensor) else torch.tensor(float(loss))
        return ops.allreduce_(
            value, None, f"{reducer.prefix}.loss", op, process_set=reducer.reductions.process_set
        )

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As the wrapped optimizer's. Between ``backward`` and ``step`` it drops the gradients, when they
        have been reduced: all ranks must do so. After a backward pass that has failed it also forgets its
        gradients, so that training can go on; the step of the other ranks then raises.

        Raises:
            RuntimeError: other ranks make a step of the gradients; on those, too.
            AssertionError: the parameters were changed by gradients that were not reduced yet.
        """
        if self._reducer is not None:
            self._reducer.forget_gradients()
        self._begin_step()
        super().zero_grad(set_to_none=set_to_none)  # type: ignore[misc]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As the wrapped optimizer's. Waits for gradients being reduced, and expects a full step's passes
        again.
        """
        self._forget_step()
        self._provisional = False
        super().load_state_dict(state_dict)  # type: ignore[misc]

    def _forget_step(self) -> None:
        """Ends what is in flight, of a step that will not be made."""
        if self._reducer is not None:
            self._reducer.abandon()
        self._begin_step()
        self._should_synchronize = True


_DistributedAdasumOptimizer = DistributedAdasumOptimizer  # scripts ask for the class


def _asked_by_grad_scaler() -> bool:
    """Whether the property that calls this is read by GradScaler: read by others it has no effect. GradScaler
    asks an optimizer nothing else before it takes the gradients.
    """
    return sys._getframe(2).f_globals.get("__name__", "").endswith("grad_scaler")


if TYPE_CHECKING:  # what type checkers know of an instance that ``subclass_of`` has made

    class _Distributed(_DistributedOptimizer, torch.optim.Optimizer):
        pass


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: AnyCompressor | None = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[torch.Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
    synchronize_in_backward: bool = False,
) -> _Distributed:
    """Wraps ``optimizer`` so that gradients are reduced over all ranks before each step.

    Each gradient leaves as soon as the backward pass has made it, so communication and computation overlap.
    The result is an optimizer of the same class, which shares parameter groups and state with ``optimizer``.
    All ranks of the process set must make it together, with equal parameters and arguments.

    With ``op=hvd.Adasum`` the ranks' steps are combined instead of their gradients.

    A parameter that several such optimizers train is reduced once after each backward pass, for all of them,
    in the way of the one made last; one that has other settings can no longer step. With GradScaler,
    ``scaler.step(optimizer)`` works as it is; before ``scaler.unscale_(optimizer)`` call
    ``optimizer.synchronize()``, and make the step within ``optimizer.skip_synchronize()``; neither is needed
    with ``synchronize_in_backward``.

    Args:
        optimizer: the optimizer to wrap; it shares its parameter groups and its state with the result.
        named_parameters: what ``model.named_parameters()`` gives; the names must be equal on all ranks.
            Without it the order of the parameters is their name.
        compression: how gradients travel; sparse ones travel as they are.
        backward_passes_per_step: how many gradients are summed up locally before they travel.
        op: Average, Sum, Adasum, Min, Max or Product.
        gradient_predivide_factor: f, when gradients are to be divided by f before they are added up and by
            size / f afterwards.
        num_groups: the deprecated form of ``groups``.
        groups: a number of groups, or lists of parameters, that travel as one operation each.
        sparse_as_dense: sparse gradients travel as dense ones, which they are afterwards, except for an
            optimizer that takes only sparse ones (SparseAdam).
        process_set: the ranks that train together; on every other rank the optimizer does what ``optimizer``
            would.
        synchronize_in_backward: ``loss.backward()`` returns when all gradients are reduced, so that they may
            be clipped, unscaled or replaced before ``step`` as in a program of one process. Every backward
            pass that makes gradients due must then be made by all ranks. For a program that cannot be
            changed, ``HOROVOD_SYNCHRONIZE_IN_BACKWARD=1`` in the environment does it.

    Returns:
        The distributed optimizer.

    Raises:
        ValueError: wrong arguments, or ``optimizer`` is distributed already. Wrong names and lazy layers: on
            all ranks.
        TensorMismatchError: the ranks' parameters or arguments differ; on all ranks, with the same text.
    """
    synchronize_in_backward = synchronize_in_backward or step_checks.flag("HOROVOD_SYNCHRONIZE_IN_BACKWARD")
    settings = GradientSettings.among(locals())
    if isinstance(optimizer, WrappedOptimizer):
        raise ValueError("The optimizer is a DistributedOptimizer already.")
    return _wrap(optimizer, None if named_parameters is None else list(named_parameters), settings)


def _wrap(
    optimizer: torch.optim.Optimizer,
    named: NamedParameters | None,
    settings: GradientSettings,
    copied: bool = False,
) -> Any:
    active = takes_part(settings.process_set)
    adaptive = settings.op == Adasum and active
    if adaptive:
        resolve_plain_compression(settings.compression, "the steps of op=hvd.Adasum")
    wrapped = subclass_of(DistributedAdasumOptimizer if adaptive else _DistributedOptimizer, optimizer)
    wrapped._distribute(wrapped._adopt(optimizer, named, settings, copied), settings, copied)
    wrapped.backward_passes_per_step = settings.backward_passes_per_step
    if active:
        watch_steps(wrapped, optimizer, wrapped._parameter_names, wrapped._agreement)
    names = wrapped._parameter_names

    def wrap_again(plain: torch.optim.Optimizer, copies: NamedParameters, passes: int) -> Any:
        of_copy = replace(settings_of_copy(settings, names, copies), backward_passes_per_step=passes)
        return _wrap(plain, copies, of_copy, copied=True)

    wrapped._wrap_again = wrap_again
    return wrapped
