"""The state of elastic training with torch, and the handlers of its parts."""

from __future__ import annotations

import collections
import functools
from collections.abc import Sequence
from typing import Any

import torch

from horovod.common.basics import rank
from horovod.common.collective.operations import ALLREDUCE
from horovod.common.collective.tensor_glue import DTYPES, Purpose
from horovod.common.set_agreement import exchange
from horovod.elastic.batches import ElasticBatches
from horovod.elastic.checkpoint.formats import ArrayFormat
from horovod.elastic.handlers import HandlerMaker, HandlerState, IndicesHandler, PlainHandler, StateHandler
from horovod.elastic.indices import ElasticIndices
from horovod.elastic.rate import RateScale
from horovod.elastic.state import ObjectState  # noqa: F401  # scripts import it from here
from horovod.torch.elastic.copies import Copies
from horovod.torch.elastic.formats import TensorFormat
from horovod.torch.elastic.loaders import LoaderStateHandler, StatefulLoader
from horovod.torch.elastic.outlines import read, written
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.functions import (
    allgather_object,  # noqa: F401  # scripts import it from here
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from horovod.torch.optimizer_state import assign, outline_and_tensors, problems_with

HandlerRegistry = Sequence[tuple[Any, HandlerMaker]]


class TorchState(HandlerState):
    """A model, its optimizer, and whatever else the training needs to go on.

    Models, optimizers, samplers, stateful data loaders, schedules of the learning rate and gradient scalers
    are saved, restored and synchronized in place, by handlers (``get_handler_registry``). Everything else is
    pickled.

    Args:
        model: a ``torch.nn.Module``.
        optimizer: a ``torch.optim.Optimizer``, or a DistributedOptimizer.
        **kwargs: further attributes, also models and optimizers: ``sampler=sampler, epoch=0``.

    Raises:
        UnpicklableObjectError: a ValueError; an attribute cannot be pickled.
    """

    formats = (TensorFormat(), ArrayFormat())

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **kwargs: Any,
    ) -> None:
        broadcast = functools.partial(broadcast_object, name="state.sync(): objects")
        super().__init__(broadcast, rank, model=model, optimizer=optimizer, **kwargs)

    def _settle(self) -> None:
        settle()

    def _maker_for(self, name: str, value: Any) -> HandlerMaker | None:
        registered = next((make for kind, make in _registry if isinstance(value, kind)), None)
        return registered or super()._maker_for(name, value)


def settle() -> None:
    """Waits for what the GPU was given, which may still fail with the job. In a job that works on GPUs it is
    a collective: HorovodInternalError where the job has failed.
    """
    if Purpose(ALLREDUCE).runs_on_gpu(DTYPES["float32"]):
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        exchange([], "state.commit(): wait for the GPU")


class _StateDictHandler(StateHandler):
    """Of anything with ``state_dict`` and ``load_state_dict``."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self._copies = Copies()
        self.save()

    def save(self) -> None:
        self._copies.take(self.value.state_dict())

    def restore(self) -> None:
        self.value.load_state_dict(self._copies.newest.new_copy())

    def contents(self) -> Any:
        kept = self._copies.newest.kept
        return dict(kept) if type(kept) is collections.OrderedDict else kept

    def lend(self) -> None:
        self._copies.lend()
        _await_copies()

    def load(self, contents: Any) -> None:
        self.value.load_state_dict(contents)

    def sync(self) -> None:
        root = self.winner.rank
        mine = self.value.state_dict()
        state = broadcast_object(mine, root, "state.sync(): state_dict")
        if state is not mine:
            self.value.load_state_dict(state)


class ModelStateHandler(_StateDictHandler):
    """Of a ``torch.nn.Module``: what its ``state_dict`` has."""

    value: torch.nn.Module

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)

    def restore(self) -> None:
        self.value.load_state_dict(self._copies.newest.to_load())

    def sync(self) -> None:
        state = self.value.state_dict()
        tensors = {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}
        broadcast_parameters(tensors, self.winner.rank)
        others = {key: value for key, value in state.items() if key not in tensors}
        if others:  # the extra states of modules
            others = broadcast_object(others, self.winner.rank, "state.sync(): extra state")
        for key, value in others.items():
            state[key] = value
        self.value.load_state_dict(state)  # for modules whose dictionary does not have the tensors themselves


class OptimizerStateHandler(_StateDictHandler):
    """Of a ``torch.optim.Optimizer``, distributed or not: its state and the options of its groups. It forgets
    gradients, also those that are being reduced: they belong to a step that is not made.
    """

    value: torch.optim.Optimizer

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer)

    # Not by load_state_dict, which converts the state to the types of the parameters.
    def save(self) -> None:
        self._outline, tensors = outline_and_tensors(self.value)
        self._copies.take(tensors)

    def restore(self) -> None:
        _forget_gradients(self.value)
        self._copies.newest.put_into(assign(self.value, self._outline))

    def contents(self) -> Any:
        return written(self._outline, self._copies.newest.kept)

    def load(self, contents: Any) -> None:
        _forget_gradients(self.value)
        described, tensors = read(contents)
        problem = problems_with(self.value, described)
        if problem is not None:
            raise ValueError(problem)
        with torch.no_grad():
            for mine, loaded in zip(assign(self.value, described), tensors, strict=True):
                mine.copy_(loaded)

    def sync(self) -> None:
        _forget_gradients(self.value)
        if isinstance(self.value, torch.optim.LBFGS):
            super().sync()
        else:
            broadcast_optimizer_state(self.value, self.winner.rank)

    def reset(self) -> None:
        """The training function begins again: with the first pass of a step."""
        _forget_gradients(self.value)


class SamplerStateHandler(IndicesHandler):
    """Of an ``ElasticSampler``. What any rank has processed is processed for all."""

    def __init__(self, sampler: ElasticSampler) -> None:
        super().__init__(sampler)


def _await_copies() -> None:
    """Another thread is to read what was copied on a GPU."""
    if torch.cuda.is_initialized():
        torch.cuda.current_stream().synchronize()


def _forget_gradients(optimizer: torch.optim.Optimizer) -> None:
    forget_step = getattr(optimizer, "_forget_step", None)
    if forget_step is not None:
        forget_step()
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


_registry: HandlerRegistry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
    (ElasticIndices, IndicesHandler),
    (ElasticBatches, PlainHandler),
    (RateScale, PlainHandler),
    (torch.optim.lr_scheduler.LRScheduler, _StateDictHandler),
    (torch.amp.GradScaler, _StateDictHandler),
    (StatefulLoader, LoaderStateHandler),  # last: others can be iterated over, too
]


def get_handler_registry() -> HandlerRegistry:
    """The types that have handlers: a list of (type, handler). The first that fits counts."""
    return _registry


def set_handler_registry(registry: HandlerRegistry) -> None:
    """Replaces the list of types that have handlers. States that exist keep theirs.

    Args:
        registry: pairs of a type and what makes a ``StateHandler`` of an object of that type.
    """
    global _registry
    _registry = registry
