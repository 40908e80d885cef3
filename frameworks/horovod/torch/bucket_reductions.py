"""The reduction of a bucket that takes more than one operation, or more than memory to send: a generator that
starts an operation, pauses, and when resumed waits for it. It ends with the results in the gradients.

Dense gradients of a bucket travel as one operation, compressed or not. With a stateful compressor each member
goes on its own, in as many operations as its compressor needs. Sparse ones go each on its own, as two
allgathers and uncompressed, once the ranks have agreed on which those are. What goes first has the bucket's
name; the rest follows when that has succeeded.

A rank with news sends its status under the bucket's name, where the usual operation of the bucket would be:
see ``common.training.gradient_status``. When all do so, all know it. Otherwise their operations do not match,
and then all send their status after it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

from horovod.common.collective.compression import NoneCompressor
from horovod.common.collective.exchange import CompressedReduction, Exchange
from horovod.common.exceptions import TensorMismatchError
from horovod.common.reduce_ops import OP_NAMES, Average, Sum
from horovod.common.training.gradient_buckets import Packed, in_rounds
from horovod.common.training.gradient_status import DENSE, SPARSE, Status, decoded, encoded, found_kinds
from horovod.torch.gradient_hooks import GradientHook
from horovod.torch.operations import gradient_reductions, ops
from horovod.torch.tensors import from_bytes, to_bytes

if TYPE_CHECKING:
    from horovod.torch.buckets import Bucket

Steps = Generator[int | None, None, None]
"""Starts an operation, pauses, and waits for it when resumed. Yields its handle if it overwrites them."""

_LIKE_NO_GRADIENT = (1, 1, 1)  # rows of a shape that nothing has which compressors send


def reduce_bucket(bucket: Bucket, mismatch: TensorMismatchError | None = None) -> Steps:
    """Reduces the gradients of one bucket.

    Args:
        bucket: the bucket.
        mismatch: what its operation has met, if that was tried: because some rank has something to tell, as
            that its gradient is sparse, or for a reason that the caller must hear of.
    """
    if mismatch is None:
        try:
            if not _has_news(bucket):
                yield from _send(bucket)
                return
            handle = _start_telling(bucket, bucket.name, _LIKE_NO_GRADIENT)
            yield None
            table = decoded(to_bytes(ops.synchronize(handle)))
        except TensorMismatchError as error:
            mismatch = error
    if mismatch is not None:
        handle = _start_telling(bucket, f"{bucket.name}.status")
        yield None
        table = decoded(to_bytes(ops.synchronize(handle)))
        if all(map(Status.is_usual, table.values())):
            raise mismatch
    if _learn(bucket, table):
        yield from _send(bucket)


def failed(error: Exception) -> Steps:
    """In place of a reduction that could not be started."""
    raise error
    yield


def _has_news(bucket: Bucket) -> bool:
    is_told = bucket.reducer.take_news()
    return is_told or any(not hook.kind & hook.expected for hook in bucket.members)


def _start_telling(bucket: Bucket, name: str, rows: Sequence[int] = ()) -> int:
    reducer = bucket.reducer
    message = from_bytes(encoded([hook.kind for hook in bucket.members], reducer.news))
    return ops.allgather_async(message.view(-1, *rows), name, reducer.process_set)


def _learn(bucket: Bucket, table: dict[int, Status]) -> bool:
    """What the ranks have told. Returns whether any has a gradient. Raises what ``found_kinds`` does."""
    found = found_kinds([hook.name for hook in bucket.members], table)
    if found is None:
        return False
    for hook, kinds in zip(bucket.members, found, strict=True):
        hook.learn(kinds)
        bucket.reducer.found |= kinds
    return any(kinds & (DENSE | SPARSE) for kinds in found)


def _send(bucket: Bucket) -> Steps:
    exchange = bucket.reducer.exchange
    dense = [hook for hook in bucket.members if exchange is None and not hook.is_sparse]
    alone = [hook for hook in bucket.members if hook not in dense]
    name = bucket.name
    if dense:
        yield from _dense(name, dense)
    else:
        yield from _alone(name, alone.pop(0), exchange)
    yield from in_rounds([_advance(_alone(f"{name}.{hook.name}", hook, exchange)) for hook in alone])


def _advance(steps: Steps) -> Callable[[], bool]:
    return lambda: next(steps, steps) is steps


def _dense(name: str, hooks: Sequence[GradientHook]) -> Steps:
    reducer = hooks[0].bucket.reducer
    gradients = [hook.dense_gradient() for hook in hooks]
    packed = Packed(reducer.compressor, gradients)
    handle = gradient_reductions.start(packed.tensors, name, reducer.how)
    yield handle if reducer.compressor is NoneCompressor else None
    ops.synchronize(handle)
    for gradient, result in zip(gradients, packed.unpacked(), strict=True):
        if result is not gradient:
            gradient.detach().copy_(result)


def _alone(name: str, hook: GradientHook, exchange: Exchange | None) -> Steps:
    return _sparse(name, hook) if exchange is None else _compressed(name, hook, exchange)


def _compressed(name: str, hook: GradientHook, exchange: Exchange) -> Steps:
    gradient = hook.dense_gradient()
    under_way = CompressedReduction(hook.compressor, gradient.detach(), name, exchange)
    while under_way.in_flight:
        yield None
        under_way.advance()
    gradient.detach().copy_(under_way.result())


def _sparse(name: str, hook: GradientHook) -> Steps:
    """One gradient as two allgathers, of the indices and of the values."""
    op, process_set = hook.bucket.reducer.how.op, hook.bucket.reducer.process_set
    if op not in (Average, Sum):
        raise ValueError(
            f"The gradient of parameter {hook.name!r} is sparse, which op=hvd.{OP_NAMES[op]} "
            "cannot reduce; give DistributedOptimizer(sparse_as_dense=True), or sparse=False to the layer"
        )
    gradient = hook.sparse_gradient()
    finish = ops.sparse_allreduce_async(gradient, name, op, process_set)
    yield None
    hook.parameter.grad = finish().coalesce()
