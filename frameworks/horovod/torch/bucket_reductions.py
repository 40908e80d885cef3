"""The reductions of buckets that take more than one operation, or more than memory to send: generators that
start an operation, pause, and when resumed wait for it. They end with the results in the gradients.

Dense gradients of a bucket travel as one operation, compressed or not. With a stateful compressor each member
goes on its own, in as many operations as its compressor needs. Sparse ones go each on its own, as two
allgathers and uncompressed, once the ranks have agreed on which those are. What goes first has the bucket's
name; the rest follows when that has succeeded.

A rank learns things that the others do not know: a backward pass shows it a sparse gradient, the program has
frozen a parameter, or has changed a gradient while it was being reduced. No step has a message for that, so
such a rank sends its *status* under the bucket's name where the usual operation of the bucket would be, or
after it. The others do the same when they have met the same; otherwise their operation does not match, and
they send theirs then. Afterwards all know the status of all, and decide alike.

Whether a gradient is sparse is decided once: one that is sparse somewhere and dense nowhere travels as a
sparse one from then on, every other as a dense one.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Sequence

import torch

from horovod.common import basics
from horovod.common.collective.compression import NoneCompressor
from horovod.common.collective.exchange import CompressedReduction, Exchange
from horovod.common.exceptions import TensorMismatchError
from horovod.common.reduce_ops import OP_NAMES, Average, Sum
from horovod.common.set_agreement import listed, ranks_text
from horovod.torch.gradient_hooks import GradientHook, Reduction
from horovod.torch.operations import gradient_reductions, ops
from horovod.torch.tensors import from_bytes, to_bytes

Steps = Generator[int | None, None, None]
"""Starts an operation, pauses, and waits for it when resumed. Yields its handle if it overwrites them."""

Agreeing = Generator[None, None, bool]
"""Likewise; returns what ``agree`` returns."""

_DENSE, _ABSENT, _SPARSE, _FROZEN = range(4)

_LENGTH_BYTES = 4
_LIKE_NO_GRADIENT = (1, 1, 1)  # rows of a shape that nothing has which compressors send
_MOST_NAMES = 5

# The codes of the members; of the whole optimizer: what is thawed and changed, and why no step is made.
Status = tuple[list[int], list[str], list[str], str]

FAILED, DROPPED = "failed", "dropped"
"""Why a rank makes no step: its backward pass has failed, or the program has dropped the gradients."""


def reduce_bucket(name: str, hooks: Sequence[GradientHook], reduction: Reduction) -> Steps:
    """Reduces the gradients of one bucket, ``name``."""
    undecided = [] if reduction.sparse_as_dense else [hook for hook in hooks if hook.sparse is None]
    if (
        reduction.take_news()
        or any(hook.trained != hook.parameter.requires_grad for hook in hooks)
        or any(hook.gradient_is_sparse for hook in undecided)
        or any(hook.missing and not hook.partial for hook in hooks)
    ):
        nobodys = yield from agree(name, hooks, reduction)
        if nobodys:
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
    nobodys = yield from learn(name, hooks, reduction, mismatch)
    if not nobodys:
        yield from _send(name, hooks, reduction)


def _send(name: str, hooks: Sequence[GradientHook], reduction: Reduction) -> Steps:
    sparse = [hook for hook in hooks if hook.sparse]
    dense = [hook for hook in hooks if not hook.sparse]
    if dense and reduction.exchange is None:
        yield from _dense(name, dense, reduction)
        alone = sparse
    else:
        yield from _alone(name, hooks[0], reduction)
        alone = list(hooks[1:])
    yield from _together([_alone(f"{name}.{hook.name}", hook, reduction) for hook in alone])


def _alone(name: str, hook: GradientHook, reduction: Reduction) -> Steps:
    exchange = reduction.exchange
    return _sparse(name, hook, reduction) if exchange is None else _compressed(name, hook, exchange)


def _dense(name: str, hooks: Sequence[GradientHook], reduction: Reduction) -> Steps:
    gradients = [hook.dense_gradient() for hook in hooks]
    sent, contexts = gradients, None
    compressor = reduction.compressor
    if compressor is not NoneCompressor:
        pairs = [compressor.compress(gradient) for gradient in gradients]
        sent, contexts = [tensor for tensor, _ in pairs], [context for _, context in pairs]
    if len(sent) == 1:
        handle = gradient_reductions.start(sent[0], name, reduction.how)
    else:
        handle = gradient_reductions.start_group(sent, name, reduction.how)
    yield handle if sent is gradients else None
    ops.synchronize(handle)
    if contexts is None:
        return
    for gradient, tensor, context in zip(gradients, sent, contexts, strict=True):
        result = compressor.decompress(tensor, context)
        if result is not gradient:
            gradient.detach().copy_(result)


def _compressed(name: str, hook: GradientHook, exchange: Exchange) -> Steps:
    gradient = hook.dense_gradient()
    under_way = CompressedReduction(hook.compressor, gradient.detach(), name, exchange)
    while under_way.in_flight:
        yield None
        under_way.advance()
    gradient.detach().copy_(under_way.result())


def _sparse(name: str, hook: GradientHook, reduction: Reduction) -> Steps:
    """One gradient as two allgathers, of the indices and of the values."""
    if reduction.op not in (Average, Sum):
        raise ValueError(
            f"The gradient of parameter {hook.name!r} is sparse, which op=hvd.{OP_NAMES[reduction.op]} "
            "cannot reduce; give DistributedOptimizer(sparse_as_dense=True), or sparse=False to the layer"
        )
    gradient = hook.sparse_gradient()
    finish = ops.sparse_allreduce_async(gradient, name, reduction.op, reduction.process_set)
    yield None
    hook.parameter.grad = finish().coalesce()


def _together(reductions: Iterable[Steps]) -> Steps:
    """Several at once: all are started before any is waited for. Raises the first error when all are done."""
    first_error: Exception | None = None
    pending = list(reductions)
    while pending:
        unfinished = []
        for each in pending:
            try:
                next(each)
                unfinished.append(each)
            except StopIteration:
                continue
            except Exception as error:
                first_error = first_error or error
        pending = unfinished
        if pending:
            yield None
    if first_error is not None:
        raise first_error


def agree(name: str, hooks: Sequence[GradientHook], reduction: Reduction) -> Agreeing:
    """For a rank that has something to tell.

    Afterwards ``sparse``, ``trained`` and ``partial`` of every hook are set.

    Returns:
        Whether there is nothing to reduce: no rank has a gradient for any of the members, or trains them, or
        all ranks have dropped theirs.

    Raises:
        TensorMismatchError: some ranks train a parameter that others do not; on all ranks.
        RuntimeError: a rank has changed a gradient in flight, or makes no step; on all ranks.
    """
    message = _message(hooks, reduction).view(-1, *_LIKE_NO_GRADIENT)
    handle = ops.allgather_async(message, name, reduction.process_set)
    yield
    try:
        gathered = ops.synchronize(handle)
    except TensorMismatchError:
        return (yield from _exchange(name, hooks, reduction))
    return _decide(hooks, reduction, _read(gathered))


def learn(
    name: str, hooks: Sequence[GradientHook], reduction: Reduction, mismatch: TensorMismatchError
) -> Agreeing:
    """For a rank whose operation has met a ``mismatch``; as ``agree``. Raises it when no rank has anything to
    tell.
    """
    return (yield from _exchange(name, hooks, reduction, mismatch))


def _exchange(
    name: str,
    hooks: Sequence[GradientHook],
    reduction: Reduction,
    mismatch: TensorMismatchError | None = None,
) -> Agreeing:
    message = _message(hooks, reduction)
    handle = ops.allgather_async(message, name + ".status", reduction.process_set)
    yield
    table = _read(ops.synchronize(handle))
    if mismatch is not None and not any(map(_tells, table.values())):
        raise mismatch
    return _decide(hooks, reduction, table)


def _tells(status: Status) -> bool:
    codes, *rest = status
    return any(rest) or any(codes)


def _code(hook: GradientHook) -> int:
    if not hook.parameter.requires_grad:
        return _FROZEN
    if hook.missing:
        return _ABSENT
    return _SPARSE if hook.gradient_is_sparse else _DENSE


def _message(hooks: Sequence[GradientHook], reduction: Reduction) -> torch.Tensor:
    status = [_code(hook) for hook in hooks], sorted(reduction.thawed), reduction.changed, reduction.given_up
    text = json.dumps([basics.rank(), *status]).encode()
    return from_bytes(len(text).to_bytes(_LENGTH_BYTES, "little") + text)


def _read(gathered: torch.Tensor) -> dict[int, Status]:
    data, start, table = to_bytes(gathered), 0, {}
    while start < len(data):
        begin = start + _LENGTH_BYTES
        start = begin + int.from_bytes(data[begin - _LENGTH_BYTES : begin], "little")
        rank, codes, thawed, changed, given_up = json.loads(data[begin:start])
        table[rank] = (codes, thawed, changed, given_up)
    return table


def _decide(hooks: Sequence[GradientHook], reduction: Reduction, table: dict[int, Status]) -> bool:
    if _given_up({rank: given_up for rank, (_, _, _, given_up) in sorted(table.items())}):
        return True
    check_changed({rank: changed for rank, (_, _, changed, _) in sorted(table.items()) if changed})
    check_thawed({rank: thawed for rank, (_, thawed, _, _) in table.items()})
    sparse = not reduction.sparse_as_dense and any(_SPARSE in codes for codes, *_ in table.values())
    for position, hook in enumerate(hooks):
        codes = {rank: codes[position] for rank, (codes, *_) in table.items()}
        _check_frozen(hook.name, codes)
        found = set(codes.values())
        hook.trained = _FROZEN not in found
        reduction.froze |= not hook.trained
        hook.partial |= _ABSENT in found
        reduction.partial |= hook.partial
        if sparse:
            hook.sparse = _SPARSE in found and _DENSE not in found
    return all(code in (_ABSENT, _FROZEN) for codes, *_ in table.values() for code in codes)


def _given_up(reasons: dict[int, str]) -> bool:
    """Whether all ranks have dropped the gradients. Raises when some make no step and others do."""
    failed = [rank for rank, reason in reasons.items() if reason == FAILED]
    if failed:
        raise RuntimeError(
            f"The backward pass failed on {ranks_text(failed)}, so all ranks give this step up. Call "
            "optimizer.zero_grad() and go on with the next batch."
        )
    dropped = [rank for rank, reason in reasons.items() if reason == DROPPED]
    if dropped and len(dropped) < len(reasons):
        raise RuntimeError(
            f"zero_grad() was called between loss.backward() and optimizer.step() on {ranks_text(dropped)} "
            "and not on the other ranks, so all ranks give this step up. Leave a step out on all ranks or on "
            "none: let them agree on it, by hvd.allreduce of a flag for example."
        )
    return bool(dropped)


def check_changed(changed: dict[int, list[str]]) -> None:
    """Raises if the program has changed gradients in flight; ``changed`` says which, by rank."""
    if changed:
        names = list(dict.fromkeys(name for theirs in changed.values() for name in theirs))
        shown = ", ".join(map(repr, names[:_MOST_NAMES])) + (", ..." if len(names) > _MOST_NAMES else "")
        raise RuntimeError(
            f"The gradient of {shown} was changed between loss.backward() and optimizer.step(), while it was "
            f"being reduced (on {ranks_text(list(changed))}). To clip, unscale or replace gradients, call "
            "optimizer.synchronize() first and optimizer.step() within optimizer.skip_synchronize(), or make "
            "the optimizer with synchronize_in_backward=True."
        )


def check_thawed(thawed: dict[int, list[str]]) -> None:
    """Raises if the ranks have begun to train different parameters, which ``thawed`` has, by rank."""
    if len({tuple(names) for names in thawed.values()}) > 1:
        texts = {rank: ", ".join(map(repr, names)) or "none" for rank, names in thawed.items()}
        raise TensorMismatchError(
            f"The ranks have begun to train different parameters: {listed(texts)}. Set requires_grad of a "
            "parameter in the same step on all ranks."
        )


def _check_frozen(name: str, codes: dict[int, int]) -> None:
    frozen = [code == _FROZEN for code in codes.values()]
    if any(frozen) and not all(frozen):
        texts = {rank: f"requires_grad={code != _FROZEN}" for rank, code in codes.items()}
        raise TensorMismatchError(
            f"The ranks do not train the same parameters: {name!r} has {listed(texts)}. Freeze a parameter "
            "in the same step on all ranks."
        )
