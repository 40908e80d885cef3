"""An optimizer that averages gradients over the ranks before it uses them."""

from __future__ import annotations

from typing import Any

from horovod.common.compression import NoneCompressor
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.mxnet.gradients import GradientAverage
from horovod.mxnet.native import mx

_OWN = ("_optimizer", "_average")


class DistributedOptimizer(mx.optimizer.Optimizer):
    """Any ``mxnet.optimizer.Optimizer``, for ``mxnet.mod.Module`` (with ``kvstore=None``) and updaters; for
    gluon use ``DistributedTrainer``. Attributes are those of the wrapped optimizer.

    Averages gradients in place. ``gradient_predivide_factor``: divides by it before the sum, and by the rest
    of the number of ranks afterwards. ``num_groups``: gradients that the optimizer updates together travel in
    so many groups; 0 = each alone.
    """

    def __init__(
        self,
        optimizer: mx.optimizer.Optimizer,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        if not isinstance(optimizer, mx.optimizer.Optimizer):
            raise ValueError(
                f"optimizer must be an mxnet.optimizer.Optimizer, not {type(optimizer).__name__}; "
                "mx.optimizer.create('sgd') makes one of a name"
            )
        self._optimizer = optimizer
        self._average = GradientAverage(
            "DistributedOptimizer", None, gradient_predivide_factor, num_groups, process_set, NoneCompressor
        )

    def __getattr__(self, name: str) -> Any:
        if name in _OWN:  # while it is unpickled
            raise AttributeError(name)
        return getattr(self._optimizer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            object.__setattr__(self, name, value)
        else:
            setattr(self._optimizer, name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _OWN}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name in _OWN:
            setattr(self, name, state[name])

    def _reduce(self, index: Any, weight: Any, grad: Any) -> None:
        if not isinstance(index, (tuple, list)):
            index, weight, grad = [index], [weight], [grad]
        names = [str(self._optimizer.idx2name.get(number, number)) for number in index]
        self._average.average(list(zip(index, grad, strict=True)), list(zip(names, weight, strict=True)))

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Averages ``grad`` and updates ``weight``; or lists of them."""
        self._reduce(index, weight, grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """As ``update``, with a copy of the weights in float32 where the optimizer keeps one."""
        self._reduce(index, weight, grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)

    def create_state(self, index: Any, weight: Any) -> Any:
        """What the wrapped optimizer remembers of one weight."""
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        """What the wrapped optimizer remembers of one weight, a copy of it in float32 among it."""
        return self._optimizer.create_state_multi_precision(index, weight)

    @property
    def learning_rate(self) -> float:
        """The wrapped optimizer's at this time."""
        return self._optimizer.learning_rate

    def set_learning_rate(self, lr: float) -> None:
        """Changes the wrapped optimizer's rate."""
        self._optimizer.set_learning_rate(lr)

    def set_lr_mult(self, args_lr_mult: dict[Any, float]) -> None:
        """Sets factors of the rate by parameter."""
        self._optimizer.set_lr_mult(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: dict[Any, float]) -> None:
        """Sets factors of the weight decay by parameter."""
        self._optimizer.set_wd_mult(args_wd_mult)
