"""Training with MXNet that goes on when workers are lost and when workers come::

import horovod.mxnet as hvd

hvd.init()
trainer = hvd.DistributedTrainer(net.collect_params(), "adam")
state = hvd.elastic.MXNetState(net, trainer, batch=0)

@hvd.elastic.run
def train(state):
    for state.batch in range(state.batch, batches):
        train_one_batch()
        state.commit()

train(state)
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from horovod.common import basics
from horovod.elastic.batches import ElasticBatches
from horovod.elastic.checkpoint.errors import CheckpointError
from horovod.elastic.checkpoint.formats import ArrayFormat
from horovod.elastic.decorator import internal_errors_of, run_with
from horovod.elastic.handlers import HandlerMaker, HandlerState, StateHandler
from horovod.elastic.indices import ElasticIndices
from horovod.elastic.rate import RateScale, Rule
from horovod.elastic.variables import VariablesHandler
from horovod.mxnet import trainer_state
from horovod.mxnet.functions import broadcast_object, broadcast_parameters
from horovod.mxnet.native import mx
from horovod.mxnet.params_format import NumpyParamsFormat, ParamsFormat
from horovod.mxnet.tensors import fill

_LOST = "HorovodInternalError: "  # see Call::Problem in frameworks/mxnet_ops/push.cc


def internal_errors() -> contextlib.AbstractContextManager[None]:
    """See ``internal_errors_of``."""
    return internal_errors_of(mx.base.MXNetError, lambda message: _LOST in message)


run = run_with(internal_errors)


class MXNetState(HandlerState):
    """Parameters, their trainer, and whatever else the training needs to go on.

    Args:
        params: a block of gluon, its ``collect_params()``, or a dict of arrays. All are initialized.
        trainer: of gluon, also a DistributedTrainer.
        **kwargs: further attributes, such as ``epoch=0, batch=0``.
    """

    formats = (ParamsFormat(), NumpyParamsFormat(), ArrayFormat())

    def __init__(self, params: Any = None, trainer: Any = None, **kwargs: Any) -> None:
        objects = functools.partial(broadcast_object, name="state.sync(): objects")
        super().__init__(objects, basics.rank, params=params, trainer=trainer, **kwargs)

    def restore(self) -> None:
        """See ``State``."""
        # MXNet keeps errors that nobody has met, and would raise them at the end of the process.
        with contextlib.suppress(mx.base.MXNetError):
            mx.nd.waitall()
        super().restore()

    def _settle(self) -> None:
        # What the engine was given may still fail, and then has to be known before anything is saved.
        with internal_errors():
            mx.nd.waitall()

    def _maker_for(self, name: str, value: Any) -> HandlerMaker | None:
        if isinstance(value, (mx.gluon.Block, mx.gluon.ParameterDict)):
            return _Parameters
        if isinstance(value, mx.gluon.Trainer):
            return _Trainer
        if name == "params" and isinstance(value, Mapping):
            return _Parameters
        return super()._maker_for(name, value)


class _Parameters(VariablesHandler):
    """Of a block, its parameters, or arrays by name."""

    def all_variables(self) -> list[Any]:
        is_block = isinstance(self.value, mx.gluon.Block)
        named = self.value.collect_params() if is_block else self.value
        return [named[key] for key in sorted(named.keys(), key=str)]

    def read(self, variables: Sequence[Any]) -> list[Any]:
        with internal_errors():  # of what has been started before
            return [_array(variable).asnumpy() for variable in variables]

    def write(self, variables: Sequence[Any], arrays: Sequence[Any]) -> None:
        for variable, array in zip(variables, arrays, strict=True):
            for target in variable.list_data() if isinstance(variable, mx.gluon.Parameter) else [variable]:
                fill(target, array)

    def forget_gradients(self) -> None:
        for variable in self.all_variables():
            _forget_gradient(variable)

    def contents(self) -> list[Any]:
        is_of_numpy = any(isinstance(_array(each), mx.np.ndarray) for each in self.all_variables())
        array_of = mx.np.array if is_of_numpy else mx.nd.array
        with mx.util.np_shape(True):  # there may be some without dimensions
            return [array_of(array, dtype=array.dtype) for array in super().contents()]

    def load(self, contents: Any) -> None:
        super().load([array.asnumpy() for array in contents])

    def broadcast(self, variables: Sequence[Any], root_rank: int) -> None:
        by_place = {f"{place:06}": variable for place, variable in enumerate(variables)}
        broadcast_parameters(by_place, root_rank, prefix="horovod.elastic.parameters.")
        with internal_errors():
            for variable in variables:
                _array(variable).wait_to_read()


class _Trainer(StateHandler):
    """Of a ``gluon.Trainer``: its optimizer, with what that keeps for each parameter."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        with internal_errors():
            self._saved = trainer_state.snapshot(self.value)

    def restore(self) -> None:
        trainer_state.load(self.value, self._saved)

    def sync(self) -> None:
        with internal_errors():
            mine = trainer_state.snapshot(self.value)
        trainer_state.load(self.value, broadcast_object(mine, self.winner.rank, "horovod.elastic.trainer"))

    def contents(self) -> Any:
        return self._saved

    def load(self, contents: Any) -> None:
        trainer_state.load(self.value, contents)


class LearningRateScale(RateScale):
    """Scales the learning rate of each step by the number of ranks, where each rank keeps its batch size.

    Make it an attribute of the state, and call its ``step`` in place of the trainer's::

        scale = hvd.elastic.LearningRateScale(trainer, ranks=4, rule="linear", warmup_steps=100)
        state = hvd.elastic.MXNetState(net, trainer, scale=scale, batch=0)
        ...
        scale.step(batch_size)

    Args:
        trainer: of gluon, also a DistributedTrainer.
        ranks: for which its learning rate was chosen; None: those that there are now.
        rule: "linear", "sqrt", or a function of (ranks now) / (ranks then) that returns the factor.
        warmup_steps: in how many steps the factor goes to a new value; 0: at once.

    Raises:
        ValueError: no such rule, or a number is too small.
    """

    def __init__(
        self, trainer: Any, ranks: int | None = None, rule: Rule = "linear", warmup_steps: int = 100
    ) -> None:
        super().__init__(ranks, rule, warmup_steps)
        self._trainer = trainer

    def step(self, batch_size: int, **options: Any) -> None:
        """``trainer.step`` with the scaled rate; before and after, the optimizer has the unscaled one.

        Args:
            batch_size: as for the trainer's ``step``, and so are the options.
        """
        optimizer, factor = self._trainer._optimizer, self.factor
        rate, schedule = optimizer.lr, optimizer.lr_scheduler
        optimizer.lr = rate * factor
        if schedule is not None:
            optimizer.lr_scheduler = lambda updates: schedule(updates) * factor
        try:
            self._trainer.step(batch_size, **options)
        finally:
            optimizer.lr, optimizer.lr_scheduler = rate, schedule
        self.record_step()


def _forget_gradient(variable: Any) -> None:
    """Of what adds its gradients up (grad_req "add"); others are overwritten by the next backward pass."""
    if isinstance(variable, mx.gluon.Parameter):
        if variable.grad_req == "add":
            for gradient in variable.list_grad():  # Parameter.zero_grad takes none of mx.np
                fill(gradient, 0)
    elif variable.grad is not None:
        fill(variable.grad, 0)


def _array(variable: Any) -> Any:
    return variable.list_data()[0] if isinstance(variable, mx.gluon.Parameter) else variable


__all__ = ["CheckpointError", "ElasticBatches", "ElasticIndices", "LearningRateScale", "MXNetState", "run"]
