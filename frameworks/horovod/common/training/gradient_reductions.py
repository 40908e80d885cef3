"""How the gradients of one optimizer travel: with everything resolved beforehand, because an optimizer starts
hundreds of reductions a step, and able to tell whether the program has changed a result that it did not yet
wait for.

Dense gradients of a bucket travel as one operation, compressed or not. With a stateful compressor each goes
on its own, in as many operations as its compressor needs. Sparse ones go each on its own, as two allgathers
and uncompressed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Sequence
from typing import Any, Generic

from horovod import _core
from horovod.common.collective.collectives import Collectives
from horovod.common.collective.compression import NoneCompressor, Packed, is_stateful
from horovod.common.collective.exchange import Exchange, advancing, in_rounds, steps_of
from horovod.common.collective.handles import Entry, bytes_of
from horovod.common.collective.tensor_glue import Purpose, Result, Spec, Tensor
from horovod.common.exceptions import Notice
from horovod.common.process_sets import check_process_set, global_process_set
from horovod.common.reduce_ops import OP_NAMES, Average, Sum
from horovod.common.training.gradient_options import GradientSettings
from horovod.common.training.gradient_status import STATUS_FOLLOWS
from horovod.common.training.gradient_variables import Travelling

_ALLREDUCE = _core.ALLREDUCE

Steps = Generator[int | None, None, None]
"""Starts an operation, pauses, and waits for it when resumed; so on, until the results are in the gradients.
Yields the operation's handle if it overwrites these.
"""


class Unsent(Exception):
    """In place of an operation that this rank could not start, it has sent a notice. ``why`` it could not."""

    def __init__(self, why: Exception) -> None:
        super().__init__(str(why))
        self.why = why


class GradientReductions(Generic[Tensor]):
    """The reductions of the gradients of one optimizer by the operations ``ops`` of one adapter.

    Attributes:
        op: the reduction. Types are not checked: gradients are of floating point.
        compressor: the class, plain or stateful.
        process_set: the ranks.
        describe: that of the adapter's glue.
    """

    def __init__(self, ops: Collectives[Tensor], settings: GradientSettings) -> None:
        self.op = settings.op
        self.compressor = settings.compression
        self.process_set = settings.process_set
        self.describe = ops.glue.describe
        self.ops = ops
        self._factors = settings.prescale, settings.postscale
        self._exchange: Exchange | None = None
        if is_stateful(self.compressor):
            self._exchange = Exchange(ops, self.op, self.process_set)
        self._handle_map = ops._handle_map

    @property
    def way(self) -> tuple[object, ...]:
        """What is equal where gradients come out equal."""
        return self.op, self.compressor, self.process_set, self._factors

    @property
    def is_stateful(self) -> bool:
        """Whether each gradient has a compressor of its own."""
        return self._exchange is not None

    def start(self, gradients: Sequence[Tensor], name: str) -> int:
        """Starts to reduce ``gradients`` over all ranks into themselves, as one operation.

        Args:
            gradients: what is reduced.
            name: of the operation.

        Returns:
            A handle, which is a plain number: the optimizer waits for each of them, or resets all.
        """
        specs = [spec for gradient in gradients if (spec := self.describe(gradient)) is not None]
        if len(specs) == len(gradients):
            kept = gradients if len(gradients) > 1 else gradients[0]
            return self.start_described(specs, kept, bytes_of(specs), name)
        purpose = Purpose(_ALLREDUCE, self.op, *self._factors, of_optimizer=True)
        placements = self.ops.place_group(list(gradients), Result.IN_PLACE, purpose)
        number = check_process_set(self.process_set)
        return self.ops.start(purpose, name, placements, len(placements) > 1, process_set=number)

    def start_described(self, specs: Sequence[Spec], gradients: Any, nbytes: int, name: str) -> int:
        """As ``start``, of ``gradients`` whose descriptions are at hand, and their bytes. The hot path."""
        prescale, postscale = self._factors
        process_set = self.process_set
        number = 0 if process_set is global_process_set else check_process_set(process_set)
        entry: Entry = (None, gradients, nbytes)
        try:
            return _core.submit_for(
                self._handle_map,
                entry,
                _ALLREDUCE,
                name,
                specs,
                self.op,
                prescale,
                postscale,
                0,
                number,
                None,
                None,
                1,
            )
        except BaseException:
            self._lose(entry)
            raise

    def changed(self, handle: int) -> bool:
        """Whether the program has written to gradients after they were reduced, as far as a sample of their
        elements tells. False while they are being reduced.
        """
        return handle >= 0 and _core.changed(handle)

    def finish(self, handle: int) -> None:
        """Waits for what ``start`` has started, as ``synchronize``."""
        entry = self._handle_map.get(handle)
        if entry is None or entry[0] is not None or handle < 0:
            self.ops.synchronize(handle)
            return
        try:
            _core.wait(handle)
        except BaseException as error:
            self.ops._failed(handle, error)
            raise
        _core.forget(handle, self._handle_map)

    def send(self, name: str, bucket: Sequence[Travelling[Tensor]]) -> Steps:
        """Reduces the gradients of one bucket, all that takes. What goes first has its ``name``; the rest
        follows when that has succeeded. Raises Unsent on a rank that cannot send its part, Notice on the
        others.
        """
        stateful = self.is_stateful
        alone = [each for each in bucket if stateful or each.is_sparse]
        dense = [each for each in bucket if each not in alone] if alone else bucket
        if dense:
            yield from self._or_notice(name, self._dense(name, dense))
        else:
            yield from self._or_notice(name, self._alone(name, alone.pop(0)))
        if alone:
            names = [f"{name}.{each.name}" for each in alone]
            rest = [
                self._or_notice(own, self._alone(own, each)) for own, each in zip(names, alone, strict=True)
            ]
            yield from in_rounds(map(advancing, rest))

    def _or_notice(self, name: str, steps: Steps) -> Steps:
        """``steps``, whose first operation is ``name``. If that cannot be started, the other ranks must not
        wait for it.
        """
        try:
            handle = next(steps)
        except Exception as problem:
            error: Exception = problem
            if isinstance(problem, StopIteration):
                error = TypeError(
                    f"{self.compressor.__name__} has started no operation: its generator must start at least "
                    "one on every rank, and yield the handle"
                )
            notice = self.ops.start_notice(name, STATUS_FOLLOWS, self.process_set)
            yield None
            with contextlib.suppress(Notice):
                self.ops.synchronize(notice)
            raise Unsent(error) from error
        yield handle
        yield from steps

    def _dense(self, name: str, bucket: Sequence[Travelling[Tensor]]) -> Steps:
        gradients = [each.dense_gradient() for each in bucket]
        packed = Packed(self.compressor, gradients)
        handle = self.start(packed.tensors, name)
        yield handle if self.compressor is NoneCompressor else None
        self.finish(handle)
        for each, gradient, result in zip(bucket, gradients, packed.unpacked(), strict=True):
            if result is not gradient:
                each.take(result)

    def _alone(self, name: str, each: Travelling[Tensor]) -> Steps:
        exchange = self._exchange
        return self._sparse(name, each) if exchange is None else self._compressed(name, each, exchange)

    def _compressed(self, name: str, each: Travelling[Tensor], exchange: Exchange) -> Steps:
        each.take((yield from steps_of(each.compressor, each.dense_gradient(), name, exchange)))

    def _sparse(self, name: str, each: Travelling[Tensor]) -> Steps:
        if self.op not in (Average, Sum):
            raise ValueError(
                f"The gradient of parameter {each.name!r} is sparse, which op=hvd.{OP_NAMES[self.op]} "
                "cannot reduce; give DistributedOptimizer(sparse_as_dense=True), or sparse=False to the layer"
            )
        finish = each.start_sparse(name)
        yield None
        finish()

    def _lose(self, entry: Entry) -> None:
        """A signal handler has raised when the operation had perhaps begun: nobody knows its number."""
        for handle in [handle for handle, kept in list(self._handle_map.items()) if kept is entry]:
            self.ops.drop(handle)


def finish_all(reductions: Iterable[Steps]) -> None:
    """Brings reductions to their end, started or not; see ``in_rounds``. Where a rank cannot send its part it
    raises why, and the others RuntimeError.
    """
    try:
        for _ in in_rounds(map(advancing, reductions)):
            pass
    except Unsent as unsent:
        raise unsent.why from None
    except Notice:
        raise RuntimeError(
            "A gradient could not be submitted on another rank, so all ranks give this step up."
        ) from None
