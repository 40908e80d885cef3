"""Gluon's trainer with gradients averaged over the ranks."""

from __future__ import annotations

import warnings
from typing import Any

from horovod.common.compression import Compressor, NoneCompressor, resolve_plain_compression
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.mxnet import functions
from horovod.mxnet.gradients import GradientAverage
from horovod.mxnet.native import mx
from horovod.mxnet.optimizer import DistributedOptimizer


class DistributedTrainer(mx.gluon.Trainer):
    """A ``gluon.Trainer`` whose ``step(batch_size)`` first averages the gradients of all ranks, in place;
    ``batch_size`` is that of one rank.

    ``params``: ``net.collect_params()``, or a list of parameters, which is sorted by name. ``compression``:
    how gradients travel. ``gradient_predivide_factor``: divides by it before the sum, and by the rest of the
    number of ranks afterwards. ``prefix``: of the names of the operations, equal on all ranks; trainers
    without one are numbered. ``num_groups``: gradients travel in so many groups; 0 = each alone.
    ``process_set``: which ranks average; on others it is a usual trainer.

    ValueError for sparse gradients, and for parameters on several devices: one process works with one. In the
    first ``step`` the ranks compare types and shapes of the gradients, by place, and these arguments:
    TensorMismatchError on every rank where they differ.
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
        compressor = resolve_plain_compression(compression, "the gradients of a DistributedTrainer")
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn(
                "DistributedTrainer averages gradients itself: the DistributedOptimizer that it was given is "
                "unwrapped; give it the optimizer",
                stacklevel=2,
            )
            optimizer = optimizer._optimizer
        if isinstance(params, (list, tuple)) and all(isinstance(one, mx.gluon.Parameter) for one in params):
            params = sorted(params, key=lambda parameter: parameter.name)
        super().__init__(params, optimizer, optimizer_params=optimizer_params, kvstore=None)
        for parameter in self._params:
            _check(parameter)
        self._average = GradientAverage(
            "DistributedTrainer", prefix, gradient_predivide_factor, num_groups, process_set, compressor
        )

    def broadcast_parameters(self, params: Any = None, root_rank: int = 0) -> None:
        """Overwrites ``params``, by default those of this trainer, with those of rank ``root_rank``, on all
        ranks that average. See ``hvd.broadcast_parameters``.
        """
        if params is None:
            # Of this trainer by place: names may differ between ranks.
            params = {f"{place:06}": parameter for place, parameter in enumerate(self._params)}
        functions.broadcast_parameters(params, root_rank, process_set=self._average.process_set)

    def _allreduce_grads(self) -> None:
        trained = [(place, one) for place, one in enumerate(self._params) if one.grad_req != "null"]
        self._average.average(
            [(place, parameter.list_grad()[0]) for place, parameter in trained],
            [(parameter.name, parameter.list_data()[0]) for _, parameter in trained],
        )


def _check(parameter: Any) -> None:
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
