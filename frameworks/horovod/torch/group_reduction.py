"""The reductions of groups that take more than one operation, or more than memory to send: generators that
start an operation, pause, and when resumed wait for it. They end with the results in the gradients.

Dense gradients of a group travel as one operation, compressed or not. With a stateful compressor each member
goes on its own, in as many operations as its compressor needs. Sparse ones go each on its own, as two
allgathers and uncompressed, once the ranks have agreed on which those are (``gradient_status``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from horovod.common.compression import NoneCompressor
from horovod.common.exceptions import TensorMismatchError
from horovod.common.exchange import CompressedReduction, Exchange
from horovod.common.reduce_ops import OP_NAMES, Average, Sum
from horovod.torch.gradient_hooks import GradientHook, Reduction
from horovod.torch.gradient_status import Steps, agree, learn
from horovod.torch.operations import ops


def reduce_group(name: str, hooks: Sequence[GradientHook], reduction: Reduction) -> Steps:
    """The gradients of one group, ``name``."""
    undecided = [] if reduction.sparse_as_dense else [hook for hook in hooks if hook.sparse is None]
    if (
        reduction.take_news()
        or any(hook.trained != hook.parameter.requires_grad for hook in hooks)
        or any(hook.gradient_is_sparse for hook in undecided)
    ):
        yield from agree(name, hooks, reduction)
        if not any(hook.trained for hook in hooks):
            return
    try:
        yield from _send(name, hooks, reduction)
    except TensorMismatchError as error:
        yield from after_mismatch(name, hooks, reduction, error)


def after_mismatch(
    name: str, hooks: Sequence[GradientHook], reduction: Reduction, mismatch: TensorMismatchError
) -> Steps:
    """Goes on after the ranks' operations did not match: because some rank had something to tell, as that its
    gradient is sparse, or for a reason that the caller must hear of.
    """
    if reduction.exchange is not None:
        raise mismatch
    yield from learn(name, hooks, reduction, mismatch)
    yield from _send(name, hooks, reduction)


def _send(name: str, hooks: Sequence[GradientHook], reduction: Reduction) -> Steps:
    exchange = reduction.exchange
    if exchange is not None:
        ways = [_compressed(_own_name(name, hook, hooks), hook, exchange) for hook in hooks]
    else:
        sparse = [hook for hook in hooks if hook.sparse]
        dense = [hook for hook in hooks if not hook.sparse]
        ways = [_sparse(_own_name(name, hook, hooks), hook, reduction) for hook in sparse]
        if dense:
            ways.append(_dense(name, dense, reduction))
    yield from _together(ways)


def _dense(name: str, hooks: Sequence[GradientHook], reduction: Reduction) -> Steps:
    gradients = [hook.dense_gradient() for hook in hooks]
    sent, contexts = gradients, None
    compressor = reduction.compressor
    if compressor is not NoneCompressor:
        pairs = [compressor.compress(gradient) for gradient in gradients]
        sent, contexts = [tensor for tensor, _ in pairs], [context for _, context in pairs]
    how = (name, *reduction.how)
    handle = ops.reduce_gradient_(sent[0], *how) if len(sent) == 1 else ops.reduce_gradients_(sent, *how)
    versions = [gradient._version for gradient in gradients]
    yield
    changed = sent is gradients and ops.changed(handle)  # what was compressed is overwritten anyway
    for hook, gradient, version in zip(hooks, gradients, versions, strict=True):
        hook.note_change(gradient, version, changed)
    ops.synchronize(handle)  # which may write to gradients on a GPU
    if contexts is None:
        return
    for gradient, tensor, context in zip(gradients, sent, contexts, strict=True):
        result = compressor.decompress(tensor, context)
        if result is not gradient:
            gradient.detach().copy_(result)


def _compressed(name: str, hook: GradientHook, exchange: Exchange) -> Steps:
    gradient = hook.dense_gradient()
    version = gradient._version
    under_way = CompressedReduction(hook.compressor, gradient.detach(), name, exchange)
    while under_way.in_flight:
        yield
        under_way.advance()
    hook.note_change(gradient, version)
    gradient.detach().copy_(under_way.result())


def _sparse(name: str, hook: GradientHook, reduction: Reduction) -> Steps:
    """One gradient as two allgathers, of the indices and of the values."""
    if reduction.op not in (Average, Sum):
        raise ValueError(
            f"The gradient of parameter {hook.name!r} is sparse, which op=hvd.{OP_NAMES[reduction.op]} "
            "cannot reduce; give DistributedOptimizer(sparse_as_dense=True), or sparse=False to the layer"
        )
    before = hook.parameter.grad
    gradient = hook.sparse_gradient()
    finish = ops.sparse_allreduce_async(gradient, name, reduction.op, reduction.process_set)
    yield
    if hook.parameter.grad is not before:
        reduction.changed.append(hook.name)
    hook.parameter.grad = finish().coalesce()


def _own_name(name: str, hook: GradientHook, hooks: Sequence[GradientHook]) -> str:
    return name if len(hooks) == 1 else f"{name}.{hook.name}"


def _together(ways: Iterable[Steps]) -> Steps:
    """Several at once: all are started before any is waited for. Raises the first error when all are done."""
    first_error: Exception | None = None
    pending = list(ways)
    while pending:
        unfinished = []
        for way in pending:
            try:
                next(way)
                unfinished.append(way)
            except StopIteration:
                continue
            except Exception as error:
                first_error = first_error or error
        pending = unfinished
        if pending:
            yield
    if first_error is not None:
        raise first_error
