"""How stateful compressors reach the other ranks, and how reductions of many gradients go on together."""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
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


def steps_of(
    compressor: Any, gradient: Any, name: str | None, exchange: Exchange
) -> Generator[None, None, Any]:
    """Reduces a gradient by the ``compressor`` that belongs to it: pauses when it has started an operation,
    and waits for it when resumed. Returns the reduced gradient.
    """
    running = compressor.reduce(gradient, name, exchange)
    resume, value = running.send, None
    while True:
        try:
            handle = resume(value)
        except StopIteration as end:
            return end.value
        yield
        try:
            resume, value = running.send, exchange.synchronize(handle)
        except Exception as error:
            resume, value = running.throw, error


def in_rounds(reductions: Iterable[Callable[[], bool]]) -> Iterator[None]:
    """Brings several reductions to their end. All go on to their next operation before any of these is waited
    for, so that the operations travel together. Yields between two rounds. Raises the first error after all
    have come to an end.

    Args:
        reductions: each waits for an operation, starts the next one, and tells whether there is none.
    """
    first_error: Exception | None = None
    pending = list(reductions)
    while pending:
        unfinished = []
        for advance in pending:
            try:
                if not advance():
                    unfinished.append(advance)
            except Exception as error:
                first_error = first_error or error
        pending = unfinished
        if pending:
            yield
    if first_error is not None:
        raise first_error


def advancing(steps: Generator[Any, None, None]) -> Callable[[], bool]:
    """What ``in_rounds`` calls, of what pauses when it has started an operation."""
    return lambda: next(steps, steps) is steps


def results_of(reductions: Sequence[Generator[None, None, Any]]) -> list[Any]:
    """The results of reductions, which go on ``in_rounds``."""
    results: list[Any] = [None] * len(reductions)

    def one(place: int, steps: Generator[None, None, Any]) -> Generator[None, None, None]:
        results[place] = yield from steps

    for _ in in_rounds([advancing(one(place, steps)) for place, steps in enumerate(reductions)]):
        pass
    return results


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
    pairs = zip(scaled, names, strict=True)
    results = results_of([steps_of(compression(), tensor, name, exchange) for tensor, name in pairs])
    return results if postscale == 1.0 else [multiply(result, postscale) for result in results]
