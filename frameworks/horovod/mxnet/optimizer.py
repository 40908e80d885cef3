"""An optimizer and a trainer that average gradients over the ranks before they use them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy

from horovod.common.collective import byte_objects
from horovod.common.collective.compression import (
    Compressor,
    NoneCompressor,
    Packed,
    resolve_plain_compression,
)
from horovod.common.collective.operations import ALLREDUCE
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Average
from horovod.common.training.agreement import StepAgreement
from horovod.common.training.gradient_options import GradientSettings, takes_part
from horovod.common.training.presence import Presence
from horovod.common.training.step_checks import of_steps
from horovod.common.util import split_list
from horovod.mxnet.engine import Options
from horovod.mxnet.functions import broadcast_parameters
from horovod.mxnet.native import mx
from horovod.mxnet.operations import overwrite

_OWN = ("_optimizer", "_average")
_REMEDY = "hvd.broadcast_parameters(net.collect_params(), root_rank=0)"
_Described = tuple[tuple[int | str, str, tuple[int, ...]], ...]


class GradientAverage:
    """How the gradients of one optimizer are averaged.

    Args:
        subject: What it is, for errors.
        prefix: Of the names of operations. None: a number that all ranks share tells the gradients of several
            optimizers apart, which all number theirs from 0 and whose operations may be under way at once.
        settings: How. The groups are a number, of groups of neighbours that travel as one operation each; 0:
            each gradient alone.
    """

    def __init__(self, subject: str, prefix: str | None, settings: GradientSettings) -> None:
        if settings.gradient_predivide_factor <= 0:
            raise ValueError(
                f"gradient_predivide_factor must be positive, not {settings.gradient_predivide_factor}"
            )
        if not isinstance(settings.groups, int) or settings.groups < 0:
            raise ValueError(f"num_groups must not be negative, but is {settings.groups}")
        self.process_set = settings.process_set
        self._prefix = prefix
        self._num_groups = settings.groups
        self._compressor = resolve_plain_compression(settings.compression, f"the gradients of a {subject}")
        self._factors = (settings.prescale, settings.postscale)
        self._subject = subject
        self._agreement = StepAgreement(subject, settings.process_set)
        self._facts = {**settings.facts(), "num_groups": str(settings.groups)}

    def average(self, gradients: Sequence[tuple[int | str, Any]], weights: Sequence[tuple[str, Any]]) -> None:
        """Overwrites numbered gradients with their averages over the ranks. Low numbers go first: the next
        forward pass needs them first. What was not averaged before is compared first, so all ranks must come
        to it together: TensorMismatchError where they differ. ``weights``: what the gradients belong to, with
        the names that messages give them.

        Raises NonfiniteGradientError and ParameterDivergenceError where the environment asks for it; see
        ``common.training.step_checks``.
        """
        if not gradients or not takes_part(self.process_set):
            return
        described = tuple(
            (number, numpy.dtype(gradient.dtype).name, gradient.shape) for number, gradient in gradients
        )
        self._agree(described)
        self._check(described, [gradient for _, gradient in gradients], weights)
        parts = split_list(gradients, self._num_groups) if self._num_groups else [[one] for one in gradients]
        for part in parts:
            if part:
                self._average_together(part)

    def present(self, weights: Sequence[Any]) -> list[bool]:
        """For each of some weights, whether any rank has a gradient that it has not used."""
        presence = Presence(byte_objects.operations, f"{self._names()}present", self.process_set)
        return presence.finish(presence.start([bool(weight._fresh_grad) for weight in weights]))

    def _agree(self, described: _Described) -> None:
        self._agreement.once(
            described,
            lambda: {
                **self._facts,
                **{f"gradient {number!r}": f"{dtype} {shape}" for number, dtype, shape in described},
            },
        )

    def _check(
        self, described: _Described, gradients: Sequence[Any], weights: Sequence[tuple[str, Any]]
    ) -> None:
        checks = of_steps(self.process_set, self._agreement.numbered(self._subject), described, _REMEDY)
        if checks is None:
            return
        if checks.nonfinite:
            named = zip((name for name, _ in weights), gradients, strict=True)
            checks.note_first((name, _kind(gradient.asnumpy())) for name, gradient in named)
        checks.before_update((name, weight.asnumpy().tobytes()) for name, weight in weights)

    def _names(self) -> str:
        if self._prefix is not None:
            return self._prefix
        return self._agreement.numbered(self._subject) + "."

    def _average_together(self, part: Sequence[tuple[int | str, Any]]) -> None:
        numbers = [number for number, _ in part]
        priority = -numbers[0] if isinstance(numbers[0], int) else 0
        last = f"to{numbers[-1]}" if len(numbers) > 1 else ""
        name = f"{self._names()}{numbers[0]}{last}"
        packed = Packed(self._compressor, [gradient for _, gradient in part])
        options = Options(name, self.process_set, priority, Average, *self._factors, urgent=False)
        overwrite(ALLREDUCE, packed.tensors, options)
        for (_, gradient), result in zip(part, packed.unpacked(), strict=True):
            if result is not gradient:
                gradient[:] = result


def _kind(values: Any) -> str | None:
    if numpy.isfinite(values).all():
        return None
    return "NaN" if numpy.isnan(values).any() else "Inf"


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

    In the first ``step`` the ranks compare types and shapes of the gradients, by place, and these arguments:
    TensorMismatchError on every rank where they differ.

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
            batch_size: Of this rank.
            ignore_stale_grad: Parameters that no rank has a new gradient of are left alone; for one that this
                rank lacks and another one has, zeros travel. The ranks ask each other in every such step, so
                give the same on all of them.
        """
        if ignore_stale_grad and not self._params_to_init:
            for one in self._trained():
                if not one.list_data()[0]._fresh_grad:
                    one.list_grad()[0][:] = 0
        super().step(batch_size, ignore_stale_grad)

    def _update(self, ignore_stale_grad: bool = False) -> None:
        if ignore_stale_grad and takes_part(self._average.process_set):
            weights = [one.list_data()[0] for one in self._trained()]
            for weight, somewhere in zip(weights, self._average.present(weights), strict=True):
                weight._fresh_grad = somewhere
        super()._update(ignore_stale_grad)

    def _trained(self) -> list[Any]:
        return [parameter for parameter in self._params if parameter.grad_req != "null"]

    def _allreduce_grads(self) -> None:
        trained = [(place, one) for place, one in enumerate(self._params) if one.grad_req != "null"]
        self._average.average(
            [(place, parameter.list_grad()[0]) for place, parameter in trained],
            [(parameter.name, parameter.list_data()[0]) for _, parameter in trained],
        )


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
