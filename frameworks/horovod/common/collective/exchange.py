"""How stateful compressors reach the other ranks, and how reductions of many gradients go on together."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from horovod import _core
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import OP_NAMES, Average, Sum


def part(name: str | None, label: str) -> str | None:
    """The name of one of several operations on what ``name`` names; None for what has no name."""
    return None if name is None else f"{name}.{label}"


class Exchange:
    """The operations of one adapter, for one reduction over one process set.

    ``op`` is Average or Sum, ``size`` how many ranks take part.
    """

    def __init__(
        self, operations: Any, op: int = Average, process_set: ProcessSet = global_process_set
    ) -> None:
        if op not in (Average, Sum):
            raise ValueError(
                f"this compression reduces by Average or Sum, not by {OP_NAMES.get(op, op)}; "
                "use hvd.Compression.none, fp16 or bf16"
            )
        self.op = op
        self.process_set = process_set
        self._operations = operations

    @property
    def size(self) -> int:
        """How many ranks take part."""
        size = self.process_set.size()
        if size is None:
            _core.check_running()  # says why
            raise ValueError(f"{self.process_set} is not registered with this job")
        return size

    def allreduce_async(self, tensor: Any, name: str | None, op: int | None = None) -> int:
        """Starts to reduce ``tensor`` into a new tensor, by ``op`` or by the operation of this exchange."""
        op = self.op if op is None else op
        return self._operations.allreduce_async(tensor, None, name, op, process_set=self.process_set)

    def allgather_async(self, tensor: Any, name: str | None) -> int:
        """Starts to concatenate the ranks' tensors along the first dimension. Ranks that have joined
        contribute nothing. All ranks must reduce by the same operation.
        """
        return self._operations.gather_to_reduce_async([tensor], name, self.op, self.process_set)

    def of_sum(self, total: Any) -> Any:
        """The result of the reduction, given the sum of all contributions."""
        return total / self.size if self.op == Average else total

    def synchronize(self, handle: int) -> Any:
        """Waits for an operation and returns its result."""
        return self._operations.synchronize(handle)


class CompressedReduction:
    """One gradient on its way: the generator of a compressor, and the operation that it waits for.

    Constructing it starts the first operations. An error is kept until ``result``.
    """

    __slots__ = ("_error", "_exchange", "_generator", "_handle", "_result")

    def __init__(self, compressor: Any, gradient: Any, name: str | None, exchange: Exchange) -> None:
        """``compressor``: the instance that belongs to this gradient."""
        self._exchange = exchange
        self._generator = compressor.reduce(gradient, name, exchange)
        self._handle: int | None = None
        self._result: Any = None
        self._error: Exception | None = None
        self._go_on(self._generator.send, None)

    @property
    def in_flight(self) -> bool:
        """Whether there is something to wait for."""
        return self._handle is not None

    def advance(self) -> None:
        """Waits for the current operation and goes on to the next one."""
        if self._handle is None:
            return
        try:
            result = self._exchange.synchronize(self._handle)
        except Exception as error:
            self._go_on(self._generator.throw, error)
        else:
            self._go_on(self._generator.send, result)

    def result(self) -> Any:
        """The reduced gradient. Raises what went wrong on the way."""
        while self._handle is not None:
            self.advance()
        if self._error is not None:
            raise self._error
        return self._result

    def _go_on(self, resume: Any, value: Any) -> None:
        self._handle = None
        try:
            self._handle = resume(value)
        except StopIteration as end:
            self._result = end.value
        except Exception as error:
            self._error = error


def advance_all(reductions: Iterable[CompressedReduction]) -> None:
    """Brings all to their end, in rounds: each one's next operation is started before any is waited for
    again. Afterwards ``result`` of each returns, or raises, at once.
    """
    pending = [reduction for reduction in reductions if reduction.in_flight]
    while pending:
        for reduction in pending:
            reduction.advance()
        pending = [reduction for reduction in pending if reduction.in_flight]


def reduce_once(
    compression: Any,
    tensors: Sequence[Any],
    names: Sequence[str | None],
    exchange: Exchange,
    prescale: float = 1.0,
    postscale: float = 1.0,
    multiply: Callable[[Any, float], Any] = operator.mul,
) -> list[Any]:
    """Reduces ``tensors`` with fresh compressors of the class ``compression``: no memory of earlier calls.
    ``multiply``: applies the factors.
    """
    scaled = tensors if prescale == 1.0 else [multiply(tensor, prescale) for tensor in tensors]
    reductions = [
        CompressedReduction(compression(), tensor, name, exchange)
        for tensor, name in zip(scaled, names, strict=True)
    ]
    advance_all(reductions)
    results = [reduction.result() for reduction in reductions]
    return results if postscale == 1.0 else [multiply(result, postscale) for result in results]
