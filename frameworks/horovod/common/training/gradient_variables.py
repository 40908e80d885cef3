"""A variable whose gradients are reduced, in any framework that calls a hook for each: what it does there,
and what the ranks know of its gradients.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic

from horovod.common.collective.tensor_glue import Tensor
from horovod.common.training.gradient_status import DENSE, FROZEN, SPARSE

if TYPE_CHECKING:
    from horovod.common.training.gradient_buckets import Bucket

_TOO_MANY_PASSES = (
    "The gradient of {name} was computed more than backward_passes_per_step times before optimizer.step() or "
    "optimizer.synchronize(), and is being reduced already. If several backward passes are to make one step, "
    "add up their losses, make the earlier passes within optimizer.no_sync(), or give "
    "DistributedOptimizer(backward_passes_per_step=...) their number. If the pass before belonged to another "
    "optimizer's step, as in a GAN, drop its gradients by zero_grad() with set_to_none=True. With "
    "synchronize_in_backward=True each pass is reduced as DistributedDataParallel does it, with "
    "op=hvd.Average. After a backward pass that failed, call optimizer.zero_grad()."
)


class Step(enum.Enum):
    """How far an optimizer is in its step."""

    REST = "no gradient is due"
    IN_PASS = "the backward pass is under way that has made the latest one due"
    AFTER_PASS = "it has come to its end"


REST, IN_PASS, AFTER_PASS = Step  # each gradient of each step needs them


class Travelling(Generic[Tensor]):
    """Interface: one gradient that travels. ``name``: of its variable. ``is_sparse``: it travels as a sparse
    one.
    """

    __slots__ = ()
    name: str
    is_sparse: bool

    def dense_gradient(self) -> Tensor:
        """The gradient as what may travel, which the reduction overwrites; zeros where there is none."""
        raise NotImplementedError

    def take(self, reduced: Tensor) -> None:
        """Makes ``reduced`` the gradient, where the reduction has not overwritten it."""
        raise NotImplementedError

    def start_sparse(self, name: str) -> Callable[[], None]:
        """Starts to reduce the sparse gradient, in an operation ``name``. Returns what waits for it."""
        raise NotImplementedError

    @property
    def compressor(self) -> Any:
        """The stateful compressor that belongs to the gradient."""
        raise NotImplementedError


class Variable(Travelling[Tensor]):
    """A variable with a hook, which is called after each accumulation of its gradient. What a framework does
    in its own way is below.

    ``made``: how often a backward pass has made its gradient.
    ``parameter``: what the framework has of it. ``expected``: the kinds of gradients, as bits, that the ranks
    know some of them to have; any other is news. ``filled``: the gradient is zeros in place of one that this
    step did not make. ``sent``: what is being reduced, or about to be.
    """

    __slots__ = (
        "_compressor",
        "bucket",
        "expected",
        "filled",
        "is_sparse",
        "made",
        "name",
        "parameter",
        "passes_left",
        "sent",
    )

    def __init__(self, name: str, parameter: Any, bucket: Bucket[Tensor]) -> None:
        self.name = name
        self.parameter = parameter
        self.bucket = bucket
        self.passes_left = bucket.reducer.passes
        self.filled = False
        self.made = 0
        self.sent: Tensor | None = None
        self._compressor: Any = None
        self.forget()

    def __call__(self, _: object = None) -> None:
        self.made += 1
        bucket = self.bucket
        reducer = bucket.reducer
        if reducer.stage is AFTER_PASS and not reducer.paused:
            reducer.begin_next_pass(self)
        left = self.passes_left - 1
        if left < 0:
            if self.holds_sent or not reducer.drop_old():
                raise AssertionError(_TOO_MANY_PASSES.format(name=repr(self.name)))
            left = self.passes_left - 1
        if reducer.paused:
            bucket.touch()
            return
        self.passes_left = left
        if left == 0:
            self.remember()
            bucket.one_more_due()
        else:
            bucket.touch()

    @property
    def compressor(self) -> Any:
        """See ``Travelling``."""
        if self._compressor is None:
            self._compressor = self.bucket.reducer.reductions.compressor()
        return self._compressor

    def learn(self, found: int) -> None:
        """What kinds of gradients the ranks have in this step. One that is sparse somewhere and dense nowhere
        travels as a sparse one from then on.
        """
        if found & FROZEN:
            self.expected = FROZEN
            return
        self.expected = (self.expected | found | DENSE) & ~FROZEN
        if found & SPARSE:
            self.is_sparse = not found & DENSE

    def forget(self) -> None:
        """The ranks know nothing of each other's gradients, as in a new job."""
        self.expected = DENSE
        self.is_sparse = False
        self._compressor = None

    def end_step(self) -> None:
        """Expects a full step's passes again."""
        self.passes_left = self.bucket.reducer.passes
        self.sent = None
        if self.filled:
            self.filled = False
            self.take_back_unused()

    def attach(self) -> None:
        """Has the framework call it."""
        raise NotImplementedError

    def detach(self) -> None:
        """Has the framework call it no longer."""
        raise NotImplementedError

    def remember(self) -> None:
        """Makes the gradient ``sent``: the program must not change it from now on."""
        raise NotImplementedError

    def is_changed(self, known: bool) -> bool:
        """Whether the program has changed ``sent``. ``known``: it has, as the core has seen."""
        raise NotImplementedError

    def sample(self) -> str | None:
        """An element of the gradient, if one can be had at no cost."""
        raise NotImplementedError

    @property
    def holds_sent(self) -> bool:
        """Whether the gradient is the one that was remembered, changed or not."""
        raise NotImplementedError

    @property
    def kind(self) -> int:
        """What this step has made; the constants are those of ``gradient_status``."""
        raise NotImplementedError

    @property
    def is_missing(self) -> bool:
        """Whether this step made no gradient, of a variable that is trained or not."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """The size of its gradient, were it dense."""
        raise NotImplementedError

    @property
    def version(self) -> int:
        """Another one whenever its value has changed."""
        raise NotImplementedError

    @property
    def is_trained(self) -> bool:
        """Whether it is to have a gradient, in the program of this rank."""
        raise NotImplementedError

    def usual_gradient(self) -> Tensor | None:
        """The gradient, if it is trained and has a dense one. The hot path."""
        raise NotImplementedError

    def make_sparse(self) -> None:
        """Makes the gradient sparse, if there is one."""
        raise NotImplementedError

    def drop_gradient(self) -> None:
        """Leaves the variable without a gradient."""
        raise NotImplementedError

    def take_back_unused(self) -> None:
        """A variable that is not trained must not keep the zeros that have travelled."""
        if not self.is_trained:
            self.drop_gradient()
