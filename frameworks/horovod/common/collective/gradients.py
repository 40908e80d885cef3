"""The gradient of each operation, once for all adapters, in terms of the operations themselves.

``RULES`` has a rule for each row of ``operations.OPERATIONS``. An adapter whose framework differentiates runs
operations as ``RecordedOperation``. Where the forward operation had a name the backward one derives its own
from it, so that it too may run in any order; unnamed stays unnamed.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic

from horovod.bootstrap.variables import flag
from horovod.common.basics import rank
from horovod.common.collective.operations import Operation
from horovod.common.collective.tensor_glue import Tensor
from horovod.common.process_sets import ProcessSet
from horovod.common.reduce_ops import OP_NAMES, Average, Max, Min, Product, Sum, resolve_op

if TYPE_CHECKING:
    from horovod.common.collective.collectives import Collectives


class RecordedOperation(Generic[Tensor]):
    """One run of an operation, with what its gradient needs to know. It keeps no tensor alive.

    Attributes:
        arguments: as in the list of operations, by name; the reduction is resolved.
        rows: the first dimension of each tensor, where operation or gradient go by rows.
        sent: of an alltoall, how many rows went to each rank.
        received: how many came from each.
    """

    __slots__ = ("_operation", "_ops", "arguments", "received", "rows", "sent")

    def __init__(self, ops: Collectives[Tensor], operation: Operation, arguments: Sequence[Any]) -> None:
        """Describes the operation.

        Args:
            ops: the adapter's operations.
            operation: which one.
            arguments: in the order of the list of operations.
        """
        self._ops = ops
        self._operation = operation
        self.arguments = dict(zip(operation.arguments, arguments, strict=True))
        if "average" in self.arguments:
            self.arguments["op"] = resolve_op(self.arguments["op"], self.arguments["average"])
            self.arguments["average"] = None
        self.rows: Sequence[int] = ()
        self.sent: Sequence[int] = ()
        self.received: Sequence[int] = ()

    def run(self, tensors: Sequence[Tensor]) -> Any:
        """Starts the operation on one tensor, or on those of a group, and waits for it.

        Returns:
            What ``synchronize`` returns for it.
        """
        if self._operation.name not in _WITHOUT_ROWS:
            self.rows = [self._ops.glue.row_count(tensor) for tensor in tensors]
        start = getattr(self._ops, self._operation.name + "_async")
        handle = start(tensors if self.grouped else tensors[0], **self.arguments)
        result = self._ops.synchronize(handle)
        if "splits" in self.arguments:
            self.sent = self._sent(self.arguments["splits"])
            self.received = self._ops.glue.integers(result[1])
        return result

    def of_tensors(self, places: Sequence[int]) -> RecordedOperation[Tensor]:
        """What the gradients of some of the tensors need to know."""
        part = copy.copy(self)
        part.rows = [self.rows[place] for place in places] if self.rows else ()
        return part

    @property
    def needs_tensors(self) -> bool:
        """Whether the gradients depend on the tensors, which the framework must keep then."""
        return self._operation.name in _REDUCTIONS and self.arguments["op"] in NONLINEAR

    def gradients(self, gradients: Sequence[Tensor], tensors: Sequence[Tensor] = ()) -> list[Tensor]:
        """The gradients of the ``tensors``, given those of the results."""
        if self.needs_tensors:
            return _of_nonlinear(self._ops, gradients, self, tensors)
        return RULES[self._operation.name](self._ops, gradients, self)

    @property
    def grouped(self) -> bool:
        """Whether it takes several tensors."""
        return self._operation.grouped

    @property
    def process_set(self) -> ProcessSet:
        """The ranks that took part."""
        return self.arguments["process_set"]

    def backward_name(self, part: str = "gradient") -> str | None:
        """The name of an operation of the backward pass."""
        name = self.arguments["name"]
        return None if name is None else f"{name}.{part}"

    def _sent(self, splits: Any) -> list[int]:
        size = self.process_set.size() or 1
        given = [] if splits is None else self._ops.glue.integers(splits)
        return given or [self.rows[0] // size] * size


_REDUCTIONS = frozenset({"allreduce", "grouped_allreduce"})

# Operations that treat all elements alike.
_WITHOUT_ROWS = _REDUCTIONS | {"broadcast"}

NONLINEAR = frozenset({Max, Min, Product})
"""The reductions whose gradient depends on what was reduced."""

ONE_PROCESS_VARIABLE = "HOROVOD_ONE_PROCESS_GRADIENTS"

Rule = Callable[["Collectives[Any]", Sequence[Any], RecordedOperation[Any]], list[Any]]


def _allreduce(
    ops: Collectives[Tensor], gradients: Sequence[Tensor], done: RecordedOperation[Tensor]
) -> list[Tensor]:
    """Every rank's input reached every rank's output, so the gradients are reduced the way the inputs
    were: those of a linear reduction.
    """
    arguments = {**done.arguments, "name": done.backward_name()}
    if done.grouped:
        return ops.grouped_allreduce(gradients, **arguments)
    return [ops.allreduce(gradients[0], **arguments)]


def _of_nonlinear(
    ops: Collectives[Tensor],
    gradients: Sequence[Tensor],
    done: RecordedOperation[Tensor],
    tensors: Sequence[Tensor],
) -> list[Tensor]:
    def reduce(some: Sequence[Tensor], op: int, label: str) -> list[Tensor]:
        return ops.grouped_allreduce(
            some, name=done.backward_name(label), op=op, process_set=done.process_set
        )

    factors = done.arguments["prescale_factor"], done.arguments["postscale_factor"]
    return nonlinear_gradients(done.arguments["op"], tensors, gradients, factors, reduce, ops.glue.equals)


def nonlinear_gradients(
    op: int,
    tensors: Sequence[Any],
    gradients: Sequence[Any],
    factors: tuple[float, float],
    reduce: Callable[[Sequence[Any], int, str], Sequence[Any]],
    equals: Callable[[Any, Any], Any],
) -> list[Any]:
    """The gradients of an allreduce by Max, Min or Product, in the arithmetic of any framework.

    Those of a Max or a Min go to the ranks that have the extreme, in equal parts where several have it. That
    of a Product is what the others multiply to; without a division by zero, where some are zero.

    Args:
        op: Max, Min or Product.
        tensors: what was reduced.
        gradients: those of the results.
        factors: by which each tensor was multiplied before the reduction, and each result after it.
        reduce: an allreduce of several tensors by an op; a label tells it from others of the backward pass.
        equals: 1 where the elements of a tensor and of another, or a number, are equal, and 0 elsewhere, of
            the tensor's type.

    Returns:
        The gradients of the tensors.
    """
    own = [tensor * factors[0] for tensor in tensors]
    if op == Product:
        marks = [equals(each, 0.0) for each in own]
        filled = [each + mark for each, mark in zip(own, marks, strict=True)]  # with 1 in place of 0
        reduced = reduce(filled, op, "product")
    else:
        reduced = reduce(own, op, "extreme")
        marks = [equals(each, extreme) for each, extreme in zip(own, reduced, strict=True)]
    sums = reduce([*gradients, *marks], Sum, "gradient")
    totals, counts = sums[: len(own)], sums[len(own) :]
    if op == Product:
        shares = [
            equals(count - mark, 0.0) * product / each
            for count, mark, product, each in zip(counts, marks, reduced, filled, strict=True)
        ]
    else:
        shares = [mark / count for mark, count in zip(marks, counts, strict=True)]
    scale = factors[0] * factors[1]
    return [total * share * scale for total, share in zip(totals, shares, strict=True)]


def gradient_op() -> int:
    """How the gradients of an allgather or a broadcast are reduced: the ranks' average, as Horovod has always
    done, or their sum, where the user asks for the gradients of one process.
    """
    return Sum if _of_one_process() else Average


def _of_one_process() -> bool:
    return flag(ONE_PROCESS_VARIABLE)


def _allgather(
    ops: Collectives[Tensor], gradients: Sequence[Tensor], done: RecordedOperation[Tensor]
) -> list[Tensor]:
    """The average of the ranks' gradients, of which this rank takes the rows that it contributed."""
    name = done.backward_name()
    reduced = ops.grouped_allreduce(gradients, name=name, op=gradient_op(), process_set=done.process_set)
    # With the rank, because one that has joined contributes nothing.
    me = rank()
    counts = ops.allgather_number_lists([me, *done.rows], done.backward_name("rows"), done.process_set)
    lower = [numbers[1:] for numbers in counts if numbers[0] < me]
    before = [sum(numbers[t] for numbers in lower) for t in range(len(done.rows))]
    return [
        ops.glue.rows(tensor, start, count)
        for tensor, start, count in zip(reduced, before, done.rows, strict=True)
    ]


def _broadcast(
    ops: Collectives[Tensor], gradients: Sequence[Tensor], done: RecordedOperation[Tensor]
) -> list[Tensor]:
    """The average of the ranks' gradients on the root; zeros elsewhere, whose input had no influence."""
    name = done.backward_name()
    reduced = ops.allreduce(gradients[0], name=name, op=gradient_op(), process_set=done.process_set)
    return [reduced if rank() == done.arguments["root_rank"] else ops.glue.zeroed(reduced)]


def _alltoall(
    ops: Collectives[Tensor], gradients: Sequence[Tensor], done: RecordedOperation[Tensor]
) -> list[Tensor]:
    """The gradients of the received rows go back to where the rows came from; of the rows of the input those
    that were not sent, or sent to a rank that has joined, had no influence.
    """
    returned, counts = ops.alltoall(gradients[0], done.received, done.backward_name(), done.process_set)
    return [ops.glue.placed(returned, ops.glue.integers(counts), _starts(done.sent), done.rows[0])]


def _reducescatter(
    ops: Collectives[Tensor], gradients: Sequence[Tensor], done: RecordedOperation[Tensor]
) -> list[Tensor]:
    """The allgather of the ranks' gradients, times what each element was multiplied by (for Sum, in relation
    to Average, the size of the set).
    """
    scaled = scattered_gradients(ops, gradients, done)
    gathered = ops.grouped_allgather(scaled, done.backward_name(), done.process_set)
    if all(ops.glue.row_count(tensor) == count for tensor, count in zip(gathered, done.rows, strict=True)):
        return gathered
    return _with_rows_of_joined(ops, gathered, done)


def scattered_gradients(
    ops: Collectives[Tensor], gradients: Sequence[Tensor], done: RecordedOperation[Tensor]
) -> list[Tensor]:
    """Those of the results of a reducescatter, times what each element was multiplied by."""
    factors = done.arguments["prescale_factor"], done.arguments["postscale_factor"]
    factor = scatter_factor(done.arguments["op"], done.process_set, *factors)
    return [ops.glue.scaled(gradient, factor) for gradient in gradients]


RULES: dict[str, Rule] = {
    "allreduce": _allreduce,
    "grouped_allreduce": _allreduce,
    "allgather": _allgather,
    "grouped_allgather": _allgather,
    "broadcast": _broadcast,
    "alltoall": _alltoall,
    "reducescatter": _reducescatter,
    "grouped_reducescatter": _reducescatter,
}
"""By operation: the gradients of its tensors, given those of its results."""


def _with_rows_of_joined(
    ops: Collectives[Tensor], gathered: Sequence[Tensor], done: RecordedOperation[Tensor]
) -> list[Tensor]:
    """Zeros where the rows of ranks would be that have joined: these have dropped their parts."""
    here = set(ops.allgather_numbers(rank(), done.backward_name("ranks"), done.process_set))
    members = done.process_set.ranks or []
    whole = []
    for tensor, count in zip(gathered, done.rows, strict=True):
        even, more = divmod(count, len(members))
        parts = [even + (position < more) for position in range(len(members))]
        counts = [part if member in here else 0 for part, member in zip(parts, members, strict=True)]
        whole.append(ops.glue.placed(tensor, counts, _starts(parts), count))
    return whole


def _starts(counts: Sequence[int]) -> list[int]:
    return [0, *itertools.accumulate(counts)][:-1]


def scatter_factor(
    op: int, process_set: ProcessSet, prescale: float, postscale: float, size: Any = None
) -> Any:
    """What the gathered gradients of a reducescatter are multiplied by; see ``gradient_op``. ValueError for
    a reduction without a gradient. ``size``: of the set, where it is a tensor.
    """
    if op not in (Average, Sum):
        raise ValueError(f"reducescatter has a gradient for Average and Sum, not for {OP_NAMES[op]}.")
    size = process_set.size() or 1 if size is None else size
    of_one_process = 1 / size if _of_one_process() else 1
    return prescale * postscale * (size if op == Sum else 1) * of_one_process
