"""Barriers, join and the removal of a process set: what ranks call together without an array.

All first wait until the core knows the operations that the program has called before, so that these come
first also on the core. That takes as long as MXNet's engine needs to
compute their inputs; the operations themselves may still be under way.
"""

from __future__ import annotations

from horovod.common import process_sets
from horovod.common.collective.byte_objects import operations
from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set
from horovod.common.set_agreement import exchange
from horovod.mxnet.engine import called_on, count_from_the_start, until_ended, until_submitted

_REMOVAL = "horovod.mxnet.remove_process_set"  # reserved


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until every rank of a process set has called it.

    Args:
        process_set: These ranks.
    """
    check_process_set(process_set)
    until_submitted()
    operations.barrier(process_set)


def join() -> int:
    """Says that this rank has no more data, and waits until every rank has said so.

    Until then it takes part in every operation of every process set that it belongs to: with zeros in a Sum
    or Average (which still divides by the full size), with the neutral element in a Min, Max or Product, with
    nothing in an allgather, alltoall or reducescatter. A broadcast from it is an error. Afterwards all
    operations are available again.

    Returns:
        The last rank to say so.
    """
    until_submitted()
    last = operations.join()
    count_from_the_start()  # of those without a name this rank has called fewer than others
    return last


def remove_process_set(process_set: ProcessSet) -> bool:
    """Forgets a set; all ranks of the job must call it together. The object may be registered again later.

    Waits for the operations on the set that all its ranks have called and that MXNet's engine still runs.
    Needs the setting that ``add_process_set`` needs.

    Args:
        process_set: What ``add_process_set`` has returned.

    Returns:
        False, and nothing is done, for the global set and for one that is not registered.

    Raises:
        ValueError: With one text on every rank, when a rank has called an operation on it that another one
            has not.
    """
    until_submitted()
    if process_set is not global_process_set and process_set.included():
        _until_complete(check_process_set(process_set))
    return process_sets.remove_process_set(process_set)


def _until_complete(number: int) -> None:
    """Where the ranks have not called equally many operations, some cannot end, and nobody waits."""
    called = exchange(called_on(number), _REMOVAL, number)
    if len(set(called.values())) == 1:
        until_ended(number)
