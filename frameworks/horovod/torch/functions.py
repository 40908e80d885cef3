"""Giving all ranks the same start: parameters, optimizer state and objects of one rank, on all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from horovod.common import remarks
from horovod.common.basics import rank, size  # noqa: F401  # scripts import them from here
from horovod.common.collective.tensor_glue import Result
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.training.broadcasts import agree_on_tensors
from horovod.torch.operations import objects, ops
from horovod.torch.optimizer_state import assign, outline, problems_with
from horovod.torch.tensors import check

# Scripts import them from here, too.
allgather = ops.allgather
broadcast_ = ops.broadcast_
broadcast_async_ = ops.broadcast_async_
synchronize = ops.synchronize

broadcast_object = objects.broadcast_object
allgather_object = objects.allgather_object


def broadcast_parameters(
    params: Mapping[str, torch.Tensor] | Sequence[torch.Tensor | tuple[str, torch.Tensor]],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Overwrites tensors with those of rank ``root_rank``, on all ranks of the process set. The ranks compare
    what they have before any is sent.

    Args:
        params: a ``state_dict()``, a list of tensors, or a list of (name, tensor) such as
            ``list(model.named_parameters())``.
        root_rank: whose tensors.
        process_set: the ranks that take part.

    Raises:
        ValueError: ``params`` is something else, or one of the tensors cannot be sent, as that of a lazy
            layer, on one rank; on all ranks.
        TensorMismatchError: the ranks' tensors differ in name, shape or type; on all ranks.
        HorovodInternalError: a rank is gone.
    """
    remarks.parameters_are_broadcast()
    _broadcast_all("broadcast_parameters", _named_tensors(params), root_rank, process_set)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: torch.nn.Module | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Gives every rank the state and the options (learning rate and the like) that rank ``root_rank`` has.

    The root decides which state there is: ranks that have none, because only the root has loaded a
    checkpoint, receive it, and what only they have is dropped. Tensors that exist with the right shape and
    type are overwritten in place.

    Args:
        optimizer: any but LBFGS, wrapped or not.
        root_rank: whose state.
        model: accepted and not needed.
        process_set: the ranks that take part.

    Raises:
        ValueError: the optimizer is an LBFGS, or has other parameter groups than that of the root.
        HorovodInternalError: a rank is gone.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        # Its state is the history of one flat vector, which is only meaningful along with the closure's
        # progress.
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    described = broadcast_object(outline(optimizer), root_rank, "broadcast_optimizer_state", process_set)
    mine = problems_with(optimizer, described)
    problems = allgather_object(mine, "broadcast_optimizer_state.check", process_set)
    ranks = process_set.ranks or range(len(problems))
    wrong = [f"rank {each}: {problem}" for each, problem in zip(ranks, problems, strict=True) if problem]
    if wrong:
        raise ValueError(f"The optimizer differs from that of rank {root_rank}: {'; '.join(wrong)}")
    tensors = assign(optimizer, described)
    named = [(str(index), tensor) for index, tensor in enumerate(tensors)]
    _broadcast_all("broadcast_optimizer_state", named, root_rank, process_set)


def _named_tensors(params: Any) -> list[tuple[str, torch.Tensor]]:
    if isinstance(params, Mapping):
        items = sorted(params.items())
    elif isinstance(params, list):
        items = [item if isinstance(item, tuple) else (str(index), item) for index, item in enumerate(params)]
    else:
        raise ValueError(
            f"invalid params of type: {type(params)}; give a dict or a list of tensors or (name, tensor)"
        )
    return [(name, tensor) for name, tensor in items if tensor is not None]


def _broadcast_all(
    call: str, tensors: Sequence[tuple[str, torch.Tensor]], root_rank: int, process_set: ProcessSet
) -> None:
    problem = next(filter(None, (_problem_with(name, tensor) for name, tensor in tensors)), None)
    kinds = {} if problem else {repr(name): _kind(tensor) for name, tensor in tensors}
    agree_on_tensors(f"hvd.{call}", kinds, process_set, problem)
    handles = [
        ops.broadcast_async_(tensor, root_rank, f"{call}.{name}", process_set) for name, tensor in tensors
    ]
    for handle in handles:
        ops.synchronize(handle)


def _problem_with(name: str, tensor: torch.Tensor) -> str | None:
    """What keeps a tensor from being sent."""
    if not isinstance(tensor, torch.Tensor):
        return f"{name!r} is a {type(tensor).__name__}, not a tensor; use hvd.broadcast_object for it"
    try:
        check(tensor, Result.IN_PLACE)
    except ValueError as error:
        return f"{name!r} cannot be broadcast, and nothing was: {error}"
    return None


def _kind(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
