"""The collectives that reduce: allreduce, reduce and reduce-scatter in all their forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod import _core
from horovod.torch.distributed import buffers, checks, sparse
from horovod.torch.distributed.checks import Expected
from horovod.torch.distributed.communicator import Communicator
from horovod.torch.distributed.errors import wrong_call
from horovod.torch.distributed.reduce_ops import Reduction, described, for_tensor, reduction_of
from horovod.torch.distributed.work import joint


def allreduce(
    communicator: Communicator, tensors: Sequence[torch.Tensor], options: Any, root: int = 0
) -> Any:
    """Replaces each tensor by the reduction of those of all ranks; several travel as one operation. ``root``
    is for the comparison between ranks.
    """
    reduction = reduction_of(options.reduceOp)
    if reduction.combine is None and communicator.size > 1:
        tensors = list(tensors)  # the program's list may change while they are in flight
        specs = buffers.in_place(tensors)
        if specs is not None:  # what DDP and most programs do
            return communicator.start(
                _core.ALLREDUCE,
                specs,
                options,
                tensors,
                None,
                tensors,
                reduction.op,
                reduction.prescale,
                root,
            )
    if any(tensor.layout is not torch.strided for tensor in tensors):
        return sparse.allreduce(communicator, tensors, reduction, options)
    return _allreduce_by_copies(communicator, tensors, reduction, options, root)


def _allreduce_by_copies(
    communicator: Communicator,
    tensors: Sequence[torch.Tensor],
    reduction: Reduction,
    options: Any,
    root: int,
) -> Any:
    reduction = for_tensor(reduction, tensors[0])
    if reduction.combine is not None:
        return _reduce_here(communicator, tensors, reduction, options, root)
    targets = [buffers.target(tensor, moved=False) for tensor in tensors]
    if communicator.size == 1 and reduction.prescale != 1.0:
        for each in targets:
            each.buffer.mul_(reduction.prescale)
    return communicator.start(
        _core.ALLREDUCE,
        [
            buffers.spec(each.buffer, each.buffer, each.buffer.shape, tensor.dtype)
            for each, tensor in zip(targets, tensors, strict=True)
        ],
        options,
        targets,
        buffers.delivering(targets),
        tensors,
        reduction.op,
        reduction.prescale,
        root,
    )


def _reduce_here(
    communicator: Communicator,
    tensors: Sequence[torch.Tensor],
    reduction: Reduction,
    options: Any,
    root: int,
) -> Any:
    """By an allgather: what the core cannot reduce."""
    shapes = [list(tensor.shape) for tensor in tensors]
    about = checks.as_bytes(f"{described(options.reduceOp)} of {shapes}, root {root}")
    sources = [*(buffers.flat_source(tensor) for tensor in tensors), about]
    gathered = [source.new_empty((communicator.size, source.numel())) for source in sources]

    def finish(outputs: object) -> None:
        if communicator.size > 1:
            checks.check_alike(communicator, "all_reduce", gathered[-1])
        for tensor, rows in zip(tensors, gathered[:-1], strict=True):
            _put(tensor, rows, reduction)

    specs = [
        buffers.spec(source, rows, (1, source.numel()), tensor.dtype)
        for source, rows, tensor in zip(sources, gathered, [*tensors, about], strict=True)
    ]
    return communicator.start(_core.ALLGATHER, specs, options, (sources, gathered), finish, tensors)


def _put(tensor: torch.Tensor, rows: torch.Tensor, reduction: Reduction) -> None:
    """The reduction of rows, which came from all ranks, into ``tensor``."""
    own = torch.view_as_complex(rows.view(rows.shape[0], -1, 2)) if tensor.is_complex() else rows
    tensor.detach().copy_(reduction.over(own).view(tensor.shape))


def reduce(communicator: Communicator, tensors: Sequence[torch.Tensor], options: Any) -> Any:
    """As ``allreduce``, but only the tensor of the root changes."""
    checks.check_rank(communicator, "reduce, its root", options.rootRank)
    if communicator.rank != options.rootRank and communicator.size > 1:
        tensors = [tensor.detach().clone() for tensor in tensors]
    return allreduce(communicator, tensors, options, options.rootRank)


def reduce_scatter_single(
    communicator: Communicator, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], options: Any
) -> Any:
    """For each output the own part of the reduction of the inputs of all ranks; several travel as one
    operation.

    Raises:
        ValueError: an input has not as many elements as the outputs of all ranks.
    """
    size = communicator.size
    for output, given in zip(outputs, inputs, strict=True):
        if given.numel() != size * output.numel() or given.dtype != output.dtype:
            why = (
                f"an input of {given.numel()} elements of {given.dtype} does not go with an output of "
                f"{output.numel()} of {output.dtype}; give one of {size * output.numel()} of that type"
            )
            raise wrong_call(communicator, "reduce_scatter of one tensor", why)
    if communicator.order is not None:
        inputs = [_arranged(communicator, given) for given in inputs]
    return _reduce_scatter(communicator, outputs, inputs, options)


def _arranged(communicator: Communicator, given: torch.Tensor) -> torch.Tensor:
    """The input with its parts in the order of the process set."""
    size = communicator.size
    rows = given.detach().reshape(size, given.numel() // size)
    return torch.stack(list(communicator.arranged(rows.unbind(0))))


def _reduce_scatter(
    communicator: Communicator, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], options: Any
) -> Any:
    """Of inputs whose parts are in the order of the process set."""
    size = communicator.size
    reduction = for_tensor(reduction_of(options.reduceOp), inputs[0])
    sources = [buffers.flat_source(given, reduction.combine is not None) for given in inputs]
    if reduction.combine is not None or size == 1:
        works = [
            _scatter_here(communicator, output, source, [source.numel() // size] * size, reduction, options)
            for output, source in zip(outputs, sources, strict=True)
        ]
        return joint(works)
    targets = [buffers.target(output, moved=False) for output in outputs]
    sources = [buffers.apart(source, each.buffer) for source, each in zip(sources, targets, strict=True)]
    specs = [
        buffers.spec(source, each.buffer, (size, source.numel() // size), given.dtype)
        for source, each, given in zip(sources, targets, inputs, strict=True)
    ]
    finish = buffers.delivering(targets)
    op, factor = reduction.op, reduction.prescale
    return communicator.start(
        _core.REDUCESCATTER, specs, options, (sources, targets), finish, outputs, op, factor
    )


def _scatter_here(
    communicator: Communicator,
    output: torch.Tensor,
    source: torch.Tensor,
    parts: Sequence[int],
    reduction: Reduction,
    options: Any,
) -> Any:
    """By an alltoall of the parts of ``source``, of so many elements, which each rank combines."""
    own = parts[communicator.position(communicator.rank)]
    received = source.new_empty((communicator.size, own))
    room = [own] * communicator.size
    expected = Expected(communicator, "reduce_scatter", room, buffers.width(output))

    def finish(outputs: list[_core.Output] | None) -> None:
        expected.check(outputs)
        _put(output, received, reduction)

    specs = [buffers.spec(source, received, source.shape, output.dtype)]
    kept = (source, received)
    op, factor = reduction.op, reduction.prescale  # for the comparison between ranks
    return communicator.start(_core.ALLTOALL, specs, options, kept, finish, output, op, factor, splits=parts)


def reduce_scatter(
    communicator: Communicator,
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[Sequence[torch.Tensor]],
    options: Any,
) -> Any:
    """As ``reduce_scatter_single``, of inputs in one part for each rank, which may differ in size.

    Raises:
        ValueError: there is not one input for each rank, all of the type of the output and that for this rank
            of its size.
        TensorMismatchError: the other ranks have inputs for this one of another size.
    """
    for output, parts in zip(outputs, inputs, strict=True):
        checks.check_list(communicator, "reduce_scatter, inputs", parts, output)
        mine = [parts[communicator.rank]]
        checks.check_sizes(
            communicator, "reduce_scatter, the input for itself", mine, output.numel(), "its output"
        )
    works = []
    for output, parts in zip(outputs, inputs, strict=True):
        own = output.numel()
        arranged = [part.detach().reshape(-1) for part in communicator.arranged(parts)]
        whole = torch.cat(arranged)
        counts = [part.numel() for part in arranged]
        if all(count == own for count in counts):
            works.append(_reduce_scatter(communicator, [output], [whole], options))
            continue
        reduction = for_tensor(reduction_of(options.reduceOp), whole)
        source = buffers.flat_source(whole)
        elements = [count * (source.numel() // max(1, whole.numel())) for count in counts]
        works.append(_scatter_here(communicator, output, source, elements, reduction, options))
    return joint(works)
