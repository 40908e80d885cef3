"""An optimizer and a trainer that average gradients over the ranks before they use them."""

from __future__ import annotations

import warnings
from typing import Any

from horovod.common.collective.compression import Compressor, NoneCompressor
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.training.gradient_options import GradientSettings, takes_part
from horovod.mxnet.functions import broadcast_parameters
from horovod.mxnet.gradient_average import GradientAverage
from horovod.mxnet.native import mx
from horovod.mxnet.tensors import fill

_OWN = ("_optimizer", "_average")


class DistributedOptimizer(mx.optimizer.Optimizer):
    """Any ``mxnet.optimizer.Optimizer``, for ``mxnet.mod.Module`` (with ``kvstore=None``) and updaters; for
    gluon use ``DistributedTrainer``. Attributes are those of the wrapped optimizer.

    Averages gradients in place.

    Args:
        optimizer: The optimizer that is wrapped.
        gradient_predivide_factor: Divides by it before the sum, and by the rest of the number of ranks
            afterwards.
        num_groups: Gradients that the optimizer updates together travel in so many groups; 0: each alone.
        process_set: Which ranks average; on others it does what ``optimizer`` would.

    Raises:
        ValueError: For what is no optimizer.
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
        settings = GradientSettings(
            gradient_predivide_factor=gradient_predivide_factor, groups=num_groups, process_set=process_set
        )
        self._average = GradientAverage("DistributedOptimizer", None, settings)

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


class DistributedTrainer(mx.gluon.Trainer):
    """A ``gluon.Trainer`` whose ``step(batch_size)`` first averages the gradients of all ranks, in place;
    ``batch_size`` is that of one rank.

    In the first ``step`` the ranks compare types, shapes and names of the gradients, by place, and these
    arguments: TensorMismatchError on every rank where they differ. Numbers in names may differ, unless
    they sort otherwise.

    Args:
        params: ``net.collect_params()``, or a list of parameters, which is sorted by name.
        optimizer: By name, or an ``mxnet.optimizer.Optimizer``.
        optimizer_params: Its arguments, where it is given by name.
        compression: How gradients travel.
        gradient_predivide_factor: Divides by it before the sum, and by the rest of the number of ranks
            afterwards.
        prefix: Of the names of the operations, equal on all ranks; trainers without one are numbered.
        num_groups: Gradients travel in so many groups; 0: each alone.
        process_set: Which ranks average; on others it is a usual trainer.

    Raises:
        ValueError: For what is no optimizer, for sparse gradients, and for parameters on several devices: one
            process works with one.
    """

    def __init__(
        self,
        params: Any,
        optimizer: str | mx.optimizer.Optimizer,
        optimizer_params: dict[str, Any] | None = None,
        compression: type[Compressor] | None = NoneCompressor,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        settings = GradientSettings(
            compression=compression,
            gradient_predivide_factor=gradient_predivide_factor,
            groups=num_groups,
            process_set=process_set,
        )
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn(
                "DistributedTrainer averages gradients itself: the DistributedOptimizer that it was given is "
                "unwrapped; give it the optimizer",
                stacklevel=2,
            )
            optimizer = optimizer._optimizer
        if not isinstance(optimizer, (str, mx.optimizer.Optimizer)):
            raise ValueError(
                f"optimizer must be a name or an mxnet.optimizer.Optimizer, not {type(optimizer).__name__}. "
                "A DistributedTrainer takes the place of a gluon.Trainer: give it the arguments of that, "
                "hvd.DistributedTrainer(params, 'sgd', {'learning_rate': 0.1})."
            )
        if isinstance(params, (list, tuple)) and all(isinstance(one, mx.gluon.Parameter) for one in params):
            params = sorted(params, key=lambda parameter: parameter.name)
        super().__init__(params, optimizer, optimizer_params=optimizer_params, kvstore=None)
        for parameter in self._params:
            _check_parameter(parameter)
        self._average = GradientAverage("DistributedTrainer", prefix, settings)
        self._batch_size: float | None = None  # while `step` knows it
        self._ignores_stale = False  # as the last update was told, which allreduce_grads is not

    def broadcast_parameters(self, params: Any = None, root_rank: int = 0) -> None:
        """Overwrites arrays with those of one rank, on all ranks that average.

        Args:
            params: As for ``hvd.broadcast_parameters``; by default those of this trainer.
            root_rank: That rank.
        """
        if params is None:
            # Of this trainer by place: names may differ between ranks.
            params = {f"{place:06}": parameter for place, parameter in enumerate(self._params)}
        broadcast_parameters(params, root_rank, process_set=self._average.process_set)

    def step(self, batch_size: int, ignore_stale_grad: bool = False) -> None:
        """Averages the gradients and updates the parameters.

        Args:
            batch_size: Of this rank. Where the ranks have other ones, the mean of each counts alike.
            ignore_stale_grad: Parameters that no rank has a new gradient of are left alone; for one that this
                rank lacks and another one has, zeros travel. The ranks ask each other in every such step, so
                give the same on all of them.
        """
        self._batch_size, self._ignores_stale = batch_size, ignore_stale_grad
        try:
            super().step(batch_size, ignore_stale_grad)
        finally:
            self._batch_size = None

    def update(self, batch_size: int, ignore_stale_grad: bool = False) -> None:
        """Updates the parameters, after ``allreduce_grads()``.

        Args:
            batch_size: Of this rank. The ranks tell each other theirs, so that each sample counts alike.
            ignore_stale_grad: As for ``step``.
        """
        sizes = self._average.batch_sizes(batch_size)
        super().update(sum(sizes) / len(sizes), ignore_stale_grad)

    def _update(self, ignore_stale_grad: bool = False) -> None:
        self._ignores_stale = ignore_stale_grad
        if ignore_stale_grad and takes_part(self._average.process_set):
            weights = [one.list_data()[0] for one in self._trained()]
            for weight, somewhere in zip(weights, self._average.present(weights), strict=True):
                weight._fresh_grad = somewhere
        super()._update(ignore_stale_grad)

    def _trained(self) -> list[Any]:
        return [parameter for parameter in self._params if parameter.grad_req != "null"]

    def _allreduce_grads(self) -> None:
        trained = [(place, one) for place, one in enumerate(self._params) if one.grad_req != "null"]
        if self._ignores_stale and takes_part(self._average.process_set):
            for _, parameter in trained:
                if not parameter.list_data()[0]._fresh_grad:
                    fill(parameter.list_grad()[0], 0)  # it is that of an earlier step
        batch_size = self._average.average(
            [(place, parameter.list_grad()[0]) for place, parameter in trained],
            [(parameter.name, parameter.list_data()[0]) for _, parameter in trained],
            self._batch_size,
        )
        if batch_size is not None:  # divided by numbers of their own, the ranks' steps would differ
            self._check_and_rescale_grad(self._scale / batch_size)


def _check_parameter(parameter: Any) -> None:
    if parameter._grad_stype != "default" or parameter._stype != "default":
        raise ValueError(
            f"Parameter {parameter.name!r} has sparse gradients or values, which cannot be averaged over "
            "ranks; make it without sparse_grad=True and with the default stype"
        )
    devices = parameter.list_ctx()
    if len(devices) > 1:
        raise ValueError(
            f"Parameter {parameter.name!r} is on {len(devices)} devices: one process works with one "
            "device; start a process for each and use ctx=mx.gpu(hvd.local_rank())"
        )
