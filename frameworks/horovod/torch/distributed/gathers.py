"""The collectives that move: broadcast, allgather, gather, scatter and alltoall in all their forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod import _core
from horovod.torch.distributed import buffers, checks
from horovod.torch.distributed.checks import Expected
from horovod.torch.distributed.communicator import Communicator
from horovod.torch.distributed.errors import wrong_call
from horovod.torch.distributed.work import Finish, joint

Tensors = Sequence[torch.Tensor]
_UNIT = "tensors"  # of what all ranks have of one size


def broadcast(communicator: Communicator, tensors: Tensors, options: Any) -> Any:
    """Overwrites each tensor by that of the root; several travel as one operation."""
    tensors = list(tensors)  # the program's list may change while they are in flight
    root, specs = options.rootRank, buffers.in_place(tensors)
    checks.check_rank(communicator, "broadcast, its root", root)
    kept: Any = tensors
    finish = None
    if specs is None:
        targets = kept = [buffers.target(tensor) for tensor in tensors]
        specs = [
            buffers.spec(each.buffer, each.buffer, each.buffer.shape, tensor.dtype)
            for each, tensor in zip(targets, tensors, strict=True)
        ]
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
            why = (
                f"an output of {output.numel()} elements of {output.dtype} does not go with an input of "
                f"{given.numel()} of {given.dtype}; give one of {size * given.numel()} of that type"
            )
            raise wrong_call(communicator, "all_gather into one tensor", why)
        source, each = buffers.flat_source(given), buffers.target(output)
        whole = each.buffer if communicator.order is None else torch.empty_like(each.buffer)
        source = buffers.apart(source, whole, communicator.rank)
        specs.append(buffers.spec(source, whole, (1, source.numel()), given.dtype))
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
        for whole, each in zip(gathered, targets, strict=True):
            shape = (len(order), whole.numel() // len(order))
            rows = each.buffer.view(shape)
            for rank, arrived in zip(order, whole.view(shape), strict=True):
                rows[rank].copy_(arrived)
            each.deliver()

    return finish


def allgather(communicator: Communicator, outputs: Sequence[Tensors], inputs: Tensors, options: Any) -> Any:
    """Each list of outputs becomes the inputs of all ranks, whose sizes may differ.

    Raises:
        ValueError: a list is not one of outputs for all ranks, of the type of the input and for this rank of
            its size.
        TensorMismatchError: the ranks have inputs of other sizes than the outputs.
    """
    for parts, given in zip(outputs, inputs, strict=True):
        checks.check_list(communicator, "all_gather, outputs", parts, given)
        own = [parts[communicator.rank]]
        checks.check_sizes(communicator, "all_gather, the output for itself", own, given.numel(), "its input")
    works = [_allgather(communicator, *pair, options) for pair in zip(outputs, inputs, strict=True)]
    return joint(works)


def _allgather(communicator: Communicator, parts: Tensors, given: torch.Tensor, options: Any) -> Any:
    source = buffers.flat_source(given)
    whole, distribute = _parts_of(communicator, parts, source)
    if all(part.numel() == given.numel() for part in parts):
        # All are to have one size: the ranks find out when they have not.
        spec = buffers.spec(source, whole, (1, source.numel()), given.dtype)
        return communicator.start(_core.ALLGATHER, [spec], options, (source, whole), distribute, parts)
    # Only the sum of sizes is known when all is well for the core, so each rank says its own, too.
    own, told = torch.tensor([source.numel()]), torch.zeros(communicator.size, dtype=torch.int64)
    width = buffers.width(given)
    room = [part.numel() * width for part in communicator.arranged(parts)]
    expected = Expected(communicator, "all_gather", room, width)

    def finish(outputs: list[_core.Output] | None) -> None:
        expected.compare(told.tolist())
        distribute(outputs)

    specs = [buffers.spec(source, whole, source.shape, given.dtype), buffers.spec(own, told, (1,))]
    kept = (source, whole, own, told)
    return communicator.start(_core.ALLGATHER, specs, options, kept, finish, parts)


def gather(communicator: Communicator, outputs: Sequence[Tensors], inputs: Tensors, options: Any) -> Any:
    """As ``allgather`` of tensors of one size, on the root only."""
    root = options.rootRank
    checks.check_rank(communicator, "gather, its root", root)
    source = buffers.flat_source(inputs[0])
    splits = [0] * communicator.size
    splits[communicator.position(root)] = 1
    expected = Expected(
        communicator, "gather", [int(communicator.rank == root)] * communicator.size, 1, _UNIT
    )
    whole = source.new_empty(0)
    finish: Finish = expected.check
    if communicator.rank == root:
        checks.check_list(communicator, "gather, outputs", outputs[0], inputs[0])
        checks.check_sizes(communicator, "gather, outputs", outputs[0], inputs[0].numel(), "its input")
        whole, distribute = _parts_of(communicator, outputs[0], source)
        finish = _checked(expected, distribute)
    spec = buffers.spec(source, whole, (1, source.numel()), inputs[0].dtype)
    result = outputs[0] if outputs else []
    kept = (source, whole)
    return communicator.start(_core.ALLTOALL, [spec], options, kept, finish, result, splits=splits)


def scatter(communicator: Communicator, outputs: Tensors, inputs: Sequence[Tensors], options: Any) -> Any:
    """The output becomes the root's input for this rank; all of one size."""
    checks.check_rank(communicator, "scatter, its root", options.rootRank)
    size, target = communicator.size, buffers.target(outputs[0])
    if communicator.rank == options.rootRank:
        checks.check_list(communicator, "scatter, inputs", inputs[0], outputs[0])
        checks.check_sizes(communicator, "scatter, inputs", inputs[0], outputs[0].numel(), "its output")
        parts = [buffers.flat_source(part) for part in inputs[0]]
        source = torch.cat(list(communicator.arranged(parts)))
        splits = [1] * size
    else:
        source = target.buffer.new_empty(0)
        splits = [0] * size
    rows = (size if communicator.rank == options.rootRank else 0, target.buffer.numel())
    spec = buffers.spec(source, target.buffer, rows, outputs[0].dtype)
    finish = buffers.delivering([target], _from_root(communicator, options.rootRank))
    kept = (source, target)
    return communicator.start(_core.ALLTOALL, [spec], options, kept, finish, outputs, splits=splits)


def _from_root(communicator: Communicator, root: int) -> Expected:
    """The root sends one row, and nobody else anything: who takes another for the root has sent one, too."""
    room = [0] * communicator.size
    room[communicator.position(root)] = 1
    return Expected(communicator, "scatter", room, 1, _UNIT)


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
        ValueError: the splits do not go with the tensors.
        TensorMismatchError: they do not go with what the other ranks send.
    """
    if output.dtype is not given.dtype:
        why = f"an input of {given.dtype} and an output of {output.dtype}; give both of one type"
        raise wrong_call(communicator, "all_to_all_single", why)
    input_rows = checks.split_counts(communicator, given, input_splits, "input")
    output_rows = checks.split_counts(communicator, output, output_splits, "output")
    if communicator.order is not None:
        outputs, inputs = output.split(output_rows), given.split(input_rows)
        return alltoall(communicator, outputs, inputs, options, [output])
    target = buffers.target(output)
    source = buffers.apart(buffers.flat_source(given), target.buffer)
    sent = _elements(input_rows, source)
    room = _elements(output_rows, target.buffer)
    spec = buffers.spec(source, target.buffer, source.shape, given.dtype)
    expected = Expected(communicator, "all_to_all_single", room, buffers.width(given))
    finish = buffers.delivering([target], expected)
    kept = (source, target)
    return communicator.start(_core.ALLTOALL, [spec], options, kept, finish, output, splits=sent)


def alltoall(
    communicator: Communicator, outputs: Tensors, inputs: Tensors, options: Any, result: Tensors | None = None
) -> Any:
    """The i-th output becomes what rank i has as input for this rank; sizes may differ. ``result``: what the
    work names as its result, if not the outputs.

    Raises:
        ValueError: there is not one input and one output for each rank, all of one type.
        TensorMismatchError: the ranks have inputs of other sizes than the outputs.
    """
    checks.check_list(communicator, "all_to_all, inputs", inputs)
    checks.check_list(communicator, "all_to_all, outputs", outputs, inputs[0])
    sources = [buffers.flat_source(part) for part in communicator.arranged(inputs)]
    source = torch.cat(sources)
    whole, distribute = _parts_of(communicator, outputs, source)
    width = buffers.width(inputs[0])
    room = [part.numel() * width for part in communicator.arranged(outputs)]
    what = "all_to_all" if result is None else "all_to_all_single"
    finish = _checked(Expected(communicator, what, room, width), distribute)
    spec = buffers.spec(source, whole, source.shape, inputs[0].dtype)
    sent = [part.numel() for part in sources]
    kept = (source, whole)
    return communicator.start(_core.ALLTOALL, [spec], options, kept, finish, result or outputs, splits=sent)


def _checked(expected: Expected, distribute: Finish) -> Finish:
    """Distributes what has arrived, if it is what was expected."""

    def finish(outputs: list[_core.Output] | None) -> None:
        expected.check(outputs)
        distribute(outputs)

    return finish


def _elements(rows: Sequence[int], flat: torch.Tensor) -> list[int]:
    """How many elements of ``flat`` the rows have that go with each rank."""
    per_row = flat.numel() // max(1, sum(rows))
    return [count * per_row for count in rows]


def _parts_of(
    communicator: Communicator, parts: Tensors, source: torch.Tensor
) -> tuple[torch.Tensor, Finish]:
    """One contiguous tensor for what arrives for ``parts``, one for each rank of the group, and what
    distributes it to them.
    """
    targets = [buffers.target(part) for part in communicator.arranged(parts)]
    counts = [each.buffer.numel() for each in targets]
    whole = source.new_empty(sum(counts))

    def finish(outputs: list[_core.Output] | None) -> None:
        for each, arrived in zip(targets, whole.split(counts), strict=True):
            each.buffer.view(-1).copy_(arrived)
            each.deliver()

    return whole, finish
