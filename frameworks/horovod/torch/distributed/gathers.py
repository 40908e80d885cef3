"""The collectives that move: broadcast, allgather, gather, scatter and alltoall in all their forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod import _core
from horovod.torch.distributed import buffers
from horovod.torch.distributed.communicator import Communicator
from horovod.torch.distributed.work import Finish, joint

Tensors = Sequence[torch.Tensor]


def broadcast(communicator: Communicator, tensors: Tensors, options: Any) -> Any:
    """Overwrites each tensor by that of the root; several travel as one operation."""
    tensors = list(tensors)  # the program's list may change while they are in flight
    root, specs = options.rootRank, buffers.in_place(tensors)
    kept: Any = tensors
    finish = None
    if specs is None:
        targets = kept = [buffers.target(tensor) for tensor in tensors]
        specs = [buffers.spec(each.buffer, each.buffer, each.buffer.shape) for each in targets]
        finish = buffers.delivering(targets)
    return communicator.start(_core.BROADCAST, specs, options, kept, finish, tensors, root=root)


def allgather_single(communicator: Communicator, outputs: Tensors, inputs: Tensors, options: Any) -> Any:
    """Each output becomes the inputs of all ranks one after the other; several travel as one operation.

    Raises:
        ValueError: an output has not the size of the inputs of all ranks.
    """
    size = communicator.size
    specs, kept, targets, gathered = [], [], [], []
    for output, given in zip(outputs, inputs, strict=True):
        if output.numel() != size * given.numel() or output.dtype != given.dtype:
            raise ValueError(
                f"allgather: an output of {output.numel()} elements of {output.dtype} does not go with an "
                f"input of {given.numel()} of {given.dtype} in a group of {size}."
            )
        source, each = buffers.flat_source(given), buffers.target(output)
        whole = each.buffer if communicator.order is None else torch.empty_like(each.buffer)
        specs.append(buffers.spec(source, whole, (1, source.numel())))
        kept.append(source)
        targets.append(each)
        gathered.append(whole)
    finish = buffers.delivering(targets)
    if communicator.order is not None:
        finish = _rearranging(communicator.order, gathered, targets)
    return communicator.start(_core.ALLGATHER, specs, options, (kept, gathered, targets), finish, outputs)


def _rearranging(order: Sequence[int], gathered: Tensors, targets: Sequence[buffers.Target]) -> Finish:
    """Puts what came in the order of the process set where it belongs. A part is so many elements, whatever
    the shape.
    """

    def finish(outputs: list[_core.Output] | None) -> None:
        buffers.check_fits(outputs, gathered)
        for whole, each in zip(gathered, targets, strict=True):
            shape = (len(order), whole.numel() // len(order))
            rows = each.buffer.view(shape)
            for rank, arrived in zip(order, whole.view(shape), strict=True):
                rows[rank].copy_(arrived)
            each.deliver()

    return finish


def allgather(communicator: Communicator, outputs: Sequence[Tensors], inputs: Tensors, options: Any) -> Any:
    """Each list of outputs becomes the inputs of all ranks, whose sizes may differ."""
    works = []
    for parts, given in zip(outputs, inputs, strict=True):
        source = buffers.flat_source(given)
        whole, finish = _parts_of(communicator, parts, source)
        # Where all are to have one size the ranks find out when they have not.
        even = all(part.numel() == given.numel() for part in parts)
        spec = buffers.spec(source, whole, (1, source.numel()) if even else source.shape)
        kept = (source, whole)
        works.append(communicator.start(_core.ALLGATHER, [spec], options, kept, finish, parts))
    return joint(works)


def gather(communicator: Communicator, outputs: Sequence[Tensors], inputs: Tensors, options: Any) -> Any:
    """As ``allgather`` of tensors of one size, on the root only."""
    root = options.rootRank
    source = buffers.flat_source(inputs[0])
    splits = [0] * communicator.size
    splits[communicator.position(root)] = 1
    whole, finish = source.new_empty(0), None
    if communicator.rank == root:
        whole, finish = _parts_of(communicator, outputs[0], source)
    spec = buffers.spec(source, whole, (1, source.numel()))
    result = outputs[0] if outputs else []
    kept = (source, whole)
    return communicator.start(_core.ALLTOALL, [spec], options, kept, finish, result, splits=splits)


def scatter(communicator: Communicator, outputs: Tensors, inputs: Sequence[Tensors], options: Any) -> Any:
    """The output becomes the root's input for this rank; all of one size."""
    size, target = communicator.size, buffers.target(outputs[0])
    if communicator.rank == options.rootRank:
        parts = [buffers.flat_source(part) for part in inputs[0]]
        if len(parts) != size or any(part.numel() != target.buffer.numel() for part in parts):
            raise ValueError(
                f"scatter: the root's {len(parts)} tensors must be one for each of {size} ranks, of the size "
                "of its output."
            )
        source = torch.cat(list(communicator.arranged(parts)))
        splits = [1] * size
    else:
        source = target.buffer.new_empty(0)
        splits = [0] * size
    rows = (size if communicator.rank == options.rootRank else 0, target.buffer.numel())
    spec = buffers.spec(source, target.buffer, rows)
    finish = buffers.delivering([target], sized=True)
    kept = (source, target)
    return communicator.start(_core.ALLTOALL, [spec], options, kept, finish, outputs, splits=splits)


def alltoall_single(
    communicator: Communicator,
    output: torch.Tensor,
    given: torch.Tensor,
    output_splits: Sequence[int],
    input_splits: Sequence[int],
    options: Any,
) -> Any:
    """The output becomes the rows of the inputs of all ranks that are for this one.

    Raises:
        ValueError: the splits do not go with the tensors, or with what the other ranks send.
    """
    source, target = buffers.flat_source(given), buffers.target(output)
    sent = _elements(communicator, given, input_splits, source, "input")
    _elements(communicator, output, output_splits, target.buffer, "output")
    if communicator.order is not None:
        outputs = _split(output, output_splits, communicator.size)
        inputs = _split(given, input_splits, communicator.size)
        return alltoall(communicator, outputs, inputs, options, [output])
    spec = buffers.spec(source, target.buffer, source.shape)
    finish = buffers.delivering([target], sized=True)
    kept = (source, target)
    return communicator.start(_core.ALLTOALL, [spec], options, kept, finish, output, splits=sent)


def alltoall(
    communicator: Communicator, outputs: Tensors, inputs: Tensors, options: Any, result: Tensors | None = None
) -> Any:
    """The i-th output becomes what rank i has as input for this rank; sizes may differ. ``result``: what the
    work names as its result, if not the outputs.
    """
    if len(outputs) != communicator.size or len(inputs) != communicator.size:
        raise ValueError(
            f"alltoall: {len(inputs)} inputs and {len(outputs)} outputs in a group of {communicator.size}."
        )
    sources = [buffers.flat_source(part) for part in communicator.arranged(inputs)]
    source = torch.cat(sources)
    whole, finish = _parts_of(communicator, outputs, source)
    spec = buffers.spec(source, whole, source.shape)
    sent = [part.numel() for part in sources]
    kept = (source, whole)
    return communicator.start(_core.ALLTOALL, [spec], options, kept, finish, result or outputs, splits=sent)


def _split(tensor: torch.Tensor, splits: Sequence[int], size: int) -> Tensors:
    """The rows that go with each rank; without splits equally many."""
    return tensor.split(list(splits)) if splits else tensor.tensor_split(size)


def _elements(
    communicator: Communicator, tensor: torch.Tensor, splits: Sequence[int], flat: torch.Tensor, what: str
) -> list[int]:
    """How many elements of ``flat`` go with each rank, by splits in rows of ``tensor``; none: equal ones."""
    size = communicator.size
    rows = tensor.shape[0] if tensor.dim() > 0 else 0
    counts = list(splits) or [rows // size] * size
    if len(counts) != size or sum(counts) != rows or min(counts) < 0:
        raise ValueError(
            f"alltoall: the {what} splits {list(splits)} are not one number of rows for each of {size} ranks "
            f"that make up the {rows} rows of the {what}."
        )
    per_row = flat.numel() // rows if rows else 0
    return [count * per_row for count in counts]


def _parts_of(communicator: Communicator, parts: Tensors, source: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """One contiguous tensor for what arrives for ``parts``, one for each rank of the group, and what
    distributes it to them.
    """
    targets = [buffers.target(part) for part in communicator.arranged(parts)]
    counts = [each.buffer.numel() for each in targets]
    whole = source.new_empty(sum(counts))

    def finish(outputs: list[_core.Output] | None) -> None:
        buffers.check_fits(outputs, [whole])
        for each, arrived in zip(targets, whole.split(counts), strict=True):
            each.buffer.view(-1).copy_(arrived)
            each.deliver()

    return whole, finish
