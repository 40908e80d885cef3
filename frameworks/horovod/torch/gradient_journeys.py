"""The ways of gradients that take more than one operation or more than memory to send: generators that start
an operation, pause, and when resumed wait for it. They end with the results in the gradients.

Dense gradients of a group travel as one operation, compressed or not. With a stateful compressor each member
goes on its own, in as many operations as its compressor needs. Sparse ones go each on its own, as two
allgathers and uncompressed, once the ranks have agreed on which those are (``sparse_gradients``).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence

from horovod.common.compression import NoneCompressor
from horovod.common.exceptions import TensorMismatchError
from horovod.common.exchange import CompressedReduction, Exchange
from horovod.torch.gradient_hooks import GradientHook, Reduction
from horovod.torch.operations import ops
from horovod.torch.sparse_gradients import agree_on_layouts, exchange_layouts, reduce_sparse

Journey = Generator[None, None, None]


def journey(name: str, hooks: Sequence[GradientHook], reduction: Reduction) -> Journey:
    """The gradients of one group, ``name``."""
    exchange = reduction.exchange
    if exchange is not None:
        yield from _together([_compressed(_own_name(name, hook, hooks), hook, exchange) for hook in hooks])
        return
    undecided = [] if reduction.sparse_as_dense else [hook for hook in hooks if hook.sparse is None]
    if any(hook.gradient_is_sparse for hook in undecided):
        yield from agree_on_layouts(name, hooks, reduction)
    try:
        yield from _send(name, hooks, reduction)
    except TensorMismatchError as error:
        yield from after_mismatch(name, hooks, reduction, error)


def after_mismatch(
    name: str, hooks: Sequence[GradientHook], reduction: Reduction, mismatch: TensorMismatchError
) -> Journey:
    """Goes on after the ranks' operations did not match: because some had a sparse gradient where others had
    none or a dense one, or for a reason that the caller must hear of.
    """
    if reduction.sparse_as_dense or any(hook.sparse is not None for hook in hooks):
        raise mismatch
    yield from exchange_layouts(name, hooks, reduction)
    if not any(hook.sparse is not None for hook in hooks):
        raise mismatch
    yield from _send(name, hooks, reduction)


def _send(name: str, hooks: Sequence[GradientHook], reduction: Reduction) -> Journey:
    dense = [hook for hook in hooks if not hook.sparse]
    ways = [reduce_sparse(_own_name(name, hook, hooks), hook, reduction) for hook in hooks if hook.sparse]
    if dense:
        ways.append(_dense(name, dense, reduction))
    yield from _together(ways)


def _dense(name: str, hooks: Sequence[GradientHook], reduction: Reduction) -> Journey:
    gradients = [hook.dense_gradient() for hook in hooks]
    sent, contexts = gradients, None
    compressor = reduction.compressor
    if compressor is not NoneCompressor:
        pairs = [compressor.compress(gradient) for gradient in gradients]
        sent, contexts = [tensor for tensor, _ in pairs], [context for _, context in pairs]
    rest = (None, name, reduction.op, reduction.prescale, reduction.postscale, reduction.process_set)
    handle = (
        ops.allreduce_async_(sent[0], *rest) if len(sent) == 1 else ops.grouped_allreduce_async_(sent, *rest)
    )
    versions = [gradient._version for gradient in gradients]
    yield
    found = [gradient._version for gradient in gradients]
    ops.synchronize(handle)  # which may write to gradients on a GPU
    for hook, gradient, before, after in zip(hooks, gradients, versions, found, strict=True):
        if before != after:
            hook.refuse_change(gradient)
    if contexts is None:
        return
    for gradient, tensor, context in zip(gradients, sent, contexts, strict=True):
        result = compressor.decompress(tensor, context)
        if result is not gradient:
            gradient.detach().copy_(result)


def _compressed(name: str, hook: GradientHook, exchange: Exchange) -> Journey:
    gradient = hook.dense_gradient()
    under_way = CompressedReduction(hook.compressor, gradient.detach(), name, exchange)
    while under_way.in_flight:
        yield
        under_way.advance()
    gradient.detach().copy_(under_way.result())


def _own_name(name: str, hook: GradientHook, hooks: Sequence[GradientHook]) -> str:
    return name if len(hooks) == 1 else f"{name}.{hook.name}"


def _together(ways: Iterable[Journey]) -> Journey:
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
