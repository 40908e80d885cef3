"""Which bucket each parameter belongs to, over all optimizers that are alive.

The optimizer that was made last reduces the gradients of its parameters. An older one that trains some of
them too goes on with the buckets of the newer, so that each gradient is reduced once for both, if both reduce
in the same way; otherwise it is *detached*: it reduces nothing any more, and its next step says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from horovod.common.training.gradient_buckets import Bucket

if TYPE_CHECKING:
    from horovod.torch.gradient_reducer import GradientReducer

_by_parameter: dict[int, Bucket] = {}
owners: list[GradientReducer] = []

shared: set[Bucket] = set()
"""The buckets that several optimizers step with."""


def adopt(owner: GradientReducer, buckets: list[Bucket]) -> None:
    """Gives ``owner`` new buckets, and them their parameters, whichever buckets they belonged to before."""
    members = [hook for new in buckets for hook in new.members]
    taken = {before for hook in members if (before := bucket_of(hook.parameter))}
    former = sorted(taken, key=lambda bucket: bucket.name)  # all ranks end them in one order
    if former:
        former[0].reducer.give_up(former)
    # Of a copy: Python finds garbage in any line, and `release` takes owners out then.
    older = [(other, found) for other in list(owners) if (found := _taken_from(other, buckets))]
    owner.buckets += buckets
    for bucket in buckets:
        for hook in bucket.members:
            _take_over(hook.parameter)
            _by_parameter[id(hook.parameter)] = bucket
            hook.attach()
    for other, found in older:
        if other is not owner and other in owners:
            _follow(other, owner, found)
            _hold_one(other)
    _hold_one(owner)


def _hold_one(owner: GradientReducer) -> None:
    """Has the smallest bucket of ``owner`` leave when it synchronizes and not before, on all ranks. Until
    then a rank can tell the others that this step is out of the ordinary, and none of them has made it yet.
    """
    for bucket in owner.buckets:
        bucket.held &= bucket.users > 1
    if owner.buckets:
        min(owner.buckets, key=lambda bucket: (bucket.nbytes, bucket.label)).held = True


def release(owner: GradientReducer) -> None:
    """For an optimizer that is gone: otherwise the parameters would go on reporting to it. It keeps what it
    has made and others step with, whose passes it goes on to count.
    """
    if owner not in owners:
        return
    owners.remove(owner)
    for bucket in owner.buckets:
        _leave(bucket)
    owner.buckets[:] = [bucket for bucket in owner.buckets if bucket.users and bucket.reducer is owner]


def retire(owner: GradientReducer, bucket: Bucket) -> None:
    """Takes a bucket from ``owner``, because its parameters are no longer trained."""
    owner.buckets.remove(bucket)
    _leave(bucket)
    _hold_one(owner)


def bucket_of(parameter: object) -> Bucket | None:
    """The bucket that reduces the gradient of ``parameter``."""
    return _by_parameter.get(id(parameter))


def buckets_made_by(reducer: GradientReducer) -> set[Bucket]:
    """Those that ``reducer`` has made, whichever optimizers step with them."""
    return {bucket for bucket in list(_by_parameter.values()) if bucket.reducer is reducer}


def _way_of(reducer: GradientReducer) -> tuple[object, ...]:
    """What is equal where gradients come out equal."""
    return *reducer.reductions.way, reducer.sparse_as_dense, reducer.passes


def _taken_from(older: GradientReducer, buckets: list[Bucket]) -> list[Bucket]:
    """Those of the new ``buckets`` that take parameters from ``older``, where they were perhaps frozen."""
    own = set(older.buckets)
    frozen = {id(parameter) for _, parameter in older.frozen}
    return [
        bucket
        for bucket in buckets
        if any(bucket_of(hook.parameter) in own or id(hook.parameter) in frozen for hook in bucket.members)
    ]


def _take_over(parameter: Any) -> None:
    before = bucket_of(parameter)
    if before is None:
        return
    for hook in before.members:
        if hook.parameter is parameter:
            hook.detach()
    before.drop(parameter)


def _follow(older: GradientReducer, newer: GradientReducer, buckets: list[Bucket]) -> None:
    """``older`` has lost parameters to ``buckets``."""
    if _way_of(older) != _way_of(newer):
        older.detached = True
        release(older)
        older.buckets.clear()
        return
    for empty in [bucket for bucket in older.buckets if not bucket.members]:
        older.buckets.remove(empty)
        shared.discard(empty)
    for bucket in buckets:
        taken = {id(hook.parameter) for hook in bucket.members}
        older.frozen = [(name, p) for name, p in older.frozen if id(p) not in taken]
        older.buckets.append(bucket)
        bucket.users += 1
        shared.add(bucket)


def _leave(bucket: Bucket) -> None:
    bucket.users -= 1
    if bucket.users <= 1:
        shared.discard(bucket)
    if bucket.users == 0:
        bucket.drop_operation()
        for hook in bucket.members:
            del _by_parameter[id(hook.parameter)]
            hook.detach()
